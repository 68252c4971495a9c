//! Why a file, or a result computed from files, is not used in a restoration.

use std::path::{Path, PathBuf};

use super::name::FileName;
use crate::error::FormatsError;
use crate::file_check::Damage;

/// Why one of the surviving files, or the result computed from them, is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: Box<Refusal> },
    #[error("{0}")]
    Damaged(Damage),
    #[error(transparent)]
    Unreadable(#[from] FormatsError),
    #[error("it has another role")]
    OtherKind,
    #[error("fs is negative")]
    NegativeSize,
    #[error("it is not of level 3")]
    NotLevel3,
    #[error("fs {used} is larger than maxFs {length} allows")]
    TooLarge { used: u64, length: u64 },
    #[error("there is no parity to compare it with")]
    NoParity,
    #[error("it belongs to another group or version: maxFs {found}, not {expected}")]
    OtherGroup { found: u64, expected: u64 },
    #[error("it is {other}")]
    OtherFile { other: FileName },
    #[error("it has {size} bytes, but ptFs of {neighbour} is {expected}: it is another file")]
    OtherSize { size: i64, neighbour: FileName, expected: i64 },
    #[error("its ptFs is {expected}, but {neighbour} has {size} bytes: it is another file")]
    OtherNeighbour { expected: i64, neighbour: FileName, size: i64 },
    #[error("rank {rank} is not in the group {group:?}")]
    NotInGroup { rank: u32, group: Vec<u32> },
    #[error("no intact parity of its group is left")]
    NoParityLeft,
    #[error("{have} intact files and parities of its group are left of {needed} needed")]
    TooFewRows { have: usize, needed: usize },
    #[error("the remaining rows do not determine it")]
    Undetermined,
    #[error("the parity of {length} bytes is shorter than {what}")]
    ShortParity { length: u64, what: &'static str },
    #[error("its rebuilt metadata does not match its hash")]
    RebuiltMetadata,
    #[error("its rebuilt size {size} is larger than the group's files")]
    RebuiltSize { size: u64 },
    #[error("the rebuilt file is not a checkpoint")]
    NoCheckpoint,
    #[error("no last byte makes the rebuilt file match its hash")]
    NoLastByte,
}

impl Refusal {
    /// Adds the path of the file.
    pub(super) fn of(self, path: &Path) -> Refusal {
        Refusal::File { path: path.to_owned(), reason: Box::new(self) }
    }
}

/// All refusals in one line.
pub(super) fn listed(refused: &[Refusal]) -> String {
    refused.iter().map(Refusal::to_string).collect::<Vec<_>>().join("; ")
}
