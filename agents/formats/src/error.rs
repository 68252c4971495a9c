//! Why an operation on a file failed. Damage that a verification finds is not an error: it is in the
//! [`FileCheck`](crate::FileCheck).

use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::durable::{self, DurableError};

pub type Result<T, E = FormatsError> = std::result::Result<T, E>;

/// Why an operation on a file failed. The message names the operation, the file and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatsError {
    #[error("cannot {action} {}: {source}; {}", path.display(), durable::remedy(source))]
    Read {
        /// The operation, as a verb: `open`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The content is too damaged for the operation.
    #[error("cannot {action} {}: {what}; `holdfast verify` lists all that is wrong with it", path.display())]
    Damaged {
        /// The operation, as a verb: `open`.
        action: &'static str,
        path: PathBuf,
        what: String,
    },
    #[error("cannot {action} {}: {why}", path.display())]
    NotPossible {
        /// The operation, as a verb: `open`.
        action: &'static str,
        path: PathBuf,
        why: String,
    },
    #[error("will not overwrite {}: extract to an empty directory, or ask for overwriting (--force)", path.display())]
    Exists { path: PathBuf },
    /// A name that would lead out of the destination, or that file systems do not allow.
    #[error("refusing to write a file named {name:?} in {}: the name is not a plain file name", directory.display())]
    UnsafeName { directory: PathBuf, name: String },
    /// Too few files are left to restore a file.
    #[error("cannot restore {what}: {why}")]
    NotRestorable { what: String, why: String },
    /// Writing into an open file failed; its content is not complete.
    #[error("cannot write {}: {source}; {}", path.display(), durable::remedy(source))]
    WriteInto { path: PathBuf, source: io::Error },
    /// The content to write violates a rule of the format.
    #[error("cannot write {}: {why}", path.display())]
    Unwritable { path: PathBuf, why: String },
    /// A file could not be written; a previous file of that name is unchanged.
    #[error(transparent)]
    Write(#[from] DurableError),
}

impl FormatsError {
    /// For `map_err`: makes a [`FormatsError::Read`] of an I/O error.
    pub fn reading<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FormatsError + 'a {
        move |source| FormatsError::Read { action, path: path.to_owned(), source }
    }

    /// For `map_err`: makes a [`FormatsError::WriteInto`] of an I/O error.
    pub fn writing<'a>(path: &'a Path) -> impl Fn(io::Error) -> FormatsError + Copy + 'a {
        move |source| FormatsError::WriteInto { path: path.to_owned(), source }
    }

    /// A [`FormatsError::Damaged`]: what is wrong with the content of a file, and where.
    pub fn damaged(action: &'static str, path: &Path, what: impl std::fmt::Display) -> FormatsError {
        FormatsError::Damaged { action, path: path.to_owned(), what: what.to_string() }
    }
}
