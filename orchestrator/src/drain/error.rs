//! Why a drain could not be carried out. What is merely lost or damaged is no error but in the report.

use holdfast_core::durable::DurableError;
use holdfast_core::prefix::PrefixError;

/// The drain failed; what was copied stays, and running it again goes on.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// No agent answered.
    #[error("no agent could be asked what its node holds: {reason}")]
    NobodyAnswers {
        /// Of the first one.
        reason: String,
    },
    /// The prefix directory.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The note about the drain under way.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The dataset that was asked for is not there.
    #[error("no node that answers holds dataset {id}; `holdfast drain --dry-run` shows what there is")]
    NoSuchDataset {
        /// It.
        id: holdfast_model::CheckpointId,
    },
    /// Work on a thread of its own failed in a way that is our fault.
    #[error("the drain broke off: {0}")]
    Task(#[from] tokio::task::JoinError),
}
