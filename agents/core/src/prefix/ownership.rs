//! Whose a dataset is. Other users may write to the prefix directory, and to a dataset's directory if its mode permits
//! it: what they put there is read, and never decides which files are placed, replaced or removed.

use super::dataset::DATASET_FILE;
use super::summary::{SUMMARY_FILE, exists};
use crate::store::{DatasetAccess, DatasetStore, DirectoryName, OpenDataset, PrefixError};

/// Checks that the records of a dataset, whose directory is this user's, belong to this user, too.
///
/// # Errors
/// [`PrefixError::ForeignRecord`].
pub(super) fn check_records(here: &dyn OpenDataset) -> Result<(), PrefixError> {
    for name in [SUMMARY_FILE, DATASET_FILE] {
        let path = here.path_of(name);
        let unknown = |source| PrefixError::io("examine", &path, "check your permissions")(source);
        if exists(here, name) && !here.is_own(name).map_err(unknown)? {
            return Err(PrefixError::ForeignRecord { path });
        }
    }
    Ok(())
}

/// True for a dataset of this user whose records are, too; a missing one has no owner.
pub fn is_own(store: &dyn DatasetStore, directory: &DirectoryName) -> bool {
    match store.open(directory, DatasetAccess::Write) {
        Ok(here) => check_records(&*here).is_ok(),
        Err(error) => error.is_missing(),
    }
}
