//! Launchers behind one trait, and the step supervisor that outlives the orchestrator.
//!
//! A launcher says which processes make up a generation ([`StepPlan`]). `holdfast step PLAN` starts them and writes down
//! what becomes of them ([`step`]); the orchestrator, or the one that takes over from it, reads that ([`follow`]) and shows
//! what the ranks print ([`output`]).
//!
//! Everything of a generation lies in `<prefix>/.holdfast/generations/<g>/`: `plan.json`, `steps.jsonl`, and of each rank
//! `rank_<r>.out` and `rank_<r>.err`; or, where one command starts all ranks, `ranks.out` and `ranks.err`.

mod command;
mod descendants;
mod error;
pub mod follow;
pub mod labels;
pub mod local;
pub mod mpirun;
pub mod output;
pub mod plan;
pub mod program;
pub mod rank;
pub mod remote;
pub mod remote_shell;
pub mod srun;
pub mod step;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_core::ids::{Generation, NodeName};

pub use error::LaunchError;
pub use plan::{LauncherCommand, StepEvent, StepPlan, StepProcess};

use crate::allocation::RemoteShell;
use crate::relaunch::Placement;
use crate::spec::Run;

/// What a launcher has to know.
#[derive(Clone, Copy, Debug)]
pub struct LaunchRequest<'a> {
    /// The job id.
    pub job_id: &'a str,
    /// The generation.
    pub generation: Generation,
    /// Who runs where.
    pub placement: &'a Placement,
    /// The agents' sockets.
    pub sockets: &'a BTreeMap<NodeName, PathBuf>,
    /// The ways onto the nodes that have ranks, where there are any.
    pub reach: &'a BTreeMap<NodeName, RemoteShell>,
    /// What is to be run.
    pub run: &'a Run,
    /// The program, found.
    pub program: &'a Path,
    /// The working directory of every rank, absolute.
    pub working_directory: &'a Path,
    /// The generation's directory.
    pub directory: &'a Path,
}

/// Turns a placement into processes.
pub trait Launcher: Send + Sync {
    /// Its name, as in a spec.
    fn name(&self) -> &'static str;

    /// The processes of a generation.
    ///
    /// # Errors
    /// A node of the placement has no socket.
    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError>;
}

/// One environment goes to all ranks, so that their agents' sockets must have one name.
fn common_socket(request: &LaunchRequest<'_>) -> Result<PathBuf, LaunchError> {
    let mut common: Option<&PathBuf> = None;
    for node in request.placement.used() {
        let Some(socket) = request.sockets.get(&node.name) else {
            return Err(LaunchError::NoSocket { node: node.name.clone() });
        };
        if common.is_some_and(|other| other != socket) {
            return Err(LaunchError::SocketsDiffer { path: socket.clone() });
        }
        common = Some(socket);
    }
    Ok(common.cloned().unwrap_or_default())
}
