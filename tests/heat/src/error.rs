//! Why the application ended without a result.

use std::io;
use std::path::PathBuf;

use holdfast_client::{ClientError, Rank};

use crate::geometry::{Size, TooFewRows};

/// Why a file cannot be used as initial field.
#[derive(Debug, thiserror::Error)]
pub enum InputProblem {
    /// It ends before the header does, or the header cannot be read.
    #[error("its header could not be read ({0})")]
    NoHeader(io::Error),
    /// The first bytes are those of something else.
    #[error("it is not a field file")]
    NotAField,
    /// A version that this program does not know.
    #[error("it is of version {found}, this program reads version {known}")]
    Version {
        /// The version of the file.
        found: u32,
        /// The version of this program.
        known: u32,
    },
    /// The header's checksum does not fit.
    #[error("its header is damaged (wrong CRC)")]
    DamagedHeader,
    /// The header has a size that no field has.
    #[error("{width} x {height} is not a possible size")]
    ImpossibleSize {
        /// Columns.
        width: u64,
        /// Rows.
        height: u64,
    },
    /// It is longer or shorter than its header says.
    #[error("it has {length} bytes, {expected} belong to {size}")]
    Length {
        /// Bytes of the file.
        length: u64,
        /// Bytes of a file of this size.
        expected: u64,
        /// Columns and rows.
        size: Size,
    },
    /// The command line asks for another size.
    #[error("it has {found}, --size says {wanted}")]
    OtherSize {
        /// Columns and rows of the file.
        found: Size,
        /// Columns and rows on the command line.
        wanted: Size,
    },
    /// The checksum of the rows does not fit.
    #[error("its rows are damaged (CRC {found:#010x}, {written:#010x} was written)")]
    DamagedRows {
        /// CRC32 of the rows.
        found: u32,
        /// CRC32 in the header.
        written: u32,
    },
}

/// Why the application failed.
#[derive(Debug, thiserror::Error)]
pub enum HeatError {
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
    /// The input file is not a field, or a damaged one.
    #[error("heat: {path} cannot be used as initial field: {problem}; make one with `holdfast example heat-init`")]
    Input {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: InputProblem,
    },
    /// More ranks than rows.
    #[error("heat: {0}")]
    TooFewRows(#[from] TooFewRows),
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
    /// A failure that an option ordered.
    #[error("heat: rank {rank} ends at step {step} with exit code {code}, as --exit-at says")]
    InjectedFault {
        /// This rank.
        rank: Rank,
        /// The step.
        step: u64,
        /// The exit code.
        code: u8,
    },
}

impl HeatError {
    /// The exit code that the program should end with.
    pub fn exit_code(&self) -> u8 {
        match self {
            HeatError::InjectedFault { code, .. } => *code,
            _ => 1,
        }
    }

    pub(crate) fn file(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> HeatError {
        let path = path.to_owned();
        move |source| HeatError::File { doing, path, source }
    }
}
