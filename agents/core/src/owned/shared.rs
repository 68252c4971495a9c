//! Directories below a shared base that may belong to other users.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, fsync, mkdirat, openat, statat};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::geteuid;

use super::directory::Base;
use super::error::{Found, OwnedError};
use super::walk::DIRECTORY;
use crate::durable::CreationMode;
use crate::regular_file;

/// An open directory below a [shared base](Base::shared), reached without a symbolic link: where others may write, they
/// can rename a link of this user, and exchange what it leads to. A directory that is exchanged later has no effect.
#[derive(Debug)]
pub struct SharedDirectory {
    at: OwnedFd,
    path: PathBuf,
}

/// What is done with directories that do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingDirectories {
    Fail,
    /// They are made with the mode that the umask leaves, and survive the machine.
    Create,
}

impl AsFd for SharedDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.at.as_fd()
    }
}

impl SharedDirectory {
    /// Opens the directory that these components lead to, from a directory that other users may own or write to, and
    /// that may be named by a path with links.
    ///
    /// # Errors
    /// [`OwnedError::Refused`] for a link, [`OwnedError::Io`], see [`OwnedError::is_missing`].
    pub fn open<'a>(
        base: &Path,
        components: impl IntoIterator<Item = &'a OsStr>,
        missing: MissingDirectories,
    ) -> Result<Self, OwnedError> {
        let base = Base::shared(base)?;
        let opened = retry_on_intr(|| openat(base.as_fd(), ".", DIRECTORY, Mode::empty()));
        let at = opened.map_err(OwnedError::io("open the directory", base.path()))?;
        let mut directory = SharedDirectory { at, path: base.path().to_owned() };
        for name in components {
            directory = directory.enter(name, missing)?;
        }
        Ok(directory)
    }

    /// The path by which it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that it belongs to this user.
    ///
    /// # Errors
    /// [`Found::OtherOwner`].
    pub fn check_owner(&self) -> Result<(), OwnedError> {
        let examined = fstat(&self.at).map_err(OwnedError::io("examine", &self.path))?;
        let (owner, ours) = (examined.st_uid, geteuid().as_raw());
        match owner == ours {
            true => Ok(()),
            false => Err(OwnedError::refused(&self.path, Found::OtherOwner { owner, ours })),
        }
    }

    /// True if other users may change the names in it.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn others_may_write(&self) -> Result<bool, OwnedError> {
        let examined = fstat(&self.at).map_err(OwnedError::io("examine", &self.path))?;
        Ok(examined.st_mode & 0o022 != 0)
    }

    /// Makes changes of names in it survive the machine.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn sync(&self) -> Result<(), OwnedError> {
        crate::io_count::synced();
        match fsync(&self.at) {
            // Some network file systems have no fsync of directories.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            Err(errno) => Err(OwnedError::io("synchronise the directory", &self.path)(errno)),
        }
    }

    /// Opens a regular file for writing with the content that it has, made with mode 0600 if it is missing. No link is
    /// followed.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn open_or_create_file(&self, name: &OsStr) -> Result<File, OwnedError> {
        let path = self.path.join(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| openat(&self.at, name, flags, Mode::from_raw_mode(0o600)));
        let opened = opened.map_err(OwnedError::io("open", &path))?;
        regular_file::regular(File::from(opened)).map_err(OwnedError::io("open", &path))
    }

    fn enter(&self, name: &OsStr, missing: MissingDirectories) -> Result<Self, OwnedError> {
        let path = self.path.join(name);
        if missing == MissingDirectories::Create {
            match mkdirat(&self.at, name, Mode::from_raw_mode(CreationMode::Umask.of_directory())) {
                Ok(()) => self.sync()?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(OwnedError::io("make the directory", &path)(errno)),
            }
        }
        let at = match retry_on_intr(|| openat(&self.at, name, DIRECTORY, Mode::empty())) {
            Err(Errno::LOOP | Errno::NOTDIR | Errno::MLINK) => return Err(self.refusal(name, &path)),
            opened => opened.map_err(OwnedError::io("open the directory", &path))?,
        };
        Ok(SharedDirectory { at, path })
    }

    /// Why something that is no directory is not entered.
    fn refusal(&self, name: &OsStr, path: &Path) -> OwnedError {
        match statat(&self.at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => {
                OwnedError::refused(path, Found::Link { owner: found.st_uid })
            }
            Ok(_) => OwnedError::refused(path, Found::NotADirectory),
            Err(errno) => OwnedError::io("examine", path)(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn open(base: &Path, below: &str, missing: MissingDirectories) -> Result<SharedDirectory, OwnedError> {
        SharedDirectory::open(base, Path::new(below).iter(), missing)
    }

    #[test]
    fn no_link_is_followed() {
        let (base, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(other.path(), base.path().join("link")).unwrap();
        let refused = open(base.path(), "link/new", MissingDirectories::Create).unwrap_err();
        assert_eq!(refused.found(), Some(&Found::Link { owner: geteuid().as_raw() }));
        assert!(!other.path().join("new").exists());
        open(&base.path().join("link"), "new", MissingDirectories::Create).unwrap().check_owner().unwrap();
        assert!(other.path().join("new").is_dir(), "the base may be reached through a link");
        assert!(open(base.path(), "missing", MissingDirectories::Fail).unwrap_err().is_missing());
        fs::write(base.path().join("file"), "").unwrap();
        let refused = open(base.path(), "file", MissingDirectories::Create).unwrap_err();
        assert_eq!(refused.found(), Some(&Found::NotADirectory));
        if geteuid().is_root() {
            lchown(other.path(), Some(65_534), None).unwrap();
            let of_another_user = open(other.path(), "", MissingDirectories::Fail).unwrap();
            assert!(of_another_user.check_owner().unwrap_err().is_refusal());
        }
    }

    #[test]
    fn a_directory_that_is_exchanged_after_it_was_opened_has_no_effect() {
        let base = tempfile::tempdir().unwrap();
        let opened = open(base.path(), "one", MissingDirectories::Create).unwrap();
        fs::rename(base.path().join("one"), base.path().join("moved")).unwrap();
        fs::create_dir(base.path().join("home")).unwrap();
        symlink("home", base.path().join("one")).unwrap();
        mkdirat(&opened, "below", Mode::from_raw_mode(0o700)).unwrap();
        assert!(base.path().join("moved/below").is_dir());
    }
}
