//! The files of outputs, which lie at the paths below the prefix directory that the application named.
//!
//! They are copied to the directory of their dataset like all files, and moved to their paths when the dataset is
//! complete ([`crate::prefix::outputs`]). So a file of an output is in the dataset's directory, or else at its path:
//! [`path`] finds it. The prefix directory is the directory that contains the dataset's.
//!
//! Other users may write to the prefix directory: a link of another user on the way to a file is not followed.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use holdfast_model::OutputPath;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::durable::CreationMode;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The path of the file `name` of a dataset: in the dataset's directory if there is anything of this name, otherwise
/// its output path. Whether the file exists there is not examined.
///
/// # Errors
/// When a link of another user leads to the output path, or a directory cannot be examined.
pub fn path(directory: &Path, name: &str, output_path: Option<&OutputPath>) -> io::Result<PathBuf> {
    let inside = directory.join(name);
    let Some(output_path) = output_path else { return Ok(inside) };
    match fs::symlink_metadata(&inside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        _ => return Ok(inside),
    }
    let prefix = prefix_of(directory);
    check_links(&prefix, output_path)?;
    Ok(prefix.join(output_path.as_str()))
}

/// The prefix directory of a dataset's directory.
pub(crate) fn prefix_of(directory: &Path) -> PathBuf {
    // Through a descriptor, the parent is not that of the path.
    match directory.parent() {
        Some(parent) if directory.file_name().is_some() && !directory.starts_with("/proc/self/fd") => parent.to_owned(),
        _ => directory.join(".."),
    }
}

/// Checks that no link of another user leads to an output path.
///
/// # Errors
/// When one does, or a directory cannot be examined.
pub fn check_links(prefix: &Path, output_path: &OutputPath) -> io::Result<()> {
    let mut directory = prefix.to_owned();
    for parent in output_path.parents() {
        directory.push(parent);
        match fs::symlink_metadata(&directory) {
            Ok(found) if found.is_symlink() && found.uid() != geteuid().as_raw() => {
                return Err(foreign_link(&directory.display().to_string()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn foreign_link(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{path} is a link of another user"))
}

/// What is at an output path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    Nothing,
    /// A regular file of this many bytes.
    File(u64),
    /// A directory, a link, a pipe, a socket, a device.
    Other,
}

/// What is done with a directory that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Fail,
    Create,
}

/// An open directory that contains output files. It is used through its descriptor: one that is exchanged later has no
/// effect.
#[derive(Debug)]
pub struct OutputDirectory {
    at: OwnedFd,
}

impl OutputDirectory {
    /// Opens the directory of an output path; `None` if it does not exist.
    ///
    /// # Errors
    /// When it cannot be opened without a link of another user.
    pub fn open(prefix: &Path, output_path: &OutputPath) -> io::Result<Option<Self>> {
        match walk(prefix, output_path, Missing::Fail) {
            Ok(at) => Ok(Some(OutputDirectory { at })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`OutputDirectory::open`]; directories that are missing are made, with the mode that the umask leaves.
    ///
    /// # Errors
    /// As [`OutputDirectory::open`], and when a directory cannot be made.
    pub fn create(prefix: &Path, output_path: &OutputPath) -> io::Result<Self> {
        Ok(OutputDirectory { at: walk(prefix, output_path, Missing::Create)? })
    }

    /// What is at this name.
    ///
    /// # Errors
    /// When it cannot be examined.
    pub fn occupant(&self, name: &str) -> io::Result<Occupant> {
        match statat(&self.at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Occupant::Nothing),
            Err(errno) => Err(errno.into()),
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {
                Ok(Occupant::File(u64::try_from(found.st_size).unwrap_or_default()))
            }
            Ok(_) => Ok(Occupant::Other),
        }
    }

    /// Moves a file to this name; a regular file of this name is replaced.
    pub(crate) fn take(&self, file: &Path, name: &str) -> io::Result<()> {
        if self.occupant(name)? == Occupant::Other {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something is there that is not a regular file"));
        }
        Ok(renameat(CWD, file, &self.at, name)?)
    }

    /// Removes a regular file of this name.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.at, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.at)?)
    }
}

/// Removes the directories of an output path that are empty, the innermost first.
pub(crate) fn remove_empty_directories(prefix: &Path, output_path: &OutputPath) {
    let parents: Vec<&str> = output_path.parents().collect();
    for depth in (1..=parents.len()).rev() {
        // One that is not empty ends it. What remains is removed by the user.
        if fs::remove_dir(prefix.join(parents[..depth].join("/"))).is_err() {
            return;
        }
    }
}

fn walk(prefix: &Path, output_path: &OutputPath, missing: Missing) -> io::Result<OwnedFd> {
    let mut at = openat(CWD, prefix, DIRECTORY, Mode::empty())?;
    for parent in output_path.parents() {
        at = enter(&at, parent, missing)?;
    }
    Ok(at)
}

/// Opens a directory in another one. A link of this user is followed, one of another user is not.
fn enter(at: &OwnedFd, name: &str, missing: Missing) -> io::Result<OwnedFd> {
    if missing == Missing::Create {
        match mkdirat(at, name, Mode::from_raw_mode(CreationMode::Umask.of_directory())) {
            Ok(()) => rustix::fs::fsync(at)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let refused = match openat(at, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(opened) => return Ok(opened),
        Err(errno @ (Errno::LOOP | Errno::NOTDIR | Errno::MLINK)) => errno,
        Err(errno) => return Err(errno.into()),
    };
    let found = openat(at, name, LOOK, Mode::empty())?;
    let examined = fstat(&found)?;
    if FileType::from_raw_mode(examined.st_mode) != FileType::Symlink {
        return Err(refused.into());
    }
    if examined.st_uid != geteuid().as_raw() {
        return Err(foreign_link(name));
    }
    let target = OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes());
    Ok(openat(at, target, DIRECTORY, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{lchown, symlink};

    fn output(path: &str) -> OutputPath {
        OutputPath::parse(path).unwrap()
    }

    #[test]
    fn a_file_is_found_in_the_directory_of_its_dataset_or_else_at_its_path() {
        let prefix = tempfile::tempdir().unwrap();
        let directory = prefix.path().join("plot");
        fs::create_dir(&directory).unwrap();
        let there = output("out/a");
        assert_eq!(path(&directory, "a", None).unwrap(), directory.join("a"));
        assert_eq!(path(&directory, "a", Some(&there)).unwrap(), prefix.path().join("out/a"));
        fs::write(directory.join("a"), "x").unwrap();
        assert_eq!(path(&directory, "a", Some(&there)).unwrap(), directory.join("a"));
        fs::remove_file(directory.join("a")).unwrap();
        // Through a descriptor, and from inside.
        let opened = fs::File::open(&directory).unwrap();
        let through = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened)));
        fs::create_dir(prefix.path().join("out")).unwrap();
        fs::write(prefix.path().join("out/a"), "content").unwrap();
        assert_eq!(fs::read(path(&through, "a", Some(&there)).unwrap()).unwrap(), b"content");
        assert_eq!(fs::read(path(&directory.join("."), "a", Some(&there)).unwrap()).unwrap(), b"content");
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let prefix = tempfile::tempdir().unwrap();
        let new = prefix.path().join("new");
        let there = output("x/y/a");
        assert!(OutputDirectory::open(prefix.path(), &there).unwrap().is_none());
        let directory = OutputDirectory::create(prefix.path(), &there).unwrap();
        let target = prefix.path().join("x/y/a");
        symlink("elsewhere", &target).unwrap();
        fs::write(&new, "new").unwrap();
        assert!(directory.take(&new, "a").is_err() && new.exists());
        fs::remove_file(&target).unwrap();
        fs::write(&target, "old").unwrap();
        directory.take(&new, "a").unwrap();
        assert_eq!((fs::read(&target).unwrap(), new.exists()), (b"new".to_vec(), false));
        assert_eq!(directory.occupant("a").unwrap(), Occupant::File(3));
        directory.remove("a").unwrap();
        remove_empty_directories(prefix.path(), &there);
        assert!(!prefix.path().join("x").exists() && prefix.path().exists());
    }

    #[test]
    fn links_of_this_user_are_followed_and_those_of_others_are_not() {
        let (prefix, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(other.path(), prefix.path().join("link")).unwrap();
        let there = output("link/a");
        OutputDirectory::create(prefix.path(), &there).unwrap();
        check_links(prefix.path(), &there).unwrap();
        if geteuid().is_root() {
            lchown(prefix.path().join("link"), Some(65_534), None).unwrap();
            assert!(OutputDirectory::create(prefix.path(), &there).is_err());
            assert!(check_links(prefix.path(), &there).is_err());
        }
    }
}
