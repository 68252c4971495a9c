//! Removing a dataset from the prefix directory: its entry in the index and its files.
//!
//! The files of an output lie at the paths that the application named. They are removed one by one, because other
//! datasets may have files in the same directories ([`outputs`]). All other datasets are removed with their directory:
//!
//! The order is: the link `scr.current` if it leads there, the entry, the dataset at once, then its files. A kill in
//! between leaves what no restart uses; once the dataset was taken out of the store, the next command removes the rest.

use std::io;

use super::publish::withdraw_as;
use super::{index, outputs};
use crate::store::{DatasetOccupant, DatasetStore, DirectoryName, PrefixError, Removal, known};

/// What was done to a dataset.
enum Deletion {
    /// It was not deleted, or only its entry was there. Whether anything was.
    Ended(bool),
    /// It was taken out of the store.
    TakenOut(Removal),
}

/// Deletes a dataset: returns whether there was an entry or a directory.
///
/// # Errors
/// The first step that failed. It can be repeated.
pub fn delete(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<bool, PrefixError> {
    delete_if(store, directory, |_, _| true)
}

/// As [`delete`], if `may_be_deleted` of the entry and of the current dataset, which are read as a part of the change
/// of the index.
pub(super) fn delete_if(
    store: &dyn DatasetStore,
    directory: &DirectoryName,
    may_be_deleted: impl Fn(Option<&index::IndexEntry>, Option<&DirectoryName>) -> bool,
) -> Result<bool, PrefixError> {
    let deletion = index::change(store, |index| {
        let current = known(index.current())?.flatten();
        if !may_be_deleted(index.read()?.entry(directory).as_ref(), current.as_ref()) {
            return Ok(Deletion::Ended(false));
        }
        let failed = |source| {
            let remedy = "delete what is left by hand; no restart uses it";
            PrefixError::io("delete the dataset in", store.path_of(directory), remedy)(source)
        };
        // Before the entry is removed: what is no dataset is left alone.
        let occupant = store.occupant(directory).map_err(failed)?;
        if occupant == DatasetOccupant::Other {
            return Err(failed(io::Error::other("it is not a directory")));
        }
        let listed = withdraw_as(index, directory)?;
        if occupant == DatasetOccupant::Nothing {
            return Ok(Deletion::Ended(listed));
        }
        if outputs::is_output(store, directory)? {
            outputs::remove::remove(store, directory)?;
            return Ok(Deletion::Ended(true));
        }
        Ok(Deletion::TakenOut(store.delete(directory)?))
    })?;
    match deletion {
        Deletion::Ended(existed) => Ok(existed),
        // After the change: that may take long.
        Deletion::TakenOut(left) => left.finish().map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::super::publish::{make_current, make_usable_current};
    use super::super::tests::world::{PosixWorld, TestStore as _, each_store, name, some_time};
    use super::*;
    use holdfast_model::CheckpointId;

    #[test]
    fn a_dataset_is_deleted_with_its_entry_its_link_and_its_files() {
        each_store(|world| {
            let (store, one) = (world.store(), name("one"));
            world.dataset("one");
            world.put("one/file", b"content");
            index::update(store, |index| index.add(CheckpointId(1), &one, some_time())).unwrap();
            make_current(store, &one).unwrap();
            assert!(!delete_if(store, &one, |entry, _| entry.unwrap().complete == Some(true)).unwrap());
            assert!(delete(store, &one).unwrap());
            assert!(index::read(store).unwrap().unwrap().entries().is_empty());
            assert_eq!(store.current().unwrap(), None);
            assert_eq!(world.files().into_keys().collect::<Vec<_>>(), [index::INDEX_FILE]);
            assert_eq!((store.contains(&one), world.staged()), (false, 0));
            assert!(!delete(store, &one).unwrap());
        });
    }

    #[test]
    fn a_dataset_that_was_deleted_since_it_was_looked_up_is_not_made_current() {
        each_store(|world| {
            let (store, one) = (world.store(), name("one"));
            world.dataset("one");
            index::update(store, |index| {
                index.add(CheckpointId(1), &one, some_time());
                index.set_complete(&one, true);
            })
            .unwrap();
            assert!(make_usable_current(store, &one).unwrap());
            assert_eq!(store.current().unwrap().as_ref(), Some(&one));
            assert!(delete(store, &one).unwrap());
            assert!(!make_usable_current(store, &one).unwrap());
            assert_eq!(store.current().unwrap(), None);
        });
    }

    #[test]
    fn what_is_not_a_directory_is_left_alone() {
        let world = PosixWorld::new();
        world.put("target/file", b"content");
        std::os::unix::fs::symlink("target", world.scratch.path().join("link")).unwrap();
        assert!(delete(world.store(), &name("link")).is_err());
        assert!(world.scratch.path().join("link").exists() && world.scratch.path().join("target").is_dir());
    }
}
