//! What can go wrong with a registry.

use std::io;
use std::path::PathBuf;

use holdfast_model::pair::Side;

#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    #[error("cannot {what} the registry of pairs {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// The file system has no room for it.
    #[error(
        "cannot create the registry of pairs {}: it needs {bytes} bytes, and there is no space left: lower \
         `checkpoint.size` of the pairs, of which each has ten checkpoints, or free space there",
        .path.display()
    )]
    NoSpace { path: PathBuf, bytes: u64 },
    /// The file is not one that may be mapped.
    #[error("{} is not used as the registry of pairs: {reason}", .path.display())]
    Refused { path: PathBuf, reason: String },
    /// A registry with these numbers cannot be made.
    #[error("a registry of pairs cannot have {0}")]
    Layout(String),
    #[error("the registry has {pairs} pairs, and no pair {pair}")]
    NoSuchPair { pair: u32, pairs: u32 },
    /// Another copy is expected in the place of this one.
    #[error(
        "this copy (the {side}, incarnation {incarnation}) is not the one that the agent started last (incarnation \
         {expected}): end it"
    )]
    Superseded { side: Side, incarnation: u64, expected: u64 },
    #[error(
        "process {pid} cannot register as the {side} of the pair: process {other} has done so, and runs. A copy is one \
         process: let only one of those that the command starts register, before it creates others"
    )]
    Taken { side: Side, pid: u32, other: u32 },
    #[error("the agent has ended this copy (the {side}, incarnation {incarnation}): end it")]
    Ended { side: Side, incarnation: u64 },
    #[error("the {0} has not been woken: only the copy that is awake stores checkpoints")]
    NotAwake(Side),
    /// The lease of the pair has run out.
    #[error("the lease of the {0} has run out: the other copy may be awake on another node")]
    LeaseExpired(Side),
    /// A mirrored checkpoint arrived while a copy of this node is awake.
    #[error("the {0} of this node is awake: a checkpoint of another node is refused")]
    AwakeHere(Side),
    /// A checkpoint is larger than the spec permits.
    #[error(
        "a checkpoint of {bytes} bytes is larger than the {most} bytes that the job permits: raise `checkpoint.size` \
         of the pair"
    )]
    TooLarge { bytes: u64, most: u64 },
    /// The numbers of checkpoints are used up, or the ring contains garbage.
    #[error("the checkpoints of pair {0} have no next number: the registry is damaged")]
    NoNextSequence(u32),
    #[error("the control word of the {0} is damaged")]
    DamagedWord(Side),
    /// There is no memory to read a checkpoint into.
    #[error("there is no memory for a checkpoint of {0} bytes")]
    NoMemory(u64),
}
