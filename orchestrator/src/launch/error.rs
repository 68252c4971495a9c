//! What can go wrong while ranks are launched or followed.

use std::io;
use std::path::PathBuf;

use holdfast_core::durable::DurableError;
use holdfast_model::NodeName;

use super::mpirun::FindError;
use crate::allocation::AllocationError;
use crate::host::program::ProgramError;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The allocation, as far as a launcher needs it.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    #[error(transparent)]
    Mpirun(#[from] FindError),
    /// A launcher and a resource manager that do not go together.
    #[error("`launcher: {launcher}` cannot start ranks on nodes of `manager: {manager}`; leave `run.launcher` out")]
    Unsuitable { launcher: &'static str, manager: &'static str },
    /// A plan names a launcher that this version does not have.
    #[error("the launch plan names the launcher {launcher:?}, which this version of Holdfast does not have")]
    UnknownLauncher {
        /// Its name in the plan.
        launcher: String,
    },
    /// The part of a plan that only its launcher understands.
    #[error("the part of the launch plan for the launcher {launcher} cannot be used: {source}")]
    Details {
        launcher: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The working directory is not there.
    #[error("the working directory {} does not exist; check `run.directory`", path.display())]
    NoDirectory { path: PathBuf },
    /// No agent of that node has prepared the generation.
    #[error("the agent of node {node} has not told its socket")]
    NoSocket { node: NodeName },
    /// The agents' sockets have different paths, and one command starts all ranks.
    #[error(
        "the agents' sockets differ from node to node ({}), and this launcher gives all ranks one environment; give `checkpoint.control.base` a path without `{{node}}`",
        path.display()
    )]
    SocketsDiffer { path: PathBuf },
    /// The launcher needs daemons on nodes that it cannot get onto.
    #[error(
        "nobody knows how mpirun could start a daemon on node {node}; write `launcher: local`, or leave `run.launcher` out"
    )]
    NoWay { node: NodeName },
    /// A path that a launcher would split into words.
    #[error("mpirun cannot use a path with a blank or a colon: {}; give the job another `prefix`", path.display())]
    Blank { path: PathBuf },
    /// A file of the generation.
    #[error("cannot {action} {}: {source}; check the prefix directory", path.display())]
    File {
        action: &'static str,
        /// To which file.
        path: PathBuf,
        source: io::Error,
    },
    /// The plan could not be written.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The plan cannot be used.
    #[error("{} is not a launch plan of this version of Holdfast: {problem}", path.display())]
    Plan {
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Another supervisor has this step.
    #[error("the step in {} is already being run", path.display())]
    Running { path: PathBuf },
    /// The supervisor's process.
    #[error("cannot start the step supervisor: {0}")]
    Supervisor(io::Error),
}

impl LaunchError {
    /// An error of a file with its action and path.
    pub(super) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| LaunchError::File { action, path, source }
    }
}
