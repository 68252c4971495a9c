//! Why something could not be made durable.

use std::io;
use std::path::PathBuf;

use crate::io_error::remedy;

/// What could not be made durable, and what the user can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableError {
    /// The path has no file name or no parent directory, so that nothing can be renamed to it.
    #[error("cannot write {}: it does not name a file; give a path that ends in a file name", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// Something that is not a regular file is in the file's place.
    #[error("will not replace {}: it is {kind}; give the path of a regular file, or a new one", path.display())]
    NotReplaceable {
        path: PathBuf,
        /// What it is, with an article.
        kind: &'static str,
    },
    /// A file-system call failed.
    #[error("cannot {action} {}: {source}; {}", path.display(), remedy(source))]
    Io {
        /// What was being done, as the verb of the sentence.
        action: &'static str,
        /// The file or directory it was done to.
        path: PathBuf,
        source: io::Error,
    },
}

impl DurableError {
    /// The system's own error, when there is one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            DurableError::NotAFile { .. } | DurableError::NotReplaceable { .. } => None,
            DurableError::Io { source, .. } => Some(source),
        }
    }
}

/// True if an error of the file system can be corrected where it occurred, and does not mean that data are damaged: no
/// permission, no space, a quota, a size limit, a file system that is read-only, faulty or not available.
pub fn prevents_writing(error: &io::Error) -> bool {
    use io::ErrorKind::{
        FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StaleNetworkFileHandle, StorageFull,
        TimedOut,
    };
    let by_kind = matches!(
        error.kind(),
        FileTooLarge
            | PermissionDenied
            | QuotaExceeded
            | ReadOnlyFilesystem
            | StaleNetworkFileHandle
            | StorageFull
            | TimedOut
    );
    by_kind || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// True if the process or the machine has no descriptor or memory left for the call: a later try may succeed.
pub fn is_exhaustion(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    error.raw_os_error().is_some_and(|number| exhausted.iter().any(|errno| errno.raw_os_error() == number))
}
