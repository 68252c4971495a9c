//! What can go wrong between us and a resource manager.

use std::io;
use std::path::PathBuf;

use holdfast_model::NodeName;

/// The allocation as a whole cannot be used or given back.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// A directory of the local manager.
    #[error("cannot {action} {}: {source}; {remedy}", path.display())]
    Directory {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What the user can do.
        remedy: &'static str,
    },
    /// We stand in an allocation that this version cannot use.
    #[error(
        "this is an allocation of {manager}, which this version cannot use; write `manager: local` under `allocation:` to run on this node only"
    )]
    UnknownManager {
        /// Its name.
        manager: &'static str,
    },
    /// We do not stand in an allocation.
    #[error(
        "this is no allocation of {manager}: {missing} is not set; start `holdfast run` in a batch script (`sbatch`) or an interactive allocation (`salloc`)"
    )]
    Outside {
        /// The manager.
        manager: &'static str,
        /// The variable that an allocation would have.
        missing: &'static str,
    },
    /// We stand in another allocation than the job's.
    #[error("the job ran in allocation {job_id} of {manager}, and this is {}; its nodes are gone",
        here.as_ref().map_or("none".to_owned(), |here| format!("allocation {here}")))]
    Elsewhere {
        /// The manager.
        manager: &'static str,
        /// The job's allocation.
        job_id: String,
        /// This one.
        here: Option<String>,
    },
    /// A list of nodes that makes no sense.
    #[error("the manager's list of nodes cannot be read: {0}")]
    Nodes(String),
    /// A command of the resource manager.
    #[error("{command} {problem}; {remedy}")]
    Command {
        /// Its name.
        command: &'static str,
        /// What went wrong.
        problem: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// The allocation is over, or has not begun.
    #[error("job {job_id} is {state}: `holdfast run` needs a running allocation")]
    NotRunning {
        /// The job.
        job_id: String,
        /// Its state, in the manager's words.
        state: String,
    },
    /// Too many hosts of a list cannot be used.
    #[error(
        "{have} of {of} hosts can be used, and the run takes {needed}; nothing was started:{}", problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>()
    )]
    TooFewHosts {
        /// Those that can be used.
        have: usize,
        /// The hosts of the list.
        of: usize,
        /// What the run takes.
        needed: u32,
        /// What is wrong with the others, each thing once.
        problems: Vec<String>,
    },
    /// This build has no ssh.
    #[error("{}", super::ssh::SshError::NotBuilt)]
    NoSsh,
    /// A name that cannot be a directory of its own.
    #[error("{what} {name:?} cannot be part of a path; use letters, digits, `-`, `_` and `.`")]
    Name {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The own program cannot be found, which is also the agents' and the step's.
    #[error("cannot find the holdfast program itself: {0}; was it replaced or removed while it runs?")]
    Program(io::Error),
}

/// An agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentStartError {
    /// The node is lost, for the whole allocation.
    #[error("node {node} is gone: {reason}")]
    NodeGone {
        /// The node.
        node: NodeName,
        /// How we know.
        reason: String,
    },
    /// The process did not come up.
    #[error("cannot {action} for the agent of node {node}: {source}; see {}", log.display())]
    Process {
        /// The node.
        node: NodeName,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
        /// Its log.
        log: PathBuf,
    },
    /// The resource manager does not start it.
    #[error("no agent is started on node {node}: {reason}; see {}", log.display())]
    Refused {
        /// The node.
        node: NodeName,
        /// The manager's words.
        reason: String,
        /// The log of its command.
        log: PathBuf,
    },
    /// It ended, or said something else than that it is up.
    #[error("the agent of node {node} {problem}; see {}", log.display())]
    NotReady {
        /// The node.
        node: NodeName,
        /// What it did instead.
        problem: String,
        /// Its log.
        log: PathBuf,
    },
    /// Another version of Holdfast.
    #[error(
        "the agent of node {node} speaks version {found}, and this is version {ours}; install one version on all nodes"
    )]
    Version {
        /// The node.
        node: NodeName,
        /// Its version.
        found: u32,
        /// Ours.
        ours: u32,
    },
    /// The node has no such name.
    #[error("there is no node {node} in this allocation")]
    Unknown {
        /// The name.
        node: NodeName,
    },
}

impl AgentStartError {
    /// True if another attempt is pointless because the node itself is lost.
    pub fn is_node_gone(&self) -> bool {
        matches!(self, AgentStartError::NodeGone { .. } | AgentStartError::Unknown { .. })
    }
}
