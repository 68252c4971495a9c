//! What can go wrong between the orchestrator and an agent.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_wire::plan::PlanError;
use holdfast_wire::trust::TrustError;

/// The fleet as a whole cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("cannot set up the connections to the agents: {0}")]
    Client(#[from] reqwest::Error),
    /// The token is no header value, which cannot be.
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
    Refused { address: SocketAddr, path: &'static str, status: u16, message: String },
    /// The answer makes no sense.
    #[error("the agent at {address} answered {path} with something else: {reason}; install one version on all nodes")]
    Answer {
        address: SocketAddr,
        path: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The request is larger than agents accept: it was not sent.
    #[error(
        "{path} was not sent to the agent at {address}: the request has {bytes} bytes, agents accept {limit}; \
         use fewer ranks or fewer nodes"
    )]
    TooLarge {
        address: SocketAddr,
        /// What was to be asked.
        path: &'static str,
        bytes: usize,
        /// The most that an agent accepts.
        limit: usize,
    },
    /// The message could not be made.
    #[error("{path} was not sent to the agent at {address}: {source}")]
    Unencodable {
        address: SocketAddr,
        /// What was to be asked.
        path: &'static str,
        source: serde_json::Error,
    },
    /// A plan that cannot be sent to this node.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl RequestError {
    /// What was seen, for a message that names the agent itself.
    pub fn brief(&self) -> String {
        match self {
            RequestError::Silent { within, .. } => format!("no answer within {} ms", within.as_millis()),
            RequestError::Broken { reason, .. } => reason.clone(),
            _ => self.to_string(),
        }
    }

    /// True if the agent refused, or the request could not be made: the agent is not lost, and the same request again would
    /// fail again.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, RequestError::Silent { .. } | RequestError::Broken { .. })
    }
}
