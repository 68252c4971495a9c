//! Removing a dataset from the prefix directory: its entry in the index and its files.
//!
//! The files of an output lie at the paths that the application named. They are removed one by one, because other
//! datasets may have files in the same directories ([`outputs`]). All other datasets are removed with their directory:
//!
//! The order is: the link `scr.current` if it leads there, the entry, a rename of the directory to the name of a
//! temporary file, the files. A kill in between leaves a directory that no restart uses; from the rename on, the next
//! command removes it ([`temporary`]).

use std::fs;
use std::io;

use super::directory::{DirectoryName, Prefix};
use super::error::PrefixError;
use super::publish::withdraw_locked;
use super::{index, outputs};
use crate::{durable, kill_point, temporary};

/// Deletes a dataset: returns whether there was an entry or a directory.
///
/// # Errors
/// The first step that failed. It can be repeated.
pub fn delete(prefix: &Prefix, directory: &DirectoryName) -> Result<bool, PrefixError> {
    delete_if(prefix, directory, |_| true)
}

/// As [`delete`], if `may_be_deleted` of the entry, which is read under the lock of the index.
///
/// # Errors
/// As [`delete`].
pub(super) fn delete_if(
    prefix: &Prefix,
    directory: &DirectoryName,
    may_be_deleted: impl FnOnce(Option<&index::IndexEntry>) -> bool,
) -> Result<bool, PrefixError> {
    let renamed = {
        let locked = index::lock(prefix)?;
        let entry = index::read(prefix)?.unwrap_or_default().entry(directory);
        if !may_be_deleted(entry.as_ref()) {
            return Ok(false);
        }
        // Before the entry is removed: what is not a directory is left alone.
        let path = prefix.checkpoint_path(directory);
        let exists = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => true,
            Ok(_) => return Err(failed(&path)(io::Error::other("it is not a directory"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(failed(&path)(error)),
        };
        let listed = withdraw_locked(&locked, prefix, directory)?;
        if !exists {
            return Ok(listed);
        }
        if outputs::is_output(prefix, directory) {
            outputs::remove(prefix, directory)?;
            return Ok(true);
        }
        kill_point::reach();
        let renamed = prefix.path().join(temporary::name());
        fs::rename(&path, &renamed).map_err(failed(&path))?;
        kill_point::reach();
        durable::sync_directory(prefix.path())?;
        renamed
    };
    // Without the lock: that may take long.
    fs::remove_dir_all(&renamed).map_err(failed(&renamed))?;
    durable::sync_directory(prefix.path())?;
    Ok(true)
}

fn failed(path: &std::path::Path) -> impl FnOnce(io::Error) -> PrefixError {
    PrefixError::io("delete the dataset in", path.to_owned(), "delete what is left by hand; no restart uses it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::NaiveDateTime;
    use holdfast_model::CheckpointId;

    #[test]
    fn a_dataset_is_deleted_with_its_entry_its_link_and_its_files() {
        let scratch = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(scratch.path()).unwrap();
        let time = NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap();
        let name = DirectoryName::new("one").unwrap();
        fs::create_dir_all(scratch.path().join("one/below")).unwrap();
        index::update(&prefix, |index| index.add(CheckpointId(1), &name, time)).unwrap();
        prefix.set_current(&name).unwrap();
        assert!(!delete_if(&prefix, &name, |entry| entry.unwrap().complete == Some(true)).unwrap());
        assert!(delete(&prefix, &name).unwrap());
        assert!(index::read(&prefix).unwrap().unwrap().entries().is_empty());
        assert_eq!(prefix.current().unwrap(), None);
        let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == ".holdfast" || name == index::INDEX_FILE), "{left:?}");
        assert!(!delete(&prefix, &name).unwrap());
    }

    #[test]
    fn what_is_not_a_directory_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(scratch.path()).unwrap();
        fs::create_dir(scratch.path().join("target")).unwrap();
        std::os::unix::fs::symlink("target", scratch.path().join("link")).unwrap();
        assert!(delete(&prefix, &DirectoryName::new("link").unwrap()).is_err());
        assert!(scratch.path().join("link").exists() && scratch.path().join("target").is_dir());
    }
}
