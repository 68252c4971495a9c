//! Why a file or directory is not used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::io_error;

pub type Result<T, E = OwnedError> = std::result::Result<T, E>;

/// Why a file or directory of ours cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnedError {
    /// Another user has, or may have, a hand in it; it was not used.
    #[error("{} {found}; {}", path.display(), found.remedy())]
    Refused {
        path: PathBuf,
        /// What was found there.
        found: Found,
    },
    /// A file-system call failed.
    #[error("cannot {action} {}: {source}; {}", path.display(), io_error::remedy(source))]
    Io {
        /// The verb of the sentence.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The name is not exactly one component of a path.
    #[error("{name:?} cannot be the name of a file in {}: it must not be empty, contain a slash, or be `..`",
        directory.display())]
    Name { directory: PathBuf, name: String },
}

/// What was found in the place of a file or directory of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// It belongs to this user; only root and the second one would be accepted.
    OtherOwner {
        owner: u32,
        ours: u32,
    },
    /// A directory on the way to ours that other users may write to, without the sticky bit.
    WritableAncestor {
        mode: u32,
    },
    /// Other users may do more with it than they should.
    Mode {
        mode: u32,
        forbidden: u32,
    },
    /// It belongs to another user, who did not permit exactly a group of this user to read it.
    NotPermitted {
        owner: u32,
        group: u32,
        mode: u32,
    },
    /// A symbolic link, which is not followed.
    Link {
        owner: u32,
    },
    /// Links that refer to each other.
    TooManyLinks,
    NotADirectory,
    NotARegularFile,
    /// Another directory than the one that was checked before.
    Exchanged,
    /// A file that is larger than anything that is expected there, in bytes.
    TooLarge {
        limit: u64,
    },
    /// A directory that is to be removed has no marker.
    NoMarker,
    /// Its marker is damaged, or names another kind or another job.
    OtherMarker {
        marker: String,
    },
    /// It belongs to the job in this prefix directory, which has the same id.
    OtherPrefix {
        prefix: PathBuf,
        /// The token of the allocation in which it was used, if it is known.
        allocation: Option<String>,
    },
    /// A directory that is to be removed contains another file system.
    OtherFileSystem,
    /// A directory that is to be removed has more levels than this.
    TooDeep {
        levels: usize,
    },
}

impl Found {
    pub(super) fn other_marker(text: &[u8]) -> Self {
        Found::OtherMarker { marker: String::from_utf8_lossy(text).into_owned() }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Found::NotPermitted { .. } => "run the command as that user, or have that user permit the group to read it",
            Found::OtherOwner { .. } | Found::Link { .. } | Found::Exchanged => {
                "another user may have put it there: have it removed, or choose another directory"
            }
            Found::WritableAncestor { .. } => {
                "withdraw the permission with `chmod go-w`, or choose a directory below one that only you can write to"
            }
            Found::Mode { .. } => {
                "check that nothing in it was changed, then withdraw the permission with `chmod`, or remove it"
            }
            Found::TooManyLinks | Found::NotADirectory | Found::NotARegularFile | Found::TooLarge { .. } => {
                "move it away, or choose another directory"
            }
            Found::NoMarker | Found::OtherMarker { .. } => {
                "it was not made by this job, so nothing was removed; remove it by hand if it is not needed"
            }
            Found::OtherPrefix { .. } => {
                "finish that job or run `holdfast drain` in its prefix directory first, or give this job directories \
                 of its own (`checkpoint.control.base`, `checkpoint.cache`)"
            }
            Found::OtherFileSystem => "unmount it, then remove the directory by hand",
            Found::TooDeep { .. } => "remove the directory by hand",
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::OtherOwner { owner, ours } => {
                write!(f, "belongs to user id {owner}, this process is user id {ours}")
            }
            Found::NotPermitted { owner, group, mode } => {
                write!(
                    f,
                    "belongs to user id {owner} and group id {group} with mode {mode:04o}, not readable by a group \
                           of this user alone"
                )
            }
            Found::WritableAncestor { mode } => write!(f, "may be written by other users (mode {mode:04o})"),
            Found::Mode { mode, forbidden } if mode & forbidden & 0o022 != 0 => {
                write!(f, "may be written by other users (mode {mode:04o})")
            }
            Found::Mode { mode, .. } => write!(f, "may be read by other users (mode {mode:04o})"),
            Found::Link { owner } => write!(f, "is a symbolic link (of user id {owner})"),
            Found::TooManyLinks => f.write_str("leads through too many symbolic links"),
            Found::NotADirectory => f.write_str("is not a directory"),
            Found::NotARegularFile => f.write_str("is not a regular file"),
            Found::Exchanged => f.write_str("was exchanged for another directory meanwhile"),
            Found::TooLarge { limit } => write!(f, "is larger than {limit} bytes"),
            Found::NoMarker => f.write_str("has no marker of Holdfast in it"),
            Found::OtherMarker { marker } => write!(f, "has the marker {marker:?}, not that of this job"),
            Found::OtherPrefix { prefix, .. } => {
                write!(f, "belongs to another job of this allocation, whose prefix directory is {}", prefix.display())
            }
            Found::OtherFileSystem => f.write_str("is the root of another file system"),
            Found::TooDeep { levels } => write!(f, "has more than {levels} levels of directories"),
        }
    }
}

impl OwnedError {
    pub(crate) fn refused(path: &Path, found: Found) -> Self {
        OwnedError::Refused { path: path.to_owned(), found }
    }

    pub(crate) fn io<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |source| OwnedError::Io { action, path: path.to_owned(), source: source.into() }
    }

    /// The system's own error, if there is one: for callers that name the file.
    pub(crate) fn plain(self) -> io::Error {
        match self {
            OwnedError::Io { source, .. } => source,
            refused => refused.into(),
        }
    }

    /// What was found, if it was refused because of that.
    pub fn found(&self) -> Option<&Found> {
        match self {
            OwnedError::Refused { found, .. } => Some(found),
            _ => None,
        }
    }

    /// The file or directory.
    pub fn path(&self) -> &Path {
        match self {
            OwnedError::Refused { path, .. } | OwnedError::Io { path, .. } => path,
            OwnedError::Name { directory, .. } => directory,
        }
    }

    /// The system's own error, if there is one.
    pub fn system(&self) -> Option<&io::Error> {
        match self {
            OwnedError::Io { source, .. } => Some(source),
            _ => None,
        }
    }

    /// True if it was refused because of what is there.
    pub fn is_refusal(&self) -> bool {
        self.found().is_some()
    }

    /// True if it was refused because it is a symbolic link.
    pub fn is_link(&self) -> bool {
        matches!(self.found(), Some(Found::Link { .. }))
    }

    /// True if it does not exist.
    pub fn is_missing(&self) -> bool {
        self.system().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// True if a directory could not be removed because something is in it.
    pub(super) fn is_not_empty(&self) -> bool {
        self.system().is_some_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty)
    }

    /// What was found; `None` if it does not exist.
    pub fn if_there<T>(found: Result<T>) -> Result<Option<T>> {
        match found {
            Err(error) if error.is_missing() => Ok(None),
            found => found.map(Some),
        }
    }
}

impl From<OwnedError> for io::Error {
    fn from(error: OwnedError) -> Self {
        let kind = match &error {
            OwnedError::Io { source, .. } => source.kind(),
            OwnedError::Refused { .. } => io::ErrorKind::PermissionDenied,
            OwnedError::Name { .. } => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}
