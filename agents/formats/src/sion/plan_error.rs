//! Why what was asked for cannot be laid out as a container.

use super::limits::{LARGEST_BLOCK, MOST_TASKS, PREFIX_BYTES};

/// Why a plan cannot be a container.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Nothing to write.
    #[error("it would have no task; give at least one")]
    NoTask,
    /// Too many tasks.
    #[error("it would have {0} tasks, more than the {MOST_TASKS} that readers accept")]
    TooManyTasks(usize),
    /// An alignment that the format's writers refuse.
    #[error("its block size would be {0}; give 1 to {LARGEST_BLOCK}")]
    BlockSize(u32),
    /// No file, or more files than tasks.
    #[error("{tasks} tasks cannot be spread over {files} files; give 1 to {tasks}")]
    Files {
        /// Number of files.
        files: u32,
        /// Number of tasks.
        tasks: usize,
    },
    /// The list of places does not have one entry a task.
    #[error("{places} places were given for {tasks} tasks; give one for each")]
    Places {
        /// Entries of the list.
        places: usize,
        /// Number of tasks.
        tasks: usize,
    },
    /// The places leave a gap, or two tasks share one.
    #[error("the places of its tasks do not fill file {file}; number files and local ranks from 0 without gaps")]
    Gap {
        /// The file that is not filled, or lacks a task.
        file: u32,
    },
    /// A collector group of nobody.
    #[error("a collector cannot serve 0 tasks; give at least 1")]
    Collector,
    /// The name does not fit.
    #[error("its name has {0} bytes; {PREFIX_BYTES} fit")]
    Prefix(usize),
    /// Chunks past what a file can hold.
    #[error("its chunks add up to more than a file can hold; ask for smaller ones")]
    TooLarge,
}
