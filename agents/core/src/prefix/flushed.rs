//! Whether a dataset that a flush file lists as copied is still in the prefix directory, before its last other copy is
//! deleted.
//!
//! Only what costs little is examined: the index, the summary, and the size of each file. The content is not read.

use std::io;

use super::index::{self, IndexEntry};
use super::summary::SummaryFile;
use super::{dataset, fetch, summary};
use crate::store::{
    DatasetAccess, DatasetFiles, DatasetOpener, DatasetStore, DirectoryName, FoundFile, PrefixError, Result,
    known_or_reason,
};
use crate::workers;
use holdfast_model::CheckpointId;

/// What is known of the copy of a dataset that a flush file lists as copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlushedCopy {
    /// It is complete, with all files of its summary in their sizes.
    Complete,
    /// The index does not list it: it was copied to another prefix directory, or by another program, and only the flush
    /// file is known of it.
    Unlisted,
    /// Why no copy can be used.
    Damaged(String),
}

/// Examines the copies of a dataset: one that is complete is enough. Those that this job wrote decide. If there is
/// none, the dataset was fetched: that of an earlier job is examined.
///
/// # Errors
/// The index cannot be read: nothing is known then.
pub fn examine(store: &dyn DatasetStore, job: &str, id: CheckpointId, open: DatasetOpener) -> Result<FlushedCopy> {
    let mut entries = index::read(store)?.unwrap_or_default().entries();
    entries.retain(|entry| entry.id == id);
    let is_own = |entry: &IndexEntry| dataset::job_of(store, &entry.directory).is_some_and(|writer| writer == job);
    if entries.iter().any(is_own) {
        entries.retain(is_own);
    }
    let mut first = None;
    for entry in entries {
        match damage_of(store, &entry, open) {
            None => return Ok(FlushedCopy::Complete),
            Some(problem) => {
                first.get_or_insert(format!("{}: {problem}", entry.directory));
            }
        }
    }
    Ok(first.map_or(FlushedCopy::Unlisted, FlushedCopy::Damaged))
}

/// The newest checkpoint that a restart would take from the prefix directory, with all files of its summary in their
/// sizes.
pub fn newest_usable(store: &dyn DatasetStore, open: DatasetOpener) -> Result<Option<CheckpointId>> {
    let candidates = fetch::candidates(store)?.into_iter();
    let mut usable = candidates.filter_map(|candidate| Some((candidate.id?, candidate.directory)));
    let is_usable =
        |id: CheckpointId, directory: &DirectoryName| matches!(files_damage(store, id, directory, open), Ok(None));
    Ok(usable.find(|(id, directory)| is_usable(*id, directory)).map(|(id, _)| id))
}

fn damage_of(store: &dyn DatasetStore, entry: &IndexEntry, open: DatasetOpener) -> Option<String> {
    let IndexEntry { directory, complete, has_failed, id, .. } = entry;
    match complete {
        Some(true) if *has_failed => Some("a restart from it has failed".to_owned()),
        // A copy that cannot be examined is not relied on.
        Some(true) => files_damage(store, *id, directory, open).unwrap_or_else(|error| Some(error.to_string())),
        Some(false) | None => Some("the index does not list it as complete".to_owned()),
    }
}

/// Why a copy cannot be used: its summary, or a file that is missing or has another size. `None` if it can be.
///
/// # Errors
/// The file system fails: nothing is known then.
pub(super) fn files_damage(
    store: &dyn DatasetStore,
    id: CheckpointId,
    directory: &DirectoryName,
    open: DatasetOpener,
) -> Result<Option<String>> {
    let unlisted = || PrefixError::io("list", store.path_of(directory), "check that its disk works");
    let dataset = match store.open(directory, DatasetAccess::Read) {
        Err(error) if error.is_missing() => return Ok(Some("it does not exist".to_owned())),
        dataset => dataset.and_then(|dataset| Ok((summary::read(&*dataset)?, open(dataset).map_err(unlisted())?))),
    };
    let (summary, files) = match known_or_reason(dataset)? {
        Ok(found) => found,
        Err(reason) => return Ok(Some(reason)),
    };
    if summary.id != id {
        return Ok(Some(format!("its summary is of checkpoint {}", summary.id)));
    }
    if let Err(refusal) = summary.accept(summary.ranks) {
        return Ok(Some(refusal.to_string()));
    }
    let recorded: Vec<&SummaryFile> =
        summary.by_rank.values().flat_map(|rank| &rank.files).filter(|file| file.fetch).collect();
    let examined = workers::map_small(&recorded, workers::default_threads(), |file| file_damage(&*files, file));
    for examined in examined {
        let examined = examined.map_err(unlisted());
        match known_or_reason(examined)? {
            Ok(None) => {}
            Ok(problem) => return Ok(problem),
            Err(reason) => return Ok(Some(reason)),
        }
    }
    // A file whose place in the container is lost may still be listed.
    let container = files.damaged_containers().into_iter().next();
    Ok(container.map(|(container, problem)| format!("{container}: {problem}")))
}

fn file_damage(files: &dyn DatasetFiles, file: &SummaryFile) -> io::Result<Option<String>> {
    let name = &file.name;
    Ok(match files.examine(name, file.output_path.as_ref()) {
        Ok(FoundFile::Regular(size)) if Some(size) == file.size => None,
        Ok(FoundFile::Regular(size)) => {
            let recorded = file.size.unwrap_or_default();
            Some(format!("{name} has {size} bytes, and {recorded} are recorded"))
        }
        Ok(FoundFile::Other) => Some(format!("{name} is no regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A file in a container is lost with it.
            let container = files.damaged_containers().into_iter().chain(files.containers_without_first_file());
            let container = container.map(|(container, problem)| format!(", and {container}: {problem}"));
            let container: String = container.take(1).collect();
            Some(format!("{name} does not exist{container}"))
        }
        Err(error) => return Err(io::Error::new(error.kind(), format!("{name} cannot be examined: {error}"))),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chrono::NaiveDateTime;
    use holdfast_model::Rank;

    use super::super::new_directory;
    use super::super::summary::{RankFiles, Summary, SummaryFile};
    use super::super::tests::world::{PosixWorld, TestStore, each_store, some_time};
    use super::*;
    use crate::store::dataset_files::open_plain;

    const ID: CheckpointId = CheckpointId(5);

    /// Enters a complete dataset with one file for each of two ranks.
    fn add(world: &dyn TestStore, job: &str) -> DirectoryName {
        let directory = new_directory::create(world.store(), some_time(), job, ID, None).unwrap();
        let mut by_rank = BTreeMap::new();
        for rank in 0..2 {
            let name = format!("rank_{rank}.ckpt");
            world.put(&format!("{directory}/{name}"), b"content");
            let listed = SummaryFile { name, size: Some(7), crc: None, fetch: true, failed: false, output_path: None };
            by_rank.insert(Rank(rank), RankFiles { expected: None, files: vec![listed] });
        }
        let summary = Summary { id: ID, ranks: 2, complete: true, by_rank };
        summary::write(&*world.dataset(directory.as_str()), &summary).unwrap();
        index::update(world.store(), |index| {
            index.add(ID, &directory, some_time());
            index.set_complete(&directory, true);
        })
        .unwrap();
        directory
    }

    fn examined(world: &dyn TestStore) -> FlushedCopy {
        examine(world.store(), "17", ID, open_plain).unwrap()
    }

    fn damage_in(world: &dyn TestStore) -> String {
        let FlushedCopy::Damaged(problem) = examined(world) else { panic!("it is not damaged") };
        problem
    }

    #[test]
    fn a_copy_counts_only_with_its_entry_its_summary_and_each_file_in_its_size() {
        type Damage = fn(&dyn TestStore, &DirectoryName);
        let damages: [(&str, Damage); 6] = [
            ("rank_1.ckpt does not exist", |world, directory| world.take_away(&format!("{directory}/rank_1.ckpt"))),
            ("rank_0.ckpt has 3 bytes, and 7 are recorded", |world, directory| {
                world.put(&format!("{directory}/rank_0.ckpt"), b"cut");
            }),
            ("summary", |world, directory| world.take_away(&format!("{directory}/summary.scr"))),
            ("it does not exist", |world, directory| world.take_away(directory.as_str())),
            ("does not list it as complete", |world, directory| {
                index::update(world.store(), |index| index.set_complete(directory, false)).unwrap();
            }),
            ("a restart from it has failed", |world, directory| {
                let when = NaiveDateTime::default();
                index::update(world.store(), |index| index.mark_failed(directory, when, None)).unwrap();
            }),
        ];
        for (expected, apply) in damages {
            each_store(|world| {
                let directory = add(world, "17");
                assert_eq!(examined(world), FlushedCopy::Complete, "{expected}");
                apply(world, &directory);
                assert_eq!(newest_usable(world.store(), open_plain).unwrap(), None, "{expected}");
                let found = damage_in(world);
                assert!(found.contains(expected), "{expected} in {found}");
            });
        }
    }

    #[test]
    fn the_copy_of_an_earlier_job_counts_only_if_this_job_wrote_none() {
        each_store(|world| {
            add(world, "16");
            assert_eq!(examined(world), FlushedCopy::Complete, "it was fetched");
            let own = add(world, "17");
            assert_eq!(examined(world), FlushedCopy::Complete);
            world.take_away(own.as_str());
            assert!(damage_in(world).contains("it does not exist"));
            add(world, "17");
            assert_eq!(examined(world), FlushedCopy::Complete, "one copy is enough");
            assert_eq!(newest_usable(world.store(), open_plain).unwrap(), Some(ID));
        });
    }

    #[test]
    fn a_copy_that_the_index_does_not_list_is_elsewhere() {
        each_store(|world| assert_eq!(examined(world), FlushedCopy::Unlisted));
    }

    #[test]
    fn an_index_that_cannot_be_read_decides_nothing() {
        let world = PosixWorld::new();
        add(&world, "17");
        assert_eq!(newest_usable(world.store(), open_plain).unwrap(), Some(ID));
        world.put(index::INDEX_FILE, b"damaged");
        assert!(examine(world.store(), "17", ID, open_plain).is_err());
    }
}
