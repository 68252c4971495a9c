//! The checkpoint that a run restarts from, and those that it could not.

use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, Location, Rank, RestartSource};
use holdfast_wire::agent::AgentEvent;

use super::context::Context;

/// What the run restarts from.
#[derive(Debug)]
pub(super) struct FoundCheckpoint {
    pub(super) checkpoint: CheckpointId,
    pub(super) source: RestartSource,
    pub(super) rebuilt: Vec<Rank>,
    pub(super) moved: Vec<Rank>,
    /// Directory below the prefix, if it was fetched.
    pub(super) fetched: Option<String>,
    /// It survives the loss of a node.
    pub(super) protected: bool,
}

/// One that was read from this directory.
pub(super) fn fetched(checkpoint: CheckpointId, directory: &DirectoryName, protected: bool) -> FoundCheckpoint {
    FoundCheckpoint {
        checkpoint,
        source: RestartSource::Fetched,
        rebuilt: Vec::new(),
        moved: Vec::new(),
        fetched: Some(directory.to_string()),
        protected,
    }
}

pub(super) fn attempt_failed(cx: &Context, checkpoint: CheckpointId, from: Location, reason: String) {
    cx.emit(AgentEvent::RestartAttempt { generation: cx.generation(), checkpoint, from, reason });
}
