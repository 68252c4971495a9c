//! The files of a checkpoint, between the program's directories and the cache.
//!
//! In a dataset each file has its rank in front of its name, because programs of several ranks may use the same names:
//! `rank_3.state`. A rank whose program has ended with exit code 0 has the file `rank_3_ended` instead: its program is
//! not started again.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use holdfast_model::Rank;
use rustix::fs::{Mode, OFlags};

use crate::error::SaveError;

/// The content of the file of a program that has ended.
pub const ENDED_CONTENT: &str = "the program of this rank ended with exit code 0\n";

/// The name of a program's file in a dataset.
pub fn dataset_name(rank: Rank, name: &str) -> String {
    format!("rank_{rank}.{name}")
}

/// The file in a dataset that stands for a program that has ended.
pub fn ended_name(rank: Rank) -> String {
    format!("rank_{rank}_ended")
}

/// The program's own name of a file in a dataset.
pub fn program_name(rank: Rank, name: &str) -> &str {
    name.strip_prefix(&format!("rank_{rank}.")).unwrap_or(name)
}

/// The files that a program has written: their paths and names, ascending.
///
/// # Errors
/// There is none, or something else than a regular file, or the directory was replaced.
pub fn written(directory: &Path) -> Result<Vec<(PathBuf, String)>, SaveError> {
    let unreadable = || SaveError::io("read", directory);
    check_own(directory)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable())? {
        let entry = entry.map_err(unreadable())?;
        let path = entry.path();
        check_regular(&path)?;
        let name = entry.file_name().into_string().map_err(|name: OsString| SaveError::Name { name })?;
        files.push((path, name));
    }
    if files.is_empty() {
        return Err(SaveError::Empty { what: "the program", directory: directory.to_owned() });
    }
    files.sort();
    Ok(files)
}

/// A link may lead to a file that changes later or does not exist on another node; the others have no content.
fn check_regular(path: &Path) -> Result<(), SaveError> {
    let metadata = fs::symlink_metadata(path).map_err(SaveError::io("read", path))?;
    let kind = metadata.file_type();
    let found = match () {
        () if kind.is_file() && metadata.nlink() == 1 => return Ok(()),
        () if kind.is_file() => "a file with several links",
        () => kind_of(kind),
    };
    Err(SaveError::NotAFile { path: path.to_owned(), found })
}

fn kind_of(kind: fs::FileType) -> &'static str {
    match () {
        () if kind.is_file() => "a file",
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// Opens a directory that was made for a program. The program may have put a link in its place: the files behind it are
/// its own.
fn open_own(directory: &Path) -> Result<OwnedFd, SaveError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty()).map_err(|errno| match fs::symlink_metadata(directory) {
        Ok(found) if !found.is_dir() => {
            SaveError::Replaced { directory: directory.to_owned(), found: kind_of(found.file_type()) }
        }
        _ => SaveError::io("open", directory)(errno.into()),
    })
}

/// # Errors
/// The directory that was made for a program is not there any more.
pub fn check_own(directory: &Path) -> Result<(), SaveError> {
    open_own(directory).map(drop)
}

/// Moves a file; copies it into another file system.
pub fn move_file(from: &Path, to: &Path) -> Result<(), SaveError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            copy(from, to)?;
            fs::remove_file(from).map_err(SaveError::io("remove", from))
        }
        moved => moved.map_err(SaveError::io("move into the checkpoint", from)),
    }
}

/// Copies a file; file systems that can share blocks do.
pub fn copy(from: &Path, to: &Path) -> Result<(), SaveError> {
    fs::copy(from, to).map_err(not_copied(from, to)).map(drop)
}

/// A copy that failed: names the file that could not be written, or read.
pub(crate) fn not_copied(from: &Path, to: &Path) -> impl FnOnce(io::Error) -> SaveError {
    move |error| {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match error.kind() {
            FileTooLarge | QuotaExceeded | ReadOnlyFilesystem | StorageFull => SaveError::io("write", to)(error),
            _ => SaveError::io("copy", from)(error),
        }
    }
}

/// Makes a directory if there is none. What a program has put in its place is removed: a link, never what it leads to.
pub fn make(directory: &Path) -> Result<(), SaveError> {
    match fs::symlink_metadata(directory) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => fs::remove_file(directory).map_err(SaveError::io("remove", directory))?,
        Err(_) => {}
    }
    fs::create_dir_all(directory).map_err(SaveError::io("make", directory))
}

/// Makes a directory as [`make`], or empties it. The directory itself stays: it may be the working directory of a
/// program.
pub fn empty(directory: &Path) -> Result<(), SaveError> {
    make(directory)?;
    let open = open_own(directory)?;
    // The directory that is open, whatever takes its place meanwhile.
    let inside = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    for entry in fs::read_dir(&inside).map_err(SaveError::io("read", directory))? {
        let entry = entry.map_err(SaveError::io("read", directory))?;
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(SaveError::io("remove", &directory.join(entry.file_name()))(error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_does_not_fit_names_its_target_and_one_that_cannot_be_read_its_source() {
        let of = |kind: io::ErrorKind| not_copied(Path::new("/run/a"), Path::new("/cache/a"))(kind.into()).to_string();
        assert!(of(io::ErrorKind::StorageFull).starts_with("cannot write /cache/a: "));
        assert!(of(io::ErrorKind::PermissionDenied).starts_with("cannot copy /run/a: "));
    }

    #[test]
    fn regular_files_only_are_part_of_a_checkpoint() {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        assert!(matches!(written(base.path()), Err(SaveError::Empty { .. })));
        fs::write(path("b"), "2").unwrap();
        fs::write(path("a"), "1").unwrap();
        let names: Vec<String> = written(base.path()).unwrap().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["a", "b"]);
        let refused = |found: &str| {
            let error = written(base.path()).unwrap_err().to_string();
            assert!(error.contains("/c is ") && error.contains(found), "{error}");
        };
        std::os::unix::fs::symlink("a", path("c")).unwrap();
        refused("a symbolic link");
        fs::remove_file(path("c")).unwrap();
        fs::create_dir(path("c")).unwrap();
        refused("a directory");
        fs::remove_dir(path("c")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("c"), 0o600.into()).unwrap();
        refused("a named pipe");
        fs::remove_file(path("c")).unwrap();
        fs::write(path("c"), "3").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::hard_link(path("c"), elsewhere.path().join("d")).unwrap();
        refused("several links");
        empty(base.path()).unwrap();
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_in_the_place_of_the_directory_is_not_read_and_gives_way_to_the_directory() {
        let base = tempfile::tempdir().unwrap();
        let (directory, own) = (base.path().join("checkpoint"), base.path().join("own"));
        fs::create_dir(&own).unwrap();
        fs::write(own.join("precious"), "1").unwrap();
        std::os::unix::fs::symlink(&own, &directory).unwrap();
        let refused = written(&directory).unwrap_err().to_string();
        assert!(refused.contains("/checkpoint is a symbolic link, not the directory that was made"), "{refused}");
        empty(&directory).unwrap();
        assert!(fs::symlink_metadata(&directory).unwrap().is_dir());
        assert_eq!(fs::read_to_string(own.join("precious")).unwrap(), "1");
        fs::remove_dir(&directory).unwrap();
        fs::write(&directory, "").unwrap();
        assert!(written(&directory).unwrap_err().to_string().contains("/checkpoint is a file, not the directory"));
        empty(&directory).unwrap();
        fs::remove_dir(&directory).unwrap();
        empty(&directory).unwrap();
        assert!(directory.is_dir(), "one that was removed is made again");
    }

    #[test]
    fn names_of_a_dataset_contain_the_rank_and_lead_back() {
        let name = dataset_name(Rank(3), "state.ckpt");
        assert_eq!((name.as_str(), program_name(Rank(3), &name)), ("rank_3.state.ckpt", "state.ckpt"));
        assert_ne!(dataset_name(Rank(3), "ended"), ended_name(Rank(3)));
    }
}
