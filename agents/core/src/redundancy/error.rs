//! What can go wrong while encoding and rebuilding, each with the file and what to do.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_model::{Failure, Rank, Scheme};
use thiserror::Error;

use crate::control::ControlError;
use crate::durable::{self, DurableError};
use crate::kvtree::file::HashFileError;

pub type Result<T, E = RedundancyError> = std::result::Result<T, E>;

/// Why a redundancy step did not succeed. Nothing half-written stays behind, whatever the variant.
#[derive(Debug, Error)]
pub enum RedundancyError {
    #[error(
        "cannot {doing} {}: {source}; check the directory and its free space, then repeat the step",
        path.display()
    )]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the link to the {neighbour} failed while {doing}: {source}; the step is repeated when the group's nodes are \
         known to be up"
    )]
    Link {
        /// Which member: `left neighbour`, `right neighbour`.
        neighbour: &'static str,
        doing: &'static str,
        source: io::Error,
    },
    /// A neighbour sent a piece of another length: the members do not agree on chunk or piece size.
    #[error(
        "the left neighbour sent a piece of {found} bytes where {expected} are due; all members of a group must use \
         the same chunk and piece size"
    )]
    PieceLength {
        /// Bytes due.
        expected: usize,
        found: usize,
    },
    /// The step was stopped by the caller.
    #[error("stopped on request; nothing was changed")]
    Stopped,
    /// A file name that leads out of its directory, or that takes the place of another file.
    #[error(
        "refusing the file name `{name}` in {}: {why}; the file that names it is damaged or forged",
        directory.display()
    )]
    UnsafeName { directory: PathBuf, name: String, why: &'static str },
    /// The header of a redundancy file does not make sense.
    #[error("the redundancy header of {origin} is not usable: {why}; treat this member of the set as lost")]
    Header {
        /// File or neighbour that the header came from.
        origin: String,
        why: String,
    },
    /// A member's file does not match its header or meta data: it must count as missing, and must not be used.
    #[error(
        "{} of rank {rank} (member {member} of its set) is damaged: {why}; count this member as missing",
        path.display()
    )]
    MemberDamaged { member: u32, rank: Rank, path: PathBuf, why: String },
    /// The rebuilt file is not the one that was lost.
    #[error(
        "rebuilding {} gave wrong data: {why}; one of the set's remaining files is damaged, and nothing was written",
        path.display()
    )]
    RebuiltWrong { path: PathBuf, why: String },
    /// Numbers that no set can have.
    #[error("a set cannot have {members} members with member {index}; a set has at least 2, counted from 0")]
    NoSuchMember { members: u32, index: u32 },
    /// The member's data does not fit into its chunks.
    #[error(
        "{bytes} bytes do not fit into {members} members with chunks of {chunk} bytes; the chunk size must be agreed \
         on by all members first"
    )]
    ChunkTooSmall { bytes: u64, members: u32, chunk: u64 },
    /// The scheme computes no files.
    #[error("the redundancy scheme {scheme} computes no files; they can only be copied")]
    NotComputed { scheme: Scheme },
    /// More members are missing than the scheme can compute again.
    #[error("{missing} of {members} members of set {group_id} are missing, more than can be computed again")]
    TooManyMissing {
        /// World rank of member 0.
        group_id: u32,
        members: u32,
        missing: usize,
    },
    /// The step needs a thread that the system refused.
    #[error("cannot start a thread: {0}; raise the limit of processes (`ulimit -u`, the cgroup's `pids.max`)")]
    Thread(io::Error),
    /// A service of the member's node failed.
    #[error(transparent)]
    Node(#[from] Box<Failure>),
    /// A hash file could not be read or written.
    #[error(transparent)]
    Tree(#[from] HashFileError),
    /// A meta file or rank file map could not be read or written.
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Durable(#[from] DurableError),
}

impl RedundancyError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RedundancyError {
        let path = path.to_owned();
        move |source| RedundancyError::Io { doing, path, source }
    }

    /// True if something could not be written, or the file system not be used, whatever the files contain.
    pub fn prevents_writing(&self) -> bool {
        match self {
            RedundancyError::Durable(_) => true,
            RedundancyError::Io { source, .. } => durable::prevents_writing(source),
            RedundancyError::Tree(error) => error.prevents_writing(),
            RedundancyError::Control(error) => error.prevents_writing(),
            _ => false,
        }
    }

    /// True if another member was lost on the way: the step can be repeated when it is back.
    pub fn is_lost_link(&self) -> bool {
        match self {
            RedundancyError::Link { .. } => true,
            RedundancyError::Node(failure) => failure.retryable,
            _ => false,
        }
    }

    pub(crate) fn left(doing: &'static str) -> impl FnOnce(io::Error) -> RedundancyError {
        move |source| RedundancyError::Link { neighbour: "left neighbour", doing, source }
    }

    pub(crate) fn right(doing: &'static str) -> impl FnOnce(io::Error) -> RedundancyError {
        move |source| RedundancyError::Link { neighbour: "right neighbour", doing, source }
    }
}
