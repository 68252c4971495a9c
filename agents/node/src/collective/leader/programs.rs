//! The programs of ranks that wait for their next checkpoint, as the ranks' calls describe them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_model::Rank;
use holdfast_wire::rank::{Call, ProgramState};

/// The programs of the ranks that wait.
#[derive(Debug, Default)]
pub(super) struct Programs {
    pub(super) states: BTreeMap<Rank, ProgramState>,
    /// A program may have ended because it was sent SIGTERM.
    pub(super) ended_after_sigterm: bool,
    /// A halt condition has changed since they were read.
    pub(super) check_halt: bool,
    /// When to look again without an event.
    pub(super) wake_at: Option<Duration>,
}

impl Programs {
    /// Takes over the states in the calls of the ranks of a node. `terminated`: they were sent SIGTERM before.
    pub(super) fn update(&mut self, calls: impl IntoIterator<Item = (Rank, Call)>, terminated: bool) {
        for (rank, call) in calls {
            // Known ranks only: the calls of a collective that does not wait change nothing.
            if let (Call::Await { state }, Some(known)) = (call, self.states.get_mut(&rank)) {
                let ends = std::mem::replace(known, state) != state && state == ProgramState::Ended;
                self.ended_after_sigterm |= terminated && ends;
            }
        }
    }

    pub(super) fn ended(&self) -> BTreeSet<Rank> {
        let ended = self.states.iter().filter(|(_, state)| **state == ProgramState::Ended);
        ended.map(|(rank, _)| *rank).collect()
    }

    pub(super) fn all_ended(&self) -> bool {
        self.states.values().all(|state| *state == ProgramState::Ended)
    }

    /// True if no program is still writing the files of its next checkpoint.
    pub(super) fn all_ready(&self) -> bool {
        self.states.values().all(|state| *state != ProgramState::Running)
    }
}
