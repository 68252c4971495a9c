//! Places in a set of files: the name of each file, and where a task's stream is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where a task's stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Index of the physical file.
    pub part: usize,
    /// The task's index in that file.
    pub local: usize,
}

/// The name of a physical file of the set with this name.
pub fn part_path(path: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let mut name = OsString::from(path.as_os_str());
    name.push(format!(".{number:06}"));
    PathBuf::from(name)
}
