//! Directories of datasets on the prefix directory that a request or an order names.
//!
//! Members of a project may write to the prefix directory. So the directory of a dataset is opened without following a
//! link of another user, and used through its descriptor: one that is exchanged later has no effect.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use holdfast_core::dataset_files::DatasetOpener;
use holdfast_core::durable::CreationMode;
use holdfast_core::owned::{Base, OwnedError};
use holdfast_formats::sion::dataset;
use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::prefix::{JobPrefixes, OutsidePrefix};

/// Reads the files of a dataset, however they are stored.
pub const OPEN_DATASET: DatasetOpener = dataset::open;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why the directory of a dataset is not used.
#[derive(Debug, thiserror::Error)]
pub enum DatasetDirectoryError {
    #[error("{} belongs to user id {owner}, this agent is user id {ours}; have it removed", path.display())]
    OtherOwner { path: PathBuf, owner: u32, ours: u32 },
    #[error("cannot {action} the directory {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Prefix(#[from] OwnedError),
    #[error(transparent)]
    Outside(#[from] OutsidePrefix),
}

/// The open directory of a dataset.
#[derive(Debug)]
pub struct DatasetDirectory {
    at: OwnedFd,
    named: PathBuf,
    through: PathBuf,
}

/// What is done with a component that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Fail,
    Create,
}

impl DatasetDirectory {
    /// Opens a directory for reading. Another member of the project may have written it.
    ///
    /// # Errors
    /// When it is not below a prefix directory of the job, or cannot be opened without a link of another user.
    pub fn to_read(prefixes: &JobPrefixes, directory: &Path) -> Result<Self, DatasetDirectoryError> {
        Self::open(prefixes, directory, Missing::Fail)
    }

    /// Opens a directory of this user for writing.
    ///
    /// # Errors
    /// As [`to_read`](Self::to_read), and when it belongs to another user.
    pub fn to_write(prefixes: &JobPrefixes, directory: &Path) -> Result<Self, DatasetDirectoryError> {
        let opened = Self::open(prefixes, directory, Missing::Fail)?;
        opened.check_owner()?;
        Ok(opened)
    }

    /// As [`to_write`](Self::to_write), and makes it if it is missing.
    ///
    /// # Errors
    /// As [`to_write`](Self::to_write), and when it cannot be made.
    pub fn create(prefixes: &JobPrefixes, directory: &Path) -> Result<Self, DatasetDirectoryError> {
        let opened = Self::open(prefixes, directory, Missing::Create)?;
        opened.check_owner()?;
        Ok(opened)
    }

    fn open(prefixes: &JobPrefixes, directory: &Path, missing: Missing) -> Result<Self, DatasetDirectoryError> {
        prefixes.check(directory)?;
        let outside = || OutsidePrefix::Elsewhere(directory.to_owned());
        let (prefix, rest) = prefixes.split(directory).ok_or_else(outside)?;
        let base = Base::shared(prefix)?;
        let mut at = openat(base.as_fd(), ".", DIRECTORY, Mode::empty()).map_err(failed("open", prefix))?;
        for name in rest.components() {
            at = enter(&at, name.as_os_str(), directory, missing)?;
        }
        let through = PathBuf::from(format!("/proc/self/fd/{}", at.as_raw_fd()));
        Ok(DatasetDirectory { at, named: directory.to_owned(), through })
    }

    fn check_owner(&self) -> Result<(), DatasetDirectoryError> {
        let examined = fstat(&self.at).map_err(failed("examine", &self.named))?;
        let (owner, ours) = (examined.st_uid, geteuid().as_raw());
        match owner == ours {
            true => Ok(()),
            false => Err(DatasetDirectoryError::OtherOwner { path: self.named.clone(), owner, ours }),
        }
    }

    /// The path by which files in it are accessed, through the descriptor.
    pub fn path(&self) -> &Path {
        &self.through
    }

    /// The path that the user knows.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// A message about a file in it, with the name that the user knows.
    pub fn explain(&self, message: &str) -> String {
        let (through, named) = (self.through.display().to_string(), self.named.display().to_string());
        let mut parts = message.split(&through);
        let mut explained = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            // Not the path of a descriptor with a longer number.
            explained += if part.starts_with(|next: char| next.is_ascii_digit()) { &through } else { &named };
            explained += part;
        }
        explained
    }
}

/// Opens a directory in another one. A link of this user is followed, one of another user is not.
fn enter(at: &OwnedFd, name: &OsStr, path: &Path, missing: Missing) -> Result<OwnedFd, DatasetDirectoryError> {
    if missing == Missing::Create {
        match mkdirat(at, name, Mode::from_raw_mode(CreationMode::Umask.of_directory())) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("make", path)(errno)),
        }
    }
    let refused = match openat(at, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(opened) => return Ok(opened),
        Err(errno @ (Errno::LOOP | Errno::NOTDIR | Errno::MLINK)) => errno,
        Err(errno) => return Err(failed("open", path)(errno)),
    };
    let found = openat(at, name, LOOK, Mode::empty()).map_err(failed("open", path))?;
    let examined = fstat(&found).map_err(failed("examine", path))?;
    let is_link = FileType::from_raw_mode(examined.st_mode) == FileType::Symlink;
    if !is_link || examined.st_uid != geteuid().as_raw() {
        return Err(failed("open", path)(refused));
    }
    let target = readlinkat(&found, "", Vec::new()).map_err(failed("open", path))?;
    let target = OsString::from_vec(target.into_bytes());
    openat(at, target, DIRECTORY, Mode::empty()).map_err(failed("open", path))
}

fn failed(action: &'static str, path: &Path) -> impl Fn(Errno) -> DatasetDirectoryError {
    let path = path.to_owned();
    move |errno| DatasetDirectoryError::Io { action, path: path.clone(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn prefixes(prefix: &Path) -> JobPrefixes {
        JobPrefixes::new(vec![prefix.to_owned()])
    }

    #[test]
    fn only_a_directory_below_a_prefix_is_used() {
        let base = tempfile::tempdir().unwrap();
        let prefix = base.path().join("prefix");
        let prefixes = prefixes(&prefix);
        fs::create_dir_all(prefix.join(".holdfast")).unwrap();
        fs::create_dir_all(prefix.join("scr.1")).unwrap();
        for directory in ["", "prefix", "prefix/.holdfast", "prefix/../other", "other"] {
            assert!(DatasetDirectory::create(&prefixes, &base.path().join(directory)).is_err(), "{directory}");
        }
        DatasetDirectory::to_write(&prefixes, &prefix.join("scr.1")).unwrap();
        assert!(DatasetDirectory::to_write(&prefixes, &prefix.join("scr.2")).is_err());
        DatasetDirectory::create(&prefixes, &prefix.join("scr.2")).unwrap();
        // A link of this user: the dataset was moved to another file system.
        fs::create_dir(base.path().join("other")).unwrap();
        symlink("../other", prefix.join("scr.3")).unwrap();
        DatasetDirectory::to_read(&prefixes, &prefix.join("scr.3")).unwrap();
        fs::write(prefix.join("scr.4"), "").unwrap();
        assert!(DatasetDirectory::to_read(&prefixes, &prefix.join("scr.4")).is_err());
    }

    #[test]
    fn a_directory_that_is_exchanged_after_it_was_opened_has_no_effect() {
        let base = tempfile::tempdir().unwrap();
        let (prefix, home) = (base.path().join("prefix"), base.path().join("home"));
        fs::create_dir(&prefix).unwrap();
        fs::create_dir(&home).unwrap();
        let directory = prefix.join("scr.1");
        let open = DatasetDirectory::create(&prefixes(&prefix), &directory).unwrap();
        fs::rename(&directory, prefix.join("moved")).unwrap();
        symlink(&home, &directory).unwrap();
        let file = open.path().join("rank_0.ckpt");
        holdfast_core::durable::replace(&file, CreationMode::Umask, b"data").unwrap();
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
        assert_eq!(fs::read(prefix.join("moved/rank_0.ckpt")).unwrap(), b"data");
        let message = open.explain(&format!("cannot write {}: full", file.display()));
        assert_eq!(message, format!("cannot write {}: full", directory.join("rank_0.ckpt").display()));
    }

    #[test]
    fn a_directory_of_another_user_is_read_and_not_written_and_a_link_of_another_user_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let (directory, link) = (base.path().join("scr.1"), base.path().join("scr.2"));
        fs::create_dir(&directory).unwrap();
        symlink(base.path(), &link).unwrap();
        if !geteuid().is_root() {
            // The suite of complete jobs reports its own tests of other users as ignored.
            return;
        }
        for path in [&directory, &link] {
            lchown(path, Some(65_534), Some(65_534)).unwrap();
        }
        let prefixes = prefixes(base.path());
        let refused = DatasetDirectory::to_write(&prefixes, &directory);
        assert!(matches!(refused, Err(DatasetDirectoryError::OtherOwner { owner: 65_534, .. })));
        DatasetDirectory::to_read(&prefixes, &directory).unwrap();
        assert!(DatasetDirectory::to_read(&prefixes, &link).is_err());
        let opened = openat(rustix::fs::CWD, base.path(), DIRECTORY, Mode::empty()).unwrap();
        assert!(enter(&opened, OsStr::new("scr.2"), &link, Missing::Fail).is_err());
    }
}
