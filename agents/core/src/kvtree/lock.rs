//! Locked read-modify-write of the files of the control directory that several processes change: halt and transfer.
//!
//! The lock is the original's, an `flock` on the file itself, so that SCR's tools and Holdfast exclude each other. The
//! original then writes in place; we replace the file. A process that waited for the lock of the old file would change
//! an unlinked file, so that the name is checked again after every lock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::file::{HashFileError, read_open, write_unsynced};
use super::packed::encode;
use super::tree::Tree;
use crate::{durable, regular_file};

/// A lock is held for the time of one small write. A process that holds it for longer is stopped or hangs, and no other
/// process should hang with it.
const ATTEMPTS: u32 = 2000;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(5);

/// A hash file under its exclusive lock; the lock ends when this is dropped or the file is written.
#[derive(Debug)]
pub struct LockedFile {
    path: PathBuf,
    _held: File,
}

impl LockedFile {
    /// Locks a file and reads it; a missing one is made, with an empty hash.
    ///
    /// # Errors
    /// When it cannot be made or read, is not a hash file, or another process keeps the lock for ten seconds.
    pub fn open(path: &Path) -> Result<(LockedFile, Tree), HashFileError> {
        let held = loop {
            match hold(path, FlockOperation::NonBlockingLockExclusive) {
                Err(error) if error.is_not_found() => {
                    durable::create_new_unsynced(path, &encode(&Tree::new()))?;
                }
                other => break other?,
            }
        };
        let tree = read_open(path, &held)?;
        Ok((LockedFile { path: path.to_owned(), _held: held }, tree))
    }

    /// Replaces the file and gives the lock back: the new file is unlocked from its first instant, so that there is no
    /// second write under one lock.
    ///
    /// # Errors
    /// When the file cannot be replaced; the old one is then untouched.
    pub fn write(self, tree: &Tree) -> Result<(), HashFileError> {
        write_unsynced(&self.path, tree)
    }
}

/// Reads a file that others rewrite in place (the original's library does): under a shared lock, so that no half of
/// a write is seen. `None` when there is no such file.
///
/// # Errors
/// When it cannot be read, is not a hash file, or another process keeps the lock for ten seconds.
pub fn read_shared(path: &Path) -> Result<Option<Tree>, HashFileError> {
    match hold(path, FlockOperation::NonBlockingLockShared) {
        Ok(file) => read_open(path, &file).map(Some),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens and locks the file that has this name, now.
fn hold(path: &Path, operation: FlockOperation) -> Result<File, HashFileError> {
    let cannot_read = |source| HashFileError::Read { path: path.to_owned(), source };
    // Network file systems give an exclusive lock only on what is open for writing.
    let exclusive = matches!(operation, FlockOperation::NonBlockingLockExclusive);
    for _ in 0..ATTEMPTS {
        let open = if exclusive { regular_file::open_writable } else { regular_file::open };
        let file = open(path).map_err(cannot_read)?;
        match flock(&file, operation) {
            Ok(()) => {
                let (ours, named) = (file.metadata().map_err(cannot_read)?, fs::metadata(path).map_err(cannot_read)?);
                if (ours.dev(), ours.ino()) == (named.dev(), named.ino()) {
                    return Ok(file);
                }
            }
            Err(Errno::WOULDBLOCK) => std::thread::sleep(BETWEEN_ATTEMPTS),
            Err(Errno::INTR) => {}
            Err(error) => return Err(HashFileError::Lock { path: path.to_owned(), source: error.into() }),
        }
    }
    let source = io::Error::new(io::ErrorKind::TimedOut, "another process holds the lock");
    Err(HashFileError::Lock { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_by_many_threads_are_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("halt.scrinfo");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let (locked, mut tree) = LockedFile::open(&path).unwrap();
                        let count: u32 = tree.parsed("COUNT").unwrap_or(0);
                        tree.put("COUNT", count + 1);
                        locked.write(&tree).unwrap();
                    }
                });
            }
        });
        assert_eq!(read_shared(&path).unwrap().unwrap().parsed("COUNT"), Some(100));
    }

    #[test]
    fn a_missing_file_is_made_with_an_empty_hash_of_28_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("halt.scrinfo");
        assert!(read_shared(&path).unwrap().is_none());
        let (locked, tree) = LockedFile::open(&path).unwrap();
        assert!(tree.is_empty());
        drop(locked);
        assert_eq!(fs::metadata(&path).unwrap().len(), 28);
        assert!(LockedFile::open(&directory.path().join("missing/halt.scrinfo")).is_err());
    }

    #[test]
    fn an_empty_file_is_an_error_and_not_an_empty_hash() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("halt.scrinfo");
        fs::write(&path, "").unwrap();
        let error = LockedFile::open(&path).unwrap_err();
        assert!(error.to_string().contains("halt.scrinfo") && error.to_string().contains("cut short"), "{error}");
        assert!(read_shared(&path).is_err());
    }
}
