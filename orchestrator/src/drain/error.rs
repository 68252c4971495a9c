//! Why a drain could not be carried out. Lost or damaged files are in the report, and are not errors.

use std::path::PathBuf;

use holdfast_core::owned::OwnedError;
use holdfast_core::redundancy::RedundancyError;
use holdfast_core::store::PrefixError;
use holdfast_formats::sion::SionError;
use holdfast_formats::sion::dataset::RepackError;
use holdfast_model::CheckpointId;

use crate::events::DrainResult;
use crate::fleet::RequestError;

/// The drain failed; files that were copied are kept, and another drain continues.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// No agent reported what its node holds.
    #[error("no agent reported what its node holds: {reason}")]
    NoInventory {
        /// The reason of the first agent.
        reason: String,
    },
    /// A step on the prefix directory failed.
    #[error("{reason}")]
    Prefix {
        /// What failed, where, and the remedy.
        reason: String,
        /// Something could not be written there.
        unwritable: bool,
    },
    /// No node has the dataset that was requested.
    #[error("no node that answers has dataset {id}; {}", datasets(known))]
    NoSuchDataset {
        id: CheckpointId,
        /// Those of the nodes, newest first.
        known: Vec<CheckpointId>,
    },
}

fn datasets(known: &[CheckpointId]) -> String {
    match known {
        [] => "they have none".to_owned(),
        known => format!("they have {}", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

impl DrainError {
    /// True if the cause can be corrected in the prefix directory, after which another drain completes the dataset.
    pub fn is_unwritable(&self) -> bool {
        matches!(self, DrainError::Prefix { unwritable: true, .. })
    }
}

impl From<&DrainError> for DrainResult {
    fn from(error: &DrainError) -> DrainResult {
        DrainResult::Failed { reason: error.to_string(), unwritable: error.is_unwritable() }
    }
}

/// Why a request of a drain failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFailure {
    /// What failed, where, and the remedy.
    pub reason: String,
    /// Something could not be written to the prefix directory.
    pub unwritable: bool,
}

impl From<String> for RequestFailure {
    fn from(reason: String) -> RequestFailure {
        RequestFailure { reason, unwritable: false }
    }
}

impl From<&str> for RequestFailure {
    fn from(reason: &str) -> RequestFailure {
        RequestFailure::from(reason.to_owned())
    }
}

/// Why a step on the prefix directory failed.
#[derive(Debug, thiserror::Error)]
pub enum PrefixStepError {
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The list of directories that are not continued.
    #[error(
        "{}: {problem}; drains complete no earlier directory until it is removed, together with the incomplete \
         directories of the job", path.display()
    )]
    Superseded { path: PathBuf, problem: String },
    /// The record of the drain under way.
    #[error(transparent)]
    Owned(#[from] OwnedError),
    #[error(transparent)]
    Redundancy(#[from] RedundancyError),
    /// The container of the dataset.
    #[error(transparent)]
    Container(#[from] SionError),
    /// Plain files that are moved into a container.
    #[error(transparent)]
    Repack(#[from] RepackError),
}

impl From<PrefixStepError> for RequestFailure {
    fn from(error: PrefixStepError) -> RequestFailure {
        let unwritable = match &error {
            PrefixStepError::Prefix(error) => error.prevents_writing(),
            PrefixStepError::Superseded { .. } => false,
            PrefixStepError::Owned(_) | PrefixStepError::Container(_) | PrefixStepError::Repack(_) => true,
            PrefixStepError::Redundancy(error) => error.prevents_writing(),
        };
        RequestFailure { reason: error.to_string(), unwritable }
    }
}

impl From<RequestError> for RequestFailure {
    fn from(error: RequestError) -> RequestFailure {
        RequestFailure { reason: error.to_string(), unwritable: error.prevents_writing() }
    }
}
