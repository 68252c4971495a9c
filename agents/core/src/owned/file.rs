//! Files in a directory of ours.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags};
use rustix::io::Errno;

use super::access::Access;
use super::directory::{OwnedDirectory, component};
use super::error::{Found, OwnedError, Result};
use super::walk;
use crate::calls::{self, fchown, fstat, openat, renameat, unlinkat};
use crate::durable::Durability;
use crate::{io_count, temporary};

/// `O_NONBLOCK` so that opening a pipe does not wait; it has no effect on regular files.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

impl OwnedDirectory {
    /// Opens a file for reading; `None` if nothing has this name.
    pub fn open_file(&self, name: impl AsRef<OsStr>, access: Access) -> Result<Option<File>> {
        self.open_checked(component(self.path(), &name)?, OFlags::RDONLY, access)
    }

    /// Reads a file; `None` if nothing has this name.
    ///
    /// # Errors
    /// [`OwnedError`]; [`Found::TooLarge`] if it has more than `limit` bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, access: Access, limit: u64) -> Result<Option<Vec<u8>>> {
        let name = component(self.path(), &name)?;
        let Some(file) = self.open_file(name, access)? else { return Ok(None) };
        let (mut bytes, path) = (Vec::new(), self.path().join(name));
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(OwnedError::io("read", &path))?;
        if bytes.len() as u64 > limit {
            return Err(OwnedError::refused(&path, Found::TooLarge { limit }));
        }
        Ok(Some(bytes))
    }

    /// Opens a file for reading and writing, and makes it if nothing has this name: for locks.
    pub fn open_or_create(&self, name: impl AsRef<OsStr>, access: Access) -> Result<File> {
        self.created(component(self.path(), &name)?, OFlags::RDWR | OFlags::CREATE, access)
    }

    /// Opens a file for appending, and makes it if nothing has this name.
    pub fn append(&self, name: impl AsRef<OsStr>, access: Access) -> Result<File> {
        self.created(component(self.path(), &name)?, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND, access)
    }

    /// Makes an empty file for writing, also if one of ours has this name. Not atomic: see
    /// [`replace`](Self::replace).
    pub fn truncate(&self, name: impl AsRef<OsStr>, access: Access) -> Result<File> {
        let name = component(self.path(), &name)?;
        // Truncated only after the check: O_TRUNC would empty a file before it.
        let file = self.created(name, OFlags::RDWR | OFlags::CREATE, access)?;
        calls::ftruncate(&file, 0).map_err(OwnedError::io("empty", &self.path().join(name)))?;
        Ok(file)
    }

    /// Makes a file for writing that must not exist; `None` if something has this name.
    pub fn create_new(&self, name: impl AsRef<OsStr>, access: Access) -> Result<Option<File>> {
        let name = component(self.path(), &name)?;
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::from_raw_mode(access.file_mode());
        let path = self.path().join(name);
        match openat(self, name, flags, mode) {
            Ok(file) => {
                let file = File::from(file);
                self.share_group(&file, access).map_err(OwnedError::io("change the group of", &path))?;
                Ok(Some(file))
            }
            Err(Errno::EXIST) => Ok(None),
            Err(errno) => Err(OwnedError::io("make", &path)(errno)),
        }
    }

    /// Gives a file that the group may read the group of this directory. Below a directory with the set-group-id bit
    /// that is the group of a project, and that of the file is the first group of this process.
    ///
    /// # Errors
    /// That of the system call; not if this user is no member of the group, whose members then cannot read the file.
    pub(crate) fn share_group(&self, file: &File, access: Access) -> Result<(), Errno> {
        let (group, of_file) = (fstat(self)?.st_gid, fstat(file)?.st_gid);
        if access != Access::GroupRead || group == of_file {
            return Ok(());
        }
        match fchown(file, None, Some(Gid::from_raw(group))) {
            Err(Errno::PERM) => Ok(()),
            changed => changed,
        }
    }

    /// Replaces a file atomically by one with these bytes: written under a temporary name and renamed. Readers, also
    /// after a crash, find the old content or the new one. What had the name is not opened; a link is replaced.
    ///
    /// # Errors
    /// [`OwnedError`]; what had the name is then unchanged.
    pub fn replace(&self, name: impl AsRef<OsStr>, bytes: &[u8], access: Access, durability: Durability) -> Result<()> {
        let name = component(self.path(), &name)?;
        let path = self.path().join(name);
        let (temporary, file) = self.temporary_file(access, &path)?;
        let written = calls::write_all(&file, bytes).and_then(|()| {
            io_count::written(bytes.len());
            if durability == Durability::Machine {
                calls::fsync(&file)?;
            }
            Ok(renameat(self, &temporary, self, name)?)
        });
        if let Err(error) = written {
            // A failure cannot be reported here; the name shows that it is a temporary file.
            let _ = unlinkat(self, &temporary, AtFlags::empty());
            return Err(OwnedError::io("replace", &path)(error));
        }
        self.settle(durability)
    }

    /// Removes a file or a link; returns whether it existed.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn remove_file(&self, name: impl AsRef<OsStr>, durability: Durability) -> Result<bool> {
        let name = component(self.path(), &name)?;
        match unlinkat(self, name, AtFlags::empty()) {
            Ok(()) => self.settle(durability).map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(OwnedError::io("remove", &self.path().join(name))(errno)),
        }
    }

    /// Makes changes of names in this directory survive a crash of the machine.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn sync(&self) -> Result<()> {
        calls::sync_directory(self).map_err(OwnedError::io("synchronise the directory", self.path()))
    }

    fn settle(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Process => Ok(()),
            Durability::Machine => self.sync(),
        }
    }

    fn created(&self, name: &OsStr, flags: OFlags, access: Access) -> Result<File> {
        let missing = || OwnedError::io("make", &self.path().join(name))(Errno::NOENT);
        self.open_checked(name, flags, access)?.ok_or_else(missing)
    }

    fn open_checked(&self, name: &OsStr, flags: OFlags, access: Access) -> Result<Option<File>> {
        let path = self.path().join(name);
        let mode = Mode::from_raw_mode(access.file_mode());
        let file = match openat(self, name, flags | FILE, mode) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.explained(name, &path, "open", errno)),
        };
        let stat = fstat(&file).map_err(OwnedError::io("examine", &path))?;
        walk::check_file(&stat, &path, access.forbidden(), self.owner)?;
        Ok(Some(File::from(file)))
    }

    fn temporary_file(&self, access: Access, path: &Path) -> Result<(String, File)> {
        loop {
            let name = temporary::name();
            match self.create_new(&name, access) {
                Ok(Some(file)) => return Ok((name, file)),
                // A crash left it, or another node on a shared file system uses it.
                Ok(None) => {}
                Err(error) => {
                    // It was made, and could not be examined: nothing else has this name.
                    let _ = unlinkat(self, name.as_str(), AtFlags::empty());
                    return Err(match error {
                        OwnedError::Io { source, .. } => OwnedError::io("make a temporary file beside", path)(source),
                        error => error,
                    });
                }
            }
        }
    }
}
