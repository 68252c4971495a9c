//! Errors of reading, checking and writing containers.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::durable::{DurableError, remedy};

use super::fault::Fault;
use super::input_mismatch::InputMismatch;
use super::plan_error::PlanError;

pub type Result<T, E = SionError> = std::result::Result<T, E>;

/// Why a container could not be read, checked or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SionError {
    #[error("cannot {action} {}: {source}; {}", path.display(), remedy(source))]
    Io {
        /// The operation, as a verb: `open`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A file could not be renamed or synchronised.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The file does not begin with the magic number.
    #[error("{} is not a SION container: it does not begin with \"sion\"; check the name", path.display())]
    NotSion { path: PathBuf },
    /// The writer ended before it closed the container: the byte counts of the chunks were never written.
    #[error(
        "{} was never closed: its writer ended before the byte counts were written; \
         use recovery (--recover) to read its chunks",
        path.display()
    )]
    NeverClosed { path: PathBuf },
    #[error(
        "{} is damaged: {fault}; use another copy, or recovery (--recover) if its head is intact",
        path.display()
    )]
    Damaged { path: PathBuf, fault: Fault },
    /// The caller named a task that the container does not have.
    #[error("{} has no task {task}: its tasks are 0 to {}; give one of them", path.display(), tasks.saturating_sub(1))]
    NoSuchTask { path: PathBuf, task: usize, tasks: usize },
    /// The caller requested the keys of a container without records.
    #[error("{} holds plain streams, not key-value records; read its tasks as plain streams", path.display())]
    NotKeyValue { path: PathBuf },
    /// A container with these tasks and options is impossible.
    #[error("cannot lay out {}: {source}", path.display())]
    Plan { path: PathBuf, source: PlanError },
    /// A file of the set to write exists. Several files cannot be replaced atomically.
    #[error(
        "{} already exists and belongs to a set of files, which cannot be replaced atomically; \
         remove it or choose another name",
        path.display()
    )]
    Exists { path: PathBuf },
    /// Another process made a file of this name meanwhile.
    #[error("{} was made by another process meanwhile, and is not replaced; repeat the copy", path.display())]
    Taken { path: PathBuf },
    /// An input of `join`, or the usage reported by a writer, does not fit the container.
    #[error("cannot write {}: {mismatch}", path.display())]
    Input { path: PathBuf, mismatch: InputMismatch },
}

impl SionError {
    pub(super) fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SionError + 'a {
        move |source| SionError::Io { action, path: path.to_owned(), source }
    }

    pub(super) fn damaged<'a>(path: &'a Path) -> impl FnOnce(Fault) -> SionError + 'a {
        move |fault| SionError::Damaged { path: path.to_owned(), fault }
    }

    /// True if the file is damaged; false for errors of the system or the caller.
    pub fn is_damage(&self) -> bool {
        matches!(self, SionError::NotSion { .. } | SionError::NeverClosed { .. } | SionError::Damaged { .. })
    }
}
