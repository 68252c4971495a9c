//! What can go wrong.

use std::io;

use holdfast_shm::ShmError;

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum PairsError {
    /// The process was not started by an agent.
    #[error(
        "{0} is not set: `holdfast run` starts the copies of a pair (`kind: replicated`), and tells them their place"
    )]
    NotStartedByAgent(&'static str),
    /// A variable of the environment has no meaning.
    #[error("{variable}={value} cannot be used: {reason}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is expected.
        reason: String,
    },
    /// The registry of pairs cannot be used.
    #[error(transparent)]
    Shm(#[from] ShmError),
    /// The thread of the heartbeat cannot be started.
    #[error("cannot start the thread of the heartbeat: {0}")]
    Thread(#[source] io::Error),
}
