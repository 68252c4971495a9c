//! Errors that only PBS has.

use std::io;
use std::path::PathBuf;

use super::query::QueryError;
use crate::allocation::error::AllocationError;

#[derive(Debug, thiserror::Error)]
pub enum PbsError {
    /// This process is not in a job.
    #[error(
        "this is not a job of pbs: {missing} is not set; start `holdfast run` in a batch script (`qsub`) or an \
         interactive job (`qsub -I`)"
    )]
    Outside {
        /// The variable that is set in every job.
        missing: &'static str,
    },
    /// Only the node of the batch script has the file.
    #[error(
        "cannot read {}, which PBS_NODEFILE names: {source}; start `holdfast run` on the node of the batch script",
        path.display()
    )]
    NodeFile { path: PathBuf, source: io::Error },
    #[error("{}, which PBS_NODEFILE names, lists no node; submit the job again", path.display())]
    NoNodes { path: PathBuf },
    /// Agents could not reach this process, nor each other.
    #[error("this node finds no address of another node of the job ({node}: {source}); check its name service")]
    NoAddress { node: String, source: io::Error },
}

impl From<PbsError> for AllocationError {
    fn from(error: PbsError) -> Self {
        match error {
            PbsError::Outside { .. } => AllocationError::Unsuitable(error.into()),
            _ => AllocationError::Unavailable(error.into()),
        }
    }
}

impl From<QueryError> for AllocationError {
    fn from(error: QueryError) -> Self {
        AllocationError::Unavailable(error.into())
    }
}
