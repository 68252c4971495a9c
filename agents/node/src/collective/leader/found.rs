//! The checkpoint that a run restarts from.

use std::collections::BTreeMap;

use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, Rank, RestartSource};

use crate::collective::error::Result;

/// What the run restarts from.
#[derive(Debug)]
pub(super) struct FoundCheckpoint {
    pub(super) checkpoint: CheckpointId,
    pub(super) source: RestartSource,
    pub(super) rebuilt: Vec<Rank>,
    pub(super) moved: Vec<Rank>,
    /// Directory below the prefix, if it was fetched.
    pub(super) fetched: Option<String>,
    /// If its redundancy is complete, how many nodes can be lost.
    pub(super) survives: Option<u32>,
    /// The older ones in cache that stay, because they survive more, and what they survive.
    pub(super) older: BTreeMap<CheckpointId, Option<u32>>,
    /// The number of ranks that wrote it, if the run has another one.
    pub(super) written_by: Option<u32>,
}

/// How far a restart is that begins while the ranks of a new generation are started.
#[derive(Debug, Default)]
pub(super) enum Prepared {
    /// Not begun, or taken by init.
    #[default]
    None,
    UnderWay,
    Ended(Result<Option<FoundCheckpoint>>),
}

/// One that was read from this directory.
pub(super) fn fetched(checkpoint: CheckpointId, directory: &DirectoryName, survives: Option<u32>) -> FoundCheckpoint {
    FoundCheckpoint {
        checkpoint,
        source: RestartSource::Fetched,
        rebuilt: Vec::new(),
        moved: Vec::new(),
        fetched: Some(directory.to_string()),
        survives,
        older: BTreeMap::new(),
        written_by: None,
    }
}
