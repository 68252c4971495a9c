//! What can go wrong while ranks are launched or followed.

use std::io;
use std::path::PathBuf;

use holdfast_core::durable::DurableError;
use holdfast_model::NodeName;

/// A launch failed.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The command's program is not there.
    #[error("the program {program:?} does not exist{}; check `run.command`", searched.as_ref().map(|path| format!(" in PATH ({path})")).unwrap_or_default())]
    NoProgram {
        /// As it stands in the spec.
        program: String,
        /// The PATH that was searched, if it was.
        searched: Option<String>,
    },
    /// It is there, and cannot be run.
    #[error("{} is not an executable file; check `run.command` and its mode", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The working directory is not there.
    #[error("the working directory {} does not exist; check `run.directory`", path.display())]
    NoDirectory {
        /// It.
        path: PathBuf,
    },
    /// No agent of that node has prepared the generation.
    #[error("the agent of node {node} has not told its socket")]
    NoSocket {
        /// The node.
        node: NodeName,
    },
    /// The agents' sockets have different paths, and one command starts all ranks.
    #[error(
        "the agents' sockets differ from node to node ({}), and this launcher gives all ranks one environment; give `checkpoint.control.base` a path without `{{node}}`",
        path.display()
    )]
    SocketsDiffer {
        /// One of them.
        path: PathBuf,
    },
    /// The launcher needs daemons on nodes that it cannot get onto.
    #[error(
        "nobody knows how mpirun could start a daemon on node {node}; write `launcher: local`, or leave `run.launcher` out"
    )]
    NoWay {
        /// The node.
        node: NodeName,
    },
    /// A path that a launcher would split into words.
    #[error("mpirun cannot use a path with a blank or a colon: {}; give the job another `prefix`", path.display())]
    Blank {
        /// The program.
        path: PathBuf,
    },
    /// A file of the generation.
    #[error("cannot {action} {}: {source}; check the prefix directory", path.display())]
    File {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The plan could not be written.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The plan cannot be used.
    #[error("{} is not a launch plan of this version of Holdfast: {problem}", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Another supervisor has this step.
    #[error("the step in {} is already being run", path.display())]
    Running {
        /// The generation's directory.
        path: PathBuf,
    },
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
