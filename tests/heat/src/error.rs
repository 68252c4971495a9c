//! The errors of the application.

use std::io;
use std::path::PathBuf;

use holdfast_client::variables::VariablesError;
use holdfast_client::{ClientError, Rank};
use holdfast_core::durable::DurableError;

use crate::geometry::{Size, TooFewRows};

/// Why a file cannot be used as initial field.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The header cannot be read, or the file ends inside it.
    #[error("its header could not be read ({0})")]
    NoHeader(io::Error),
    /// The magic number is wrong.
    #[error("it is not a field file")]
    NotAField,
    #[error("its version is {found}, this program reads version {known}")]
    Version {
        found: u32,
        /// The version of this program.
        known: u32,
    },
    /// The header's checksum is wrong.
    #[error("its header is damaged (wrong CRC)")]
    DamagedHeader,
    /// The header has an invalid size.
    #[error("{width} x {height} is not a possible size")]
    ImpossibleSize { width: u64, height: u64 },
    /// The length of the file contradicts the header.
    #[error("it has {length} bytes, {size} requires {expected}")]
    Length {
        /// Bytes of the file.
        length: u64,
        /// Bytes of a file of this size.
        expected: u64,
        size: Size,
    },
    /// The command line requests another size.
    #[error("its size is {found}, --size is {wanted}")]
    OtherSize {
        /// Columns and rows of the file.
        found: Size,
        /// Columns and rows on the command line.
        wanted: Size,
    },
    /// The checksum of the rows is wrong.
    #[error("its rows are damaged (CRC {found:#010x}, expected {written:#010x})")]
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
    /// A call of the variables API failed.
    #[error(transparent)]
    Variables(#[from] VariablesError),
    /// The checkpoint is that of another computation.
    #[error("heat: rank {rank}: the checkpoint belongs to another field, or to another number of ranks")]
    OtherField { rank: Rank },
    /// A file could not be read or written.
    #[error("heat: {doing} {path}: {source}")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    /// Something that is not a regular file is at the path of an output.
    #[error("heat: {0}")]
    Output(#[from] DurableError),
    /// The input file is not a field file, or is damaged.
    #[error("heat: {path} cannot be used as initial field: {problem}; make one with `holdfast example heat-init`")]
    Input { path: PathBuf, problem: InputError },
    #[error("heat: {0}")]
    TooFewRows(#[from] TooFewRows),
    /// The node's address is unknown.
    #[error("heat: rank {rank} has no address of its node ({problem}); set one with --address")]
    NoAddress { rank: Rank, problem: String },
    /// No connection to a neighbour.
    #[error("heat: rank {rank} cannot reach its neighbour, rank {neighbour}{at}: {source}")]
    NeighbourAbsent {
        rank: Rank,
        neighbour: Rank,
        /// Its address, after a space; empty if it was expected to connect.
        at: String,
        source: io::Error,
    },
    /// The connection to a neighbour broke: its process ended.
    #[error("heat: rank {rank} lost its neighbour, rank {neighbour}, at step {step}: {source}")]
    NeighbourLost {
        rank: Rank,
        neighbour: Rank,
        /// The step that was being computed.
        step: u64,
        source: io::Error,
    },
    /// Another rank failed in a collective operation.
    #[error("heat: rank {other} failed while {doing}; see its own message for the reason")]
    OtherRank { other: Rank, doing: &'static str },
    /// A failure injected by an option.
    #[error("heat: rank {rank} ends at step {step} with exit code {code}, as set by --exit-at")]
    InjectedFault { rank: Rank, step: u64, code: u8 },
}

impl HeatError {
    /// The program's exit code.
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
