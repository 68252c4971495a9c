//! The removal of a tree by descriptors.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::{Found, OwnedError};
use super::walk::DIRECTORY;
use crate::calls::{self, fstat, openat, unlinkat};

/// Each level holds a descriptor.
const LEVELS: usize = 128;

/// A directory whose content is being removed.
struct Level {
    at: OwnedFd,
    path: PathBuf,
    /// Names that are left.
    names: Vec<OsString>,
}

impl Level {
    fn new(at: OwnedFd, path: PathBuf) -> Result<Self, OwnedError> {
        let names = calls::names(&at).map_err(OwnedError::io("list", &path))?;
        Ok(Level { at, path, names })
    }
}

/// Removes everything in a directory, the file of this name last. A directory of another user in it is not entered: it
/// is removed if it is empty.
pub(super) fn contents(directory: impl AsFd, location: &Path, last: &str) -> Result<(), OwnedError> {
    let (directory, path) = (directory.as_fd(), location.to_owned());
    let device = fstat(directory).map_err(OwnedError::io("examine", &path))?.st_dev;
    let at = openat(directory, ".", DIRECTORY, Mode::empty());
    let mut top = Level::new(at.map_err(OwnedError::io("open the directory", &path))?, path)?;
    top.names.retain(|name| name != last);
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            let emptied = levels.pop();
            if let (Some(above), Some(emptied)) = (levels.last(), emptied)
                && let Some(name) = emptied.path.file_name()
            {
                match unlinkat(&above.at, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(OwnedError::io("remove", &emptied.path)(errno)),
                }
            }
            continue;
        };
        let path = level.path.join(&name);
        match unlinkat(&level.at, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            // A directory: EISDIR on Linux, EPERM by POSIX.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(OwnedError::io("remove", &path)(errno)),
        }
        let at = match openat(&level.at, &name, DIRECTORY, Mode::empty()) {
            Ok(at) => at,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(OwnedError::io("remove", &path)(errno)),
        };
        let stat = fstat(&at).map_err(OwnedError::io("examine", &path))?;
        let ours = geteuid().as_raw();
        if stat.st_dev != device {
            return Err(OwnedError::refused(&path, Found::OtherFileSystem));
        }
        if stat.st_uid != ours {
            match unlinkat(&level.at, &name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(_) => return Err(OwnedError::refused(&path, Found::OtherOwner { owner: stat.st_uid, ours })),
            }
        }
        if levels.len() >= LEVELS {
            return Err(OwnedError::refused(location, Found::TooDeep { levels: LEVELS }));
        }
        levels.push(Level::new(at, path)?);
    }
    match unlinkat(directory, last, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(OwnedError::io("remove", &location.join(last))(errno)),
    }
}
