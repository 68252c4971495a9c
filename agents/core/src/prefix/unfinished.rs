//! The directories that flushes left unfinished: indexed, not complete, and without the files that only a drain or
//! `holdfast index add` writes.
//!
//! A flush is interrupted by the loss of its leader, by a new generation, or by the end of the job. As long as the
//! nodes have the dataset, the next flush or the drain continues in its directory; otherwise the directory cannot be
//! completed, and is removed. A directory that a drain left incomplete is kept: its files may be all that is left of
//! the dataset.

use std::io;

use super::delete::delete_if;
use super::index::IndexEntry;
use super::publish::Publication;
use super::summary::{self, SUMMARY_FILE};
use super::{dataset, index, ownership, rank_filemap};
use crate::store::{DatasetAccess, DatasetOpener, DatasetStore, DirectoryName, PrefixError, Result, known};
use holdfast_model::CheckpointId;

/// A directory that a flush left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedFlush {
    pub checkpoint: CheckpointId,
    pub directory: DirectoryName,
}

/// The unfinished flushes of a job, newest first. Datasets that the ranks write to the prefix directory themselves are
/// left out: nothing can be continued there.
pub fn of_job(store: &dyn DatasetStore, job: &str, open: DatasetOpener) -> Result<Vec<UnfinishedFlush>> {
    let mut found = Vec::new();
    for entry in index::read(store)?.unwrap_or_default().entries() {
        if is_unfinished(store, &entry, job, open)? && !bypasses_the_cache(store, &entry.directory)? {
            found.push((entry.flushed, UnfinishedFlush { checkpoint: entry.id, directory: entry.directory }));
        }
    }
    found.sort_by_key(|(flushed, found)| std::cmp::Reverse((found.checkpoint, *flushed)));
    Ok(found.into_iter().map(|(_, found)| found).collect())
}

fn is_unfinished(store: &dyn DatasetStore, entry: &IndexEntry, job: &str, open: DatasetOpener) -> Result<bool> {
    let of_job = entry.complete != Some(true) && dataset::job_of(store, &entry.directory).is_some_and(|of| of == job);
    // A job id in a name or a record is no proof: another user may have written it.
    Ok(of_job && ownership::is_own(store, &entry.directory)? && holds_only_a_flush(store, &entry.directory, open)?)
}

fn bypasses_the_cache(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<bool> {
    let record = known(dataset::read(store, directory))?.flatten();
    Ok(record.is_some_and(|record| record.direct.is_some()))
}

/// True if neither a drain nor `index add` has written there. A missing directory holds nothing else.
fn holds_only_a_flush(store: &dyn DatasetStore, directory: &DirectoryName, open: DatasetOpener) -> Result<bool> {
    let files = match store.open(directory, DatasetAccess::Read) {
        Err(error) if error.is_missing() => return Ok(true),
        dataset => dataset?,
    };
    let unreadable = PrefixError::io("list", files.location(), "check that you may read the checkpoint directory");
    let listed = match open(files.clone()).and_then(|files| files.list()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        listed => listed.map_err(unreadable)?,
    };
    if listed.iter().any(|file| file.name.ends_with(rank_filemap::SUFFIX)) {
        return Ok(false);
    }
    // A flush writes its summary when all files are there.
    Ok(match known(summary::read(&*files))? {
        Some(summary) => summary.complete,
        None => !summary::exists(&*files, SUMMARY_FILE)?,
    })
}

/// Ends a flush that is not continued: removes its directory and its entry. If all files were copied, and only the
/// entry was not marked as complete, it is marked now. Returns whether the directory was removed.
///
/// # Errors
/// The first step that failed. It can be repeated.
pub fn abandon(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<bool> {
    let entry = index::read(store)?.unwrap_or_default().entry(directory);
    let now = entry.and_then(|entry| entry.flushed).unwrap_or_default();
    if let Some(summary) = known(summary::of(store, directory))?
        && summary.complete
    {
        // The link stays: a restart chooses between the complete entries by itself.
        Publication::of_copy(directory.clone(), Some(summary), false, now).publish(store)?;
        return Ok(false);
    }
    delete_if(store, directory, |entry, _| entry.is_none_or(|entry| entry.complete != Some(true)))
}

/// Ends all unfinished flushes of a job that has a complete dataset in the index, and returns the directories that were
/// removed. Without a complete dataset all are kept: their files may be all that is left.
///
/// # Errors
/// As [`of_job`] and [`abandon`].
pub fn abandon_all(store: &dyn DatasetStore, job: &str, open: DatasetOpener) -> Result<Vec<DirectoryName>> {
    let entries = index::read(store)?.unwrap_or_default().entries();
    let mut removed = Vec::new();
    if !entries.iter().any(|entry| entry.complete == Some(true)) {
        return Ok(removed);
    }
    let current = store.current()?;
    for entry in entries {
        if current.as_ref() != Some(&entry.directory)
            && is_unfinished(store, &entry, job, open)?
            && abandon(store, &entry.directory)?
        {
            removed.push(entry.directory);
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::new_directory;
    use super::super::publish::begin as begin_copy;
    use super::super::summary::Summary;
    use super::super::tests::world::{TestStore, each_store, some_time};
    use super::*;
    use crate::prefix::rank_filemap::{FilemapWriter, RankFilemap};
    use crate::store::dataset_files::open_plain;
    use holdfast_model::{Dataset, Rank};

    fn summary(id: u64) -> Summary {
        Summary { id: CheckpointId(id), ranks: 0, complete: true, by_rank: BTreeMap::new() }
    }

    /// A flush that was killed.
    fn begin(world: &dyn TestStore, job: &str, id: u64) -> DirectoryName {
        let id = CheckpointId(id);
        let name = new_directory::create(world.store(), some_time(), job, id, None).unwrap();
        begin_copy(world.store(), id, &name, &Dataset::default(), job, some_time()).unwrap();
        world.put(&format!("{name}/rank_0.ckpt"), b"half");
        name
    }

    fn complete(world: &dyn TestStore, job: &str, id: u64) -> DirectoryName {
        let name = begin(world, job, id);
        Publication::of_copy(name.clone(), Some(summary(id)), true, some_time()).publish(world.store()).unwrap();
        name
    }

    fn unfinished(world: &dyn TestStore, job: &str) -> Vec<DirectoryName> {
        of_job(world.store(), job, open_plain).unwrap().into_iter().map(|flush| flush.directory).collect()
    }

    fn abandon_all_of(world: &dyn TestStore, job: &str) -> Vec<DirectoryName> {
        abandon_all(world.store(), job, open_plain).unwrap()
    }

    #[test]
    fn only_flushes_of_the_job_that_did_not_end_are_found_and_removed() {
        each_store(|world| {
            let (other_job, older) = (begin(world, "18", 5), complete(world, "17", 4));
            let (killed, failed) = (begin(world, "17", 5), begin(world, "17", 6));
            Publication::of_copy(failed.clone(), None, true, some_time()).publish(world.store()).unwrap();
            assert_eq!(unfinished(world, "17"), [failed.clone(), killed.clone()]);
            assert_eq!(abandon_all_of(world, "17"), [failed, killed.clone()]);
            assert!(!world.store().contains(&killed));
            let left: Vec<_> = index::read(world.store()).unwrap().unwrap().entries();
            assert_eq!(left.iter().map(|entry| &entry.directory).collect::<Vec<_>>(), [&other_job, &older]);
        });
    }

    #[test]
    fn what_a_drain_left_and_what_is_the_only_copy_is_kept() {
        each_store(|world| {
            let only = begin(world, "17", 4);
            assert!(abandon_all_of(world, "17").is_empty());
            complete(world, "17", 3);
            let drained = begin(world, "17", 5);
            let filemap = RankFilemap { rank: Rank(0), id: CheckpointId(5), files: Vec::new(), expected: 1 };
            filemap.write(&*world.dataset(drained.as_str()), FilemapWriter::Copy).unwrap();
            assert_eq!(unfinished(world, "17"), std::slice::from_ref(&only));
            assert_eq!(abandon_all_of(world, "17"), [only]);
            assert!(world.store().contains(&drained));
        });
    }

    #[test]
    fn a_flush_that_lacks_only_its_mark_is_marked_as_complete() {
        each_store(|world| {
            let newer = complete(world, "17", 9);
            let copied = begin(world, "17", 8);
            super::summary::write(&*world.dataset(copied.as_str()), &summary(8)).unwrap();
            assert_eq!(unfinished(world, "17"), std::slice::from_ref(&copied));
            assert!(!abandon(world.store(), &copied).unwrap());
            let index = index::read(world.store()).unwrap().unwrap();
            assert_eq!(index.entry(&copied).unwrap().complete, Some(true));
            assert_eq!(world.store().current().unwrap(), Some(newer));
        });
    }

    #[test]
    fn an_entry_without_its_directory_is_removed() {
        each_store(|world| {
            complete(world, "17", 3);
            let lost = begin(world, "17", 4);
            world.take_away(lost.as_str());
            assert_eq!(abandon_all_of(world, "17"), [lost]);
            assert_eq!(index::read(world.store()).unwrap().unwrap().entries().len(), 1);
        });
    }
}
