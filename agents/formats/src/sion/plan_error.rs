//! Why a container cannot be planned.

use super::limits::{LARGEST_BLOCK, MOST_TASKS, PREFIX_BYTES};

/// Why a container with the given tasks and options is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There are no tasks.
    #[error("it would have no task; give at least one")]
    NoTask,
    /// Too many tasks.
    #[error("it would have {0} tasks, more than the {MOST_TASKS} that readers accept")]
    TooManyTasks(usize),
    /// An invalid block size.
    #[error("its block size would be {0}; give 1 to {LARGEST_BLOCK}")]
    BlockSize(u32),
    /// No file, or more files than tasks.
    #[error("{tasks} tasks cannot be distributed over {files} files; give 1 to {tasks}")]
    Files {
        /// Number of files.
        files: u32,
        /// Number of tasks.
        tasks: usize,
    },
    /// The list of places does not have one entry per task.
    #[error("{places} places were given for {tasks} tasks; give one for each")]
    Places {
        /// Entries of the list.
        places: usize,
        /// Number of tasks.
        tasks: usize,
    },
    /// The places have a gap, or two tasks have the same place.
    #[error("the places of its tasks do not fill file {file}; number files and local ranks from 0 without gaps")]
    Gap {
        /// The file with the gap or duplicate.
        file: u32,
    },
    /// A collector group of 0 tasks.
    #[error("a collector cannot serve 0 tasks; give at least 1")]
    Collector,
    /// The name does not fit.
    #[error("its name has {0} bytes; {PREFIX_BYTES} fit")]
    Prefix(usize),
    /// Chunks beyond the largest file size.
    #[error("its chunks exceed the largest file size; use smaller chunks")]
    TooLarge,
}
