//! Why an agent was not started.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_model::NodeName;

use super::handshake::HandshakeError;

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
pub(crate) fn after_colon(line: Option<&str>) -> String {
    line.map(|line| format!(": {line}")).unwrap_or_default()
}

impl AgentStartError {
    /// A failed handshake, with the last line of the log.
    pub(crate) fn not_ready(node: &NodeName, problem: HandshakeError, log_line: Option<String>, log: &Path) -> Self {
        AgentStartError::NotReady { node: node.clone(), problem: Arc::new(problem), log_line, log: log.to_owned() }
    }

    /// True if nothing was heard of the node.
    pub fn is_silence(&self) -> bool {
        match self {
            AgentStartError::NodeLost { .. } => true,
            AgentStartError::NotReady { problem, .. } => matches!(**problem, HandshakeError::Timeout(_)),
            _ => false,
        }
    }

    /// True if the node itself is lost, so that another attempt is pointless.
    pub fn is_node_lost(&self) -> bool {
        matches!(self, AgentStartError::NodeLost { .. } | AgentStartError::Unknown { .. })
    }
}
