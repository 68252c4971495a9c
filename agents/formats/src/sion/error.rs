//! Why a container could not be read, checked or written.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::durable::{DurableError, remedy};

use super::fault::Fault;
use super::input_mismatch::InputMismatch;
use super::plan_error::PlanError;

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
    #[error("cannot write {}: {mismatch}", path.display())]
    Input {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong and what to do.
        mismatch: InputMismatch,
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
