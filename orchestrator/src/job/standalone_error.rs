//! Why `holdfast drain` failed.

use std::path::PathBuf;

use holdfast_core::durable;
use holdfast_core::state_files;
use holdfast_wire::trust::TrustError;

use super::state::StateError;
use crate::allocation::AllocationError;
use crate::drain::DrainError;
use crate::exit;
use crate::fleet::FleetError;

/// Why a drain could not be begun or carried out.
#[derive(Debug, thiserror::Error)]
pub enum StandaloneError {
    #[error(
        "no job was run in {}; name its spec or `--prefix`, or the nodes' directories with `--root`",
        prefix.display()
    )]
    NoJob { prefix: PathBuf },
    #[error("the nodes of job {job_id} do not exist any more ({place}): nothing is left to drain")]
    NoNodes { job_id: String, place: String },
    #[error(
        "job {job_id} has pairs of main and replica, whose checkpoints are in shared memory: nothing can be drained; \
         `holdfast run` takes the job over, `holdfast halt set --immediate` ends it"
    )]
    Pairs { job_id: String },
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Drain(#[from] DrainError),
    #[error("cannot open the event log: {0}; check the prefix directory")]
    EventLog(std::io::Error),
}

impl StandaloneError {
    /// The exit code: see [`crate::exit`].
    pub fn exit_code(&self) -> u8 {
        match self {
            StandaloneError::Fleet(_) | StandaloneError::Trust(_) => exit::INTERNAL,
            StandaloneError::Allocation(AllocationError::Name { .. }) => exit::USAGE,
            StandaloneError::Drain(error) if error.is_unwritable() => exit::CANNOT_WRITE,
            StandaloneError::Drain(DrainError::Prefix { .. }) => exit::DAMAGED_DATA,
            StandaloneError::State(error) if error.is_refusal() => exit::CONFIGURATION,
            StandaloneError::EventLog(error) if state_files::is_refusal(error) => exit::CONFIGURATION,
            StandaloneError::Allocation(error) if error.is_refusal() => exit::CONFIGURATION,
            StandaloneError::State(error) if error.prevents_writing() => exit::CANNOT_WRITE,
            StandaloneError::EventLog(error) if durable::prevents_writing(error) => exit::CANNOT_WRITE,
            _ => exit::UNAVAILABLE,
        }
    }
}
