//! What can go wrong between us and a resource manager.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_core::durable::DurableError;
use holdfast_core::hostlist::HostlistError;
use holdfast_model::NodeName;
use tokio::task::JoinError;

use super::agents::handshake::{HandshakeError, StartLog};
use super::slurm::QueryError;
use crate::host::external_command::ExternalCommandError;
use crate::host::program::ProgramError;

/// The allocation as a whole cannot be used or given back.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// A directory of the local manager.
    #[error("cannot {action} {}: {source}; {remedy}", path.display())]
    Directory { action: &'static str, path: PathBuf, source: io::Error, remedy: &'static str },
    /// We stand in an allocation that this version cannot use.
    #[error(
        "this is an allocation of {manager}, which this version cannot use; write `manager: local` under `allocation:` to run on this node only"
    )]
    UnknownManager { manager: String },
    /// A command of the resource manager is missing.
    #[error(
        "{command} is not in PATH, and {manager} needs it; load the module of your site, or run this on a node that has it"
    )]
    NoCommand { command: &'static str, manager: &'static str },
    /// Too old a resource manager.
    #[error("this is Slurm {found}, and steps that overlap came with {}.{:02}", oldest.0, oldest.1)]
    OldSlurm {
        /// What it says of itself.
        found: String,
        /// The first version that can be used.
        oldest: (u32, u32),
    },
    /// The job's state holds something else than this manager wrote.
    #[error("what the job's state says of its allocation of {manager} cannot be used: {source}")]
    Record {
        manager: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The file by which hosts recognise the prefix directory.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The thread that asks the hosts broke off.
    #[error("the hosts could not be asked: {0}; this is a bug")]
    Survey(JoinError),
    /// A command that hangs.
    #[error("{0}; try it by hand")]
    ExternalCommand(#[from] ExternalCommandError),
    /// We do not stand in an allocation.
    #[error(
        "this is no allocation of {manager}: {missing} is not set; start `holdfast run` in a batch script (`sbatch`) or an interactive allocation (`salloc`)"
    )]
    Outside {
        manager: &'static str,
        /// The variable that an allocation would have.
        missing: &'static str,
    },
    /// We stand in another allocation than the job's.
    #[error("the job ran in allocation {job_id} of {manager}, and this is {}; its nodes are gone",
        here.as_ref().map_or("none".to_owned(), |here| format!("allocation {here}")))]
    Elsewhere { manager: &'static str, job_id: String, here: Option<String> },
    /// A list of nodes that makes no sense.
    #[error("the manager's list of nodes cannot be read: {0}")]
    Nodes(#[from] HostlistError),
    /// A question to Slurm.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The allocation is over, or has not begun.
    #[error("job {job_id} is {state}: `holdfast run` needs a running allocation")]
    NotRunning {
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
    Name { what: &'static str, name: String },
    /// The own program cannot be found, which is also the agents' and the step's.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// An agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentStartError {
    /// The node is lost, for the whole allocation.
    #[error("node {node} is gone: {reason}")]
    NodeLost { node: NodeName, reason: String },
    /// The resource manager does not start it.
    #[error("no agent is started on node {node}: {reason}; see {}", log.display())]
    Refused {
        node: NodeName,
        reason: String,
        /// The log of its command.
        log: PathBuf,
    },
    /// It is not up.
    #[error("the agent of node {node} {problem}{}; see {}", log_line.as_ref().map(|line| format!(": {line}")).unwrap_or_default(), log.display())]
    NotReady {
        node: NodeName,
        /// Why; shared by the agents that one step starts.
        problem: Arc<HandshakeError>,
        /// The last line of its log.
        log_line: Option<String>,
        log: PathBuf,
    },
    /// The node has no such name.
    #[error("there is no node {node} in this allocation")]
    Unknown { node: NodeName },
}

impl AgentStartError {
    /// An agent whose handshake failed, with the end of its log.
    pub(super) fn not_ready(node: &NodeName, problem: HandshakeError, log: &StartLog) -> Self {
        let (problem, log_line) = (Arc::new(problem), log.last_line());
        AgentStartError::NotReady { node: node.clone(), problem, log_line, log: log.path().to_owned() }
    }

    /// True if another attempt is pointless because the node itself is lost.
    pub fn is_node_lost(&self) -> bool {
        matches!(self, AgentStartError::NodeLost { .. } | AgentStartError::Unknown { .. })
    }
}
