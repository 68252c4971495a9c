//! The removal of a tree by descriptors.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;
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

/// Removes a file, a link, or a directory with everything in it; returns whether there was anything. No link is
/// followed, and own directories without access for their owner are removed, too. For paths that only this user can
/// exchange.
///
/// # Errors
/// A part may have been removed. Not for a name that is too long to exist.
pub fn remove_any(path: &Path) -> Result<bool, OwnedError> {
    let refused = match unlinkat(CWD, path, AtFlags::empty()) {
        Ok(()) => return Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Ok(false),
        // A directory: EISDIR on Linux, EPERM by POSIX.
        Err(errno @ (Errno::ISDIR | Errno::PERM)) => errno,
        Err(errno) => return Err(OwnedError::io("remove", path)(errno)),
    };
    let opened = match opened(CWD, path) {
        Err(Errno::NOENT) => return Ok(false),
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(OwnedError::io("remove", path)(refused)),
        opened => opened.map_err(OwnedError::io("remove", path))?,
    };
    contents(&opened, path, "")?;
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(errno) => Err(OwnedError::io("remove", path)(errno)),
    }
}

/// Opens a directory whose content is to be removed, and gives its owner access to it.
fn opened(directory: impl AsFd + Copy, name: impl Arg + Copy) -> Result<OwnedFd, Errno> {
    match openat(directory, name, DIRECTORY, Mode::empty()) {
        Ok(at) => make_accessible(&at).map(|()| at),
        Err(Errno::ACCESS) => {
            // By descriptor: another user may exchange the name for a link meanwhile.
            let there = openat(directory, name, OFlags::PATH | DIRECTORY, Mode::empty())?;
            make_accessible(&there)?;
            openat(&there, ".", DIRECTORY, Mode::empty())
        }
        Err(errno) => Err(errno),
    }
}

fn make_accessible(directory: &OwnedFd) -> Result<(), Errno> {
    let found = fstat(directory)?;
    let is_accessible = Mode::from_raw_mode(found.st_mode).contains(Mode::RWXU);
    if found.st_uid != geteuid().as_raw() || is_accessible {
        return Ok(());
    }
    calls::chmod_opened(directory, Mode::RWXU)
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
        let at = match opened(&level.at, &name) {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn anything_is_removed_with_all_in_it_and_no_link_is_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::create_dir_all(path("kept")).unwrap();
        fs::write(path("kept/file"), "x").unwrap();
        fs::create_dir_all(path("tree/closed/deep")).unwrap();
        fs::write(path("tree/closed/deep/file"), "x").unwrap();
        symlink(path("kept"), path("tree/link")).unwrap();
        symlink(path("kept"), path("link")).unwrap();
        fs::set_permissions(path("tree/closed/deep"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(path("tree/closed"), fs::Permissions::from_mode(0o500)).unwrap();
        for (name, existed) in [("tree", true), ("link", true), ("missing", false), ("kept/file/below", false)] {
            assert_eq!(remove_any(&path(name)).unwrap(), existed, "{name}");
        }
        assert!(!remove_any(&path(&"long".repeat(100))).unwrap());
        assert!(!path("tree").exists() && !path("link").is_symlink());
        assert_eq!(fs::read(path("kept/file")).unwrap(), b"x");
    }
}
