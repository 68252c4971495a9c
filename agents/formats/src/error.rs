//! Why a file could not be worked on. Damage found by a verification is no error: it is the verdict.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::durable::{self, DurableError};

/// What was being done, to which file, and what the user can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatsError {
    /// Opening or reading failed.
    #[error("cannot {action} {}: {source}; {}", path.display(), durable::remedy(source))]
    Read {
        /// What was being done, as the verb of the sentence.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The content cannot be understood far enough for what was asked.
    #[error("cannot {action} {}: {what}; `holdfast verify` lists all that is wrong with it", path.display())]
    Damaged {
        /// What was being done, as the verb of the sentence.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// What was asked makes no sense for this kind of file.
    #[error("cannot {action} {}: {why}", path.display())]
    NotPossible {
        /// What was being done, as the verb of the sentence.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why, and what to do instead.
        why: String,
    },
    /// A file of that name is there already.
    #[error("will not overwrite {}: extract to an empty directory, or ask for overwriting (--force)", path.display())]
    Exists {
        /// The file that is there.
        path: PathBuf,
    },
    /// A name that would leave the destination, or that no file system takes.
    #[error("refusing to write a file named {name:?} in {}: the name is not a plain file name", directory.display())]
    UnsafeName {
        /// The destination.
        directory: PathBuf,
        /// The name as the file gave it.
        name: String,
    },
    /// Too little is left to restore a file.
    #[error("cannot restore {what}: {why}")]
    NotRestorable {
        /// The file that was to be restored.
        what: String,
        /// What is missing or damaged.
        why: String,
    },
    /// What was to be written breaks a rule of the format.
    #[error("cannot write {}: {why}", path.display())]
    Unwritable {
        /// The file that was to be written.
        path: PathBuf,
        /// The rule.
        why: String,
    },
    /// A file could not be written; what stood in its place is untouched.
    #[error(transparent)]
    Write(#[from] DurableError),
}

impl FormatsError {
    /// For `map_err`: an error of the system on a file that is read.
    pub fn reading<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FormatsError + 'a {
        move |source| FormatsError::Read { action, path: path.to_owned(), source }
    }

    /// An error about the content of a file.
    pub fn damaged(action: &'static str, path: &Path, what: impl std::fmt::Display) -> FormatsError {
        FormatsError::Damaged { action, path: path.to_owned(), what: what.to_string() }
    }
}
