//! Calls that all ranks make together.
//!
//! Ranks → their agent → the leader (the agent of the run's first node) → back. The leader carries a call out by
//! *orders* to every agent, each of which can be repeated, and keeps its last results on disk; a rank repeats a call that was
//! not answered, with its number. So any agent, the leader included, may die alone at any instant and go on when it is
//! started again.
//!
//! * [`run`]: the run in force, and taking it on;
//! * [`member`]: this node's ranks' calls, and the link to the leader;
//! * [`leader`]: gathering, deciding, ordering.

mod error;
pub mod leader;
pub mod member;
pub mod run;
mod writers;

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_model::{Failure, Generation, Rank};
use holdfast_wire::rank::{Call, Reply};
use holdfast_wire::run::{RehearsalPoint, RunPlan};

pub use error::CallError;
pub use leader::serve_link;
pub use run::{Collectives, Run, RunError, adopt, begin_run};

use crate::paths::base_name;
use crate::rehearsal;
use crate::sources::files::RankFiles;

/// Carries out a collective call of one rank; returns when all ranks have made it.
pub async fn call(
    collectives: &Collectives,
    plan: &Arc<RunPlan>,
    rank: Rank,
    seq: u64,
    call: Call,
) -> Result<Reply, Failure> {
    let over = || Failure::from(CallError::GenerationOver(plan.generation));
    let run = collectives.run().filter(|run| run.plan.generation == plan.generation).ok_or_else(over)?;
    let waiting = run.calls.make(&run, rank, seq, call);
    waiting.await.map_err(|_| over())?
}

/// Where a rank writes (inside a checkpoint) or reads (before the first) the file of this name. Blocks.
///
/// # Errors
/// When the name is none, the file is another rank's, or there is nothing to write to or to read.
pub fn route(collectives: &Collectives, rank: Rank, name: &str) -> Result<PathBuf, CallError> {
    let name = base_name(name)?;
    let agent = &collectives.agent;
    let run = collectives.run().ok_or(CallError::NoRun)?;
    let files = RankFiles { rank, store: &agent.store, memory: &run.memory };
    let memory = run.memory.read();
    if let Some(checkpoint) = memory.open {
        let path = run.source.make(&files, checkpoint, name)?;
        rehearsal::point(agent, RehearsalPoint::Write, checkpoint);
        return Ok(path);
    }
    let checkpoint = memory.restart.ok_or(CallError::NothingToRead)?;
    Ok(files.readable(checkpoint, name)?)
}

/// The generation that this agent serves, 0 before the first.
pub fn serving(collectives: &Collectives) -> Generation {
    collectives.plan().map_or(Generation::NONE, |plan| plan.generation)
}
