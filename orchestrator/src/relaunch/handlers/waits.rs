//! From the agents' reports of waiting ranks to one line in the log.

use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::agent::WaitingRanks;

use crate::events::LogEvent;
use crate::relaunch::action::Action;
use crate::relaunch::machine::Machine;
use crate::relaunch::snapshot::Phase;

impl Machine {
    pub(super) fn ranks_wait(
        &mut self,
        now: Duration,
        node: NodeName,
        generation: Generation,
        waiting: Option<WaitingRanks>,
    ) {
        let healthy = self.position(&node).is_some_and(|at| self.state.nodes[at as usize].is_healthy());
        if healthy && self.ongoing(generation).is_some() {
            self.waits.report(now, node, waiting);
        }
    }

    /// When a wait is to be reported.
    pub(super) fn wait_reported_at(&self) -> Option<Duration> {
        self.state.active.as_ref().filter(|_| self.state.head.phase == Phase::Running)?;
        self.waits.report_at(self.config.waiting_after?, self.config.ranks)
    }

    pub(super) fn check_waits(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.wait_reported_at().is_none_or(|at| now < at) {
            return;
        }
        let Some(active) = &self.state.active else { return };
        if let Some(wait) = self.waits.take(now, self.config.ranks, &active.ended) {
            self.record(LogEvent::RanksWait { generation: self.generation(), wait }, out);
        }
    }
}
