//! The lock that lets one Holdfast process at a time change a prefix directory's index.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::owned::{Access, SharedDirectory};
use crate::state_directory;
use crate::store::error::PrefixError;

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
    /// [`PrefixError::Io`] and [`PrefixError::Owned`] if the lock file cannot be made or locked, or is not ours.
    pub(super) fn acquire(prefix: &SharedDirectory) -> Result<Self, PrefixError> {
        let own = prefix.create_private_directory(state_directory::NAME)?;
        let path = own.path().join(LOCK_FILE);
        // Private: another user who can open the lock can hold it for ever.
        let file = own.open_or_create(LOCK_FILE, Access::Private)?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(IndexLock { _file: file }),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    let remedy = "check that the prefix directory is writable and has space left";
                    return Err(PrefixError::io("lock", path, remedy)(errno.into()));
                }
            }
        }
    }
}
