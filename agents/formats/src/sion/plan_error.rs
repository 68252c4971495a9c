//! Why a container cannot be planned.

use super::limits::{LARGEST_BLOCK, MOST_TASKS, PREFIX_BYTES};

/// Why a container with the given tasks and options is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("it would have no task; give at least one")]
    NoTask,
    #[error("it would have {0} tasks, more than the {MOST_TASKS} that readers accept")]
    TooManyTasks(usize),
    #[error("its block size would be {0}; give 1 to {LARGEST_BLOCK}")]
    BlockSize(u32),
    #[error("{tasks} tasks cannot be distributed over {files} files; give 1 to {tasks}")]
    Files { files: u32, tasks: usize },
    #[error("its name has {0} bytes; {PREFIX_BYTES} fit")]
    Prefix(usize),
    #[error("its chunks exceed the largest file size; use smaller chunks")]
    TooLarge,
}
