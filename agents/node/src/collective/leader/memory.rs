//! What survives a restart of the leader: enough to answer the last collective again and to continue with the next.
//!
//! The types are the content of files in the control directory; the driver reads and writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_core::redundancy::registry::is_unprotected;
use holdfast_model::{CheckpointId, Dataset, Generation, Scheme};
use holdfast_wire::peer::Outcome;
use holdfast_wire::rank::Reply;
use serde::{Deserialize, Serialize};

/// Saved before the results of a collective are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderMemory {
    pub generation: Generation,
    /// The last collective that ended.
    pub seq: u64,
    /// Its results. Shared, because they may be large and are sent to many nodes.
    pub outcome: Arc<Outcome>,
    /// The newest checkpoint id that was given out.
    pub last: CheckpointId,
    /// The checkpoint between start and complete.
    pub open: Option<CheckpointId>,
    /// Set while the complete call of that checkpoint is carried out, before the checkpoint is reported. A leader that
    /// is restarted before the results of the call are on disk reports the same again. It does not judge the checkpoint
    /// again: a file that was lost since would withdraw what is already relied on.
    pub completed: Option<CompletedDataset>,
    /// The newest checkpoint that is complete in cache.
    pub complete: Option<CheckpointId>,
    /// What the run restarted from, until the ranks confirm that they could read it.
    pub restart: Option<Restarted>,
    /// The datasets in cache. One that the leader's own node no longer has must still be deleted on other nodes: an
    /// earlier leader was killed while evicting it.
    #[serde(default)]
    pub cached: BTreeSet<CheckpointId>,
    /// Those of them whose redundancy is complete, and how many nodes can be lost then.
    #[serde(default)]
    pub protected: BTreeMap<CheckpointId, u32>,
    /// The datasets whose flush in the background has not ended. A restarted leader goes on with them, because no rank
    /// repeats the call that requested them.
    #[serde(default)]
    pub flushing: BTreeSet<CheckpointId>,
    /// What the application declared of the datasets; plain checkpoints are not listed.
    #[serde(default)]
    pub datasets: BTreeMap<CheckpointId, Dataset>,
    /// The application has called finalize.
    #[serde(default)]
    pub finalized: bool,
}

/// A dataset whose files and redundancy are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedDataset {
    pub checkpoint: CheckpointId,
    /// What protects it.
    pub scheme: Scheme,
    /// Bytes of all ranks' files.
    pub bytes: u64,
    /// How long the ranks waited until all files were complete, and until they were protected.
    pub millis: u64,
    pub protected_millis: u64,
    /// The ranks did not wait for its redundancy, which is made behind them.
    #[serde(default)]
    pub behind: bool,
}

impl CompletedDataset {
    /// True if it survives the loss of a node.
    pub fn is_protected(&self) -> bool {
        !is_unprotected(self.scheme)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarted {
    pub checkpoint: CheckpointId,
    /// Its directory below the prefix, if it was fetched.
    pub fetched: Option<String>,
}

impl LeaderMemory {
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
            protected: BTreeMap::new(),
            flushing: BTreeSet::new(),
            datasets: BTreeMap::new(),
            finalized: false,
        }
    }

    /// What the application declared of a dataset.
    pub fn dataset(&self, checkpoint: CheckpointId) -> Dataset {
        self.datasets.get(&checkpoint).cloned().unwrap_or_default()
    }
}

impl LeaderMemory {
    /// Removes datasets that are no longer in cache: they are neither flushed at the end nor confirmed by the ranks.
    pub(super) fn forget(&mut self, deleted: impl Fn(CheckpointId) -> bool) {
        self.cached.retain(|id| !deleted(*id));
        self.protected.retain(|id, _| !deleted(*id));
        self.flushing.retain(|id| !deleted(*id));
        self.complete = self.complete.filter(|complete| !deleted(*complete));
        self.restart = self.restart.take().filter(|restart| !deleted(restart.checkpoint));
    }
}

/// The directories below the prefix into which the leader of a run flushes, until each is published. A flush that
/// failed, or whose leader was restarted, is resumed there; complete files are not copied again. The first leader of a
/// generation finds those of earlier generations in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedFlushes {
    pub generation: Generation,
    pub directories: BTreeMap<CheckpointId, String>,
}

impl UnfinishedFlushes {
    pub fn fresh(generation: Generation) -> Self {
        UnfinishedFlushes { generation, directories: BTreeMap::new() }
    }
}
