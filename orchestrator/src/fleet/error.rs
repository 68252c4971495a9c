//! Errors of requests to agents.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::FailureKind;
use holdfast_wire::plan::PlanError;
use holdfast_wire::trust::TrustError;

/// No request can be sent to any agent.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("cannot set up the connections to the agents: {0}")]
    Client(#[from] reqwest::Error),
    /// The token is not a valid header value.
    #[error("the job's token cannot be sent; was the job's state file changed by hand?")]
    Token,
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No answer in time.
    #[error("the agent at {address} did not answer {path} within {} ms", within.as_millis())]
    Silent { address: SocketAddr, path: &'static str, within: Duration },
    /// No connection, or it broke.
    #[error("the connection to the agent at {address} broke ({path}): {reason}")]
    Broken { address: SocketAddr, path: &'static str, reason: String },
    #[error("the agent at {address} refused {path} ({status}): {message}")]
    Refused {
        address: SocketAddr,
        path: &'static str,
        status: u16,
        /// What the agent reported; `None` if that cannot be read.
        kind: Option<FailureKind>,
        message: String,
    },
    /// The answer cannot be parsed.
    #[error(
        "the agent at {address} gave an unexpected answer to {path}: {reason}; install the same version on all nodes"
    )]
    Answer { address: SocketAddr, path: &'static str, reason: String },
    /// The request is larger than agents accept: it was not sent.
    #[error(
        "{path} was not sent to the agent at {address}: the request has {bytes} bytes, agents accept {limit}; \
         use fewer ranks or fewer nodes"
    )]
    TooLarge {
        address: SocketAddr,
        path: &'static str,
        bytes: usize,
        /// The most that an agent accepts.
        limit: usize,
    },
    /// The request could not be serialised.
    #[error("{path} was not sent to the agent at {address}: {source}")]
    Unencodable { address: SocketAddr, path: &'static str, source: serde_json::Error },
    /// A plan that cannot be sent to this node.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl RequestError {
    /// The error without the agent's address, for messages that name the node.
    pub fn brief(&self) -> String {
        match self {
            RequestError::Silent { within, .. } => format!("no answer within {} ms", within.as_millis()),
            RequestError::Broken { reason, .. } => reason.clone(),
            _ => self.to_string(),
        }
    }

    /// True if the agent could not write to the prefix directory.
    pub fn prevents_writing(&self) -> bool {
        matches!(self, RequestError::Refused { kind: Some(FailureKind::Unwritable), .. })
    }

    /// True if the agent obeys a later orchestrator, or a later generation.
    pub fn is_superseded(&self) -> bool {
        matches!(self, RequestError::Refused { kind: Some(FailureKind::Superseded), .. })
    }

    /// True if the agent refused, or the request could not be sent: the agent is not lost, and the same request would
    /// fail again.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, RequestError::Silent { .. } | RequestError::Broken { .. })
    }
}
