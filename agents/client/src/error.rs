//! What can go wrong in a call of the API, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{CheckpointId, Failure};
use holdfast_wire::frame::FrameError;
use holdfast_wire::rank::LARGEST_CONTRIBUTION;

use crate::surroundings::SurroundingsError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The environment does not say who this process is or where its agent is.
    #[error(transparent)]
    Surroundings(#[from] SurroundingsError),
    /// The agent could not be reached, again and again.
    #[error(
        "{call}: the agent at {socket} could not be reached for {waited:?}: {source}; if the node's agent is only \
         slow to come back, raise HOLDFAST_RECONNECT (seconds)"
    )]
    Unreachable {
        /// The call that could not be carried out; it may be repeated.
        call: &'static str,
        /// The agent's socket.
        socket: PathBuf,
        /// How long it was tried.
        waited: Duration,
        /// The last failure.
        source: io::Error,
    },
    /// The agent does not serve this process.
    #[error("{call}: the agent at {socket} refused this process: {source}")]
    Refused {
        /// The call that was to be made.
        call: &'static str,
        /// The agent's socket.
        socket: PathBuf,
        /// Wrong version, job, generation or rank, and what to do.
        source: Failure,
    },
    /// What came over the socket is not what an agent says.
    #[error("{call}: what came from the agent at {socket} could not be understood: {source}")]
    Garbled {
        /// The call.
        call: &'static str,
        /// The agent's socket.
        socket: PathBuf,
        /// What is wrong with it.
        source: FrameError,
    },
    /// The call is larger than an agent accepts; it was not made.
    #[error("{call}: {source}; use shorter names")]
    Unsendable {
        /// The call.
        call: &'static str,
        /// Its size and the limit.
        source: FrameError,
    },
    /// The agent answered something else than was asked.
    #[error("{call}: the agent answered {answer}; are program and agent of one Holdfast version?")]
    Unexpected {
        /// The call.
        call: &'static str,
        /// The answer.
        answer: String,
    },
    /// The agent could not carry the call out. The program may go on.
    #[error("{call}: {source}")]
    Failed {
        /// The call.
        call: &'static str,
        /// What kind of failure, of which node, rank and file, and what to do.
        source: Failure,
    },
    /// `start_checkpoint` or `start_restart` before the last one was completed.
    #[error("{call} inside checkpoint {checkpoint}: complete it first (complete_checkpoint, or complete_restart)")]
    Inside {
        /// The call.
        call: &'static str,
        /// The checkpoint that is open.
        checkpoint: CheckpointId,
    },
    /// A `complete_…` without its `start_…`.
    #[error("{call} without {start} before it: call {start} first, on all ranks")]
    Outside {
        /// The call.
        call: &'static str,
        /// The call that is missing.
        start: &'static str,
    },
    /// `start_restart` with nothing to restart from.
    #[error("start_restart: there is nothing to restart from; ask have_restart first")]
    NoRestart,
    /// More than a rank may hand to `allgather`.
    #[error(
        "allgather: {size} bytes were given, the limit is {LARGEST_CONTRIBUTION}: it is meant for addresses and sums; \
         move bulk data between the ranks yourself"
    )]
    TooLarge {
        /// Bytes given.
        size: usize,
    },
    /// A file name that no file can have.
    #[error(
        "route_file: `{name}` does not end in the name of a file (UTF-8, not `..`, no NUL); give the checkpoint file's own name"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The API is switched off, and this call has no meaning without an agent.
    #[error("{call}: SCR_ENABLE=0 switches the agents off, and with more than one rank this call needs them; unset it")]
    Disabled {
        /// The call.
        call: &'static str,
    },
}
