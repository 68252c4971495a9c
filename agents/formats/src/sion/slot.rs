//! The names of the files of a set, and the places of streams in them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The place of a task's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Index of the physical file in the set.
    pub part: usize,
    /// The task's index in that file.
    pub local: usize,
}

/// The path of a physical file of the set whose first file is `path`.
pub fn part_path(path: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let mut name = OsString::from(path.as_os_str());
    name.push(format!(".{number:06}"));
    PathBuf::from(name)
}
