//! Why it is unknown whether there was progress.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_core::owned::OwnedError;

/// Why it cannot be found out whether there was progress.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgressError {
    #[error(transparent)]
    Pattern(#[from] glob::PatternError),
    #[error("cannot read {}: {source}; check `progress.files`", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("`progress.files` matches more than {most} files; write patterns that match fewer")]
    TooManyFiles { most: usize },
    #[error("the files of `progress.files` were not listed before the launch: {reason}")]
    NoBaseline { reason: String },
    #[error(transparent)]
    Expression(#[from] regex::Error),
    #[error(transparent)]
    Owned(#[from] OwnedError),
    #[error("there was no result within {} s; does the file system respond?", .0.as_secs())]
    TimedOut(Duration),
    #[error("it was cancelled")]
    Cancelled,
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}
