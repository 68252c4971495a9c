//! Why the input of a writer does not fit the container.

use super::fault::Fault;

/// Why an input of `join`, or the usage reported by a writer does not fit the container.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputMismatch {
    #[error("there are no files named t_<task> or t_<task>_<key>; give the directory of a split")]
    NoFiles,
    #[error(
        "{first} is not named t_<task> or t_<task>_<key>{}; it would not be in the container: rename it, or move it \
         elsewhere",
        match more { 0 => String::new(), more => format!(", nor are {more} other files") }
    )]
    OtherFiles { first: String, more: usize },
    #[error("{first} and {second} are names of one stream; remove one of them")]
    SameStream { first: String, second: String },
    #[error("there are plain files and files of keys; join them separately")]
    MixedFiles,
    #[error("the files t_<task> have gaps; provide a file for every task, from t_00000 on")]
    Gaps,
    /// A task number that no container can have.
    #[error("a file's task number is too large")]
    TaskNumber,
    #[error("its size changed from {before} to {now} bytes during the copy; join it when it is complete")]
    Changed { before: u64, now: u64 },
    #[error("its global ranks are negative or not unique; split by the order of its tasks")]
    GlobalRanks,
    #[error("task {task} has chunks of 0 bytes; plan larger chunks")]
    NoRoom { task: usize },
    #[error("{reported} of {tasks} tasks reported their usage")]
    Reports { reported: usize, tasks: usize },
    /// A reported usage with more bytes than the chunk has.
    #[error("task {task} reported {bytes} bytes in a chunk of {size}; report the usage that its writer returned")]
    Report { task: usize, bytes: u64, size: u64 },
    #[error("{chunks} chunks in one stream; use larger chunks")]
    TooManyChunks { chunks: u64 },
    /// A table of byte counts that no reader accepts.
    #[error("{0}; use larger chunks")]
    Table(Fault),
    #[error("the file would be too large")]
    TooLarge,
}
