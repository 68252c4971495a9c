//! Errors of resource managers.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_core::hostlist::HostlistError;
use holdfast_core::owned::OwnedError;
use holdfast_model::NodeName;
use tokio::task::JoinError;

use super::agents::handshake::{HandshakeError, StartLog};
use super::slurm::QueryError;
use crate::host::external_command::ExternalCommandError;
use crate::host::program::ProgramError;

/// The allocation cannot be used or released.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    #[error("cannot {action} {}: {source}; {remedy}", path.display())]
    Directory { action: &'static str, path: PathBuf, source: io::Error, remedy: &'static str },
    #[error(
        "this is an allocation of {manager}, which this version does not support; to run on this node only, write \
        `manager: local` under `allocation:`"
    )]
    UnknownManager { manager: String },
    /// A directory or file is not used because another user may have made it, or cannot be used.
    #[error(transparent)]
    Owned(#[from] OwnedError),
    #[error("{0}; the directory of the nodes is made in the temporary directory: set TMPDIR to another one")]
    Workspace(OwnedError),
    /// A command of the resource manager is missing.
    #[error(
        "{command} is not in PATH, and {manager} needs it; load the module of your site, or use a node that has it"
    )]
    NoCommand { command: &'static str, manager: &'static str },
    /// A Slurm without overlapping steps.
    #[error("this is Slurm {found}; overlapping steps need Slurm {}.{:02} or newer", oldest.0, oldest.1)]
    OldSlurm {
        /// Its answer to `--version`.
        found: String,
        /// The oldest supported version.
        oldest: (u32, u32),
    },
    /// The record of the allocation in the job's state is invalid.
    #[error("the job's state has an invalid record of its allocation of {manager}: {source}")]
    Record { manager: String, source: serde_json::Error },
    /// The thread that surveys the hosts panicked.
    #[error("the survey of the hosts failed: {0}; this is a defect of Holdfast")]
    Survey(JoinError),
    #[error("{0}; run the command by hand")]
    ExternalCommand(#[from] ExternalCommandError),
    /// This process is not in an allocation.
    #[error(
        "this is not an allocation of {manager}: {missing} is not set; start `holdfast run` in a batch script \
        (`sbatch`) or an interactive allocation (`salloc`)"
    )]
    Outside {
        manager: &'static str,
        /// The variable that is set in every allocation.
        missing: &'static str,
    },
    /// This process is in another allocation than the job.
    #[error("the job ran in allocation {job_id} of {manager}, and this is {}; its nodes are not available here",
    here.as_ref().map_or("no allocation".to_owned(), |here| format!("allocation {here}")))]
    Elsewhere { manager: &'static str, job_id: String, here: Option<String> },
    #[error("the node list of the resource manager is invalid: {0}")]
    Nodes(#[from] HostlistError),
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The allocation has ended, or has not begun.
    #[error("job {job_id} is {state}: `holdfast run` needs a running allocation")]
    NotRunning {
        job_id: String,
        /// Its state as the manager reports it.
        state: String,
    },
    /// Too few hosts of the list can be used.
    #[error(
        "{have} of {of} hosts can be used, and the run needs {needed}; nothing was started:{}",
        problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>()
    )]
    TooFewHosts {
        /// Usable hosts.
        have: usize,
        /// Hosts in the list.
        of: usize,
        /// Nodes of the run.
        needed: u32,
        /// The problems of the other hosts, without duplicates.
        problems: Vec<String>,
    },
    #[error("{}", super::ssh::SshError::NotBuilt)]
    NoSsh,
    /// A name that cannot be used as a directory name.
    #[error("{what} {name:?} cannot be part of a path; use letters, digits, `-`, `_` and `.`")]
    Name { what: &'static str, name: String },
    /// The running executable, which is also that of agents and steps, cannot be found.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl AllocationError {
    /// True if something was refused because another user may have made it.
    pub fn is_refusal(&self) -> bool {
        matches!(self, AllocationError::Owned(error) | AllocationError::Workspace(error) if error.is_refusal())
    }
}

/// An agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentStartError {
    /// The node is lost for the rest of the allocation.
    #[error("node {node} is lost: {reason}")]
    NodeLost { node: NodeName, reason: String },
    /// The resource manager refused to start the agent.
    #[error("the agent of node {node} was not started: {reason}; see {}", log.display())]
    Refused {
        node: NodeName,
        reason: String,
        /// The log of the start command.
        log: PathBuf,
    },
    /// A step of several agents was not launched because of other nodes: without them it may be.
    #[error("the agent of node {node} was not started, because its step was not launched on another node: see {}",
        log.display())]
    StepFailedElsewhere { node: NodeName, log: PathBuf },
    /// The agent is not ready.
    #[error("the agent of node {node} {problem}{}; see {}", after_colon(log_line.as_deref()), log.display())]
    NotReady {
        node: NodeName,
        /// Shared by all agents of one step.
        problem: Arc<HandshakeError>,
        /// The last line of the log.
        log_line: Option<String>,
        log: PathBuf,
    },
    #[error("there is no node {node} in this allocation")]
    Unknown { node: NodeName },
}

/// `: line`, or nothing.
pub(super) fn after_colon(line: Option<&str>) -> String {
    line.map(|line| format!(": {line}")).unwrap_or_default()
}

impl AgentStartError {
    /// A failed handshake, with the last line of the log.
    pub(super) fn not_ready(node: &NodeName, problem: HandshakeError, log: &StartLog) -> Self {
        let (problem, log_line) = (Arc::new(problem), log.last_line());
        AgentStartError::NotReady { node: node.clone(), problem, log_line, log: log.path().to_owned() }
    }

    /// True if the node itself is lost, so that another attempt is pointless.
    pub fn is_node_lost(&self) -> bool {
        matches!(self, AgentStartError::NodeLost { .. } | AgentStartError::Unknown { .. })
    }
}
