//! The file that a step's supervisor keeps locked while it runs: unlike a process id, a lock cannot be reused by
//! another process.

use std::fs::File;
use std::path::Path;

use holdfast_core::state_files;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::LaunchError;
use super::plan::StepPlan;

/// Takes the lock of a generation's directory.
///
/// # Errors
/// [`LaunchError::Running`] if a supervisor has it, [`LaunchError::File`], [`LaunchError::Owned`].
pub(super) fn take_lock(directory: &Path) -> Result<File, LaunchError> {
    let path = StepPlan::lock_in(directory);
    let file = state_files::open_or_create(&path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(LaunchError::Running { path: directory.to_owned() }),
        Err(errno) => Err(LaunchError::file("lock", path)(errno.into())),
    }
}

/// True while a generation's directory has a supervisor.
pub fn is_supervised(directory: &Path) -> bool {
    lock_file(directory).is_some_and(|lock| is_held(&lock))
}

/// The lock of a supervisor, also after its end; `None` if there was none, or it cannot be opened.
pub(super) fn lock_file(directory: &Path) -> Option<File> {
    state_files::open(&StepPlan::lock_in(directory)).ok().flatten()
}

/// True while the supervisor has the lock, and if that cannot be known because the file system fails: the ranks of a
/// supervisor that is believed to have ended are killed.
pub(super) fn is_held(lock: &File) -> bool {
    let is_free = flock(lock, FlockOperation::NonBlockingLockShared).is_ok();
    if is_free {
        let _ = flock(lock, FlockOperation::Unlock);
    }
    !is_free
}
