//! From the agents' reports of quiet ranks to the end of a generation that hangs.
//!
//! The stacks of the ranks are saved before anything is killed, because the cause of the hang cannot be found
//! afterwards. That takes seconds, and if a rank has moved by then, the generation goes on.

use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::agent::QuietRank;

use crate::events::LogEvent;
use crate::relaunch::action::Action;
use crate::relaunch::machine::Machine;
use crate::relaunch::watchdog::{Suspicion, Watchdog};

impl Machine {
    /// Passes an observation of ranks to the watchdog, if they are of the generation under way.
    pub(super) fn with_watchdog(&mut self, generation: Generation, note: impl FnOnce(&mut Watchdog)) {
        if self.ongoing(generation).is_some() {
            note(&mut self.watchdog);
        }
    }

    fn judge(&self, now: Duration) -> Option<Suspicion> {
        let active = self.state.active.as_ref()?;
        self.watchdog.judge(now, &self.config, &active.ended)
    }

    pub(super) fn ranks_quiet(
        &mut self,
        now: Duration,
        node: NodeName,
        generation: Generation,
        ranks: Vec<QuietRank>,
        out: &mut Vec<Action>,
    ) {
        let healthy = self.position(&node).is_some_and(|at| self.state.nodes[at as usize].is_healthy());
        if !healthy || self.ongoing(generation).is_none() {
            return;
        }
        let Some(active) = &self.state.active else { return };
        self.watchdog.report(node, ranks, &self.config, &active.ended);
        if self.watchdog.suspicion.is_some() {
            return;
        }
        if let Some(found) = self.judge(now) {
            let (ranks, reason) = (found.ranks(), found.reason.clone());
            self.record(LogEvent::HangSuspected { generation, ranks, reason }, out);
            out.push(Action::SaveStacks { generation, ranks: found.hung.clone() });
            self.watchdog.suspicion = Some(found);
        }
    }

    pub(super) fn stacks_saved(&mut self, now: Duration, generation: Generation, out: &mut Vec<Action>) {
        if self.ongoing(generation).is_none() || self.watchdog.suspicion.take().is_none() {
            return;
        }
        let Some(found) = self.judge(now) else {
            return self.record(LogEvent::HangDismissed { generation }, out);
        };
        let (ranks, reason) = (found.ranks(), found.reason);
        self.record(LogEvent::Hang { generation, ranks, reason: reason.clone() }, out);
        self.note_fact(generation, |active| active.facts.hang = Some(reason.clone()));
        self.end_generation(now, format!("the application hangs: {reason}"), out);
    }
}
