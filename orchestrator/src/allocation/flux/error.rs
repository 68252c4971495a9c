//! Errors that only Flux has.

use holdfast_model::NodeName;

use super::query::QueryError;
use crate::allocation::error::AllocationError;

#[derive(Debug, thiserror::Error)]
pub enum FluxError {
    /// This process is not in an instance that Flux started for a job.
    #[error(
        "this is not an allocation of flux: {missing} is not set; start `holdfast run` in a batch script (`flux \
         batch`) or an interactive allocation (`flux alloc`)"
    )]
    Outside {
        /// The variable that is set in every allocation.
        missing: &'static str,
    },
    /// This process is a task, whose job has no instance.
    #[error(
        "this is a task of Flux job {job_id}, which cannot start agents and ranks on other nodes; start `holdfast run` \
         as the batch script itself (`flux batch`, `flux alloc`), not with `flux run` or `flux submit`"
    )]
    Task { job_id: String },
    /// A Flux whose host files for ranks must give all nodes the same number.
    #[error("this is Flux {found}; ranks are placed with Flux {}.{} or newer", oldest.0, oldest.1)]
    Old {
        found: String,
        /// The oldest supported version.
        oldest: (u32, u32),
    },
    /// Nodes are told apart by their names.
    #[error(
        "this Flux instance has several brokers on {node}, and Holdfast needs one broker a node; to try it on one \
         machine, write `manager: local` under `allocation:`"
    )]
    SharedNode { node: NodeName },
}

impl From<FluxError> for AllocationError {
    fn from(error: FluxError) -> Self {
        match error {
            FluxError::Old { .. } => AllocationError::Unavailable(error.into()),
            _ => AllocationError::Unsuitable(error.into()),
        }
    }
}

impl From<QueryError> for AllocationError {
    fn from(error: QueryError) -> Self {
        AllocationError::Unavailable(error.into())
    }
}
