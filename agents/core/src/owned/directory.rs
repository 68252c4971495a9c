//! Directories that are open: their entries are named relative to the descriptor, so that no path is followed twice.

use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};

use super::access::Access;
use super::error::{Found, OwnedError, Result};
use super::walk::{self, DIRECTORY, Missing};
use crate::calls::{self, fstat, mkdirat, openat, renameat, statat, unlinkat};

/// An open directory in which ours are: see the rules of the module.
#[derive(Debug)]
pub struct Base {
    pub(super) at: OwnedFd,
    pub(super) path: PathBuf,
}

/// An open directory that belongs to this user, whose owner, type and mode were checked.
///
/// It is a [`Base`] for directories in it.
#[derive(Debug)]
pub struct OwnedDirectory {
    base: Base,
    /// This user, except in a directory of [`Base::open_of_group_member`].
    pub(super) owner: u32,
}

impl Deref for OwnedDirectory {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl AsFd for Base {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.at.as_fd()
    }
}

impl AsFd for OwnedDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.base.at.as_fd()
    }
}

/// The name as one component of a path.
pub(super) fn component<'a>(directory: &Path, name: &'a (impl AsRef<OsStr> + ?Sized)) -> Result<&'a OsStr> {
    let name = name.as_ref();
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(name),
        _ => Err(OwnedError::Name { directory: directory.to_owned(), name: name.to_string_lossy().into_owned() }),
    }
}

impl Base {
    /// Opens a directory that no other user can exchange: see the rules of the module.
    ///
    /// # Errors
    /// [`OwnedError::Refused`] if another user can; [`OwnedError::Io`], see [`OwnedError::is_missing`].
    pub fn trusted(path: &Path) -> Result<Self> {
        Ok(Base { at: walk::open_trusted(path, Missing::Fail)?, path: path.to_owned() })
    }

    /// As [`trusted`](Self::trusted), and makes missing directories of the path with this mode, less the umask.
    pub fn create_trusted(path: &Path, mode: u32) -> Result<Self> {
        Ok(Base { at: walk::open_trusted(path, Missing::Create(mode))?, path: path.to_owned() })
    }

    /// Opens a directory that other users may own or write to. Nothing is checked.
    ///
    /// # Errors
    /// [`OwnedError::Io`], see [`OwnedError::is_missing`].
    pub fn shared(path: &Path) -> Result<Self> {
        let open = |how: OFlags| openat(CWD, path, how | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let at = match open(OFlags::RDONLY) {
            // It may be entered and not listed, which is enough for what is in it.
            Err(Errno::ACCESS) => open(OFlags::PATH),
            opened => opened,
        };
        Ok(Base { at: at.map_err(OwnedError::io("open the directory", path))?, path: path.to_owned() })
    }

    /// The path by which it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory of ours in this one; `None` if nothing has this name.
    pub fn open_directory(&self, name: impl AsRef<OsStr>, access: Access) -> Result<Option<OwnedDirectory>> {
        let name = component(&self.path, &name)?;
        let path = self.path.join(name);
        let Some((at, stat)) = self.open_any(name, &path)? else { return Ok(None) };
        let owner = geteuid().as_raw();
        walk::check_directory(&stat, &path, access.forbidden(), owner)?;
        Ok(Some(OwnedDirectory { base: Base { at, path }, owner }))
    }

    /// Opens a directory of another user for reading, if that user permitted it to a group of this user and to no other
    /// user; `None` if nothing has this name. Files in it are opened by the same rule as those of ours, with that
    /// owner.
    ///
    /// # Errors
    /// [`Found::NotPermitted`], or as [`open_directory`](Self::open_directory).
    pub fn open_of_group_member(&self, name: impl AsRef<OsStr>) -> Result<Option<OwnedDirectory>> {
        let name = component(&self.path, &name)?;
        let path = self.path.join(name);
        let Some((at, stat)) = self.open_any(name, &path)? else { return Ok(None) };
        let (owner, group, mode) = (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777);
        let groups = getgroups().map_err(OwnedError::io("find the groups of this process for", &path))?;
        let is_member = getegid().as_raw() == group || groups.iter().any(|ours| ours.as_raw() == group);
        if !is_member || mode & 0o777 != 0o750 {
            return Err(OwnedError::refused(&path, Found::NotPermitted { owner, group, mode }));
        }
        Ok(Some(OwnedDirectory { base: Base { at, path }, owner }))
    }

    fn open_any(&self, name: &OsStr, path: &Path) -> Result<Option<(OwnedFd, Stat)>> {
        let at = match openat(&self.at, name, DIRECTORY, Mode::empty()) {
            Ok(at) => at,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.explained(name, path, "open the directory", errno)),
        };
        let stat = fstat(&at).map_err(OwnedError::io("examine", path))?;
        Ok(Some((at, stat)))
    }

    /// As [`open_directory`](Self::open_directory), for several components of a relative path.
    pub fn open_directories(&self, relative: &Path, access: Access) -> Result<Option<OwnedDirectory>> {
        let mut at: Option<OwnedDirectory> = None;
        for name in relative.components() {
            match at.as_deref().unwrap_or(self).open_directory(name, access)? {
                Some(next) => at = Some(next),
                None => return Ok(None),
            }
        }
        Ok(at)
    }

    /// Opens a directory of ours in this one, and makes it if nothing has this name.
    pub fn create_directory(&self, name: impl AsRef<OsStr>, access: Access) -> Result<OwnedDirectory> {
        let name = component(&self.path, &name)?;
        if let Some(opened) = self.open_directory(name, access)? {
            return Ok(opened);
        }
        // If it exists now, another process of the job was faster; the owner is checked in any case.
        self.make(name, access)?;
        self.open_directory(name, access)?.ok_or_else(|| self.vanished(name))
    }

    /// Opens a directory of ours that others may at most read, and makes it, private, if nothing has this name. Earlier
    /// releases and SCR made such directories readable.
    pub fn create_private_directory(&self, name: impl AsRef<OsStr>) -> Result<OwnedDirectory> {
        let name = component(&self.path, &name)?;
        if let Some(opened) = self.open_directory(name, Access::Readable)? {
            return Ok(opened);
        }
        self.make(name, Access::Private)?;
        self.open_directory(name, Access::Readable)?.ok_or_else(|| self.vanished(name))
    }

    /// Makes a directory that must not exist; `None` if something has this name.
    pub fn new_directory(&self, name: impl AsRef<OsStr>, access: Access) -> Result<Option<OwnedDirectory>> {
        let name = component(&self.path, &name)?;
        if !self.make(name, access)? {
            return Ok(None);
        }
        self.open_directory(name, access)?.ok_or_else(|| self.vanished(name)).map(Some)
    }

    /// Renames an entry of this directory, and replaces what had the new name.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Result<()> {
        self.move_to(from, self, to)
    }

    /// Moves an entry of this directory to another directory, and replaces what had the new name.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn move_to(&self, from: impl AsRef<OsStr>, target: &Base, to: impl AsRef<OsStr>) -> Result<()> {
        let (from, to) = (component(&self.path, &from)?, component(&target.path, &to)?);
        renameat(&self.at, from, &target.at, to).map_err(OwnedError::io("rename", &self.path.join(from)))
    }

    /// Removes a directory of ours if it is empty; returns whether it was removed.
    ///
    /// # Errors
    /// [`OwnedError`]; not if it does not exist or is not empty.
    pub fn remove_empty_directory(&self, name: impl AsRef<OsStr>, access: Access) -> Result<bool> {
        let name = component(&self.path, &name)?;
        if self.open_directory(name, access)?.is_none() {
            return Ok(false);
        }
        match unlinkat(&self.at, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(errno) => Err(OwnedError::io("remove", &self.path.join(name))(errno)),
        }
    }

    /// The names in this directory, without `.` and `..`.
    ///
    /// # Errors
    /// [`OwnedError::Io`].
    pub fn names(&self) -> Result<Vec<OsString>> {
        calls::names(&self.at).map_err(OwnedError::io("list", &self.path))
    }

    /// Makes a directory; returns whether it did not exist.
    fn make(&self, name: &OsStr, access: Access) -> Result<bool> {
        match mkdirat(&self.at, name, Mode::from_raw_mode(access.directory_mode())) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(OwnedError::io("make the directory", &self.path.join(name))(errno)),
        }
    }

    fn vanished(&self, name: &OsStr) -> OwnedError {
        OwnedError::io("open", &self.path.join(name))(Errno::NOENT)
    }

    /// The error of an `openat`, with what is there in its place.
    pub(super) fn explained(&self, name: &OsStr, path: &Path, action: &'static str, errno: Errno) -> OwnedError {
        let stat = statat(&self.at, name, AtFlags::SYMLINK_NOFOLLOW);
        let found = stat.ok().and_then(|stat| match (errno, FileType::from_raw_mode(stat.st_mode)) {
            (Errno::LOOP | Errno::NOTDIR | Errno::MLINK, FileType::Symlink) => Some(Found::Link { owner: stat.st_uid }),
            (Errno::NOTDIR, _) => Some(Found::NotADirectory),
            // A socket, or a pipe without a reader.
            (Errno::NXIO, _) => Some(Found::NotARegularFile),
            (Errno::ACCESS, _) if stat.st_uid != geteuid().as_raw() => {
                Some(Found::OtherOwner { owner: stat.st_uid, ours: geteuid().as_raw() })
            }
            _ => None,
        });
        match found {
            Some(found) => OwnedError::refused(path, found),
            None => OwnedError::io(action, path)(errno),
        }
    }
}

impl OwnedDirectory {
    /// The user id of its owner.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// True if it belongs to this user, and not to another one who permitted a group of this user to read it.
    pub fn is_ours(&self) -> bool {
        self.owner == geteuid().as_raw()
    }

    /// Opens a directory of ours below trusted components; `None` if it does not exist.
    pub fn open(path: &Path, access: Access) -> Result<Option<Self>> {
        let (parent, name) = split(path)?;
        let Some(base) = OwnedError::if_there(Base::trusted(parent))? else { return Ok(None) };
        base.open_directory(name, access)
    }
}

/// The directory above a path, and the last component.
fn split(path: &Path) -> Result<(&Path, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((if parent.as_os_str().is_empty() { Path::new(".") } else { parent }, name)),
        _ => Err(OwnedError::Name { directory: path.to_owned(), name: String::new() }),
    }
}
