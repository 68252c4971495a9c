//! The progress of long operations, for progress bars.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::CheckpointId;

/// A kind of long operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Redundancy is computed and written to the caches.
    Encode,
    /// Lost files are computed again.
    Rebuild,
    /// Files are sent to the node where their rank now runs.
    Transfer,
    /// Prefix directory to cache.
    Fetch,
    /// Cache to prefix directory, by the running job.
    Flush,
    /// Cache to prefix directory, by the drain.
    Copy,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The progress of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub task: Task,
    pub checkpoint: CheckpointId,
    pub done: u64,
    pub total: u64,
}
