//! Why requests about pairs fail.

use std::io;
use std::path::PathBuf;

use holdfast_shm::ShmError;
use holdfast_wire::pairs::PlanFault;

use super::requests::CommandFault;
use crate::directories::claim::ClaimError;
use crate::stream::StreamError;

/// Why a request about pairs failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairsError {
    #[error("the plan of the pairs cannot be carried out: {0}")]
    Plan(#[from] PlanFault),
    #[error("the request is of an orchestrator (epoch {0}) that another one (epoch {1}) has replaced")]
    Superseded(u64, u64),
    #[error("the node has pairs of another plan: end them first (`holdfast halt`), then run the job again")]
    OtherPlan,
    #[error("the node has no pairs: its agent has no plan of them")]
    NoPlan,
    #[error(
        "the watcher of the pairs cannot run on CPU {cpu}: the agent may use only the CPUs {allowed}; change \
         `pin_watcher`"
    )]
    Cpu { cpu: u32, allowed: String },
    #[error("the directory {} is not below a prefix directory of this job", .0.display())]
    NotInPrefix(PathBuf),
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Registry(#[from] ShmError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Command(#[from] CommandFault),
    #[error("cannot {action}: {source}")]
    Io { action: String, source: io::Error },
}
