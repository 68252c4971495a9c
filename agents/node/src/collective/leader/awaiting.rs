//! The ranks wait until a checkpoint is due: for programs that do not call the API, each of which has a rank process
//! that makes the calls.
//!
//! The call returns on all ranks together: when the source's policy has a checkpoint due, or when the programs of all
//! ranks have ended. While it waits, ranks repeat it when the state of their program changes.

use std::time::Duration;

use holdfast_wire::rank::{Awaited, Call, Reply};

use super::context::{Context, LeaderState};
use super::gather::Calls;
use super::halt::halt_condition;
use crate::collective::error::CallError;

/// How often the halt conditions are read: some hold from a certain time on.
const HALT_READ_EVERY: Duration = Duration::from_secs(1);

/// Waits until a checkpoint is due, or all programs have ended.
pub(super) async fn next_checkpoint(cx: &Context, calls: &Calls) -> Result<Reply, CallError> {
    let states = calls.by_rank.iter().filter_map(|(rank, call)| match call {
        Call::Await { state } => Some((*rank, *state)),
        _ => None,
    });
    cx.with(|state| {
        state.programs.states = states.collect();
        state.programs.ended_after_sigterm = calls.after_sigterm && !state.programs.ended().is_subset(&state.ended);
    });
    let awaited = loop {
        cx.with(|state| state.programs.check_halt = false);
        // An error is reported by the driver; the conditions are read again.
        let halting = halt_condition(cx).await.is_ok_and(|condition| condition.is_some());
        let until = cx.now().saturating_add(HALT_READ_EVERY);
        if let Some(awaited) = cx.wait_until(|state| step(state, halting, until)).await {
            break awaited;
        }
    };
    cx.with(|state| {
        let programs = std::mem::take(&mut state.programs);
        if !programs.ended_after_sigterm {
            state.ended = programs.ended();
        }
    });
    Ok(Reply::Awaited(awaited))
}

/// What the ranks have waited for; `Some(None)` to read the halt conditions again, `None` to wait for an event.
fn step(state: &mut LeaderState, halting: bool, until: Duration) -> Option<Option<Awaited>> {
    // While the halt conditions are read, nothing is due.
    state.programs.wake_at = None;
    let ready = state.programs.all_ready();
    if state.programs.all_ended() {
        return Some(Some(Awaited::Ended));
    }
    // A checkpoint would record the program as finished.
    if state.programs.ended_after_sigterm {
        return None;
    }
    if state.requests.waiting || state.policy.is_due_for_waiting(state.now, halting, ready) {
        return Some(Some(Awaited::Checkpoint));
    }
    if state.programs.check_halt || state.now >= until {
        return Some(None);
    }
    let due = state.policy.due_at(halting).unwrap_or(until);
    state.programs.wake_at = Some(due.min(until));
    None
}
