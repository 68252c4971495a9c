//! Directories below a shared base that may belong to other users.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::directory::Base;
use super::error::{Found, OwnedError};
use super::walk::DIRECTORY;
use crate::calls::{self, fstat, mkdirat, openat, statat};
use crate::durable::CreationMode;
use crate::regular_file;

/// An open directory, a [shared base](Base::shared) or one below it, reached from there without a symbolic link: where
/// others may write, they can rename a link of this user, and exchange what it leads to. A directory that is exchanged
/// later has no effect.
#[derive(Debug)]
pub struct SharedDirectory {
    base: Base,
}

impl Deref for SharedDirectory {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
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
        self.base.as_fd()
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
        SharedDirectory { base: Base::shared(base)? }.below(components, missing)
    }

    /// Opens the directory that these components lead to from this one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn below<'a>(
        &self,
        components: impl IntoIterator<Item = &'a OsStr>,
        missing: MissingDirectories,
    ) -> Result<Self, OwnedError> {
        let opened = openat(self, ".", DIRECTORY, Mode::empty());
        let at = opened.map_err(OwnedError::io("open the directory", self.path()))?;
        let mut directory = SharedDirectory { base: Base { at, path: self.path().to_owned() } };
        for name in components {
            directory = directory.enter(name, missing)?;
        }
        Ok(directory)
    }

    /// What has a name in it, not what a link leads to; `None` if nothing has it.
    pub fn examine(&self, name: &str) -> io::Result<Option<Stat>> {
        match statat(self, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            examined => Ok(Some(examined?)),
        }
    }

    /// Opens a regular file in it with the content that it has. No link is followed.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a regular file.
    pub fn open_file(&self, name: &str, access: OFlags) -> io::Result<File> {
        let flags = access | OFlags::NOFOLLOW;
        let opened = openat(self, name, flags | OFlags::NONBLOCK, Mode::empty());
        regular_file::regular(File::from(opened.map_err(|errno| regular_file::refusal(errno, flags))?))
    }

    /// Makes a directory in it, by the umask; returns whether it did not exist.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn make_directory(&self, name: &OsStr) -> Result<bool, OwnedError> {
        match mkdirat(self, name, CreationMode::Umask.of_directory()) {
            Ok(()) => self.sync().map(|()| true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(OwnedError::io("make the directory", &self.path().join(name))(errno)),
        }
    }

    /// Checks that it belongs to this user.
    ///
    /// # Errors
    /// [`Found::OtherOwner`].
    pub fn check_owner(&self) -> Result<(), OwnedError> {
        let examined = fstat(self).map_err(OwnedError::io("examine", self.path()))?;
        let (owner, ours) = (examined.st_uid, geteuid().as_raw());
        match owner == ours {
            true => Ok(()),
            false => Err(OwnedError::refused(self.path(), Found::OtherOwner { owner, ours })),
        }
    }

    /// True if other users may change the names in it.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn others_may_write(&self) -> Result<bool, OwnedError> {
        let examined = fstat(self).map_err(OwnedError::io("examine", self.path()))?;
        Ok(examined.st_mode & 0o022 != 0)
    }

    /// Makes changes of names in it survive the machine.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn sync(&self) -> Result<(), OwnedError> {
        calls::sync_directory(self).map_err(OwnedError::io("synchronise the directory", self.path()))
    }

    /// Opens a regular file for writing with the content that it has, made with mode 0600 if it is missing. No link is
    /// followed.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn open_or_create_file(&self, name: &OsStr) -> Result<File, OwnedError> {
        let path = self.path().join(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(self, name, flags, Mode::from_raw_mode(0o600));
        let opened = opened.map_err(OwnedError::io("open", &path))?;
        regular_file::regular(File::from(opened)).map_err(OwnedError::io("open", &path))
    }

    fn enter(&self, name: &OsStr, missing: MissingDirectories) -> Result<Self, OwnedError> {
        let path = self.path().join(name);
        if missing == MissingDirectories::Create {
            self.make_directory(name)?;
        }
        let at = match openat(self, name, DIRECTORY, Mode::empty()) {
            Err(Errno::LOOP | Errno::NOTDIR | Errno::MLINK) => return Err(self.refusal(name, &path)),
            opened => opened.map_err(OwnedError::io("open the directory", &path))?,
        };
        Ok(SharedDirectory { base: Base { at, path } })
    }

    /// Why something that is no directory is not entered.
    fn refusal(&self, name: &OsStr, path: &Path) -> OwnedError {
        match statat(self, name, AtFlags::SYMLINK_NOFOLLOW) {
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
