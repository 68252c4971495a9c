//! Launchers behind one trait, and the step supervisor that outlives the orchestrator.
//!
//! A launcher says which processes make up a generation ([`StepPlan`]). `holdfast step PLAN` starts them and writes down
//! what becomes of them ([`step`]); the orchestrator, or the one that takes over from it, reads that ([`follow`]) and shows
//! what the ranks print ([`output`]).
//!
//! Everything of a generation lies in `<prefix>/.holdfast/generations/<g>/`: `plan.json`, `steps.jsonl`, and of each rank
//! `rank_<r>.out` and `rank_<r>.err`; or, where one command starts all ranks, `ranks.out` and `ranks.err`.

mod abort;
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

use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::environment;
use holdfast_wire::run::RunNode;

pub use error::LaunchError;
pub use plan::{LauncherCommand, StepEvent, StepPlan, StepProcess};

use crate::allocation::RemoteShell;
use crate::spec::Run;
use holdfast_model::Placement;

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

impl LaunchRequest<'_> {
    /// What the plans of all launchers begin with: the program, its arguments, and the variables of every rank.
    fn plan(&self) -> StepPlan {
        let mut plan = StepPlan::new(
            self.job_id.to_owned(),
            self.generation,
            self.program.to_owned(),
            self.working_directory.to_owned(),
        );
        plan.arguments = self.run.command.iter().skip(1).cloned().collect();
        plan.environment = self.run.env.clone();
        plan.environment.extend([
            (environment::JOB.to_owned(), self.job_id.to_owned()),
            (environment::GENERATION.to_owned(), self.generation.to_string()),
            (environment::RANKS.to_owned(), self.placement.ranks().to_string()),
        ]);
        plan
    }

    /// Each rank with its node, in the order of the ranks: what a host file says.
    fn homes(&self) -> BTreeMap<Rank, NodeName> {
        let of_node = |node: &RunNode| node.ranks.iter().map(|rank| (*rank, node.name.clone())).collect::<Vec<_>>();
        self.placement.used().flat_map(of_node).collect()
    }

    /// One environment goes to all ranks that one command starts, so that their agents' sockets must have one name.
    fn common_socket(&self) -> Result<PathBuf, LaunchError> {
        let mut common: Option<&PathBuf> = None;
        for node in self.placement.used() {
            let Some(socket) = self.sockets.get(&node.name) else {
                return Err(LaunchError::NoSocket { node: node.name.clone() });
            };
            if common.is_some_and(|other| other != socket) {
                return Err(LaunchError::SocketsDiffer { path: socket.clone() });
            }
            common = Some(socket);
        }
        Ok(common.cloned().unwrap_or_default())
    }
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

/// What the launchers' tests have in common.
#[cfg(test)]
mod rehearsal {
    use super::*;

    /// A node with these ranks.
    pub(super) fn node(name: &str, ranks: &[u32]) -> RunNode {
        RunNode {
            name: name.into(),
            address: ([10, 0, 0, 1], 1).into(),
            failure_domain: name.to_owned(),
            ranks: ranks.iter().copied().map(Rank).collect(),
        }
    }

    /// Launches `/bin/app` as the third generation of job 17; the first node leads.
    pub(super) fn launch(
        launcher: &dyn Launcher,
        run: &Run,
        nodes: Vec<RunNode>,
        sockets: &[(&str, &str)],
        directory: &Path,
    ) -> Result<StepPlan, LaunchError> {
        let leader = nodes[0].name.clone();
        let placement = Placement { nodes, leader };
        let sockets = sockets.iter().map(|(name, path)| ((*name).into(), PathBuf::from(path))).collect();
        let way = |node: &RunNode| (node.name.clone(), RemoteShell::over_srun(&node.name, None));
        let reach = placement.used().map(way).collect();
        launcher.plan(LaunchRequest {
            job_id: "17",
            generation: Generation(3),
            placement: &placement,
            sockets: &sockets,
            reach: &reach,
            run,
            program: Path::new("/bin/app"),
            working_directory: Path::new("/"),
            directory,
        })
    }
}
