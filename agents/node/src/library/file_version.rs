//! Detects that the library has written a file again.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Distinguishes the contents of a file at different times without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileVersion {
    pub(super) fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        let modified = (found.mtime(), found.mtime_nsec());
        Some(FileVersion { inode: found.ino(), bytes: found.len(), modified })
    }

    #[cfg(test)]
    pub(super) fn of_test(number: u64) -> Self {
        FileVersion { inode: number, bytes: 28, modified: (0, 0) }
    }
}
