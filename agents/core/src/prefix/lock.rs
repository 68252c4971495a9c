//! The lock that lets one Holdfast process at a time change a prefix directory's index.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::directory::Prefix;
use super::error::PrefixError;

/// Where Holdfast keeps what is its own below the prefix.
const OWN_DIRECTORY: &str = ".holdfast";
/// The file that is locked. It is empty and stays: removing a lock file would let two processes lock two files.
const LOCK_FILE: &str = "index.lock";

/// The lock, held until dropped; the kernel frees it when a process dies, however it dies.
#[derive(Debug)]
pub(super) struct IndexLock {
    _file: File,
}

impl IndexLock {
    /// Waits for the lock. Holders keep it while they replace a summary, the index and the link.
    ///
    /// Some mounts of parallel file systems have no `flock` at all. There the change is made without the lock, as SCR
    /// itself does: refusing to index a drained checkpoint would lose more than the lock protects.
    ///
    /// # Errors
    /// [`PrefixError::Io`] if the lock file cannot be made or locked.
    pub(super) fn acquire(prefix: &Prefix) -> Result<Self, PrefixError> {
        let remedy = "check that the prefix directory is writable and has space left";
        let own = prefix.path().join(OWN_DIRECTORY);
        if let Err(error) = DirBuilder::new().mode(0o700).create(&own) {
            let exists = error.kind() == io::ErrorKind::AlreadyExists && fs::metadata(&own).is_ok_and(|it| it.is_dir());
            if !exists {
                return Err(PrefixError::io("make the directory", own, remedy)(error));
            }
        }
        let path = own.join(LOCK_FILE);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(PrefixError::io("open the lock file", &path, remedy))?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(IndexLock { _file: file }),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(PrefixError::io("lock", path, remedy)(errno.into())),
            }
        }
    }
}
