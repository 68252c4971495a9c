//! The damages of a physical file, or of a set of files.

use std::path::PathBuf;

/// A damage of a physical file, or of the set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file ends inside something.
    #[error("it ends inside {what}, which needs {needs} bytes of a file of {length}")]
    Truncated {
        /// The part of the file.
        what: &'static str,
        /// Where that part ends.
        needs: u64,
        /// The file's length.
        length: u64,
    },
    /// A field of the head has an invalid value.
    #[error("{field} is {value}, expected {expected}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// The stored value.
        value: i64,
        /// The valid values.
        expected: &'static str,
    },
    /// A chunk size below zero.
    #[error("the chunk size of task {task} is {size}")]
    ChunkSize {
        /// Local rank.
        task: usize,
        /// The stored size.
        size: i64,
    },
    /// A table of ranks that was never written.
    #[error(
        "global rank {rank} is stored for {tasks} tasks in sequence from task {first} on: its head was not written"
    )]
    EqualRanks {
        /// The rank.
        rank: i64,
        /// Local rank of the first of them.
        first: usize,
        /// Tasks that were read.
        tasks: usize,
    },
    /// Offsets exceed the largest file size.
    #[error("its chunk sizes add up to more than a file can hold")]
    Overflow,
    /// More of something than this reader accepts in one file.
    #[error("it claims {count} {what}, more than the {limit} accepted")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// How many.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// The stored offset of the byte counts contradicts the chunk sizes.
    #[error("the stored offset of the byte counts is {stored}, the chunk sizes require {expected}")]
    TailPosition {
        /// `start_of_varheader` as stored.
        stored: i64,
        /// The offset that follows from the chunk sizes and the number of blocks.
        expected: u64,
    },
    /// A task's number of chunks is impossible.
    #[error("the chunk count of task {task} is {count}, with {blocks} blocks")]
    ChunkCount {
        /// Local rank.
        task: usize,
        /// The stored count.
        count: i64,
        /// The number of blocks.
        blocks: u64,
    },
    /// No task uses the last block.
    #[error("the number of blocks is {blocks}, but no task uses more than {largest} chunks")]
    BlocksUnused {
        /// `maxusedchunks`.
        blocks: u64,
        /// The largest count of any task.
        largest: u64,
    },
    /// A byte count larger than the chunk, or negative.
    #[error("the byte count of chunk {chunk} of task {task} is {bytes} bytes of {size}")]
    ChunkBytes {
        /// Local rank.
        task: usize,
        /// The chunk's number.
        chunk: u64,
        /// The stored byte count.
        bytes: i64,
        /// The chunk's size.
        size: u64,
    },
    /// A byte count for a chunk after the task's last one.
    #[error("the chunk count of task {task} is {count}, but the byte count of its chunk {chunk} is {bytes}")]
    UnusedEntry {
        /// Local rank.
        task: usize,
        /// The task's number of chunks.
        count: u64,
        /// The chunk's number.
        chunk: u64,
        /// The stored byte count.
        bytes: i64,
    },
    /// A file of the set is not there.
    #[error("file {number} of its {files} is missing: {}", path.display())]
    PartMissing {
        /// The file's number.
        number: u32,
        /// The number of files of the set.
        files: u32,
        /// Where it should be.
        path: PathBuf,
    },
    /// A file of the set does not belong to it.
    #[error("its {field} is {value}, but the set needs {expected}")]
    PartDiffers {
        /// The field.
        field: &'static str,
        /// The value in this file.
        value: i64,
        /// The value of the set.
        expected: i64,
    },
    /// The mapping, the table of the places of all streams, does not have one entry per task.
    #[error("its mapping has {size} entries for {tasks} tasks")]
    MappingSize {
        /// Entries.
        size: i64,
        /// Tasks of all files, without buddy copies.
        tasks: u64,
    },
    /// A mapping entry points to a task that does not exist.
    #[error("its mapping puts rank {rank} into file {file}, task {task}, which does not exist")]
    MappingTarget {
        /// The global rank.
        rank: u64,
        /// The file number in the entry.
        file: i32,
        /// The local rank in the entry.
        task: i32,
    },
    /// Two mapping entries point to the same stream.
    #[error("its mapping puts rank {rank} into file {file}, task {task}, where another rank is already")]
    MappingTwice {
        /// The second global rank.
        rank: u64,
        /// The file number.
        file: i32,
        /// The local rank.
        task: i32,
    },
    /// The stream that a rank is mapped to has another global rank.
    #[error("its mapping puts rank {rank} where rank {stored} is stored")]
    MappingRank {
        /// The global rank.
        rank: u64,
        /// The rank in the file's own table.
        stored: i64,
    },
    /// Files of a rank, in a container of a dataset, cannot be read.
    #[error("files of rank {rank} are lost: {problem}")]
    FilesLost {
        /// The rank.
        rank: u32,
        /// Why.
        problem: String,
    },
    /// A file of a rank, in a container of a dataset, is not as its meta file records it.
    #[error("rank {rank}, {name}: {problem}")]
    FileDamaged {
        /// The rank.
        rank: u32,
        /// The file's name.
        name: String,
        /// What differs.
        problem: String,
    },
    /// A key-value record does not fit into its stream.
    #[error("record {record} of task {task} claims {length} bytes where {left} are left")]
    Record {
        /// The task's index in the set.
        task: usize,
        /// The record's number in the task.
        record: u64,
        /// The length in its header.
        length: u64,
        /// The remaining bytes of the stream.
        left: u64,
    },
    /// A stream ends inside a record's header.
    #[error("record {record} of task {task} has {left} bytes of its 16 byte header")]
    RecordHeader {
        /// The task's index in the set.
        task: usize,
        /// The record's number in the task.
        record: u64,
        /// The remaining bytes of the stream.
        left: u64,
    },
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
