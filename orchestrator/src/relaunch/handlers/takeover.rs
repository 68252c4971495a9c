//! The actions that were under way when an earlier orchestrator died are repeated.

use std::time::Duration;

use crate::events::LogEvent;
use crate::relaunch::action::Action;
use crate::relaunch::machine::Machine;
use crate::relaunch::node_state::{NodeStatus, Starting};
use crate::relaunch::snapshot::Phase;

impl Machine {
    /// Repeats the actions that were under way when an earlier orchestrator died.
    pub(super) fn take_over(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.record(LogEvent::TookOver { generation: self.generation() }, out);
        // Signals are counted from the beginning of this process.
        (self.state.head.signal, self.state.head.signals) = (None, 0);
        self.watchdog.begin(now);
        self.waits.begin();
        for position in 0..self.state.nodes.len() as u32 {
            if self.state.nodes[position as usize].is_starting()
                && let NodeStatus::Starting(starting) = &mut self.state.nodes.change(position).status
            {
                *starting = Starting { lost: starting.lost.take(), ..Starting::first(now) };
                starting.begin(now);
                if let Some(lost) = &mut starting.lost {
                    lost.last_contact = now;
                }
                out.push(Action::StartAgent { node: self.name(position) });
            }
            if self.state.nodes[position as usize].is_down() {
                self.fence(position, out);
            }
            self.note_contact(position, out);
        }
        self.find_restarts();
        self.repeat_supersede(out);
        self.want_nodes(out);
        let generation = self.generation();
        match &self.state.head.phase {
            Phase::Fresh | Phase::Gathering | Phase::Settling { .. } | Phase::Stopping => {}
            Phase::AskingHalt { .. } => out.push(Action::AskHalt { except: Vec::new() }),
            Phase::CheckingAllocation => out.push(Action::CheckAllocation),
            Phase::AwaitingNodes => self.await_nodes(out),
            // Commands that did not succeed are run again on the nodes that are healthy then.
            Phase::RunningBefore { .. } => self.set_phase(Phase::Gathering),
            Phase::Preparing => {
                let nodes = (0u32..).zip(&self.state.nodes).filter(|(_, node)| !node.is_out());
                let waiting: Vec<u32> = nodes.map(|(position, _)| position).collect();
                self.state.waiting.replace(waiting);
                let to = self.names_of(self.healthy_nodes());
                out.push(Action::Prepare { generation, placement: self.current_placement(), to });
            }
            // A step whose start was not recorded may run for long: it is lost only if its supervisor wrote nothing.
            Phase::Running => {
                out.push(Action::FollowStep { generation, placement: self.current_placement() });
                self.repeat_halt(out);
                // The earlier orchestrator may have died while it sent a new address of an agent to the others.
                self.pending_updates.adopted.extend(
                    (0u32..)
                        .zip(&self.state.nodes)
                        .filter_map(|(position, node)| node.is_healthy().then_some(position)),
                );
            }
            Phase::Ending { .. } => {
                let up = |position: &&u32| self.state.nodes[**position as usize].is_healthy();
                let to = self.names_of(self.state.unkilled.iter().filter(up).copied());
                let unanswered = self.names_of(self.state.unanswered.iter().filter(up).copied());
                let reason = "the generation is over".to_owned();
                out.push(Action::KillRanks { generation, to, reason });
                out.push(Action::CancelStep { generation });
                out.push(Action::PollNow { to: unanswered });
            }
            Phase::CheckingProgress => out.push(Action::CheckProgress { generation }),
            Phase::Draining => self.drain(now, out),
            Phase::Finished => {
                if let Some(outcome) = self.state.head.outcome.clone() {
                    self.end_agents(out);
                    out.push(Action::Finish(outcome));
                }
            }
        }
    }
}
