//! What a change is made to.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{Durability, DurableError};
use crate::calls;
use crate::owned::SharedDirectory;

/// A name in an open directory, or a path.
#[derive(Clone, Debug)]
pub struct Target {
    /// `None`: `path` is one that the user gave, or that no other user can exchange.
    directory: Option<Arc<SharedDirectory>>,
    path: PathBuf,
}

impl From<&Path> for Target {
    fn from(path: &Path) -> Target {
        Target { directory: None, path: path.to_owned() }
    }
}

impl From<&PathBuf> for Target {
    fn from(path: &PathBuf) -> Target {
        Target::from(path.as_path())
    }
}

impl Target {
    /// A name in an open directory.
    pub fn inside(directory: &Arc<SharedDirectory>, name: &str) -> Target {
        Target { directory: Some(directory.clone()), path: PathBuf::from(name) }
    }

    /// The path by which the user knows it.
    pub fn location(&self) -> PathBuf {
        self.directory.as_ref().map_or_else(|| self.path.clone(), |directory| directory.path().join(&self.path))
    }

    /// The target, if its path has a last component.
    pub(super) fn naming_a_file(self) -> Result<Target, DurableError> {
        match self.path.file_name() {
            Some(_) => Ok(self),
            None => Err(self.not_a_file()),
        }
    }

    pub(super) fn not_a_file(&self) -> DurableError {
        DurableError::NotAFile { path: self.location() }
    }

    /// Another name in the same directory.
    pub(super) fn beside(&self, name: &str) -> Target {
        Target { directory: self.directory.clone(), path: self.path.with_file_name(name) }
    }

    pub(super) fn failed<E: Into<io::Error>>(&self, action: &'static str) -> impl FnOnce(E) -> DurableError {
        let path = self.location();
        move |error| DurableError::Io { action, path, source: error.into() }
    }

    fn at(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(CWD, |directory| directory.as_fd())
    }

    /// What has the name.
    pub(super) fn examine(&self) -> Result<Option<FileType>, Errno> {
        match calls::statat(self.at(), &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok(Some(FileType::from_raw_mode(there.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Accepts a name that a regular file or nothing has.
    pub(super) fn check_replaceable(&self) -> Result<(), DurableError> {
        let kind = match self.examine().map_err(self.failed("replace"))? {
            // Also in a missing directory: the write that follows reports it.
            None | Some(FileType::RegularFile) => return Ok(()),
            Some(FileType::Directory) => "a directory",
            Some(FileType::Symlink) => "a symbolic link",
            Some(FileType::Fifo) => "a named pipe",
            Some(FileType::Socket) => "a socket",
            Some(FileType::CharacterDevice | FileType::BlockDevice) => "a device",
            Some(FileType::Unknown) => "of an unknown type",
        };
        Err(DurableError::NotReplaceable { path: self.location(), kind })
    }

    /// Makes a file that must not exist, open for reading and writing.
    pub(super) fn make_file(&self, mode: Mode) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        calls::openat(self.at(), &self.path, flags, mode).map(File::from)
    }

    /// Opens a regular file of this user for reading and writing.
    pub(super) fn open_own_writable(&self) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = calls::openat(self.at(), &self.path, flags, Mode::empty())?;
        let found = calls::fstat(&file)?;
        let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        match is_regular && found.st_uid == geteuid().as_raw() {
            true => Ok(File::from(file)),
            false => Err(Errno::PERM),
        }
    }

    pub(super) fn make_symlink(&self, leads_to: &OsStr) -> Result<(), Errno> {
        calls::symlinkat(leads_to, self.at(), &self.path)
    }

    pub(super) fn rename(&self, to: &Target) -> Result<(), Errno> {
        calls::renameat(self.at(), &self.path, to.at(), &to.path)
    }

    /// As [`rename`](Self::rename), only if nothing has the new name.
    pub(super) fn rename_new(&self, to: &Target) -> Result<(), Errno> {
        calls::renameat_with(self.at(), &self.path, to.at(), &to.path, RenameFlags::NOREPLACE)
    }

    pub(super) fn link(&self, to: &Target) -> Result<(), Errno> {
        calls::linkat(self.at(), &self.path, to.at(), &to.path, AtFlags::empty())
    }

    pub(super) fn remove(&self) -> Result<(), Errno> {
        calls::unlinkat(self.at(), &self.path, AtFlags::empty())
    }

    /// Makes changes of the name survive what they have to survive.
    pub(super) fn settle(&self, durability: Durability) -> Result<(), DurableError> {
        if durability == Durability::Process {
            return Ok(());
        }
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |errno: Errno| DurableError::Io { action, path, source: errno.into() }
        };
        match &self.directory {
            Some(directory) => {
                calls::sync_directory(directory).map_err(failed("synchronise the directory", directory.path()))
            }
            None => {
                let above = self.path.parent().filter(|above| !above.as_os_str().is_empty());
                let path = above.unwrap_or(Path::new("."));
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let opened =
                    calls::openat(CWD, path, flags, Mode::empty()).map_err(failed("open the directory", path))?;
                calls::sync_directory(&opened).map_err(failed("synchronise the directory", path))
            }
        }
    }
}
