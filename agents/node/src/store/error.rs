//! Errors of the node's checkpoint files.

use std::io;
use std::path::PathBuf;

use holdfast_core::control::ControlError;
use holdfast_core::control::meta::UnusableFile;
use holdfast_core::durable::{self, DurableError};
use holdfast_model::{CheckpointId, Failure, Rank};

use crate::directories::claim::ClaimError;
use crate::directories::paths::PathError;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Path(#[from] PathError),
    /// Another user may have a hand in a directory of the job, or it cannot be made.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// Descriptors or memory were exhausted when a file was to be examined.
    #[error(transparent)]
    Unexamined(UnusableFile),
    #[error("cannot list {}: {source}", path.display())]
    List { path: PathBuf, source: io::Error },
    #[error("cannot delete {}: {source}; check owner and mode of its directory on this node", path.display())]
    Delete { path: PathBuf, source: io::Error },
    /// The names of the datasets could not be read, or not be put on disk.
    #[error(
        "cannot read or record the datasets' names in {}: {source}; is the file system full or read-only, or are \
         descriptors exhausted?",
        directory.display()
    )]
    Describe { directory: PathBuf, source: io::Error },
    #[error("rank {0} does not run on this node in this run: it has no filemap here")]
    NoSlot(Rank),
    #[error(
        "checkpoint {checkpoint} of rank {rank} has no redundancy descriptor on this node: it was not started here"
    )]
    NoDescriptor { checkpoint: CheckpointId, rank: Rank },
    #[error("the redundancy descriptor of checkpoint {0} names no directory: the filemap that holds it is damaged")]
    NoDirectory(CheckpointId),
}

impl StoreError {
    /// True if descriptors or memory were exhausted: nothing is known of the files, and a later try may succeed.
    pub fn is_exhaustion(&self) -> bool {
        match self {
            StoreError::Control(error) => error.is_exhaustion(),
            StoreError::Unexamined(error) => error.is_exhaustion(),
            StoreError::List { source, .. } | StoreError::Describe { source, .. } => durable::is_exhaustion(source),
            _ => false,
        }
    }

    /// Adds rank, dataset and file to a failure that this error becomes.
    pub(crate) fn locate(self, failure: Failure) -> Failure {
        match self {
            StoreError::Delete { path, .. }
            | StoreError::List { path, .. }
            | StoreError::Describe { directory: path, .. } => failure.at(path),
            StoreError::NoSlot(rank) => failure.of_rank(rank),
            StoreError::NoDescriptor { checkpoint, rank } => failure.of_rank(rank).of_checkpoint(checkpoint),
            StoreError::NoDirectory(checkpoint) => failure.of_checkpoint(checkpoint),
            StoreError::Control(_)
            | StoreError::Path(_)
            | StoreError::Claim(_)
            | StoreError::Durable(_)
            | StoreError::Unexamined(_) => failure,
        }
    }
}
