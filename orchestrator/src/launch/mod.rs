//! Launchers: which processes make up a generation, and how they are supervised.
//!
//! A launcher is one folder and one line in the [`registry`]. It plans a generation ([`Launcher`], in the orchestrator), and
//! it supervises what it planned ([`Supervision`], in `holdfast step PLAN`, which outlives the orchestrator). The plan on
//! disk names its launcher. The orchestrator, or the one that takes over from it, reads what the supervisor writes down
//! ([`follow`]) and shows what the ranks print ([`output`]).
//!
//! | folder, file | subject |
//! |---|---|
//! | [`local`] | every rank is a child of the supervisor |
//! | [`srun`] | one Slurm step is the whole run |
//! | [`mpirun`] | one mpirun of Open MPI or MPICH is the whole run |
//! | [`ssh`] | the ranks of a node are started over a connection to it |
//! | `command` | shared by `srun` and `mpirun`: one command that starts all ranks |
//! | `children` | shared by all: processes that are started, waited for and killed |
//! | [`plan`] | the two files between the orchestrator and the supervisor |
//! | [`step`] | the supervisor |
//!
//! Everything of a generation lies in `<prefix>/.holdfast/generations/<g>/`: `plan.json`, `steps.jsonl`, and of each rank
//! `rank_<r>.out` and `rank_<r>.err`; or, where one command starts all ranks, `ranks.out` and `ranks.err`.

pub(crate) mod children;
mod command;
mod error;
pub mod follow;
pub mod local;
pub mod mpirun;
pub mod output;
pub mod plan;
pub mod registry;
pub mod srun;
pub mod ssh;
pub mod step;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_model::{Generation, NodeName, Placement, Rank, RunNode};
use holdfast_wire::environment;

pub use error::LaunchError;
pub use plan::{StepEvent, StepPlan};
pub use step::Step;

use crate::allocation::RemoteShell;
use crate::spec::{self, LauncherFacts, RunSpec};

/// A launcher's line in the [`registry`].
#[derive(Debug)]
pub struct LauncherEntry {
    /// Its name, in a spec and in plans, and what reading a spec depends on.
    pub facts: LauncherFacts,
    /// Finds what it needs on this machine.
    pub open: fn(&LauncherContext<'_>) -> Result<Box<dyn Launcher>, LaunchError>,
    /// The supervision of a plan that it made.
    pub supervision: fn(&StepPlan) -> Result<Box<dyn Supervision>, LaunchError>,
}

/// What a launcher is opened for.
#[derive(Clone, Copy, Debug)]
pub struct LauncherContext<'a> {
    pub run: &'a RunSpec,
    /// The nodes, as the spec describes them.
    pub allocation: &'a spec::Allocation,
    /// The working directory of every rank, absolute.
    pub working_directory: &'a Path,
}

/// Turns a placement into a plan.
pub trait Launcher: Send + Sync {
    /// The plan of a generation.
    ///
    /// # Errors
    /// A node of the placement has no socket or cannot be reached, or a file of the generation cannot be written.
    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError>;
}

/// Starts what a plan says, and watches it to its end.
pub trait Supervision {
    /// Runs to the end of the last rank. [`Step::emit`] takes what happens.
    ///
    /// # Errors
    /// The generation's directory cannot be written to.
    fn run(&mut self, step: &mut Step) -> Result<(), LaunchError>;

    /// How the lines of all ranks in one file are told apart; `None` if each rank has files of its own.
    fn labels(&self) -> Option<&'static LineLabels> {
        None
    }
}

/// A rank, and what it printed.
pub type LabelledText<'a> = (Rank, Cow<'a, [u8]>);

/// How a launcher labels lines in a file that holds the lines of all ranks.
#[derive(Debug)]
pub struct LineLabels {
    /// The rank and the text of a line; `None` for the launcher's own messages.
    pub read: fn(&[u8]) -> Option<LabelledText<'_>>,
    /// True for a text that is meant for the supervisor, not for people.
    pub is_internal: fn(&[u8]) -> bool,
}

/// What a launcher has to know of a generation.
#[derive(Clone, Copy, Debug)]
pub struct LaunchRequest<'a> {
    pub job_id: &'a str,
    pub generation: Generation,
    pub placement: &'a Placement,
    pub sockets: &'a BTreeMap<NodeName, PathBuf>,
    /// How to get onto the nodes that have ranks, where that is possible.
    pub reach: &'a BTreeMap<NodeName, RemoteShell>,
    pub run: &'a RunSpec,
    /// The program, found.
    pub program: &'a Path,
    /// The working directory of every rank, absolute.
    pub working_directory: &'a Path,
    pub directory: &'a Path,
}

impl LaunchRequest<'_> {
    /// The common part of all launchers' plans: the program, its arguments, and the variables of every rank.
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

    /// Each rank with its node, in the order of the ranks: the content of a host file.
    fn homes(&self) -> BTreeMap<Rank, NodeName> {
        let of_node = |node: &RunNode| node.ranks.iter().map(|rank| (*rank, node.name.clone())).collect::<Vec<_>>();
        self.placement.used().flat_map(of_node).collect()
    }

    /// The socket of a node's agent.
    fn socket(&self, node: &NodeName) -> Result<&PathBuf, LaunchError> {
        self.sockets.get(node).ok_or_else(|| LaunchError::NoSocket { node: node.clone() })
    }

    /// One environment goes to all ranks that one command starts, so that their agents' sockets must have one name.
    fn common_socket(&self) -> Result<PathBuf, LaunchError> {
        let mut common: Option<&PathBuf> = None;
        for node in self.placement.used() {
            let socket = self.socket(&node.name)?;
            if common.is_some_and(|other| other != socket) {
                return Err(LaunchError::SocketsDiffer { path: socket.clone() });
            }
            common = Some(socket);
        }
        Ok(common.cloned().unwrap_or_default())
    }
}

/// Fixtures of the launchers' tests.
#[cfg(test)]
mod fixtures {
    use super::*;
    use serde::de::DeserializeOwned;

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
        run: &RunSpec,
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

    /// What a launcher wrote into its plan, read as the supervisor reads it; the plan must find its launcher again.
    pub(super) fn details<T: DeserializeOwned>(plan: &StepPlan) -> T {
        registry::supervision(plan).unwrap();
        plan.details().unwrap()
    }
}
