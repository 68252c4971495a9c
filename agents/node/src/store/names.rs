//! The names of the filemaps in the control directory.

use std::path::PathBuf;

use crate::directories::paths::Paths;

/// The name of a slot's file in the control directory.
pub(super) fn slot_name(level: usize) -> String {
    format!("filemap_{level}.scrinfo")
}

/// The level in the name of a slot's file.
pub(super) fn level_of(path: &str) -> Option<usize> {
    let name = path.rsplit('/').next()?;
    name.strip_prefix("filemap_")?.strip_suffix(".scrinfo")?.parse().ok()
}

pub(super) fn master_path(paths: &Paths) -> PathBuf {
    paths.control().join("filemap.scrinfo")
}

pub(super) fn slot_path(paths: &Paths, level: usize) -> PathBuf {
    paths.control().join(slot_name(level))
}

/// The log of a slot: what changed since its file was written.
pub(super) fn log_path(paths: &Paths, level: usize) -> PathBuf {
    paths.control().join(format!("holdfast.filemap_{level}.log"))
}
