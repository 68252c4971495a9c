//! Why a drain could not be carried out. What is merely lost or damaged is no error but in the report.

use holdfast_core::durable::DurableError;
use holdfast_core::prefix::PrefixError;
use holdfast_model::CheckpointId;

/// The drain failed; what was copied stays, and running it again goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// No agent reported what its node holds.
    #[error("no agent reported what its node holds: {reason}")]
    NoInventory {
        /// Why the first one did not.
        reason: String,
    },
    /// A step on the prefix directory failed.
    #[error("{reason}")]
    Prefix {
        /// What failed, where, and what to do.
        reason: String,
    },
    /// The dataset that was asked for is not there.
    #[error("no node that answers holds dataset {id}; `holdfast drain --dry-run` shows what there is")]
    NoSuchDataset { id: CheckpointId },
}

/// Why a step on the prefix directory failed.
#[derive(Debug, thiserror::Error)]
pub enum PrefixStepError {
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The note about the drain under way.
    #[error(transparent)]
    Durable(#[from] DurableError),
}
