//! Why an example application ended without a result.

use std::io;
use std::path::PathBuf;

use holdfast_client::{ClientError, Rank};

/// Why an example application failed.
#[derive(Debug, thiserror::Error)]
pub enum ExampleError {
    /// A call of the checkpoint API failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A file could not be read or written.
    #[error("heat: {doing} {path}: {source}")]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A whole file could not be replaced.
    #[error("heat: writing the field: {0}")]
    Replace(#[from] holdfast_core::durable::DurableError),
    /// The input file is not a field, or a damaged one.
    #[error("heat: {path} cannot be used as initial field: {problem}; make one with `holdfast example heat-init`")]
    Input {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// More ranks than rows.
    #[error("heat: {ranks} ranks cannot share {height} rows: use at most one rank a row, or a larger --size")]
    TooFewRows {
        /// Ranks of the run.
        ranks: u32,
        /// Rows of the field.
        height: usize,
    },
    /// It is not known how the neighbours can reach this rank.
    #[error("heat: rank {rank} does not know an address of its node ({problem}); name one with --address")]
    NoAddress {
        /// This rank.
        rank: Rank,
        /// What was tried.
        problem: String,
    },
    /// No connection to a neighbour.
    #[error("heat: rank {rank} cannot reach its neighbour, rank {neighbour}{at}: {source}")]
    NeighbourAbsent {
        /// This rank.
        rank: Rank,
        /// The other one.
        neighbour: Rank,
        /// Where it should be, with a blank in front; empty if it was to connect to us.
        at: String,
        /// Why.
        source: io::Error,
    },
    /// The connection to a neighbour broke: it is dead.
    #[error("heat: rank {rank} lost its neighbour, rank {neighbour}, at step {step}: {source}")]
    NeighbourLost {
        /// This rank.
        rank: Rank,
        /// The other one.
        neighbour: Rank,
        /// The step that was being computed.
        step: u64,
        /// Why.
        source: io::Error,
    },
    /// Another rank failed at something that all do together.
    #[error("heat: rank {other} failed while {doing}; its own message says why")]
    OtherRank {
        /// The rank that failed.
        other: Rank,
        /// What all ranks were doing.
        doing: &'static str,
    },
    /// A failure that was asked for on the command line.
    #[error("heat: rank {rank} ends at step {step} with exit code {code}, as --exit-at says")]
    Rehearsed {
        /// This rank.
        rank: Rank,
        /// The step.
        step: u64,
        /// The exit code.
        code: u8,
    },
}

impl ExampleError {
    /// The exit code that the program should end with.
    pub fn exit_code(&self) -> u8 {
        match self {
            ExampleError::Rehearsed { code, .. } => *code,
            _ => 1,
        }
    }

    pub(crate) fn file(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> ExampleError {
        let path = path.to_owned();
        move |source| ExampleError::File { doing, path, source }
    }
}
