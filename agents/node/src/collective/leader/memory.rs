//! What the leader must not forget: enough to answer the last collective again and to go on with the next.
//!
//! The types are the files' content in the control directory; the driver reads and writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_model::{CheckpointId, Dataset, Generation, Scheme};
use holdfast_wire::peer::Outcome;
use holdfast_wire::rank::Reply;
use serde::{Deserialize, Serialize};

/// What must survive the leader's process; on disk before the results of a collective are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderMemory {
    /// The run.
    pub generation: Generation,
    /// The last collective that ended.
    pub seq: u64,
    /// Its results. Shared, because they may be large and go to many nodes.
    pub outcome: Arc<Outcome>,
    /// The newest checkpoint id that was given out.
    pub last: CheckpointId,
    /// The checkpoint between start and complete.
    pub open: Option<CheckpointId>,
    /// Set while the complete call of that checkpoint is carried out, before the checkpoint is reported. A leader that is
    /// restarted before the results of the call are on disk reports the same again. It does not judge the checkpoint anew:
    /// a file that was lost since would withdraw what is already relied on.
    #[serde(default)]
    pub completed: Option<CompletedDataset>,
    /// The newest checkpoint that is complete in cache.
    pub complete: Option<CheckpointId>,
    /// What the run restarted from, until the ranks confirm that they could read it.
    pub restart: Option<Restarted>,
    /// The datasets in cache. One that the leader's own node does not have any more is still to be deleted on others: a
    /// leader before this one was killed while it was evicted.
    #[serde(default)]
    pub cached: BTreeSet<CheckpointId>,
    /// What the application declared of the datasets; plain checkpoints are not listed.
    #[serde(default)]
    pub datasets: BTreeMap<CheckpointId, Dataset>,
}

/// A dataset whose files and redundancy are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedDataset {
    /// The dataset.
    pub checkpoint: CheckpointId,
    /// What protects it.
    pub scheme: Scheme,
    /// Bytes of all ranks' files.
    pub bytes: u64,
    /// How long the ranks waited for it.
    pub millis: u64,
}

/// What was restarted from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarted {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Its directory below the prefix, if it was fetched.
    pub fetched: Option<String>,
}

impl LeaderMemory {
    /// At the beginning of a run.
    pub fn fresh(generation: Generation) -> Self {
        LeaderMemory {
            generation,
            seq: 0,
            outcome: Arc::new(Ok(Reply::Done)),
            last: CheckpointId::NONE,
            open: None,
            completed: None,
            complete: None,
            restart: None,
            cached: BTreeSet::new(),
            datasets: BTreeMap::new(),
        }
    }

    /// What the application declared of a dataset.
    pub fn dataset(&self, checkpoint: CheckpointId) -> Dataset {
        self.datasets.get(&checkpoint).cloned().unwrap_or_default()
    }
}

impl LeaderMemory {
    /// Datasets that are not in cache any more: none of them is flushed at the end, or can turn out to be unreadable.
    pub(super) fn forget(&mut self, gone: impl Fn(CheckpointId) -> bool) {
        self.cached.retain(|id| !gone(*id));
        self.complete = self.complete.filter(|complete| !gone(*complete));
        self.restart = self.restart.take().filter(|restart| !gone(restart.checkpoint));
    }
}

/// The directories below the prefix into which the leader of a run flushes, until each is published. A flush that
/// failed, or whose leader was restarted, is resumed there; what is complete in it is not copied again. What another
/// generation began is not resumed: under the same id it holds, perhaps, other files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedFlushes {
    /// The run.
    pub generation: Generation,
    /// Where the flush of each dataset goes.
    pub directories: BTreeMap<CheckpointId, String>,
}

impl UnfinishedFlushes {
    /// At the beginning of a run.
    pub fn fresh(generation: Generation) -> Self {
        UnfinishedFlushes { generation, directories: BTreeMap::new() }
    }
}
