//! Whose a dataset is. Other users may write to the prefix directory, and to a dataset's directory if its mode permits
//! it: what they put there is read, and never decides which files are placed, replaced or removed.

use super::dataset::DATASET_FILE;
use super::summary::{SUMMARY_FILE, exists};
use crate::store::{DatasetAccess, DatasetStore, DirectoryName, OpenDataset, PrefixError, known};

/// Checks that the records of a dataset, whose directory is this user's, belong to this user, too.
///
/// # Errors
/// [`PrefixError::ForeignRecord`].
pub(super) fn check_records(here: &dyn OpenDataset) -> Result<(), PrefixError> {
    for name in [SUMMARY_FILE, DATASET_FILE] {
        let path = here.path_of(name);
        let unknown = |source| PrefixError::io("examine", &path, "check your permissions")(source);
        if exists(here, name)? && !here.is_own(name).map_err(unknown)? {
            return Err(PrefixError::ForeignRecord { path });
        }
    }
    Ok(())
}

/// True for a dataset of this user whose records are, too; a missing one has no owner.
///
/// # Errors
/// When the file system fails.
pub fn is_own(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<bool, PrefixError> {
    match store.open(directory, DatasetAccess::Write) {
        Err(error) if error.is_missing() => Ok(true),
        here => Ok(known(here.and_then(|here| check_records(&*here)))?.is_some()),
    }
}
