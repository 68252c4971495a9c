//! What a launcher is: its entry in the registry, and the plan that it makes of a generation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_model::{Generation, NodeName, Placement, Rank, RunNode};
use holdfast_wire::environment;

use super::error::LaunchError;
use super::mpirun::Dialect;
use super::plan::StepPlan;
use super::step::Supervision;
use crate::allocation::RemoteShell;
use crate::spec::{self, LauncherFacts, ManagerFacts, RunSpec};

/// A launcher in the [`registry`](super::registry).
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
    pub manager: &'static ManagerFacts,
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
    /// The nodes are virtual: processes of this machine.
    pub on_virtual_nodes: bool,
}

impl PlainLaunch<'_> {
    /// A command that starts all ranks.
    pub(super) fn command(&self, launcher: &Path, options: &[String]) -> Command {
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

    /// True if it connects the processes of programs of MPI, whose start can fail by chance.
    fn starts_mpi(&self) -> bool {
        false
    }

    /// The family of its mpirun, if it has one: it starts programs of its own MPI only.
    fn dialect(&self) -> Option<Dialect> {
        None
    }

    /// The plan of a generation.
    ///
    /// # Errors
    /// A node of the placement has no socket or cannot be reached, or a file of the generation cannot be written.
    fn plan(&self, request: LaunchRequest<'_>) -> Result<StepPlan, LaunchError>;
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
    pub(super) fn plan(&self) -> StepPlan {
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
    pub(super) fn homes(&self) -> BTreeMap<Rank, NodeName> {
        let of_node = |node: &RunNode| node.ranks.iter().map(|rank| (*rank, node.name.clone())).collect::<Vec<_>>();
        self.placement.used().flat_map(of_node).collect()
    }

    pub(super) fn socket(&self, node: &NodeName) -> Result<&PathBuf, LaunchError> {
        self.sockets.get(node).ok_or_else(|| LaunchError::NoSocket { node: node.clone() })
    }

    /// The socket path that all agents share: if one command starts all ranks, they have the same environment.
    pub(super) fn common_socket(&self) -> Result<PathBuf, LaunchError> {
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
