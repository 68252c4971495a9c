//! What can go wrong between the orchestrator and an agent.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_wire::trust::TrustError;

/// The fleet as a whole cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The job's certificate.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The HTTP client.
    #[error("cannot set up the connections to the agents: {0}")]
    Client(#[from] reqwest::Error),
    /// The token is no header value, which cannot be.
    #[error("the job's token cannot be sent; was the job's state file changed by hand?")]
    Token,
}

/// One request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No answer in time.
    #[error("the agent at {address} did not answer {path} within {} ms", within.as_millis())]
    Silent {
        /// The agent.
        address: SocketAddr,
        /// What was asked.
        path: &'static str,
        /// How long we waited.
        within: Duration,
    },
    /// No connection, or it broke.
    #[error("the connection to the agent at {address} broke ({path}): {reason}")]
    Broken {
        /// The agent.
        address: SocketAddr,
        /// What was asked.
        path: &'static str,
        /// What the system said.
        reason: String,
    },
    /// The agent refused.
    #[error("the agent at {address} refused {path} ({status}): {message}")]
    Refused {
        /// The agent.
        address: SocketAddr,
        /// What was asked.
        path: &'static str,
        /// The HTTP status.
        status: u16,
        /// Its reason.
        message: String,
    },
    /// The answer makes no sense.
    #[error("the agent at {address} answered {path} with something else: {reason}; install one version on all nodes")]
    Answer {
        /// The agent.
        address: SocketAddr,
        /// What was asked.
        path: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl RequestError {
    /// What was seen, for a message that names the agent itself.
    pub fn seen(&self) -> String {
        match self {
            RequestError::Silent { within, .. } => format!("no answer within {} ms", within.as_millis()),
            RequestError::Broken { reason, .. } => reason.clone(),
            RequestError::Refused { .. } | RequestError::Answer { .. } => self.to_string(),
        }
    }

    /// True if the agent is there and said no.
    pub fn is_refusal(&self) -> bool {
        matches!(self, RequestError::Refused { .. } | RequestError::Answer { .. })
    }
}
