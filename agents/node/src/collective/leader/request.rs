//! Checkpoints that a user requests (`holdfast checkpoint`): the next one is due at once.
//!
//! Requests are not recorded. Whoever waits for the checkpoint repeats the request, with the id that the first answer
//! contained: a leader that was restarted, or that of the next generation, then has it again.

use holdfast_model::CheckpointId;
use holdfast_wire::agent::RequestState;

use super::context::LeaderState;
use super::memory::LeaderMemory;

/// What the leader knows of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    /// A checkpoint was requested and has not begun.
    pub(super) waiting: bool,
    /// The newest checkpoint that was dropped.
    pub(super) dropped: Option<CheckpointId>,
}

/// The newest dataset that the ranks have begun.
pub(super) fn newest_begun(memory: &LeaderMemory) -> CheckpointId {
    memory.open.map_or(memory.last, |open| open.max(memory.last))
}

/// Makes a checkpoint due, unless one with a larger id has begun.
pub(super) fn add(state: &mut LeaderState, after: CheckpointId) {
    if state_of(state, after) == RequestState::Waiting {
        state.requests.waiting = true;
    }
}

/// What became of a checkpoint with a larger id.
pub(super) fn state_of(state: &LeaderState, after: CheckpointId) -> RequestState {
    if let Some(reason) = state.policy.refuses_requests() {
        return RequestState::Refused { reason: reason.to_owned() };
    }
    let memory = &state.memory;
    let newer = |id: Option<CheckpointId>| id.filter(|id| *id > after);
    // Output has ids, too.
    let open = memory.open.filter(|open| memory.dataset(*open).checkpoint);
    if let Some(checkpoint) = newer(memory.complete) {
        RequestState::Complete { checkpoint }
    } else if let Some(checkpoint) = newer(open) {
        RequestState::Begun { checkpoint }
    } else if let Some(checkpoint) = newer(state.requests.dropped) {
        RequestState::Dropped { checkpoint }
    } else {
        RequestState::Waiting
    }
}
