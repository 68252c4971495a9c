//! The names of the files of a set, and the places of streams in them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::SionError;

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

/// The numbers of the files of a set that exist. The directory is listed, instead of testing each number, because the
/// number of files comes from a damaged file.
pub(super) fn numbers_present(path: &Path, files: u32) -> Result<BTreeSet<u32>, SionError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut numbers = BTreeSet::new();
    let reading = || SionError::io("read the directory", directory);
    for entry in std::fs::read_dir(directory).map_err(reading())? {
        let entry = entry.map_err(reading())?.file_name().to_string_lossy().into_owned();
        let digits = entry.strip_prefix(&name).and_then(|rest| rest.strip_prefix('.'));
        if let Some(number) = digits.filter(|digits| digits.len() >= 6).and_then(|digits| digits.parse().ok())
            && (1..files).contains(&number)
        {
            numbers.insert(number);
        }
    }
    Ok(numbers)
}
