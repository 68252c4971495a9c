//! What can go wrong.

use std::io;

use holdfast_shm::ShmError;

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum PairsError {
    /// The process was not started by an agent.
    #[error(
        "{0} is not set: `holdfast run` starts the copies of a pair (`kind: replicated`), and tells them their place"
    )]
    NotStartedByAgent(&'static str),
    /// A variable of the environment has no meaning.
    #[error("{variable}={value} cannot be used: {reason}")]
    Environment { variable: &'static str, value: String, reason: String },
    /// The registry of pairs cannot be used.
    #[error(transparent)]
    Shm(#[from] ShmError),
    /// The thread of the heartbeat cannot be started.
    #[error("cannot start the thread of the heartbeat: {0}")]
    Thread(#[source] io::Error),
}
