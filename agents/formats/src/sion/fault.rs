//! The damages of a physical file, or of a set of files.

use std::path::PathBuf;

/// A damage of a physical file, or of the set. Tasks are local ranks of the physical file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    #[error("it ends inside {what}, which needs {needs} bytes of a file of {length}")]
    Truncated { what: &'static str, needs: u64, length: u64 },
    /// A field of the head has an invalid value.
    #[error("{field} is {value}, expected {expected}")]
    Field { field: &'static str, value: i64, expected: &'static str },
    #[error("the chunk size of task {task} is {size}")]
    ChunkSize { task: usize, size: i64 },
    /// A table of ranks that was never written.
    #[error(
        "global rank {rank} is stored for {tasks} tasks in sequence from task {first} on: its head was not written"
    )]
    EqualRanks { rank: i64, first: usize, tasks: usize },
    #[error("its chunk sizes add up to more than a file can hold")]
    Overflow,
    /// More of something than this reader accepts in one file.
    #[error("it claims {count} {what}, more than the {limit} accepted")]
    TooMany { what: &'static str, count: u64, limit: u64 },
    /// The stored offset of the byte counts contradicts the chunk sizes.
    #[error("the stored offset of the byte counts is {stored}, the chunk sizes require {expected}")]
    TailPosition {
        /// `start_of_varheader` as stored.
        stored: i64,
        /// The offset that follows from the chunk sizes and the number of blocks.
        expected: u64,
    },
    #[error("the chunk count of task {task} is {count}, with {blocks} blocks")]
    ChunkCount { task: usize, count: i64, blocks: u64 },
    #[error("the number of blocks is {blocks}, but no task uses more than {largest} chunks")]
    BlocksUnused {
        /// `maxusedchunks`.
        blocks: u64,
        largest: u64,
    },
    /// A byte count larger than the chunk, or negative.
    #[error("the byte count of chunk {chunk} of task {task} is {bytes} bytes of {size}")]
    ChunkBytes {
        task: usize,
        chunk: u64,
        /// The stored byte count.
        bytes: i64,
        size: u64,
    },
    /// A byte count for a chunk after the task's last one.
    #[error("the chunk count of task {task} is {count}, but the byte count of its chunk {chunk} is {bytes}")]
    UnusedEntry {
        task: usize,
        count: u64,
        chunk: u64,
        /// The stored byte count.
        bytes: i64,
    },
    /// A file of the set is not there.
    #[error("file {number} of its {files} is missing: {}", path.display())]
    PartMissing { number: u32, files: u32, path: PathBuf },
    /// A file of the set does not belong to it.
    #[error("its {field} is {value}, but the set needs {expected}")]
    PartDiffers { field: &'static str, value: i64, expected: i64 },
    /// The mapping, the table of the places of all streams, does not have one entry per task.
    #[error("its mapping has {size} entries for {tasks} tasks")]
    MappingSize { size: i64, tasks: u64 },
    /// A mapping entry points to a task that does not exist.
    #[error("its mapping puts rank {rank} into file {file}, task {task}, which does not exist")]
    MappingTarget { rank: u64, file: i32, task: i32 },
    /// Two mapping entries point to the same stream.
    #[error("its mapping puts rank {rank} into file {file}, task {task}, where another rank is already")]
    MappingTwice { rank: u64, file: i32, task: i32 },
    /// The stream that a rank is mapped to has another global rank.
    #[error("its mapping puts rank {rank} where rank {stored} is stored")]
    MappingRank { rank: u64, stored: i64 },
    /// Files of a rank, in a container of a dataset, cannot be read.
    #[error("files of rank {rank} are lost: {problem}")]
    FilesLost { rank: u32, problem: String },
    /// A file of a rank, in a container of a dataset, is not as its meta file records it.
    #[error("rank {rank}, {name}: {problem}")]
    FileDamaged { rank: u32, name: String, problem: String },
    /// A key-value record does not fit into its stream.
    #[error("record {record} of task {task} claims {length} bytes where {left} are left")]
    Record { task: usize, record: u64, length: u64, left: u64 },
    #[error("record {record} of task {task} has {left} bytes of its 16 byte header")]
    RecordHeader { task: usize, record: u64, left: u64 },
}

impl Fault {
    /// True if a limit of this reader was exceeded, so that checking should stop.
    pub(super) fn is_limit(&self) -> bool {
        matches!(self, Fault::TooMany { .. })
    }

    /// A stable identifier for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Truncated { .. } => "truncated",
            Fault::Field { .. }
            | Fault::ChunkSize { .. }
            | Fault::EqualRanks { .. }
            | Fault::Overflow
            | Fault::TooMany { .. } => "head",
            Fault::TailPosition { .. }
            | Fault::ChunkCount { .. }
            | Fault::BlocksUnused { .. }
            | Fault::ChunkBytes { .. }
            | Fault::UnusedEntry { .. } => "byte-counts",
            Fault::PartMissing { .. } | Fault::PartDiffers { .. } | Fault::FilesLost { .. } => "set",
            Fault::FileDamaged { .. } => "checksum",
            Fault::MappingSize { .. }
            | Fault::MappingTarget { .. }
            | Fault::MappingTwice { .. }
            | Fault::MappingRank { .. } => "mapping",
            Fault::Record { .. } | Fault::RecordHeader { .. } => "record",
        }
    }
}
