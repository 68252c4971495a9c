//! What can go wrong with the datasets of a store.

use std::io;
use std::path::PathBuf;

use super::base_name::NameError;
use super::directory_name::{DirectoryName, GivenNameError};
use crate::durable::{self, DurableError};
use crate::kvtree::file::HashFileError;
use crate::owned::OwnedError;
use holdfast_model::{CheckpointId, OutputPath};

pub type Result<T, E = PrefixError> = std::result::Result<T, E>;

/// Why work on the prefix directory failed. Every message names the file, the place in it and what to do.
#[derive(Debug, thiserror::Error)]
pub enum PrefixError {
    #[error("cannot {action} {}: {source}; {remedy}", path.display())]
    Io {
        /// What was being done, as a verb: `read`, `list`, `make`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
        remedy: &'static str,
    },
    /// The prefix directory itself is missing or is something else.
    #[error("the prefix directory {} {problem}; make it, or give the right one as `prefix`", path.display())]
    NoPrefix {
        path: PathBuf,
        /// `does not exist`, `is not a directory`.
        problem: &'static str,
    },
    /// A hash file could not be read or written.
    #[error(transparent)]
    HashFile(#[from] HashFileError),
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// Holdfast's own directory or a file in it is not used because another user may have made it, or cannot be used.
    #[error(transparent)]
    Owned(#[from] OwnedError),
    /// A hash file decodes, but its content is invalid.
    #[error("{}, at {place}: {problem}; {remedy}", path.display())]
    Content {
        path: PathBuf,
        /// The keys that lead to the place, joined by slashes.
        place: String,
        problem: String,
        remedy: &'static str,
    },
    /// A file or link names something outside its directory.
    #[error("{}, at {place}: {name:?} is refused: {problem}; {remedy}", path.display())]
    Name {
        /// The file or link.
        path: PathBuf,
        /// The keys that lead to the place, joined by slashes.
        place: String,
        name: String,
        problem: NameError,
        remedy: &'static str,
    },
    /// A checkpoint directory's name, given by the user, is no single component.
    #[error(transparent)]
    DirectoryName(#[from] GivenNameError),
    /// Another process changed index or current dataset during a change. The change is made again.
    #[error("the index of {} is changed by other processes all the time; repeat the command", location.display())]
    Overtaken { location: PathBuf },
    /// A job id that cannot be part of a directory name.
    #[error("the job id {job:?} cannot be part of a directory name: {problem}; set another SCR_JOB_ID")]
    JobId { job: String, problem: NameError },
    /// No free name for a new checkpoint directory within an hour of the wanted time.
    #[error(
        "every directory name for checkpoint {id} of job {job} near the wanted time exists in {}; remove old ones",
        prefix.display()
    )]
    NoFreeName { prefix: PathBuf, job: String, id: CheckpointId },
    /// The directory has only SCR's summary of before 2011.
    #[error(
        "{} is a summary in SCR's older text format, which is not supported; restart from another checkpoint, or \
         have SCR 1.1 rewrite it",
        path.display()
    )]
    OldSummary { path: PathBuf },
    /// A file of an output has the path of a file of another one.
    #[error(
        "the file {path} belongs to the output {name:?} in {directory}; give each output files of its own, or delete \
         that one with `holdfast index delete`"
    )]
    OutputPathTaken { path: OutputPath, name: String, directory: DirectoryName },
    /// A file of an output lies in the directory of another dataset.
    #[error(
        "the path {path} leads into {directory}, which is the directory of another dataset; name another directory for \
         the files of the output"
    )]
    InDataset { path: OutputPath, directory: DirectoryName },
    /// A record of a dataset of this user that another user has written.
    #[error(
        "{} belongs to another user, and the dataset to you: nothing that it names is placed or removed; move the file \
         away, then repeat the command, and withdraw the others' permission to write with `chmod g-w` or `chmod o-w`",
        path.display()
    )]
    ForeignRecord { path: PathBuf },
    /// Files of a dataset that is not complete are not placed.
    #[error(
        "{directory} is not a complete dataset of the index: its files are not moved; `holdfast index add` checks it"
    )]
    NotComplete { directory: DirectoryName },
    /// The directory has no summary.
    #[error(
        "{} has no summary.scr; `holdfast index add` writes one from the files that are there",
        directory.display()
    )]
    NoSummary { directory: PathBuf },
}

/// What was read; `None` if it is missing or damaged, or this user may not read it. While the file system fails, no
/// decision is based on what cannot be read.
pub(crate) fn known<T>(read: Result<T, PrefixError>) -> Result<Option<T>, PrefixError> {
    match read {
        Err(error) if error.is_of_the_system() => Err(error),
        read => Ok(read.ok()),
    }
}

/// As [`known`], with the reason why there is nothing.
pub(crate) fn known_or_reason<T>(read: Result<T, PrefixError>) -> Result<Result<T, String>, PrefixError> {
    match read {
        Err(error) if error.is_of_the_system() => Err(error),
        read => Ok(read.map_err(|error| error.to_string())),
    }
}

impl PrefixError {
    /// True if what was to be used does not exist.
    pub fn is_missing(&self) -> bool {
        match self {
            PrefixError::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            PrefixError::Owned(error) => error.is_missing(),
            _ => false,
        }
    }

    /// True if something could not be written, or the file system not be used, whatever the files contain.
    pub fn prevents_writing(&self) -> bool {
        match self {
            PrefixError::Durable(_) | PrefixError::Owned(_) => true,
            PrefixError::HashFile(error) => error.prevents_writing(),
            PrefixError::Io { source, .. } => durable::prevents_writing(source),
            _ => false,
        }
    }

    /// True if the file system failed, and it is unknown what is there. Not for what is missing, damaged, no regular
    /// file, or not readable for this user.
    fn is_of_the_system(&self) -> bool {
        let source = match self {
            PrefixError::Io { source, .. }
            | PrefixError::Owned(OwnedError::Io { source, .. })
            | PrefixError::HashFile(HashFileError::Read { source, .. }) => source,
            _ => return false,
        };
        use io::ErrorKind::{InvalidData, InvalidInput, NotADirectory, NotFound, PermissionDenied, UnexpectedEof};
        !matches!(
            source.kind(),
            InvalidData | InvalidInput | NotADirectory | NotFound | PermissionDenied | UnexpectedEof
        )
    }

    /// An error of the file system with its action, path and remedy.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
        remedy: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| PrefixError::Io { action, path, source, remedy }
    }
}
