//! Why the input of a writer does not fit the container.

use super::fault::Fault;

/// Why an input of `join`, a stream, or the usage reported by a writer does not fit the container.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputMismatch {
    /// A directory without files of tasks.
    #[error("there are no files named t_<task> or t_<task>_<key>; give the directory of a split")]
    NoFiles,
    /// Entries of the directory with other names.
    #[error(
        "{first} is not named t_<task> or t_<task>_<key>{}; it would not be in the container: rename it, or move it \
         elsewhere",
        match more { 0 => String::new(), more => format!(", nor are {more} other files") }
    )]
    OtherFiles {
        /// The first of them.
        first: String,
        /// The number of others.
        more: usize,
    },
    /// Two files with one task and key.
    #[error("{first} and {second} are names of one stream; remove one of them")]
    SameStream {
        /// One of them.
        first: String,
        /// The other one.
        second: String,
    },
    /// A directory with files of both kinds.
    #[error("there are plain files and files of keys; join them separately")]
    MixedFiles,
    /// Files of some tasks are missing.
    #[error("the files t_<task> have gaps; provide a file for every task, from t_00000 on")]
    Gaps,
    /// A task number that no container can have.
    #[error("a file's task number is too large")]
    TaskNumber,
    /// A file that is still being written.
    #[error("its size changed from {before} to {now} bytes during the copy; join it when it is complete")]
    Changed {
        /// Bytes when it was listed.
        before: u64,
        /// Bytes when it was read.
        now: u64,
    },
    /// Global ranks that cannot name files.
    #[error("its global ranks are negative or not unique; split by the order of its tasks")]
    GlobalRanks,
    /// A write that must stay in one chunk is larger than a chunk.
    #[error("{bytes} bytes do not fit into a chunk of {size}; use smaller writes, or plan larger chunks")]
    WholeWrite {
        /// Bytes to be written.
        bytes: u64,
        /// The size of the task's chunks.
        size: u64,
    },
    /// A stream that must stay in its task's first chunk is larger.
    #[error("{bytes} bytes of task {task} do not fit into a chunk of {size}; plan larger chunks")]
    Stream {
        /// The task.
        task: usize,
        /// Bytes of its stream.
        bytes: u64,
        /// The size of its chunks.
        size: u64,
    },
    /// Chunks without bytes.
    #[error("task {task} has chunks of 0 bytes; plan larger chunks")]
    NoRoom {
        /// The task.
        task: usize,
    },
    /// The file was created from another plan.
    #[error("its head differs from the plan; attach with the plan that it was created from")]
    OtherPlan,
    /// Tasks without a reported usage.
    #[error("{reported} of {tasks} tasks reported their usage")]
    Reports {
        /// Reports.
        reported: usize,
        /// Tasks of the plan.
        tasks: usize,
    },
    /// A reported usage with more bytes than the chunk has.
    #[error("task {task} reported {bytes} bytes in a chunk of {size}; report the usage that its writer returned")]
    Report {
        /// Local rank.
        task: usize,
        /// The bytes of one chunk, as reported.
        bytes: u64,
        /// The size of the task's chunks.
        size: u64,
    },
    /// More chunks than the format can store.
    #[error("{chunks} chunks in one stream; use larger chunks")]
    TooManyChunks {
        /// The chunks of the longest stream.
        chunks: u64,
    },
    /// A table of byte counts that no reader accepts.
    #[error("{0}; use larger chunks")]
    Table(Fault),
    /// An offset beyond the largest file size.
    #[error("the file would be too large")]
    TooLarge,
}
