//! The ranks wait until a checkpoint is due: for programs that do not call the API, each of which has a rank process
//! that makes the calls.
//!
//! The call returns on all ranks together: when the source's policy has a checkpoint due, or when the programs of all
//! ranks have ended. While it waits, ranks repeat it when the state of their program changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_model::Rank;
use holdfast_wire::rank::{Awaited, Call, ProgramState, Reply};

use super::collective::halt_condition;
use super::context::{Context, LeaderState};
use super::gather::Calls;
use crate::collective::CallError;

/// How often the halt conditions are read: some hold from a certain time on.
const HALT_READ_EVERY: Duration = Duration::from_secs(1);

/// The programs of the ranks that wait.
#[derive(Debug, Default)]
pub(super) struct Awaiting {
    programs: BTreeMap<Rank, ProgramState>,
    /// A program may have ended because it was sent SIGTERM.
    ended_after_sigterm: bool,
    /// A halt condition has changed since they were read.
    pub(super) check_halt: bool,
    /// When to look again without an event.
    pub(super) wake_at: Option<Duration>,
}

impl Awaiting {
    /// Takes over the states in the calls of the ranks of a node. `terminated`: they were sent SIGTERM before.
    pub(super) fn update(&mut self, calls: impl IntoIterator<Item = (Rank, Call)>, terminated: bool) {
        for (rank, call) in calls {
            // Known ranks only: the calls of a collective that does not wait change nothing.
            if let (Call::Await { state }, Some(known)) = (call, self.programs.get_mut(&rank)) {
                let ends = std::mem::replace(known, state) != state && state == ProgramState::Ended;
                self.ended_after_sigterm |= terminated && ends;
            }
        }
    }

    fn ended(&self) -> BTreeSet<Rank> {
        let ended = self.programs.iter().filter(|(_, state)| **state == ProgramState::Ended);
        ended.map(|(rank, _)| *rank).collect()
    }

    fn all_ended(&self) -> bool {
        self.programs.values().all(|state| *state == ProgramState::Ended)
    }

    /// True if no program is still writing the files of its next checkpoint.
    fn all_ready(&self) -> bool {
        self.programs.values().all(|state| *state != ProgramState::Running)
    }
}

/// Waits until a checkpoint is due, or all programs have ended.
pub(super) async fn next_checkpoint(cx: &Context, calls: &Calls) -> Result<Reply, CallError> {
    let states = calls.by_rank.iter().filter_map(|(rank, call)| match call {
        Call::Await { state } => Some((*rank, *state)),
        _ => None,
    });
    cx.with(|state| {
        state.awaiting.programs = states.collect();
        state.awaiting.ended_after_sigterm = calls.after_sigterm && !state.awaiting.ended().is_subset(&state.ended);
    });
    let awaited = loop {
        cx.with(|state| state.awaiting.check_halt = false);
        // An error is reported by the driver; the conditions are read again.
        let halting = halt_condition(cx).await.is_ok_and(|condition| condition.is_some());
        let until = cx.now().saturating_add(HALT_READ_EVERY);
        if let Some(awaited) = cx.wait_until(|state| step(state, halting, until)).await {
            break awaited;
        }
    };
    cx.with(|state| {
        let awaiting = std::mem::take(&mut state.awaiting);
        if !awaiting.ended_after_sigterm {
            state.ended = awaiting.ended();
        }
    });
    Ok(Reply::Awaited(awaited))
}

/// What the ranks have waited for; `Some(None)` to read the halt conditions again, `None` to wait for an event.
fn step(state: &mut LeaderState, halting: bool, until: Duration) -> Option<Option<Awaited>> {
    // While the halt conditions are read, nothing is due.
    state.awaiting.wake_at = None;
    let ready = state.awaiting.all_ready();
    if state.awaiting.all_ended() {
        return Some(Some(Awaited::Ended));
    }
    // A checkpoint would record the program as finished.
    if state.awaiting.ended_after_sigterm {
        return None;
    }
    if state.requests.waiting || state.policy.is_due_for_waiting(state.now, halting, ready) {
        return Some(Some(Awaited::Checkpoint));
    }
    if state.awaiting.check_halt || state.now >= until {
        return Some(None);
    }
    let due = state.policy.due_at(halting).unwrap_or(until);
    state.awaiting.wake_at = Some(due.min(until));
    None
}
