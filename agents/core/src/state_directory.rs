//! The directory of a job's state: `.holdfast` below the prefix directory, on a POSIX file system.
//!
//! `job.json` and its journal, locks, the event log, the logs of agents, generations and progress are in it, and
//! nothing of a dataset: these are in a [store](crate::store), which may be elsewhere.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::owned::{Access, Base, Found, OwnedDirectory, OwnedError};

/// The name of the directory.
pub(crate) const NAME: &str = ".holdfast";

/// Where the state of a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDirectory {
    shared: PathBuf,
    path: PathBuf,
}

impl StateDirectory {
    /// That of the job with this prefix directory, in which other users may be permitted to write.
    pub fn below(prefix: &Path) -> Self {
        StateDirectory { shared: prefix.to_owned(), path: prefix.join(NAME) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of what has this name in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// True if a path, below a prefix directory, leads into the state directory of a job.
    pub fn is_in(below_prefix: &Path) -> bool {
        below_prefix.components().any(|part| part.as_os_str() == NAME)
    }

    /// Opens it; `None` if it does not exist.
    ///
    /// # Errors
    /// [`OwnedError`] if it is not ours.
    pub fn open(&self) -> Result<Option<OwnedDirectory>, OwnedError> {
        let Some(base) = OwnedError::if_there(Base::shared(&self.shared))? else { return Ok(None) };
        base.open_directory(NAME, Access::Readable)
    }

    /// Opens it, which must exist.
    ///
    /// # Errors
    /// [`OwnedError`]; see [`OwnedError::is_missing`].
    pub fn existing(&self) -> Result<OwnedDirectory, OwnedError> {
        let missing = || OwnedError::io("open the directory", &self.path)(Errno::NOENT);
        self.open()?.ok_or_else(missing)
    }

    /// As [`open`](Self::open); also that of another user who permitted a group of this user to read it: what is in it
    /// is shown, never obeyed.
    pub fn open_to_show(&self) -> Result<Option<OwnedDirectory>, OwnedError> {
        match self.open() {
            Err(error) if matches!(error.found(), Some(Found::OtherOwner { .. })) => {
                Base::shared(&self.shared)?.open_of_group_member(NAME)
            }
            opened => opened,
        }
    }

    /// Opens it, and makes it, private, if it does not exist.
    ///
    /// # Errors
    /// [`OwnedError`] if it is not ours, or cannot be made.
    pub fn create(&self) -> Result<OwnedDirectory, OwnedError> {
        Base::shared(&self.shared)?.create_private_directory(NAME)
    }
}
