//! The actions that wait until the decision behind them is on disk.
//!
//! An orchestrator that takes over has only the state on disk. Actions for which [`Action::may_precede_journal`] is
//! true are performed at once; the others wait here. A journal that cannot be written for some time (a parallel file
//! system that hangs) thus delays launches and the drain, and nothing else. Actions that are not needed any more when
//! they are released (the launch of a generation that was ended meanwhile) are dropped, and the others are updated for
//! the present state of the nodes.

use std::collections::VecDeque;

use holdfast_model::Generation;

use super::action::Action;
use super::machine::Machine;

/// Actions that wait for the journal, in their order.
#[derive(Clone, Debug)]
pub struct HeldActions {
    queue: VecDeque<(u64, Action)>,
    /// The newest generation that is on disk and was sent to agents.
    known: Generation,
}

impl HeldActions {
    /// No action waits. `known` is the newest generation in the state on disk.
    pub fn new(known: Generation) -> Self {
        HeldActions { queue: VecDeque::new(), known }
    }

    /// Adds actions whose decision will be in this entry of the journal, or in an earlier one. Returns those that may
    /// be performed now.
    pub fn admit(&mut self, entry: u64, actions: Vec<Action>) -> Vec<Action> {
        let mut now = Vec::new();
        for action in actions {
            if self.may_go(&action) {
                now.push(action);
            } else {
                self.queue.push_back((entry, action));
            }
        }
        now
    }

    fn may_go(&self, action: &Action) -> bool {
        match action {
            // An agent that lost a generation that is on disk gets it again.
            Action::Prepare { generation, .. } => *generation <= self.known && !self.holds(*generation),
            // New addresses must not arrive before the plan whose addresses they replace.
            Action::UpdatePeers { generation, .. } => !self.holds(*generation),
            action => action.may_precede_journal(),
        }
    }

    /// True if a message about the generation waits.
    fn holds(&self, of: Generation) -> bool {
        let is_of = |action: &Action| match action {
            Action::Prepare { generation, .. } | Action::UpdatePeers { generation, .. } => *generation == of,
            _ => false,
        };
        self.queue.iter().any(|(_, action)| is_of(action))
    }

    /// True if an action waits for the journal.
    pub fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// All entries up to this one are on disk, or cannot be written. Returns the actions that waited for them and are
    /// still needed.
    pub fn release(&mut self, entry: u64, machine: &Machine) -> Vec<Action> {
        let mut released = Vec::new();
        while let Some((_, action)) = self.queue.pop_front_if(|(of, _)| *of <= entry) {
            if let Action::Prepare { generation, .. } = &action {
                self.known = self.known.max(*generation);
            }
            released.extend(machine.refreshed(action));
        }
        released
    }
}
