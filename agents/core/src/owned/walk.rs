//! The walk to a trusted base: every component opened relative to the one before it and checked.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::{Found, OwnedError};
use crate::calls::{fstat, mkdirat, openat, readlinkat};

/// As the kernel's own limit.
const LINKS: usize = 40;
/// For examining a component of any type, and for opening the next one in it.
pub(super) const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// For reading, writing to and synchronising a directory.
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a walk does with components that do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Fail,
    /// Makes them, with this mode less the umask.
    Create(u32),
}

/// Opens the directory at `path` by the rule of a trusted base.
pub(super) fn open_trusted(path: &Path, missing: Missing) -> Result<OwnedFd, OwnedError> {
    let mut walk = Walk::from_root()?;
    // In reverse, so that the next component is the last one.
    let mut pending: Vec<OsString> = Vec::new();
    if !path.is_absolute() {
        let here = std::env::current_dir().map_err(OwnedError::io("find the working directory for", path))?;
        push_components(&mut pending, path);
        push_components(&mut pending, &here);
    } else {
        push_components(&mut pending, path);
    }
    let mut links = 0;
    while let Some(name) = pending.pop() {
        let Some(target) = walk.enter(&name, missing)? else { continue };
        links += 1;
        if links > LINKS {
            return Err(OwnedError::refused(path, Found::TooManyLinks));
        }
        if target.is_absolute() {
            walk = Walk::from_root()?;
        }
        push_components(&mut pending, &target);
    }
    match openat(&walk.at, ".", DIRECTORY, Mode::empty()) {
        // It may be entered and not listed, which is enough for what is in it.
        Err(Errno::ACCESS) => Ok(walk.at),
        opened => opened.map_err(OwnedError::io("open the directory", path)),
    }
}

/// Opens a component without following a link.
fn look(at: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    // As a directory first: otherwise an automounter would not mount it.
    match openat(at, name, LOOK | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => openat(at, name, LOOK, Mode::empty()),
        opened => opened,
    }
}

fn push_components(pending: &mut Vec<OsString>, path: &Path) {
    let components = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    let at = pending.len();
    pending.extend(components);
    pending[at..].reverse();
}

/// The directory that a walk has reached.
struct Walk {
    at: OwnedFd,
    path: PathBuf,
    /// For each level above, as `..` leads back there: the descriptor, and `closed` of that level.
    above: Vec<(OwnedFd, bool)>,
    /// A directory of this user on the way is closed to all others, so that they cannot come here.
    closed: bool,
}

impl Walk {
    fn from_root() -> Result<Self, OwnedError> {
        let path = PathBuf::from("/");
        let at = openat(CWD, "/", LOOK | OFlags::DIRECTORY, Mode::empty());
        let at = at.map_err(OwnedError::io("open the directory", &path))?;
        Ok(Walk { at, path, above: Vec::new(), closed: false })
    }

    /// Enters a component. Returns the target if it is a link, which was not entered.
    fn enter(&mut self, name: &OsStr, missing: Missing) -> Result<Option<PathBuf>, OwnedError> {
        if name == ".." {
            if let Some((at, closed)) = self.above.pop() {
                (self.at, self.closed) = (at, closed);
                self.path.pop();
            }
            return Ok(None);
        }
        let path = self.path.join(name);
        let opened = match look(&self.at, name) {
            Err(Errno::NOENT) if missing != Missing::Fail => {
                self.create(name, &path, missing)?;
                look(&self.at, name)
            }
            opened => opened,
        };
        let opened = opened.map_err(OwnedError::io("open", &path))?;
        let stat = fstat(&opened).map_err(OwnedError::io("examine", &path))?;
        let ours = geteuid().as_raw();
        if stat.st_uid != 0 && stat.st_uid != ours {
            return Err(OwnedError::refused(&path, Found::OtherOwner { owner: stat.st_uid, ours }));
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = readlinkat(&opened, "").map_err(OwnedError::io("read the link", &path))?;
                return Ok(Some(PathBuf::from(target)));
            }
            FileType::Directory => {}
            _ => return Err(OwnedError::refused(&path, Found::NotADirectory)),
        }
        let (mode, sticky) = (stat.st_mode & 0o7777, stat.st_mode & 0o1000 != 0);
        if mode & 0o022 != 0 && !sticky && !self.closed {
            return Err(OwnedError::refused(&path, Found::WritableAncestor { mode }));
        }
        let closed = self.closed || (stat.st_uid == ours && mode & 0o077 == 0);
        let above = std::mem::replace(&mut self.at, opened);
        self.above.push((above, std::mem::replace(&mut self.closed, closed)));
        self.path = path;
        Ok(None)
    }

    fn create(&self, name: &OsStr, path: &Path, missing: Missing) -> Result<(), OwnedError> {
        let Missing::Create(mode) = missing else { return Ok(()) };
        match mkdirat(&self.at, name, Mode::from_raw_mode(mode)) {
            // Another process of the job may have been faster.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(OwnedError::io("make the directory", path)(errno)),
        }
    }
}

/// Refuses what is not a directory of this owner with a permitted mode.
pub(super) fn check_directory(stat: &Stat, path: &Path, forbidden: u32, owner: u32) -> Result<(), OwnedError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => check_owner_and_mode(stat, path, forbidden, owner),
        FileType::Symlink => Err(OwnedError::refused(path, Found::Link { owner: stat.st_uid })),
        _ => Err(OwnedError::refused(path, Found::NotADirectory)),
    }
}

/// Refuses what is not a regular file of this owner with a permitted mode.
pub(super) fn check_file(stat: &Stat, path: &Path, forbidden: u32, owner: u32) -> Result<(), OwnedError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => check_owner_and_mode(stat, path, forbidden, owner),
        FileType::Symlink => Err(OwnedError::refused(path, Found::Link { owner: stat.st_uid })),
        _ => Err(OwnedError::refused(path, Found::NotARegularFile)),
    }
}

fn check_owner_and_mode(stat: &Stat, path: &Path, forbidden: u32, owner: u32) -> Result<(), OwnedError> {
    let (ours, mode) = (geteuid().as_raw(), stat.st_mode & 0o7777);
    if stat.st_uid != owner {
        return Err(OwnedError::refused(path, Found::OtherOwner { owner: stat.st_uid, ours }));
    }
    if mode & forbidden != 0 {
        return Err(OwnedError::refused(path, Found::Mode { mode, forbidden }));
    }
    Ok(())
}
