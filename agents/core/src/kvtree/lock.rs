//! Locked read-modify-write of the files of the control directory that several processes change: halt and transfer.
//!
//! The lock is the original's, an `flock` on the file itself, so that SCR's tools and Holdfast exclude each other. The
//! file is written in place, as the original does: a process that waits for the lock would otherwise change the old
//! file, which has no name any more. The original removes the transfer file when it starts, so that the name is checked
//! again after every lock.
//!
//! A process that is killed between making or emptying a file and writing it leaves one that is too short. It counts as
//! absent.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::file::{HashFileError, HashFormatError, packed, read_open};
use super::packed::encode;
use super::tree::Tree;
use crate::durable::{self, DurableError};
use crate::{calls, regular_file};

/// A lock is held for the time of one small write. A process that holds it for longer is stopped or hangs, and no other
/// process should hang with it.
const ATTEMPTS: u32 = 2000;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(5);

/// A hash file under its exclusive lock; the lock ends when this is dropped or the file is written.
#[derive(Debug)]
pub struct LockedFile {
    path: PathBuf,
    held: File,
}

impl LockedFile {
    /// Locks a file and reads it; a missing one is made, with an empty hash. One that was cut short is empty too.
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
        let tree = complete(read_open(path, &held))?.unwrap_or_default();
        Ok((LockedFile { path: path.to_owned(), held }, tree))
    }

    /// Writes the file and gives the lock back.
    pub fn write(self, tree: &Tree) -> Result<(), HashFileError> {
        let bytes = packed(&self.path, tree)?;
        // Readers ignore what follows the hash, so that the old end does no harm until it is cut off.
        let written = calls::write_all_at(&self.held, &bytes, 0)
            .and_then(|()| Ok(calls::ftruncate(&self.held, bytes.len() as u64)?));
        written.map_err(|source| {
            HashFileError::Write(DurableError::Io { action: "write", path: self.path.clone(), source })
        })
    }
}

/// `None` for a file that was cut short.
fn complete(read: Result<Tree, HashFileError>) -> Result<Option<Tree>, HashFileError> {
    match read {
        Err(HashFileError::Format {
            source: HashFormatError::NoHeader { .. } | HashFormatError::Truncated { .. },
            ..
        }) => Ok(None),
        read => read.map(Some),
    }
}

/// Reads a file that others rewrite in place (the original's library does): under a shared lock, so that no half of
/// a write is seen. `None` when there is no such file, or it was cut short.
///
/// # Errors
/// When it cannot be read, is not a hash file, or another process keeps the lock for ten seconds.
pub fn read_shared(path: &Path) -> Result<Option<Tree>, HashFileError> {
    match hold(path, FlockOperation::NonBlockingLockShared) {
        Ok(file) => complete(read_open(path, &file)),
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
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;
    use crate::kvtree::file::read;

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
    fn a_process_that_waits_for_the_lock_finds_the_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("halt.scrinfo");
        let (locked, mut tree) = LockedFile::open(&path).unwrap();
        // As the library does: it opens the file, then waits for its lock.
        let waiting = File::open(&path).unwrap();
        tree.put("ExitReason", "JOB_HALTED");
        locked.write(&tree).unwrap();
        flock(&waiting, FlockOperation::NonBlockingLockShared).unwrap();
        assert_eq!(read_open(&path, &waiting).unwrap().value("ExitReason"), Some("JOB_HALTED"));
        drop(waiting);
        // A shorter content leaves nothing behind it.
        let (locked, _) = LockedFile::open(&path).unwrap();
        locked.write(&Tree::new()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 28);
    }

    #[test]
    fn a_file_that_was_cut_short_counts_as_absent_and_a_damaged_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("halt.scrinfo");
        let mut tree = Tree::new();
        tree.put("CheckpointsLeft", 2);
        let bytes = encode(&tree);
        for length in [0, 7, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            assert_eq!(read_shared(&path).unwrap(), None, "{length} bytes");
            let (locked, found) = LockedFile::open(&path).unwrap();
            assert!(found.is_empty(), "{length} bytes");
            locked.write(&tree).unwrap();
            assert_eq!(read_shared(&path).unwrap(), Some(tree.clone()));
        }
        let mut damaged = bytes.clone();
        damaged[25] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(read_shared(&path).unwrap_err().to_string().contains("halt.scrinfo"));
        assert!(LockedFile::open(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }

    #[test]
    fn a_pipe_or_directory_in_a_file_s_place_is_an_error_and_not_a_hang() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("halt.scrinfo");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        for path in [pipe.as_path(), directory.path()] {
            for error in [read(path).unwrap_err(), read_shared(path).unwrap_err(), LockedFile::open(path).unwrap_err()]
            {
                assert!(matches!(error, HashFileError::Read { .. }), "{error}");
            }
        }
    }
}
