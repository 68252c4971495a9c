//! Why what was given to a writer does not fit.

use super::fault::Fault;

/// Why an input of `join`, a stream or a writer's report does not fit the rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputMismatch {
    /// A directory without files of tasks.
    #[error("there are no files named t_<task> or t_<task>_<key>; give the directory of a split")]
    NoFiles,
    /// A directory with the files of two kinds of containers.
    #[error("there are plain files and files of keys; join them apart")]
    MixedFiles,
    /// Files of some tasks are missing.
    #[error("the files t_<task> have gaps; give every task's, from t_00000 on")]
    Gaps,
    /// A task number that no container can have.
    #[error("a file's task number is too large")]
    TaskNumber,
    /// A file that is still written.
    #[error("it changed from {before} to {now} bytes meanwhile; join it when it is complete")]
    Changed {
        /// Bytes when it was listed.
        before: u64,
        /// Bytes when it was read.
        now: u64,
    },
    /// Global ranks that cannot name files.
    #[error("its global ranks are negative or not unique; split by the order of its tasks")]
    GlobalRanks,
    /// A write that must stay in one chunk, and does not fit into any.
    #[error("{bytes} bytes do not fit into a chunk of {size}; write less at once, or plan larger chunks")]
    WholeWrite {
        /// Bytes to be written.
        bytes: u64,
        /// The size of the task's chunks.
        size: u64,
    },
    /// A stream that must fit into its task's first chunk, and does not.
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
    #[error("task {task} has chunks of no bytes; plan room for it")]
    NoRoom {
        /// The task.
        task: usize,
    },
    /// The file was created from another plan.
    #[error("its head is not the plan's; attach with the plan that it was created from")]
    OtherPlan,
    /// Tasks that did not report what they wrote.
    #[error("{reported} of {tasks} tasks reported what they wrote")]
    Reports {
        /// Reports.
        reported: usize,
        /// Tasks of the plan.
        tasks: usize,
    },
    /// A report of more bytes than a chunk has.
    #[error("task {task} reports {bytes} bytes in a chunk of {size}; report what its writer returned")]
    Report {
        /// Local rank.
        task: usize,
        /// The bytes of one chunk, as reported.
        bytes: u64,
        /// The size of the task's chunks.
        size: u64,
    },
    /// More chunks than the format can count.
    #[error("{chunks} chunks in one stream; use larger chunks")]
    TooManyChunks {
        /// The chunks of the longest stream.
        chunks: u64,
    },
    /// A table of byte counts that no reader accepts.
    #[error("{0}; use larger chunks")]
    Table(Fault),
    /// A position past what a file can have.
    #[error("it would be too large a file")]
    TooLarge,
}
