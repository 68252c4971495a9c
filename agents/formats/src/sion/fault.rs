//! What is wrong with a physical file, or with a set of them.

use std::path::PathBuf;

/// What is wrong with a physical file, or with the set.
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
    /// A field of the head has a value that no writer puts there.
    #[error("{field} is {value}, expected {expected}")]
    Field {
        /// The field's name in the format's description.
        field: &'static str,
        /// What it holds.
        value: i64,
        /// What it may hold.
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
    /// Positions pass what a file can have.
    #[error("its chunk sizes add up to more than a file can hold")]
    Overflow,
    /// More of something than this reader accepts in one file.
    #[error("it claims {count} {what}, more than the {limit} accepted")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// The byte counts do not stand where the chunk sizes say they must.
    #[error("the byte counts are said to begin at {stored}, but the chunk sizes put them at {expected}")]
    TailPosition {
        /// `start_of_varheader` as stored.
        stored: i64,
        /// What the chunk sizes and the number of blocks give.
        expected: u64,
    },
    /// A task's number of chunks is impossible.
    #[error("task {task} is said to use {count} chunks of {blocks}")]
    ChunkCount {
        /// Local rank.
        task: usize,
        /// The stored count.
        count: i64,
        /// The number of blocks.
        blocks: u64,
    },
    /// No task uses the last block.
    #[error("it is said to have {blocks} blocks, but no task uses more than {largest} chunks")]
    BlocksUnused {
        /// `maxusedchunks`.
        blocks: u64,
        /// The largest count of any task.
        largest: u64,
    },
    /// More bytes in a chunk than it has, or fewer than none.
    #[error("chunk {chunk} of task {task} is said to hold {bytes} bytes of {size}")]
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
    /// Bytes in a chunk behind the task's last one: the count is too small.
    #[error("task {task} is said to use {count} chunks, yet chunk {chunk} is said to hold {bytes} bytes")]
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
        /// What this file says.
        value: i64,
        /// What the set needs.
        expected: i64,
    },
    /// The table that says where each rank's stream is does not have one entry a task.
    #[error("its mapping has {size} entries for {tasks} tasks")]
    MappingSize {
        /// Entries.
        size: i64,
        /// Tasks of all files that are not a buddy's.
        tasks: u64,
    },
    /// A mapping entry points nowhere.
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
    /// The stream that a rank is mapped to says that it is another rank's.
    #[error("its mapping puts rank {rank} where rank {stored} is stored")]
    MappingRank {
        /// The global rank.
        rank: u64,
        /// The rank in the file's own table.
        stored: i64,
    },
    /// A key-value record does not fit into its stream.
    #[error("record {record} of task {task} claims {length} bytes where {left} are left")]
    Record {
        /// The task's index in the set.
        task: usize,
        /// The record's number in the task.
        record: u64,
        /// What it claims to have.
        length: u64,
        /// What is left of the stream.
        left: u64,
    },
    /// A stream ends inside a record's header.
    #[error("record {record} of task {task} has {left} bytes of its 16 byte header")]
    RecordHeader {
        /// The task's index in the set.
        task: usize,
        /// The record's number in the task.
        record: u64,
        /// What is left of the stream.
        left: u64,
    },
}

impl Fault {
    /// True when a limit of this reader was passed, so that looking further would only take longer.
    pub(super) fn is_limit(&self) -> bool {
        matches!(self, Fault::TooMany { .. })
    }

    /// A stable name of its kind, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Truncated { .. } => "truncated",
            Fault::Field { .. } | Fault::ChunkSize { .. } | Fault::Overflow | Fault::TooMany { .. } => "head",
            Fault::TailPosition { .. }
            | Fault::ChunkCount { .. }
            | Fault::BlocksUnused { .. }
            | Fault::ChunkBytes { .. }
            | Fault::UnusedEntry { .. } => "byte-counts",
            Fault::PartMissing { .. } | Fault::PartDiffers { .. } => "set",
            Fault::MappingSize { .. }
            | Fault::MappingTarget { .. }
            | Fault::MappingTwice { .. }
            | Fault::MappingRank { .. } => "mapping",
            Fault::Record { .. } | Fault::RecordHeader { .. } => "record",
        }
    }
}
