//! Errors that only Slurm has.

use super::query::QueryError;
use crate::allocation::error::AllocationError;

#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// This process is not in an allocation.
    #[error(
        "this is not an allocation of slurm: {missing} is not set; start `holdfast run` in a batch script (`sbatch`) \
        or an interactive allocation (`salloc`)"
    )]
    Outside {
        /// The variable that is set in every allocation.
        missing: &'static str,
    },
    /// A step covers one component of such a job, unless it names others.
    #[error(
        "this Slurm job is heterogeneous: {variable} is set. Holdfast would use the nodes of its first component only; \
        submit one job without `:` and `#SBATCH hetjob`"
    )]
    Heterogeneous { variable: &'static str },
    /// One element has the id of the array, which Slurm's commands take for all elements.
    #[error(
        "this Slurm job is an element of a job array: {variable} is set. The id of an array stands for all its \
        elements, so that a requeue or a cancel would end the others too; submit a job for each element, each with a \
        `prefix` of its own"
    )]
    Array { variable: &'static str },
    /// A Slurm without overlapping steps.
    #[error("this is Slurm {found}; overlapping steps need Slurm {}.{:02} or newer", oldest.0, oldest.1)]
    Old {
        /// Its answer to `--version`.
        found: String,
        /// The oldest supported version.
        oldest: (u32, u32),
    },
}

impl From<SlurmError> for AllocationError {
    fn from(error: SlurmError) -> Self {
        match error {
            SlurmError::Outside { .. } | SlurmError::Heterogeneous { .. } | SlurmError::Array { .. } => {
                AllocationError::Unsuitable(error.into())
            }
            SlurmError::Old { .. } => AllocationError::Unavailable(error.into()),
        }
    }
}

impl From<QueryError> for AllocationError {
    fn from(error: QueryError) -> Self {
        AllocationError::Unavailable(error.into())
    }
}
