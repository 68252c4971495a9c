//! Whether a dataset that a flush file lists as copied is still in the prefix directory, before its last other copy is
//! deleted.
//!
//! Only what costs little is examined: the index, the summary, and the size of each file. The content is not read.

use std::io;

use super::directory::{DirectoryName, Prefix};
use super::error::PrefixError;
use super::index::{self, IndexEntry};
use super::summary::SummaryFile;
use super::{dataset, fetch, summary};
use crate::dataset_files::{DatasetFiles, DatasetOpener, FoundFile};
use crate::workers;
use holdfast_model::CheckpointId;

/// Why no copy of a dataset can be used; `None` if one is complete, with all files of its summary in their sizes. Those
/// that this job wrote decide. If there is none, the dataset was fetched: that of an earlier job is examined. One that
/// the index does not list was copied by another program, elsewhere: only the flush file is known of it.
///
/// # Errors
/// The index cannot be read: nothing is known then.
pub fn damage(
    prefix: &Prefix,
    job: &str,
    id: CheckpointId,
    open: DatasetOpener,
) -> Result<Option<String>, PrefixError> {
    let mut entries = index::read(prefix)?.unwrap_or_default().entries();
    entries.retain(|entry| entry.id == id);
    let is_own = |entry: &IndexEntry| dataset::job_of(prefix, &entry.directory).is_some_and(|writer| writer == job);
    if entries.iter().any(is_own) {
        entries.retain(is_own);
    }
    let mut first = None;
    for entry in entries {
        match damage_of(prefix, &entry, open) {
            None => return Ok(None),
            Some(problem) => {
                first.get_or_insert(format!("{}: {problem}", entry.directory));
            }
        }
    }
    Ok(first)
}

/// The newest checkpoint that a restart would take from the prefix directory, with all files of its summary in their
/// sizes.
///
/// # Errors
/// The index or the link cannot be read.
pub fn newest_usable(prefix: &Prefix, open: DatasetOpener) -> Result<Option<CheckpointId>, PrefixError> {
    let candidates = fetch::candidates(prefix)?.into_iter();
    let mut usable = candidates.filter_map(|candidate| Some((candidate.id?, candidate.directory)));
    Ok(usable.find(|(id, directory)| files_damage(prefix, *id, directory, open).is_ok()).map(|(id, _)| id))
}

fn damage_of(prefix: &Prefix, entry: &IndexEntry, open: DatasetOpener) -> Option<String> {
    let IndexEntry { directory, complete, has_failed, id, .. } = entry;
    match complete {
        Some(true) if *has_failed => Some("a restart from it has failed".to_owned()),
        Some(true) => files_damage(prefix, *id, directory, open).err(),
        Some(false) | None => Some("the index does not list it as complete".to_owned()),
    }
}

fn files_damage(
    prefix: &Prefix,
    id: CheckpointId,
    directory: &DirectoryName,
    open: DatasetOpener,
) -> Result<(), String> {
    let path = prefix.checkpoint_path(directory);
    if !path.is_dir() {
        return Err("it does not exist".to_owned());
    }
    let summary = summary::read(&path).map_err(|error| error.to_string())?;
    if summary.id != id {
        return Err(format!("its summary is of checkpoint {}", summary.id));
    }
    summary.accept(summary.ranks).map_err(|refusal| refusal.to_string())?;
    let files = open(&path).map_err(|error| format!("it cannot be listed: {error}"))?;
    let recorded: Vec<&SummaryFile> =
        summary.by_rank.values().flat_map(|rank| &rank.files).filter(|file| file.fetch).collect();
    let examined = workers::map_small(&recorded, workers::default_threads(), |file| file_damage(&*files, file));
    if let Some(problem) = examined.into_iter().flatten().next() {
        return Err(problem);
    }
    // A file whose place in the container is lost may still be listed.
    match files.damaged_containers().into_iter().next() {
        Some((container, problem)) => Err(format!("{container}: {problem}")),
        None => Ok(()),
    }
}

fn file_damage(files: &dyn DatasetFiles, file: &SummaryFile) -> Option<String> {
    let name = &file.name;
    match files.examine(name, file.output_path.as_ref()) {
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
        Err(error) => Some(format!("{name} cannot be examined: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use chrono::NaiveDateTime;
    use holdfast_model::Rank;

    use super::super::summary::{RankFiles, Summary, SummaryFile, path_in};
    use super::*;
    use crate::dataset_files::PlainFiles;
    use crate::kvtree::file;

    const ID: CheckpointId = CheckpointId(5);

    /// Enters a complete dataset with one file for each of two ranks.
    fn add(prefix: &Prefix, job: &str) -> DirectoryName {
        let time = NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap();
        let directory = prefix.create_dataset_directory(time, job, ID, None).unwrap();
        let path = prefix.checkpoint_path(&directory);
        let mut by_rank = BTreeMap::new();
        for rank in 0..2 {
            let name = format!("rank_{rank}.ckpt");
            fs::write(path.join(&name), "content").unwrap();
            let listed = SummaryFile { name, size: Some(7), crc: None, fetch: true, failed: false, output_path: None };
            by_rank.insert(Rank(rank), RankFiles { expected: None, files: vec![listed] });
        }
        let summary = Summary { id: ID, ranks: 2, complete: true, by_rank };
        file::write(&path_in(&path), &summary.to_tree()).unwrap();
        index::update(prefix, |index| {
            index.add(ID, &directory, time);
            index.set_complete(&directory, true);
        })
        .unwrap();
        directory
    }

    fn damage_in(prefix: &Prefix) -> Option<String> {
        damage(prefix, "17", ID, PlainFiles::open_directory).unwrap()
    }

    #[test]
    fn a_copy_counts_only_with_its_entry_its_summary_and_each_file_in_its_size() {
        type Damage = fn(&Prefix, &DirectoryName);
        let damages: [(&str, Damage); 6] = [
            ("rank_1.ckpt does not exist", |prefix, directory| {
                fs::remove_file(prefix.checkpoint_path(directory).join("rank_1.ckpt")).unwrap();
            }),
            ("rank_0.ckpt has 3 bytes, and 7 are recorded", |prefix, directory| {
                fs::write(prefix.checkpoint_path(directory).join("rank_0.ckpt"), "cut").unwrap();
            }),
            ("summary", |prefix, directory| {
                fs::remove_file(path_in(&prefix.checkpoint_path(directory))).unwrap();
            }),
            ("it does not exist", |prefix, directory| {
                fs::remove_dir_all(prefix.checkpoint_path(directory)).unwrap();
            }),
            ("does not list it as complete", |prefix, directory| {
                index::update(prefix, |index| index.set_complete(directory, false)).unwrap();
            }),
            ("a restart from it has failed", |prefix, directory| {
                index::update(prefix, |index| index.mark_failed(directory, NaiveDateTime::default())).unwrap();
            }),
        ];
        for (expected, apply) in damages {
            let held = tempfile::tempdir().unwrap();
            let prefix = Prefix::open(held.path()).unwrap();
            let directory = add(&prefix, "17");
            assert_eq!(damage_in(&prefix), None, "{expected}");
            apply(&prefix, &directory);
            assert_eq!(newest_usable(&prefix, PlainFiles::open_directory).unwrap(), None, "{expected}");
            let found = damage_in(&prefix).unwrap();
            assert!(found.contains(expected), "{expected} in {found}");
        }
    }

    #[test]
    fn the_copy_of_an_earlier_job_counts_only_if_this_job_wrote_none() {
        let held = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(held.path()).unwrap();
        add(&prefix, "16");
        assert_eq!(damage_in(&prefix), None, "it was fetched");
        let own = add(&prefix, "17");
        assert_eq!(damage_in(&prefix), None);
        fs::remove_dir_all(prefix.checkpoint_path(&own)).unwrap();
        assert!(damage_in(&prefix).unwrap().contains("it does not exist"));
        add(&prefix, "17");
        assert_eq!(damage_in(&prefix), None, "one copy is enough");
        assert_eq!(newest_usable(&prefix, PlainFiles::open_directory).unwrap(), Some(ID));
    }

    #[test]
    fn a_copy_that_the_index_does_not_list_is_that_of_another_program() {
        let held = tempfile::tempdir().unwrap();
        assert_eq!(damage_in(&Prefix::open(held.path()).unwrap()), None);
    }

    #[test]
    fn an_index_that_cannot_be_read_decides_nothing() {
        let held = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(held.path()).unwrap();
        add(&prefix, "17");
        assert_eq!(newest_usable(&prefix, PlainFiles::open_directory).unwrap(), Some(ID));
        fs::write(prefix.path().join(index::INDEX_FILE), "damaged").unwrap();
        assert!(damage(&prefix, "17", ID, PlainFiles::open_directory).is_err());
    }
}
