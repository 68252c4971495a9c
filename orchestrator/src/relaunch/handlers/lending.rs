//! Nodes that a step borrows from its job, whose other steps run side by side with it: see `job::lending`. A step has
//! the nodes that were lent to it when it began. When it loses one, it asks for another one at once, so that the agent
//! there is up when the ranks of the lost node have been ended; when too few are left, it waits for those of other
//! steps.

use std::time::Duration;

use holdfast_model::NodeName;

use crate::events::{LogEvent, StopReason};
use crate::relaunch::action::Action;
use crate::relaunch::machine::Machine;
use crate::relaunch::node_state::{NodeStatus, Starting};
use crate::relaunch::snapshot::Phase;

/// True for reasons that other nodes may remove.
pub(super) fn is_lack_of_nodes(reason: &StopReason) -> bool {
    matches!(reason, StopReason::TooFewNodes { .. } | StopReason::NoAgents { .. })
}

impl Machine {
    /// True if the job may have other nodes for this step.
    pub(super) fn may_borrow(&self) -> bool {
        self.config.lent.is_some() && self.state.head.phase != Phase::AwaitingNodes
    }

    /// Asks for nodes in place of those that are down, while the step goes on.
    pub(super) fn want_nodes(&mut self, out: &mut Vec<Action>) {
        let wanted = self.config.nodes_needed.saturating_sub(self.usable());
        if self.config.lent.is_some() && wanted > 0 && !self.is_over() {
            out.push(Action::BorrowNodes { wanted, waits: false });
        }
    }

    /// Nothing can be launched without other nodes.
    pub(super) fn await_nodes(&mut self, out: &mut Vec<Action>) {
        let (left, needed) = (self.usable(), self.needed());
        if self.state.head.phase != Phase::AwaitingNodes {
            self.record(LogEvent::NodesAwaited { left, needed }, out);
        }
        self.set_phase(Phase::AwaitingNodes);
        out.push(Action::BorrowNodes { wanted: needed.saturating_sub(left).max(1), waits: true });
    }

    /// While nodes are awaited.
    pub(super) fn check_lent(&mut self, now: Duration, out: &mut Vec<Action>) {
        match self.obstacle(now) {
            None => self.set_phase(Phase::Gathering),
            Some(reason) if is_lack_of_nodes(&reason) => {}
            Some(reason) => self.stop_for(now, reason, out),
        }
    }

    /// The job lends these nodes. They are spares of the generation under way, or get ranks in the next one.
    pub(super) fn nodes_lent(&mut self, now: Duration, nodes: &[NodeName], more_later: bool, out: &mut Vec<Action>) {
        if self.is_over() {
            return;
        }
        let lent = nodes.iter().filter_map(|node| self.position(node));
        let lent: Vec<u32> = lent.filter(|position| self.state.nodes[*position as usize].is_not_lent()).collect();
        for position in &lent {
            self.set_status(*position, NodeStatus::Starting(Starting::first(self.contacts.time())));
            out.push(Action::StartAgent { node: self.name(*position) });
        }
        if !lent.is_empty() {
            self.record(LogEvent::NodesLent { nodes: self.names_of(lent) }, out);
            self.end_delayed(now, out);
        }
        let Some(reason) = self.obstacle(now).filter(is_lack_of_nodes) else { return };
        if self.state.head.phase == Phase::AwaitingNodes && !more_later {
            self.stop_for(now, reason, out);
        }
    }
}
