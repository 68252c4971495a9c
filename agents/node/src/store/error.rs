//! What can go wrong with the node's checkpoint files.

use std::io;
use std::path::PathBuf;

use holdfast_core::control::ControlError;
use holdfast_core::durable::DurableError;
use holdfast_model::{CheckpointId, Failure, Rank};

use crate::paths::PathError;

/// What went wrong with the node's checkpoint files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A filemap, flush or nodes file.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A path that must not be followed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A directory could not be made.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// A checkpoint file or directory could not be deleted.
    #[error("cannot delete {}: {source}; check owner and mode of its directory on this node", path.display())]
    Delete {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The names of the datasets could not be put on disk.
    #[error("cannot record the datasets' names in {}: {source}; is the file system full or read-only?", directory.display())]
    Describe {
        /// The control directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No local rank of this number, so there is no filemap to write to.
    #[error("rank {0} does not live on this node in this run: it has no filemap here")]
    NoSlot(Rank),
    /// The descriptor of a rank is not known, so there is no directory for its files.
    #[error(
        "checkpoint {checkpoint} of rank {rank} has no redundancy descriptor on this node: it was not started here"
    )]
    NoDescriptor {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The rank.
        rank: Rank,
    },
    /// A descriptor without DIRECTORY.
    #[error("the redundancy descriptor of checkpoint {0} names no directory: the filemap that holds it is damaged")]
    NoDirectory(CheckpointId),
}

impl StoreError {
    /// Adds rank, dataset and file to a failure that this error becomes.
    pub(crate) fn locate(self, failure: Failure) -> Failure {
        match self {
            StoreError::Delete { path, .. } | StoreError::Describe { directory: path, .. } => failure.at(path),
            StoreError::NoSlot(rank) => failure.of_rank(rank),
            StoreError::NoDescriptor { checkpoint, rank } => failure.of_rank(rank).of_checkpoint(checkpoint),
            StoreError::NoDirectory(checkpoint) => failure.of_checkpoint(checkpoint),
            StoreError::Control(_) | StoreError::Path(_) | StoreError::Durable(_) => failure,
        }
    }
}
