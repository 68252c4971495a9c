//! The errors of the API.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{CheckpointId, Failure};
use holdfast_wire::frame::FrameError;
use holdfast_wire::rank::LARGEST_CONTRIBUTION;

use crate::environment::EnvironmentError;

/// Why a call failed. The message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The environment variables do not identify this process or its agent.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The agent could not be reached within the time limit.
    #[error(
        "{call}: the agent at {socket} could not be reached for {waited:?}: {source}; if the node's agent needs \
         longer to start again, raise HOLDFAST_RECONNECT (seconds)"
    )]
    Unreachable {
        /// The call that failed; it can be repeated.
        call: &'static str,
        /// The agent's socket.
        socket: PathBuf,
        /// The time limit.
        waited: Duration,
        /// The last error.
        source: io::Error,
    },
    /// The agent rejected this process.
    #[error("{call}: the agent at {socket} refused this process: {source}")]
    Refused {
        /// The call that was to be made.
        call: &'static str,
        /// The agent's socket.
        socket: PathBuf,
        /// The reason (version, job, generation or rank), and the remedy.
        source: Failure,
    },
    /// The agent sent an invalid message.
    #[error("{call}: invalid message from the agent at {socket}: {source}")]
    Garbled {
        /// The call.
        call: &'static str,
        /// The agent's socket.
        socket: PathBuf,
        /// What is invalid.
        source: FrameError,
    },
    /// The call exceeds the size limit of messages; it was not sent.
    #[error("{call}: {source}; use shorter names")]
    Unsendable {
        /// The call.
        call: &'static str,
        /// Its size and the limit.
        source: FrameError,
    },
    /// The agent sent a reply of another type.
    #[error("{call}: unexpected reply of the agent: {answer}; use one Holdfast version for program and agents")]
    Unexpected {
        /// The call.
        call: &'static str,
        /// The reply.
        answer: String,
    },
    /// The agent could not carry out the call. The program may continue.
    #[error("{call}: {source}")]
    Failed {
        /// The call.
        call: &'static str,
        /// The kind of failure, with node, rank, file and remedy.
        source: Failure,
    },
    /// A call that is not allowed between a `start_…` and its `complete_…`.
    #[error("{call} inside checkpoint {checkpoint}: complete it first (complete_checkpoint, or complete_restart)")]
    Inside {
        /// The call.
        call: &'static str,
        /// The checkpoint that was started.
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
    /// `start_restart` without a checkpoint to restart from.
    #[error("start_restart: there is no checkpoint to restart from; call have_restart first")]
    NoRestart,
    /// Too many bytes for `allgather`.
    #[error(
        "allgather: {size} bytes are more than the limit of {LARGEST_CONTRIBUTION}: it is meant for addresses and \
         sums; transfer large data between the ranks by other means"
    )]
    TooLarge {
        /// Number of bytes.
        size: usize,
    },
    /// An invalid file name.
    #[error(
        "route_file: `{name}` does not end in the name of a file (UTF-8, not `..`, no NUL); pass the name of the \
         checkpoint file"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// Two files of this rank with the same base name.
    #[error(
        "route_file: this rank has routed {} in this checkpoint, and the directories of a name do not count: it would \
         be the same file as `{name}`; give each file a name of its own",
        known.display()
    )]
    SameBaseName {
        /// The name.
        name: String,
        /// The file that was routed before.
        known: PathBuf,
    },
    /// The process is not the one that joined the run, but was forked from it. Nothing was sent.
    #[error(
        "{call}: process {own} was forked from process {rank}, which is the rank: only that process can make calls; \
         make them there, or call init in the process that computes"
    )]
    OtherProcess {
        /// The call.
        call: &'static str,
        /// The id of this process.
        own: u32,
        /// The process that joined the run.
        rank: u32,
    },
    /// The API is disabled, and this call needs an agent.
    #[error("{call}: SCR_ENABLE=0 disables the agents, which this call needs with more than one rank; unset it")]
    Disabled {
        /// The call.
        call: &'static str,
    },
}
