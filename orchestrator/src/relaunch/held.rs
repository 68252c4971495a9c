//! The actions that wait until the decision that they follow from is on disk.
//!
//! A successor knows what is on disk and nothing else. [`Action::may_precede_journal`] says what it may find done all the
//! same; whatever else the machine asks for waits here. A journal that cannot be written for long (a parallel file
//! system that hangs) thus delays launches and the drain, and nothing else. What waited so long that it is not wanted
//! any more (the launch of a generation that was ended meanwhile) is dropped, and what is still wanted concerns the
//! nodes that are there now.

use std::collections::VecDeque;

use holdfast_model::Generation;

use super::action::Action;
use super::machine::Machine;

/// Actions that wait for the journal, in their order.
#[derive(Clone, Debug)]
pub struct HeldActions {
    queue: VecDeque<(u64, Action)>,
    /// The newest generation of which agents were told: it is on disk.
    known: Generation,
}

impl HeldActions {
    /// Nothing waits. `known` is the newest generation that the state on disk has.
    pub fn new(known: Generation) -> Self {
        HeldActions { queue: VecDeque::new(), known }
    }

    /// Takes in actions whose decision will be in this entry of the journal, or in one before it. Returns those to be
    /// performed now.
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
            // An agent that lost a generation which is on disk gets it again.
            Action::Prepare { generation, .. } => *generation <= self.known && !self.holds(*generation),
            // Addresses replace those that agents were told before: they must not come first.
            Action::UpdatePeers { generation, .. } => !self.holds(*generation),
            action => action.may_precede_journal(),
        }
    }

    /// True if something that agents are to be told of the generation waits.
    fn holds(&self, wanted: Generation) -> bool {
        let is_of = |action: &Action| match action {
            Action::Prepare { generation, .. } | Action::UpdatePeers { generation, .. } => *generation == wanted,
            _ => false,
        };
        self.queue.iter().any(|(_, action)| is_of(action))
    }

    /// True if an action waits for the journal.
    pub fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// All entries up to this one are on disk, or cannot be written: returns the actions that waited for them and
    /// that the machine still wants.
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
