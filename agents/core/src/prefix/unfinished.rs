//! The directories that flushes left unfinished: indexed, not complete, and without the files that only a drain or
//! `holdfast index add` writes.
//!
//! A flush is interrupted by the loss of its leader, by a new generation, or by the end of the job. As long as the
//! nodes have the dataset, the next flush or the drain continues in its directory; otherwise the directory cannot be
//! completed, and is removed. A directory that a drain left incomplete is kept: its files may be all that is left of
//! the dataset.

use std::io;

use super::delete::delete_if;
use super::directory::{DirectoryName, Prefix};
use super::error::PrefixError;
use super::index::IndexEntry;
use super::publish::Publication;
use super::{dataset, index, rank_filemap, summary};
use crate::dataset_files::DatasetOpener;
use holdfast_model::CheckpointId;

/// A directory that a flush left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedFlush {
    pub checkpoint: CheckpointId,
    pub directory: DirectoryName,
}

/// The unfinished flushes of a job, newest first. Datasets that the ranks write to the prefix directory themselves are
/// left out: nothing can be continued there.
///
/// # Errors
/// The index or a directory cannot be read.
pub fn of_job(prefix: &Prefix, job: &str, open: DatasetOpener) -> Result<Vec<UnfinishedFlush>, PrefixError> {
    let mut found = Vec::new();
    for entry in index::read(prefix)?.unwrap_or_default().entries() {
        if is_unfinished(prefix, &entry, job, open)? && !bypasses_the_cache(prefix, &entry.directory) {
            found.push((entry.flushed, UnfinishedFlush { checkpoint: entry.id, directory: entry.directory }));
        }
    }
    found.sort_by_key(|(flushed, found)| std::cmp::Reverse((found.checkpoint, *flushed)));
    Ok(found.into_iter().map(|(_, found)| found).collect())
}

fn is_unfinished(prefix: &Prefix, entry: &IndexEntry, job: &str, open: DatasetOpener) -> Result<bool, PrefixError> {
    let ours = dataset::job_of(prefix, &entry.directory).is_some_and(|of| of == job);
    Ok(ours && entry.complete != Some(true) && holds_only_a_flush(prefix, &entry.directory, open)?)
}

fn bypasses_the_cache(prefix: &Prefix, directory: &DirectoryName) -> bool {
    dataset::read(prefix, directory).is_ok_and(|dataset| dataset.is_some_and(|dataset| dataset.direct.is_some()))
}

/// True if neither a drain nor `index add` has written there. A missing directory holds nothing else.
fn holds_only_a_flush(prefix: &Prefix, directory: &DirectoryName, open: DatasetOpener) -> Result<bool, PrefixError> {
    let path = prefix.checkpoint_path(directory);
    let unreadable =
        |source| PrefixError::io("list", path.clone(), "check that you may read the checkpoint directory")(source);
    let listed = match open(&path).and_then(|files| files.list()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        listed => listed.map_err(unreadable)?,
    };
    if listed.iter().any(|file| file.name.ends_with(rank_filemap::SUFFIX)) {
        return Ok(false);
    }
    // A flush writes its summary when all files are there.
    Ok(match summary::read(&path) {
        Ok(summary) => summary.complete,
        Err(_) => !summary::path_in(&path).exists(),
    })
}

/// Ends a flush that is not continued: removes its directory and its entry. If all files were copied, and only the
/// entry was not marked as complete, it is marked now. Returns whether the directory was removed.
///
/// # Errors
/// The first step that failed. It can be repeated.
pub fn abandon(prefix: &Prefix, directory: &DirectoryName) -> Result<bool, PrefixError> {
    let path = prefix.checkpoint_path(directory);
    let entry = index::read(prefix)?.unwrap_or_default().entry(directory);
    let now = entry.and_then(|entry| entry.flushed).unwrap_or_default();
    if let Ok(summary) = summary::read(&path)
        && summary.complete
    {
        // The link stays: a restart chooses between the complete entries by itself.
        Publication::of_copy(directory.clone(), Some(summary), false, now).publish(prefix)?;
        return Ok(false);
    }
    delete_if(prefix, directory, |entry| entry.is_none_or(|entry| entry.complete != Some(true)))
}

/// Ends all unfinished flushes of a job that has a complete dataset in the index, and returns the directories that were
/// removed. Without a complete dataset all are kept: their files may be all that is left.
///
/// # Errors
/// As [`of_job`] and [`abandon`].
pub fn abandon_all(prefix: &Prefix, job: &str, open: DatasetOpener) -> Result<Vec<DirectoryName>, PrefixError> {
    let entries = index::read(prefix)?.unwrap_or_default().entries();
    let mut removed = Vec::new();
    if !entries.iter().any(|entry| entry.complete == Some(true)) {
        return Ok(removed);
    }
    let current = prefix.current()?;
    for entry in entries {
        if current.as_ref() != Some(&entry.directory)
            && is_unfinished(prefix, &entry, job, open)?
            && abandon(prefix, &entry.directory)?
        {
            removed.push(entry.directory);
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset_files::PlainFiles;
    use crate::prefix::Summary;
    use crate::prefix::rank_filemap::{FilemapWriter, RankFilemap};
    use chrono::NaiveDateTime;
    use holdfast_model::{Dataset, Rank};
    use std::collections::BTreeMap;
    use std::fs;

    struct World {
        _scratch: tempfile::TempDir,
        prefix: Prefix,
    }

    fn time() -> NaiveDateTime {
        NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap()
    }

    fn summary(id: u64) -> Summary {
        Summary { id: CheckpointId(id), ranks: 0, complete: true, by_rank: BTreeMap::new() }
    }

    impl World {
        fn new() -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let prefix = Prefix::open(scratch.path()).unwrap();
            World { _scratch: scratch, prefix }
        }

        /// A flush that was killed.
        fn begin(&self, job: &str, id: u64) -> DirectoryName {
            let name = self.prefix.create_checkpoint_directory(time(), job, CheckpointId(id)).unwrap();
            crate::prefix::publish::begin(&self.prefix, CheckpointId(id), &name, &Dataset::default(), job, time())
                .unwrap();
            fs::write(self.prefix.checkpoint_path(&name).join("rank_0.ckpt"), "half").unwrap();
            name
        }

        fn complete(&self, job: &str, id: u64) -> DirectoryName {
            let name = self.begin(job, id);
            Publication::of_copy(name.clone(), Some(summary(id)), true, time()).publish(&self.prefix).unwrap();
            name
        }

        fn unfinished(&self, job: &str) -> Vec<DirectoryName> {
            of_job(&self.prefix, job, PlainFiles::open_directory)
                .unwrap()
                .into_iter()
                .map(|flush| flush.directory)
                .collect()
        }
    }

    #[test]
    fn only_flushes_of_the_job_that_did_not_end_are_found_and_removed() {
        let world = World::new();
        let (other_job, older) = (world.begin("18", 5), world.complete("17", 4));
        let (killed, failed) = (world.begin("17", 5), world.begin("17", 6));
        Publication::of_copy(failed.clone(), None, true, time()).publish(&world.prefix).unwrap();
        assert_eq!(world.unfinished("17"), [failed.clone(), killed.clone()]);
        let removed = abandon_all(&world.prefix, "17", PlainFiles::open_directory).unwrap();
        assert_eq!(removed, [failed, killed.clone()]);
        assert!(!world.prefix.checkpoint_path(&killed).exists());
        let left: Vec<_> = index::read(&world.prefix).unwrap().unwrap().entries();
        assert_eq!(left.iter().map(|entry| &entry.directory).collect::<Vec<_>>(), [&other_job, &older]);
    }

    #[test]
    fn what_a_drain_left_and_what_is_the_only_copy_is_kept() {
        let world = World::new();
        let only = world.begin("17", 4);
        assert!(abandon_all(&world.prefix, "17", PlainFiles::open_directory).unwrap().is_empty());
        world.complete("17", 3);
        let drained = world.begin("17", 5);
        let filemap = RankFilemap { rank: Rank(0), id: CheckpointId(5), files: Vec::new(), expected: 1 };
        filemap.write(&world.prefix.checkpoint_path(&drained), FilemapWriter::Copy).unwrap();
        assert_eq!(world.unfinished("17"), std::slice::from_ref(&only));
        assert_eq!(abandon_all(&world.prefix, "17", PlainFiles::open_directory).unwrap(), [only]);
        assert!(world.prefix.checkpoint_path(&drained).is_dir());
    }

    #[test]
    fn a_flush_that_lacks_only_its_mark_is_marked_as_complete() {
        let world = World::new();
        let newer = world.complete("17", 9);
        let copied = world.begin("17", 8);
        summary::write(&world.prefix.checkpoint_path(&copied), &summary(8)).unwrap();
        assert_eq!(world.unfinished("17"), std::slice::from_ref(&copied));
        assert!(!abandon(&world.prefix, &copied).unwrap());
        let index = index::read(&world.prefix).unwrap().unwrap();
        assert_eq!(index.entry(&copied).unwrap().complete, Some(true));
        assert_eq!(world.prefix.current().unwrap(), Some(newer));
    }

    #[test]
    fn an_entry_without_its_directory_is_removed() {
        let world = World::new();
        world.complete("17", 3);
        let lost = world.begin("17", 4);
        fs::remove_dir_all(world.prefix.checkpoint_path(&lost)).unwrap();
        assert_eq!(abandon_all(&world.prefix, "17", PlainFiles::open_directory).unwrap(), [lost]);
        assert_eq!(index::read(&world.prefix).unwrap().unwrap().entries().len(), 1);
    }
}
