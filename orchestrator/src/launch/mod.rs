//! Launchers: the processes of a generation and their supervision.
//!
//! A launcher is one folder and one line in the [`registry`]. It plans a generation ([`Launcher`], in the
//! orchestrator), and supervises its plan ([`Supervision`], in `holdfast step PLAN`, which survives the orchestrator).
//! The plan on disk names its launcher. The orchestrator, or its successor, follows the events of the supervisor
//! ([`follow`]) and shows the output of the ranks ([`output`]).
//!
//! | folder, file | subject |
//! |---|---|
//! | [`local`] | every rank is a child of the supervisor |
//! | [`srun`] | all ranks are one Slurm step |
//! | [`mpirun`] | all ranks are started by one mpirun of Open MPI or MPICH |
//! | [`ssh`] | the ranks of a node are started over an ssh connection |
//! | `command` | shared by `srun` and `mpirun`: a command that starts all ranks |
//! | `children` | shared by all: starting, reaping and killing processes |
//! | [`plan`] | the two files between the orchestrator and the supervisor |
//! | [`step`] | the supervisor |
//!
//! The files of a generation are in `<prefix>/.holdfast/generations/<g>/`: `plan.json`, `steps.jsonl`, and for each
//! rank `rank_<r>.out` and `rank_<r>.err`; or `ranks.out` and `ranks.err` if one command starts all ranks.

pub(crate) mod children;
mod command;
mod error;
pub mod follow;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub mod local;
pub mod mpirun;
mod named_files;
pub mod output;
pub mod plan;
pub mod registry;
pub mod srun;
pub mod ssh;
pub mod step;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_model::{Generation, NodeName, Placement, Rank, RunNode};
use holdfast_wire::environment;

pub use error::LaunchError;
pub use plan::{StepEvent, StepPlan};
pub use step::Step;

use crate::allocation::RemoteShell;
use crate::spec::{self, LauncherFacts, RunSpec};

/// A launcher in the [`registry`].
#[derive(Debug)]
pub struct LauncherEntry {
    /// The name, in a spec and in plans, and what reading a spec depends on.
    pub facts: LauncherFacts,
    /// Finds its programs on this machine.
    pub open: fn(&LauncherContext<'_>) -> Result<Box<dyn Launcher>, LaunchError>,
    /// The supervision of its plans.
    pub supervision: fn(&StepPlan) -> Result<Box<dyn Supervision>, LaunchError>,
}

/// Requirements for a launcher.
#[derive(Clone, Copy, Debug)]
pub struct LauncherContext<'a> {
    pub run: &'a RunSpec,
    /// The nodes, as in the spec.
    pub allocation: &'a spec::Allocation,
    /// The working directory of every rank, absolute.
    pub working_directory: &'a Path,
}

/// The switch of the API in the ranks' environment.
pub const SCR_ENABLE: &str = "SCR_ENABLE";

/// A launch without agents and supervision.
#[derive(Clone, Copy, Debug)]
pub struct PlainLaunch<'a> {
    pub run: &'a RunSpec,
    /// The executable of the program.
    pub program: &'a Path,
}

impl PlainLaunch<'_> {
    /// A command that starts all ranks.
    fn command(&self, launcher: &Path, options: &[String]) -> Command {
        let mut command = Command::new(launcher);
        command.args(options).args(&self.run.launcher_options);
        command.arg(self.program).args(self.run.command.iter().skip(1)).envs(&self.run.env);
        command
    }
}

/// Turns a placement into a plan.
pub trait Launcher: Send + Sync {
    /// The commands that a user would type to start the ranks: one for all, or one a rank.
    ///
    /// # Errors
    /// There are none for this launcher.
    fn plain(&self, _launch: &PlainLaunch<'_>) -> Result<Vec<Command>, LaunchError> {
        Err(LaunchError::NotPlain)
    }

    /// The plan of a generation.
    ///
    /// # Errors
    /// A node of the placement has no socket or cannot be reached, or a file of the generation cannot be written.
    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError>;
}

/// Starts the ranks of a plan and supervises them.
pub trait Supervision {
    /// Runs until the last rank has ended. Emits events with [`Step::emit`].
    ///
    /// # Errors
    /// The generation's directory cannot be written to.
    fn run(&mut self, step: &mut Step) -> Result<(), LaunchError>;

    /// The labels of lines in a file of all ranks; `None` if each rank has its own files.
    fn labels(&self) -> Option<&'static LineLabels> {
        None
    }
}

/// A rank and its output.
pub type LabelledText<'a> = (Rank, Cow<'a, [u8]>);

/// The labels of lines in a file of all ranks.
#[derive(Debug)]
pub struct LineLabels {
    /// The rank and the text of a line; `None` for the launcher's own messages.
    pub read: fn(&[u8]) -> Option<LabelledText<'_>>,
    /// True for a text that is for the supervisor only.
    pub is_internal: fn(&[u8]) -> bool,
}

/// The generation to launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchRequest<'a> {
    pub job_id: &'a str,
    pub generation: Generation,
    pub placement: &'a Placement,
    pub sockets: &'a BTreeMap<NodeName, PathBuf>,
    /// Remote shells for the nodes with ranks, where available.
    pub reach: &'a BTreeMap<NodeName, RemoteShell>,
    pub run: &'a RunSpec,
    /// Further variables of all ranks.
    pub variables: &'a BTreeMap<String, String>,
    /// Variables that differ from node to node.
    pub node_variables: &'a BTreeMap<NodeName, BTreeMap<String, String>>,
    /// The executable that the launcher starts.
    pub program: &'a Path,
    /// The arguments in front of those of `run.command`.
    pub leading_arguments: &'a [String],
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
        plan.arguments = self.leading_arguments.iter().chain(self.run.command.iter().skip(1)).cloned().collect();
        plan.environment = self.run.env.clone();
        plan.environment.extend(self.variables.clone());
        plan.environment.extend([
            (environment::JOB.to_owned(), self.job_id.to_owned()),
            (environment::GENERATION.to_owned(), self.generation.to_string()),
            (environment::RANKS.to_owned(), self.placement.ranks().to_string()),
        ]);
        plan
    }

    /// Each rank with its node, in the order of the ranks.
    fn homes(&self) -> BTreeMap<Rank, NodeName> {
        let of_node = |node: &RunNode| node.ranks.iter().map(|rank| (*rank, node.name.clone())).collect::<Vec<_>>();
        self.placement.used().flat_map(of_node).collect()
    }

    fn socket(&self, node: &NodeName) -> Result<&PathBuf, LaunchError> {
        self.sockets.get(node).ok_or_else(|| LaunchError::NoSocket { node: node.clone() })
    }

    /// The socket path that all agents share: if one command starts all ranks, they have the same environment.
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

    /// Plans `/bin/app` as the third generation of job 17; the leader is on the first node.
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
        let shell = |node: &RunNode| (node.name.clone(), RemoteShell::over_srun(&node.name, None));
        let reach = placement.used().map(shell).collect();
        launcher.plan(LaunchRequest {
            job_id: "17",
            generation: Generation(3),
            placement: &placement,
            sockets: &sockets,
            reach: &reach,
            run,
            variables: &BTreeMap::new(),
            node_variables: &BTreeMap::new(),
            program: Path::new("/bin/app"),
            leading_arguments: &[],
            working_directory: Path::new("/"),
            directory,
        })
    }

    /// The details of a plan, as the supervisor reads them. The plan must have a registered launcher.
    pub(super) fn details<T: DeserializeOwned>(plan: &StepPlan) -> T {
        registry::supervision(plan).unwrap();
        plan.details().unwrap()
    }
}
