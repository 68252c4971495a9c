//! What can go wrong.

use std::io;
use std::path::PathBuf;

use holdfast_shm::{ShmError, Side};

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum PairsError {
    /// The process was not started by an agent.
    #[error(
        "{0} is not set: `holdfast run` starts the copies of a pair (`kind: replicated`), and tells them their place"
    )]
    NotStartedByAgent(&'static str),
    /// No program of a user is waited for.
    #[error(
        "no {side} of pair {pair} is waited for in {}: another program is this copy, the pair has no `started_by: \
         user`, or the job does not run; see `holdfast pairs list`, and take HOLDFAST_PAIRS_CLIENTS from \
         `holdfast pairs env`", directory.display()
    )]
    NotExpected { side: Side, pair: u32, directory: PathBuf },
    /// The process of Holdfast that waits for this program does not answer.
    #[error("cannot become the {side} of pair {pair} in {}: {source}", directory.display())]
    Client { side: Side, pair: u32, directory: PathBuf, source: io::Error },
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
