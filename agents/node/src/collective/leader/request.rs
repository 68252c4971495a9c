//! Checkpoints that a user requests (`holdfast checkpoint`): the next one is due at once.
//!
//! Requests are not recorded. Whoever waits for the checkpoint repeats the request, with the id that the first answer
//! contained: a leader that was restarted, or that of the next generation, then has it again.

use holdfast_model::CheckpointId;
use holdfast_wire::agent::RequestState;

use super::memory::LeaderMemory;
use crate::sources::SourcePolicy;

/// What the leader knows of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// A checkpoint was requested and has not begun.
    pub(super) waiting: bool,
    /// The dataset that could not be begun. Its id is that of the next attempt, and stays open until then.
    pub(super) not_begun: Option<CheckpointId>,
    /// The newest checkpoint that was dropped, until one begins.
    pub(super) dropped: Option<DroppedCheckpoint>,
}

#[derive(Clone, Debug)]
pub(super) struct DroppedCheckpoint {
    pub(super) checkpoint: CheckpointId,
    pub(super) reason: String,
}

impl Requests {
    /// Returns the newest dataset that the ranks have begun: a checkpoint with a larger id is requested.
    pub(super) fn begin(&mut self, memory: &LeaderMemory) -> CheckpointId {
        let after = self.begun(memory).map_or(memory.last, |begun| begun.max(memory.last));
        // One that could not be begun has a larger id, and is not the requested one.
        self.dropped.take_if(|dropped| dropped.checkpoint > after);
        after
    }

    /// The dataset that the ranks write.
    fn begun(&self, memory: &LeaderMemory) -> Option<CheckpointId> {
        memory.open.filter(|open| self.not_begun != Some(*open))
    }

    /// Makes a checkpoint due, unless one with a larger id has begun.
    pub(super) fn add(&mut self, memory: &LeaderMemory, policy: &dyn SourcePolicy, after: CheckpointId) {
        if self.state_of(memory, policy, after) == RequestState::Waiting {
            self.waiting = true;
        }
    }

    /// What became of a checkpoint with a larger id.
    pub(super) fn state_of(
        &self,
        memory: &LeaderMemory,
        policy: &dyn SourcePolicy,
        after: CheckpointId,
    ) -> RequestState {
        if let Some(reason) = policy.refuses_requests() {
            return RequestState::Refused { reason: reason.to_owned() };
        }
        let newer = |id: Option<CheckpointId>| id.filter(|id| *id > after);
        // Output has ids, too.
        let open = self.begun(memory).filter(|open| memory.dataset(*open).checkpoint);
        if let Some(checkpoint) = newer(memory.complete) {
            RequestState::Complete { checkpoint }
        } else if let Some(checkpoint) = newer(open) {
            RequestState::Begun { checkpoint }
        } else if let Some(dropped) = self.dropped.as_ref().filter(|dropped| dropped.checkpoint > after) {
            RequestState::Dropped { checkpoint: dropped.checkpoint, reason: dropped.reason.clone() }
        } else {
            RequestState::Waiting
        }
    }
}
