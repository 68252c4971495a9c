//! Why a call failed.

use std::io;
use std::path::PathBuf;

use holdfast_boundary::ArgumentError;
use holdfast_formats::sion::{InputMismatch, PlanError, SionError};

pub type Result<T, E = CallError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error(transparent)]
    Sion(#[from] SionError),
    #[error("cannot {action} {}: {source}; check the directory and the space there", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{0} is not the handle of an open file: pass what sion_open returned, before sion_close")]
    Handle(i32),
    #[error("{option:?} in the mode cannot be carried out: {remedy}")]
    Mode { option: String, remedy: &'static str },
    #[error("the file was opened to read: open it with \"wb\" to write")]
    OpenedToRead,
    #[error("the file is being written: close it, and open it with \"rb\" to read")]
    OpenedToWrite,
    #[error("sion_open_rank cannot write: use sion_open with \"wb\", and sion_seek")]
    OpenedToWriteRank,
    #[error("{what} is {value}: {remedy}")]
    Number { what: &'static str, value: i64, remedy: &'static str },
    #[error("cannot write {}: {source}", path.display())]
    Plan { path: PathBuf, source: PlanError },
    #[error("cannot complete {}: {source}", path.display())]
    Closing { path: PathBuf, source: InputMismatch },
    #[error(
        "{bytes} bytes do not fit into a chunk of task {task}, which has {size}: write less at once, or open the \
             file with larger chunks"
    )]
    LargerThanChunk { task: usize, bytes: u64, size: u64 },
    #[error(
        "the position {position} in the file is outside of chunk {chunk} of task {task}, which has {size} bytes at \
             {start}: call sion_ensure_free_space before each write to the FILE, and do not move it"
    )]
    OutsideOfChunk { task: usize, chunk: usize, position: u64, start: u64, size: u64 },
    #[error(
        "{wanted} bytes are wanted, and {left} are left in chunk {chunk} of task {task}: read at most what \
             sion_bytes_avail_in_chunk returns"
    )]
    ShortChunk { task: usize, chunk: usize, wanted: u64, left: i64 },
    #[error("rank {rank} is not open: the file has 0 to {last}")]
    Rank { rank: i64, last: usize },
    #[error("rank {rank} is not open: sion_open_rank opened rank {only} alone")]
    OtherRank { rank: i64, only: usize },
    #[error("{} is one file of a set: open the first file of the set", .0.display())]
    PartOfSet(PathBuf),
    #[error("task {task} has no chunk {chunk}: its chunks are 0 to {last}")]
    Chunk { task: usize, chunk: i64, last: usize },
    #[error("position {position} is not in the chunk, which has {bytes} bytes")]
    Position { position: i64, bytes: u64 },
    #[error("position {position} is not in the stream of task {task}, which has {bytes} bytes")]
    StreamPosition { task: usize, position: i64, bytes: u64 },
    #[error("task {0} is at the end of its stream")]
    AtEnd(usize),
    #[error("while writing, only the task can be changed: pass SION_CURRENT_BLK and SION_CURRENT_POS")]
    SeekInWriting,
    #[error("the file has no key-value records: write it with \"wb,keyval=inline\"")]
    NotKeyValue,
    #[error("the position is SION_CURRENT_POS, but the entry is not SION_CURRENT_BLOCK")]
    KeyPosition,
    #[error("items of 0 bytes: give the size of an item")]
    EmptyItems,
    #[error("{size} bytes times {count} are more than there can be in memory")]
    TooManyBytes { size: usize, count: usize },
    #[error("the table would have {0} entries: read the file by sion_seek and sion_feof")]
    LargeTable(u64),
    #[error(
        "{} is not the file that the first task of this physical file created: its tasks need one file system; give \
             each node a physical file of its own, by numFiles -1 and a communicator with its processes, or \
             MPI_COMM_SELF; or by the mapping",
        path.display()
    )]
    NotShared { path: PathBuf },
    #[error(
        "{} has {length} bytes, and that of the first task of this physical file {expected}: its tasks need one file \
             system",
        path.display()
    )]
    OtherFile { path: PathBuf, length: u64, expected: i64 },
    #[error(
        "{} has {tasks} tasks, and the communicator {processes} processes: start as many as wrote it",
        path.display()
    )]
    Processes { path: PathBuf, tasks: usize, processes: usize },
    #[error("rank {rank} is not open: this process has task {own} of its physical file")]
    OtherTask { rank: i64, own: i32 },
    #[error("a process of a parallel file has its own tasks only: use sion_open to see the tables of all")]
    OwnTaskOnly,
    #[error("the file was opened by sion_paropen_mpi: close it with sion_parclose_mpi")]
    OpenedInParallel,
    #[error("the file was not opened by sion_paropen_mpi")]
    NotOpenedInParallel,
    #[error("the file was opened by sion_paropen_mapped_mpi: close it with sion_parclose_mapped_mpi")]
    OpenedMapped,
    #[error("the file was not opened by sion_paropen_mapped_mpi")]
    NotMapped,
    #[error("this process has no task of the file: it can only close it")]
    NoTask,
    #[error("rank {rank} is not open: this process did not name it when it opened the file")]
    NotOwnRank { rank: i64 },
    #[error("rank {rank} is named twice by this process: name each of its tasks once")]
    RankTwice { rank: i64 },
    #[error("{} has no task with the global rank {rank}: it has {tasks} tasks", path.display())]
    NoSuchRank { path: PathBuf, rank: i64, tasks: usize },
    #[error(
        "{tasks} tasks have the physical file {file}, and their numbers there are not 0 to {}, each once: {index} is \
             not, or another task has it, too",
        tasks - 1
    )]
    TaskNumbers { file: u32, index: i64, tasks: usize },
    #[error(
        "there are {tasks} tasks, and their global ranks are not 0 to {}, each once: {rank} is not, or another task \
             has it, too",
        tasks - 1
    )]
    GlobalRanks { rank: i64, tasks: usize },
    #[error("data were written to the file already: call sion_parreinit_mpi before the first of them")]
    WrittenAlready,
    #[error("the file has no plan: its first task did not make it")]
    NoPlan,
    #[error("no memory for {0} bytes")]
    NoMemory(usize),
}

impl CallError {
    pub(crate) fn io<'a>(action: &'static str, path: &'a std::path::Path) -> impl FnOnce(io::Error) -> CallError + 'a {
        move |source| CallError::Io { action, path: path.to_owned(), source }
    }
}
