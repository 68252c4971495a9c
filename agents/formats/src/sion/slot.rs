//! The names of the files of a set, and the places of streams in them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::store::{OpenDataset, PosixDataset};

use super::error::SionError;

/// The place of a task's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Index of the physical file in the set.
    pub part: usize,
    /// The task's index in that file.
    pub local: usize,
}

impl Slot {
    /// The place of a mapping entry; `None` if a number is negative.
    pub(super) fn of((file, task): (i32, i32)) -> Option<Slot> {
        Some(Slot { part: usize::try_from(file).ok()?, local: usize::try_from(task).ok()? })
    }
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

/// The name of a physical file, also its place in messages: all files of a set are in one directory.
pub(super) fn place(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The directory of a file that the user named, which may be a dataset.
pub(super) fn dataset_of(path: &Path) -> Result<Arc<dyn OpenDataset>, SionError> {
    let directory = directory_of(path);
    Ok(Arc::new(PosixDataset::at(directory).map_err(SionError::io("open the directory", directory))?))
}

/// The directory that contains a file.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The name of a physical file of the set whose first file has this name.
pub(super) fn part_name(name: &str, number: u32) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}.{number:06}") }
}

/// The numbers of the files of a set that exist. The directory is listed, instead of testing each number, because the
/// number of files comes from a damaged file.
pub(super) fn numbers_present(path: &Path, files: u32) -> Result<BTreeSet<u32>, SionError> {
    let (directory, name) = (directory_of(path), place(path));
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
