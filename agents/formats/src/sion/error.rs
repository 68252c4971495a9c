//! What can be wrong with a container, and with what a caller asks of one.

use std::io;
use std::path::{Path, PathBuf};

use super::plan::PlanError;
use holdfast_core::durable::{DurableError, remedy};

/// Why a container could not be read, checked or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SionError {
    /// A file-system call failed.
    #[error("cannot {action} {}: {source}; {}", path.display(), remedy(source))]
    Io {
        /// What was being done, as the verb of the sentence.
        action: &'static str,
        /// The file it was done to.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be put in place.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The file does not begin with the four letters.
    #[error("{} is not a SION container: it does not begin with \"sion\"; check the name", path.display())]
    NotSion {
        /// The file.
        path: PathBuf,
    },
    /// The writer ended before it closed the container: the byte counts of the chunks were never written.
    #[error(
        "{} was never closed: its writer ended before the byte counts were written; ask for recovery (--recover) to get what its chunks hold",
        path.display()
    )]
    NeverClosed {
        /// The physical file.
        path: PathBuf,
    },
    /// The file contradicts itself or the format.
    #[error("{} is damaged: {fault}; take another copy, or ask for recovery (--recover) if its head is whole", path.display())]
    Damaged {
        /// The physical file.
        path: PathBuf,
        /// What is wrong.
        fault: Fault,
    },
    /// The caller named a task that the container does not have.
    #[error("{} has no task {task}: its tasks are 0 to {}; give one of them", path.display(), tasks.saturating_sub(1))]
    NoSuchTask {
        /// The container.
        path: PathBuf,
        /// The task asked for.
        task: usize,
        /// The number of tasks.
        tasks: usize,
    },
    /// The caller asked for keys of a container that has none.
    #[error("{} holds plain streams, not key-value records; read its tasks as they are", path.display())]
    NotKeyValue {
        /// The container.
        path: PathBuf,
    },
    /// What was to be written cannot be a container.
    #[error("cannot lay out {}: {source}", path.display())]
    Plan {
        /// The container to be written.
        path: PathBuf,
        /// What is wrong.
        source: PlanError,
    },
    /// A container of several files stands where one is to be written; replacing several files is not one step.
    #[error("{} exists already and belongs to a set of files, which cannot be replaced in one step; remove it or choose another name", path.display())]
    Exists {
        /// The file in the way.
        path: PathBuf,
    },
    /// An input of `join` or a writer's report does not fit the rest.
    #[error("cannot write {}: {reason}", path.display())]
    Input {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
}

impl SionError {
    pub(super) fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SionError + 'a {
        move |source| SionError::Io { action, path: path.to_owned(), source }
    }

    pub(super) fn damaged<'a>(path: &'a Path) -> impl FnOnce(Fault) -> SionError + 'a {
        move |fault| SionError::Damaged { path: path.to_owned(), fault }
    }

    /// True when the fault is the file's own (damaged data), not the system's or the caller's.
    pub fn is_damage(&self) -> bool {
        matches!(self, SionError::NotSion { .. } | SionError::NeverClosed { .. } | SionError::Damaged { .. })
    }
}

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

/// Something odd that does not keep the data from being read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Oddity {
    /// A format newer than those known.
    #[error("its format version {0} is newer than 5; it was read as 5")]
    NewerFormat(i32),
    /// The word that holds the byte orders is none that a writer leaves.
    #[error("its byte order word {} is none that a writer leaves; only its first bits were used", hex(word))]
    ByteOrderWord {
        /// The four bytes.
        word: [u8; 4],
    },
    /// The prefix fills its field.
    #[error("its prefix field has no end")]
    PrefixUnterminated,
    /// The flags say no key-value mode at all, which format 5 has a value for.
    #[error("it names no key-value mode; it was read as plain streams")]
    NoKeyValueMode,
    /// Bytes behind the end.
    #[error("{bytes} bytes follow its end")]
    TrailingBytes {
        /// How many.
        bytes: u64,
    },
    /// Zero chunks, where writers count at least one.
    #[error("task {task} has no chunk at all, where writers count at least one")]
    NoChunk {
        /// Local rank.
        task: usize,
    },
    /// Two tasks with one global rank.
    #[error("global rank {rank} is stored for more than one task; they can be told apart by their index only")]
    RankTwice {
        /// The rank.
        rank: i64,
    },
    /// One file of a set, opened alone.
    #[error("it is file {number} of a set of {files} and was opened alone: only its own tasks are seen")]
    PartAlone {
        /// Its number.
        number: i32,
        /// Files of the set.
        files: u32,
    },
    /// The head is not closed or the tail is gone, and the byte counts are what the content suggests.
    #[error("its byte counts are lost; each chunk was taken to end at its last byte that is not zero")]
    CountsEstimated,
    /// The head is not closed or the tail is gone, and the records themselves say how long the streams are.
    #[error("its byte counts are lost; each stream was followed record by record")]
    CountsFromRecords,
    /// The head was never closed, yet the byte counts are at the end of the file.
    #[error("its head was never closed, but its byte counts were found at the end")]
    TailFound,
    /// A file of the set could not be used for recovery.
    #[error("file {number} of its {files} could not be recovered: {reason}")]
    PartLost {
        /// Its number.
        number: u32,
        /// Files of the set.
        files: u32,
        /// Why.
        reason: String,
    },
    /// The mapping could not be used; tasks stand in the order of their stored ranks, or of the files.
    #[error("its mapping is lost; tasks stand in the order of their stored ranks")]
    MappingLost,
}

impl Oddity {
    /// A stable name of its kind, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Oddity::NewerFormat(_) => "newer-format",
            Oddity::ByteOrderWord { .. } | Oddity::PrefixUnterminated | Oddity::NoKeyValueMode => "head",
            Oddity::TrailingBytes { .. } => "trailing",
            Oddity::NoChunk { .. } => "byte-counts",
            Oddity::RankTwice { .. } => "rank-twice",
            Oddity::PartAlone { .. } => "part-alone",
            Oddity::CountsEstimated | Oddity::CountsFromRecords | Oddity::TailFound => "recovered",
            Oddity::PartLost { .. } => "set",
            Oddity::MappingLost => "mapping",
        }
    }

    /// True when data may be missing or cut: the container was recovered with less than certainty.
    pub fn is_loss(&self) -> bool {
        matches!(self, Oddity::CountsEstimated | Oddity::CountsFromRecords | Oddity::PartLost { .. })
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An [`Oddity`] and the physical file it was found in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {oddity}", path.display())]
pub struct Warning {
    /// The physical file.
    pub path: PathBuf,
    /// What is odd.
    pub oddity: Oddity,
}
