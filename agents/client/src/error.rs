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
#[allow(missing_docs, reason = "the messages say what the fields are")]
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
        socket: PathBuf,
        waited: Duration,
        source: io::Error,
    },
    #[error("{call}: the agent at {socket} refused this process: {source}")]
    Refused {
        call: &'static str,
        socket: PathBuf,
        /// The reason (version, job, generation or rank), and the remedy.
        source: Failure,
    },
    #[error("{call}: invalid message from the agent at {socket}: {source}")]
    Garbled { call: &'static str, socket: PathBuf, source: FrameError },
    /// The call exceeds the size limit of messages; it was not sent.
    #[error("{call}: {source}; use shorter names")]
    Unsendable { call: &'static str, source: FrameError },
    /// The agent sent a reply of another type.
    #[error("{call}: unexpected reply of the agent: {answer}; use one Holdfast version for program and agents")]
    Unexpected { call: &'static str, answer: String },
    /// The agent could not carry out the call. The program may continue.
    #[error("{call}: {source}")]
    Failed {
        call: &'static str,
        /// The kind of failure, with node, rank, file and remedy.
        source: Failure,
    },
    /// A call that is not allowed between a `start_…` and its `complete_…`.
    #[error("{call} inside checkpoint {checkpoint}: complete it first (complete_checkpoint, or complete_restart)")]
    Inside { call: &'static str, checkpoint: CheckpointId },
    #[error("{call} without {start} before it: call {start} first, on all ranks")]
    Outside { call: &'static str, start: &'static str },
    #[error("start_restart: there is no checkpoint to restart from; call have_restart first")]
    NoRestart,
    #[error(
        "allgather: {size} bytes are more than the limit of {LARGEST_CONTRIBUTION}: it is meant for addresses and \
         sums; transfer large data between the ranks by other means"
    )]
    TooLarge { size: usize },
    #[error(
        "route_file: `{name}` does not end in the name of a file (UTF-8, not `..`, no NUL); pass the name of the \
         checkpoint file"
    )]
    BadName { name: String },
    /// Two files of this rank with the same base name.
    #[error(
        "route_file: this rank has routed {} in this checkpoint, and the directories of a name do not count: it would \
         be the same file as `{name}`; give each file a name of its own",
        known.display()
    )]
    SameBaseName { name: String, known: PathBuf },
    /// The process is not the one that joined the run, but was forked from it. Nothing was sent.
    #[error(
        "{call}: process {own} was forked from process {rank}, which is the rank: only that process can make calls; \
         make them there, or call init in the process that computes"
    )]
    OtherProcess { call: &'static str, own: u32, rank: u32 },
    /// The API is disabled, and this call needs an agent.
    #[error("{call}: SCR_ENABLE=0 disables the agents, which this call needs with more than one rank; unset it")]
    Disabled { call: &'static str },
}
