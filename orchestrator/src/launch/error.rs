//! Errors of launching and following ranks.

use std::io;
use std::path::PathBuf;

use holdfast_core::owned::OwnedError;
use holdfast_model::NodeName;

use crate::allocation::AllocationError;
use crate::host::program::ProgramError;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// An error that only one launcher has.
    #[error(transparent)]
    OfLauncher(Box<dyn std::error::Error + Send + Sync>),
    /// A launcher that does not support the resource manager.
    #[error("`launcher: {launcher}` cannot start ranks on nodes of `manager: {manager}`; leave `run.launcher` out")]
    Unsuitable { launcher: &'static str, manager: &'static str },
    /// Options for a launcher that has no command line.
    #[error(
        "`run.launcher_options` have no effect with `launcher: {launcher}` on nodes of `manager: {manager}`, where no \
        command starts the ranks; leave them out"
    )]
    NoOptions { launcher: &'static str, manager: &'static str },
    /// The variable that describes them would be longer than Linux permits.
    #[error(
        "`launcher: torchrun` cannot describe which ranks share a node: too many nodes have different numbers of \
        ranks; give all nodes the same number (`run.ranks_per_node`)"
    )]
    ScatteredRanks,
    #[error(
        "SCR_ENABLE=0: this launcher has no command that starts all ranks without Holdfast; write \
        `launcher: mpirun`, or unset SCR_ENABLE"
    )]
    NotPlain,
    /// A plan names a launcher that this version does not have.
    #[error("the launch plan is for the launcher {launcher:?}, which this version of Holdfast does not have")]
    UnknownLauncher { launcher: String },
    /// The part of a plan that is specific to its launcher.
    #[error("the launch plan has invalid details for the launcher {launcher}: {source}")]
    Details { launcher: String, source: serde_json::Error },
    #[error("the working directory {} does not exist; check `{key}`", path.display())]
    NoDirectory { path: PathBuf, key: &'static str },
    /// The agent of the node has not prepared the generation.
    #[error("the agent of node {node} has not reported its socket; this is a defect of Holdfast")]
    NoSocket { node: NodeName },
    /// The agents' sockets have different paths, but one command starts all ranks.
    #[error(
        "the paths of the agents' sockets differ between nodes ({}), but this launcher gives all ranks the same \
        environment; set `checkpoint.control.base` to a path without `{{node}}`",
        path.display()
    )]
    SocketsDiffer { path: PathBuf },
    #[error(
        "mpirun cannot start a daemon on node {node}: there is no remote shell; write `launcher: local`, or leave \
        `run.launcher` out"
    )]
    NoWay { node: NodeName },
    /// A path that mpirun would split.
    #[error("mpirun does not support paths with a blank or a colon: {}; choose another `prefix`", path.display())]
    Blank { path: PathBuf },
    /// A file of the generation.
    #[error("cannot {action} {}: {source}; check the prefix directory", path.display())]
    File {
        action: &'static str,
        /// To which file.
        path: PathBuf,
        source: io::Error,
    },
    /// A file of the generation cannot be used, or is not used because another user may have made it.
    #[error(transparent)]
    Owned(#[from] OwnedError),
    /// The plan cannot be used.
    #[error("{} is not a launch plan of this version of Holdfast: {problem}", path.display())]
    Plan { path: PathBuf, problem: String },
    /// Another supervisor runs this step.
    #[error("the step in {} already has a supervisor", path.display())]
    Running { path: PathBuf },
    #[error("cannot start the step supervisor: {0}")]
    Supervisor(io::Error),
}

impl LaunchError {
    /// A file error with action and path.
    pub(super) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| LaunchError::File { action, path, source }
    }
}
