//! The events of a drain.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_core::prefix::flushed::FlushedCopy;
use holdfast_core::prefix::scan::{FileDamage, Scan};
use holdfast_core::prefix::window::LeftOut;
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, ContainerPlaces, Inventory, Rank, Unplaced};
use holdfast_wire::agent::CopyReply;

use super::error::RequestFailure;
use crate::fleet::roster::RosterChange;

/// Identifies one request of a drain; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An event. Answers to requests that are over (cancelled, or answered before) are ignored, and so is everything after
/// the end.
#[derive(Clone, Debug)]
pub enum DrainEvent {
    /// An agent came up or was lost. The requests at a lost one, and at one that another replaces, are cancelled.
    Roster(RosterChange),
    /// A request was carried out.
    Answered { request: RequestId, answer: Answer },
    /// A request could not be carried out.
    Failed { request: RequestId, failure: RequestFailure },
    /// The time of [`DrainMachine::deadline`](super::DrainMachine::deadline) has passed.
    Tick,
}

/// The answer to the request of the same name in [`DrainAction`](super::DrainAction).
#[derive(Clone, Debug)]
pub enum Answer {
    /// The inventory of the node.
    Inventory(Box<Inventory>),
    /// Whether the dataset is in the prefix directory.
    FlushedExamined { copy: FlushedCopy },
    /// The directory to copy to.
    DirectoryOpened {
        /// Its name below the prefix.
        directory: DirectoryName,
        /// It was left by an earlier drain of the same dataset.
        resumed: bool,
        /// The container that was requested, or why it cannot be created.
        container: Option<Result<Arc<ContainerPlaces>, String>>,
    },
    /// The container is complete.
    ContainerCommitted,
    /// No file was moved into a container, because one of them is not what its meta file records, or cannot be read.
    RepackFoundDamage {
        /// The rank of the damaged file, if it is known.
        rank: Option<Rank>,
        /// The file, and what is wrong with it.
        reason: String,
    },
    /// The ranks that were copied, and those that were not.
    Copied(CopyReply),
    /// The content of the directory.
    Scanned(Box<Scan>),
    /// The files that failed, by their base names.
    Verified { damaged: BTreeMap<String, FileDamage> },
    /// All missing members of the set were computed and written.
    Rebuilt,
    /// Summary, index and link are written.
    Published {
        /// Why a dataset with all its files is recorded as incomplete: an output whose paths belong to another dataset.
        refused: Option<String>,
        /// Files of a complete output that are not at their paths.
        unplaced: Option<Unplaced>,
    },
    /// The record of the drain under way is removed.
    DirectoryClosed,
    /// What a restart takes from the prefix directory.
    OlderFound { checkpoint: Option<CheckpointId> },
    /// The flushes that did not end are removed.
    FlushesAbandoned {
        /// The names of the directories below the prefix.
        directories: Vec<DirectoryName>,
    },
    /// The checkpoints that are older than those that stay are deleted.
    WindowKept { left_out: Vec<LeftOut> },
    /// The node's flush file records that the dataset is in the prefix directory.
    FlushNoted,
}
