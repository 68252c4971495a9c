//! Calls that all ranks make together.
//!
//! Ranks → their agent → the leader (the agent of the run's first node) → back. The leader carries out a call by
//! *orders* to every agent, each of which can be repeated, and keeps its last results on disk. A rank repeats a call
//! that was not answered, with the same number. So any agent, the leader included, may die at any instant, and the run
//! continues when it is started again.
//!
//! * [`run`]: the run in force, and beginning one;
//! * [`participation`]: the calls of this node's ranks; [`member`]: the link to the leader;
//! * [`leader`]: collects the calls, decides, and orders.

mod error;
pub mod leader;
mod link;
pub mod member;
mod participation;
pub mod run;
mod writers;

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_model::{Failure, Generation, Rank};
use holdfast_wire::plan::MemberPlan;
use holdfast_wire::rank::{Call, Reply, RestartFiles};
use holdfast_wire::run::FaultPoint;

pub use error::CallError;
#[cfg(feature = "simulation")]
pub(crate) use run::prepare_blocking;
pub use run::{Collectives, RunError, adopt, begin_run, check_places, serve_link};

use crate::agent::fault_injection;
use crate::directories::paths::base_name;
use crate::run::workspace;

/// Carries out a collective call of one rank; returns when all ranks have made it.
pub async fn call(
    collectives: &Collectives,
    plan: &Arc<MemberPlan>,
    rank: Rank,
    seq: u64,
    call: Call,
) -> Result<Reply, Failure> {
    let over = || Failure::from(CallError::GenerationOver(plan.generation));
    let part = collectives.participation().filter(|part| part.run.plan.generation == plan.generation);
    part.ok_or_else(over)?.call(rank, seq, call).await.map_err(|_| over())?
}

/// Where a rank writes (inside a checkpoint) or reads (before the first) the file of this name. Blocks.
///
/// # Errors
/// When no checkpoint can contain a file of this name, the file belongs to another rank, or no checkpoint is open or to
/// be read.
pub fn route(collectives: &Collectives, rank: Rank, name: &str) -> Result<PathBuf, CallError> {
    let agent = &collectives.agent;
    let run = collectives.run().ok_or(CallError::NoRun)?;
    let files = run.files_of(rank, agent);
    let memory = run.memory.read();
    if let Some(checkpoint) = memory.open {
        let path = run.source.make(&files, checkpoint, name)?;
        fault_injection::reach(agent, FaultPoint::Write, checkpoint);
        return Ok(path);
    }
    let checkpoint = memory.restart.ok_or(CallError::NothingToRead)?;
    Ok(files.readable(checkpoint, name, base_name(name)?)?)
}

/// The files of the checkpoint to restart from that a rank can read. Blocks.
///
/// # Errors
/// When there is none, or its summary cannot be read.
pub fn restart_files(collectives: &Collectives, rank: Rank) -> Result<RestartFiles, CallError> {
    let run = collectives.run().ok_or(CallError::NoRun)?;
    let memory = run.memory.read();
    let checkpoint = memory.restart.filter(|_| memory.open.is_none()).ok_or(CallError::NothingToRead)?;
    Ok(run.files_of(rank, &collectives.agent).restart_files(checkpoint, run.plan.ranks)?)
}

/// An empty directory for the own files of a rank process. Blocks.
pub fn workspace(collectives: &Collectives, rank: Rank) -> Result<PathBuf, CallError> {
    let run = collectives.run().ok_or(CallError::NoRun)?;
    workspace::open(&collectives.agent.paths, &run.plan.settings, rank)?.ok_or(CallError::NoRun)
}

/// The generation that this agent serves, 0 before the first.
pub fn serving(collectives: &Collectives) -> Generation {
    collectives.plan().map_or(Generation::NONE, |plan| plan.generation)
}
