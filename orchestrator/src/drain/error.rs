//! Why a drain could not be carried out. Lost or damaged files are in the report, and are not errors.

use holdfast_core::durable::DurableError;
use holdfast_core::prefix::PrefixError;
use holdfast_model::CheckpointId;

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
    },
    /// No node has the dataset that was requested.
    #[error("no node that answers has dataset {id}; `holdfast drain --dry-run` lists the datasets")]
    NoSuchDataset { id: CheckpointId },
}

/// Why a step on the prefix directory failed.
#[derive(Debug, thiserror::Error)]
pub enum PrefixStepError {
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The record of the drain under way.
    #[error(transparent)]
    Durable(#[from] DurableError),
}
