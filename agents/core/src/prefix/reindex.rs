//! An index that was lost is made again from the directories of the datasets.
//!
//! Only what belongs to this user is entered, records included: what others put into the prefix directory is added
//! with `holdfast index add`, and so is a directory without a summary: a flush did not end there. Files are not read: a
//! dataset is entered as complete if its summary is complete and all of its files have their sizes. Marks of
//! failed restarts, and those of the user and of windows, are lost with the index: no
//! [window](super::window) deletes what was entered here.

use chrono::NaiveDateTime;

use super::index::{self, Index};
use super::{flushed, ownership, summary};
use crate::store::{DatasetOccupant, DatasetOpener, DatasetStore, DirectoryName, PrefixError, known};
use holdfast_model::CheckpointId;

/// A dataset that was found.
struct FoundDataset {
    directory: DirectoryName,
    id: CheckpointId,
    complete: bool,
    flushed: NaiveDateTime,
}

/// Makes the index again if there is none. Returns how many datasets were entered; 0 if there is an index, or nothing
/// to enter. `now` is for directories whose names have no time.
///
/// # Errors
/// When the store cannot be listed or its index cannot be written.
pub fn restore(store: &dyn DatasetStore, now: NaiveDateTime, open: DatasetOpener) -> Result<usize, PrefixError> {
    // One that cannot be read is not lost: the next read of it reports that.
    if !matches!(store.index(), Ok(None)) {
        return Ok(0);
    }
    let found = found(store, now, open)?;
    let entries = found.entries().len();
    if entries == 0 {
        return Ok(0);
    }
    index::update(store, |index| {
        // Another process may have been first.
        if !index.entries().is_empty() {
            return 0;
        }
        index.clone_from(&found);
        entries
    })
}

/// The index that the directories of the datasets make. Changes nothing.
///
/// # Errors
/// When the store cannot be listed, or the file system fails: a dataset that it did not show then would be missing in
/// the index for good.
pub fn found(store: &dyn DatasetStore, now: NaiveDateTime, open: DatasetOpener) -> Result<Index, PrefixError> {
    let unlisted = PrefixError::io("list", store.location(), "check your permissions on the prefix directory");
    let mut found = Vec::new();
    for directory in store.names().map_err(unlisted)? {
        found.extend(examine(store, directory, now, open)?);
    }
    found.sort_by_key(|dataset| dataset.flushed);
    let mut index = Index::default();
    for FoundDataset { directory, id, complete, flushed } in found {
        index.add(id, &directory, flushed);
        index.set_complete(&directory, complete);
    }
    Ok(index)
}

fn examine(
    store: &dyn DatasetStore,
    directory: DirectoryName,
    now: NaiveDateTime,
    open: DatasetOpener,
) -> Result<Option<FoundDataset>, PrefixError> {
    let unknown = PrefixError::io("examine", store.path_of(&directory), "check that its disk works");
    let is_dataset = store.occupant(&directory).map_err(unknown)? == DatasetOccupant::Dataset;
    if !is_dataset || !ownership::is_own(store, &directory)? {
        return Ok(None);
    }
    let Some(summary) = known(summary::of(store, &directory))? else { return Ok(None) };
    let id = summary.id;
    let complete = summary.complete && flushed::files_damage(store, id, &directory, open)?.is_none();
    let flushed = directory.parts().map_or(now, |parts| parts.stamp);
    Ok(Some(FoundDataset { directory, id, complete, flushed }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use super::super::publish::{Publication, begin};
    use super::super::summary::{RankFiles, Summary, SummaryFile};
    use super::super::tests::world::{PosixWorld, TestStore, some_time};
    use super::super::{fetch, new_directory};
    use super::*;
    use crate::store::dataset_files::open_plain;
    use holdfast_model::{Dataset, Rank};

    fn begun(world: &dyn TestStore, id: u64, name: Option<&str>) -> DirectoryName {
        let (store, checkpoint) = (world.store(), CheckpointId(id));
        let directory = new_directory::create(store, some_time(), "17", checkpoint, name).unwrap();
        let dataset = Dataset { name: name.map(str::to_owned), ..Dataset::default() };
        begin(store, checkpoint, &directory, &dataset, "17", some_time()).unwrap();
        world.put(&format!("{directory}/rank_0.ckpt"), b"content");
        directory
    }

    fn complete(world: &dyn TestStore, id: u64, name: Option<&str>) -> DirectoryName {
        let directory = begun(world, id, name);
        let file = "rank_0.ckpt".to_owned();
        let file = SummaryFile { name: file, size: Some(7), crc: None, fetch: true, failed: false, output_path: None };
        let by_rank = BTreeMap::from([(Rank(0), RankFiles { expected: None, files: vec![file] })]);
        let summary = Summary { id: CheckpointId(id), ranks: 1, complete: true, by_rank };
        Publication::of_copy(directory.clone(), Some(summary), false, some_time()).publish(world.store()).unwrap();
        directory
    }

    fn restored(world: &dyn TestStore) -> usize {
        restore(world.store(), some_time(), open_plain).unwrap()
    }

    #[test]
    fn a_lost_index_is_made_again_as_it_was() {
        {
            // A store in memory keeps its index elsewhere.
            let world = &PosixWorld::new();
            let store = world.store();
            assert_eq!(restored(world), 0, "nothing is there");
            assert!(store.index().unwrap().is_none());
            for (id, name) in [(1, None), (2, Some("results")), (3, None)] {
                complete(world, id, name);
            }
            let before = index::read(store).unwrap().unwrap().entries();
            begun(world, 4, None);
            assert_eq!(restored(world), 0, "there is an index");
            world.take_away(index::INDEX_FILE);
            assert_eq!(restored(world), 3);
            assert_eq!(index::read(store).unwrap().unwrap().entries(), before);
            assert_eq!(fetch::candidates(store).unwrap().first().unwrap().id, Some(CheckpointId(3)));
        }
    }

    #[test]
    fn a_dataset_that_lost_a_file_is_not_entered_as_complete() {
        {
            // A store in memory keeps its index elsewhere.
            let world = &PosixWorld::new();
            let damaged = complete(world, 1, None);
            world.put(&format!("{damaged}/rank_0.ckpt"), b"cut");
            world.take_away(index::INDEX_FILE);
            assert_eq!(restored(world), 1);
            let entry = index::read(world.store()).unwrap().unwrap().entry(&damaged).unwrap();
            assert_eq!(entry.complete, Some(false));
        }
    }

    #[test]
    fn links_and_directories_that_are_no_datasets_of_this_user_are_left_out() {
        let world = PosixWorld::new();
        let at = world.scratch.path();
        let own = complete(&world, 1, None);
        let foreign = complete(&world, 2, None);
        fs::create_dir(at.join("results")).unwrap();
        fs::write(at.join("results/file"), "of the user").unwrap();
        symlink(own.as_str(), at.join("scr.2026-01-02_03:04:05.17.9")).unwrap();
        fs::write(at.join("scr.2026-01-02_03:04:06.17.9"), "a file").unwrap();
        let mut expected = vec![2, 1];
        if rustix::process::geteuid().is_root() {
            lchown(at.join(foreign.as_str()), Some(65_534), None).unwrap();
            expected = vec![1];
        }
        world.take_away(index::INDEX_FILE);
        restored(&world);
        let entries = index::read(world.store()).unwrap().unwrap().entries();
        assert_eq!(entries.into_iter().map(|entry| entry.id.0).collect::<Vec<_>>(), expected);
    }
}
