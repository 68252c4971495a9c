//! The directory that a drain or a flush of the same dataset left incomplete, so that another drain can complete it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use holdfast_core::owned::OwnedError;
use holdfast_core::prefix::index::IndexEntry;
use holdfast_core::prefix::{dataset, index};
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;
use holdfast_core::store::{DatasetStore, DirectoryName};
use holdfast_model::CheckpointId;
use serde::{Deserialize, Serialize};

use super::error::PrefixStepError;

/// The record has a few hundred bytes.
const LARGEST_RECORD: u64 = 64 << 10;
/// A name for each dataset of a prefix directory that was left incomplete.
const LARGEST_LIST: u64 = 16 << 20;

/// The drain that is under way, in `.holdfast/drain.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DrainRecord {
    job_id: String,
    checkpoint: CheckpointId,
    directory: String,
}

fn path(store: &dyn DatasetStore) -> PathBuf {
    StateDirectory::below(store.location()).join("drain.json")
}

/// The directories that are not continued, in `.holdfast/superseded.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Superseded {
    directories: BTreeSet<String>,
}

fn superseded_path(store: &dyn DatasetStore) -> PathBuf {
    StateDirectory::below(store.location()).join("superseded.json")
}

/// The list; empty if there is none yet.
fn superseded(store: &dyn DatasetStore) -> Result<Superseded, PrefixStepError> {
    let path = superseded_path(store);
    let Some(text) = state_files::read(&path, LARGEST_LIST)? else { return Ok(Superseded::default()) };
    serde_json::from_slice(&text).map_err(|error| PrefixStepError::Superseded { path, problem: error.to_string() })
}

/// The application goes on from this checkpoint, or from none: a dataset with a higher number will be another one. A
/// drain of it must not continue a directory with files of the earlier one: if a file cannot be copied, that of the
/// earlier dataset would be taken for it. The list is changed under the lock of the index.
///
/// # Errors
/// The index or the list cannot be read, or [`PrefixStepError::Owned`]. The list is then as it was.
pub fn supersede(store: &dyn DatasetStore, job_id: &str, from: Option<CheckpointId>) -> Result<(), PrefixStepError> {
    index::update(store, |index| extend_superseded(store, job_id, from, index.entries()))?
}

fn extend_superseded(
    store: &dyn DatasetStore,
    job_id: &str,
    from: Option<CheckpointId>,
    entries: Vec<IndexEntry>,
) -> Result<(), PrefixStepError> {
    let is_newer = |checkpoint| from.is_none_or(|from| checkpoint > from);
    let mut left: Vec<DirectoryName> = entries
        .into_iter()
        .filter(|entry| is_newer(entry.id) && entry.complete != Some(true))
        .filter(|entry| dataset::job_of(store, &entry.directory).is_some_and(|job| job == job_id))
        .map(|entry| entry.directory)
        .collect();
    let killed = read_record(&path(store))?.filter(|record| record.job_id == job_id && is_newer(record.checkpoint));
    left.extend(killed.and_then(|record| DirectoryName::new(record.directory).ok()));
    let mut known = superseded(store)?;
    let before = known.clone();
    known.directories.extend(left.iter().map(|directory| directory.as_str().to_owned()));
    if known == before {
        return Ok(());
    }
    known.directories.retain(|name| DirectoryName::new(name.clone()).is_ok_and(|directory| store.contains(&directory)));
    StateDirectory::below(store.location()).create()?;
    let mut text = serde_json::json!(known).to_string();
    text.push('\n');
    Ok(state_files::replace(&superseded_path(store), text.as_bytes())?)
}

/// Records which directory is written, before the first file is copied. If an earlier drain was killed while it wrote
/// another one, that is entered into the index as incomplete: another drain of its dataset continues there.
///
/// # Errors
/// [`PrefixStepError::Owned`].
pub fn begin(
    store: &dyn DatasetStore,
    job_id: &str,
    checkpoint: CheckpointId,
    directory: &DirectoryName,
) -> Result<(), PrefixStepError> {
    let record = DrainRecord { job_id: job_id.to_owned(), checkpoint, directory: directory.as_str().to_owned() };
    let path = path(store);
    if let Some(killed) = read_record(&path)?
        && let Ok(left) = DirectoryName::new(killed.directory)
        && left != *directory
        && store.contains(&left)
    {
        let now = left.parts().map(|parts| parts.stamp).unwrap_or_default();
        index::update(store, |index| {
            if index.entry(&left).is_none() {
                index.add(killed.checkpoint, &left, now);
                index.set_complete(&left, false);
            }
        })?;
    }
    StateDirectory::below(store.location()).create()?;
    let mut text = serde_json::json!(record).to_string();
    text.push('\n');
    Ok(state_files::replace(&path, text.as_bytes())?)
}

/// Removes the record: the dataset is complete.
///
/// # Errors
/// [`PrefixStepError::Owned`].
pub fn end(store: &dyn DatasetStore) -> Result<(), PrefixStepError> {
    state_files::remove(&path(store))?;
    Ok(())
}

/// The directory of the drain that is under way, or was killed.
pub fn under_way(store: &dyn DatasetStore) -> Option<DirectoryName> {
    let record = read_record(&path(store)).ok().flatten();
    record.and_then(|record| DirectoryName::new(record.directory).ok())
}

/// The directory to continue: of a drain that was killed, or else the newest of a drain or flush that is indexed and
/// not complete. SCR leaves the directory of a killed flush as it is and copies to another one. A directory that was
/// [superseded](supersede) is not continued; none is if the list of them is damaged.
///
/// # Errors
/// The index, the record or the list cannot be read.
pub fn directory_of(
    store: &dyn DatasetStore,
    job_id: &str,
    checkpoint: CheckpointId,
) -> Result<Option<DirectoryName>, PrefixStepError> {
    let superseded = match superseded(store) {
        Ok(superseded) => superseded,
        Err(error @ PrefixStepError::Owned(OwnedError::Io { .. })) => return Err(error),
        Err(error) => {
            tracing::warn!(%error, "no_directory_is_continued");
            return Ok(None);
        }
    };
    if let Some(record) = read_record(&path(store))?
        && record.job_id == job_id
        && record.checkpoint == checkpoint
        && !superseded.directories.contains(&record.directory)
        && let Ok(directory) = DirectoryName::new(record.directory)
        && store.contains(&directory)
    {
        return Ok(Some(directory));
    }
    let entries = index::read(store)?.unwrap_or_default().entries();
    let incomplete = entries.into_iter().filter_map(|entry| {
        let continued = entry.id == checkpoint
            && entry.complete != Some(true)
            && !superseded.directories.contains(entry.directory.as_str())
            && store.contains(&entry.directory)
            && dataset::job_of(store, &entry.directory).is_some_and(|job| job == job_id);
        continued.then_some((entry.flushed, entry.directory))
    });
    Ok(incomplete.max_by_key(|(flushed, _)| *flushed).map(|(_, directory)| directory))
}

/// A record that is damaged, or is not ours, is ignored: the drain then begins in a new directory.
///
/// # Errors
/// It cannot be read: the directory that it names would never be completed.
fn read_record(path: &Path) -> Result<Option<DrainRecord>, PrefixStepError> {
    match state_files::read(path, LARGEST_RECORD) {
        Ok(text) => Ok(text.and_then(|text| serde_json::from_slice(&text).ok())),
        Err(error @ OwnedError::Io { .. }) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::prefix::new_directory;
    use holdfast_core::store::{DatasetAccess, PosixStore};

    use super::*;
    use chrono::NaiveDateTime;

    fn time() -> NaiveDateTime {
        NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap()
    }

    fn store() -> (tempfile::TempDir, PosixStore) {
        let base = tempfile::tempdir().unwrap();
        let prefix = PosixStore::open(base.path()).unwrap();
        (base, prefix)
    }

    #[test]
    fn a_drain_that_was_killed_is_continued_in_its_directory() {
        let (_base, prefix) = store();
        let directory = new_directory::create(&prefix, time(), "17", CheckpointId(3), None).unwrap();
        begin(&prefix, "17", CheckpointId(3), &directory).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), Some(directory));
        assert_eq!(directory_of(&prefix, "18", CheckpointId(3)).unwrap(), None);
        assert_eq!(directory_of(&prefix, "17", CheckpointId(4)).unwrap(), None);
        end(&prefix).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), None);
    }

    #[test]
    fn an_incomplete_drain_and_a_killed_flush_are_continued_and_a_complete_dataset_is_not() {
        let (_base, prefix) = store();
        let directory = new_directory::create(&prefix, time(), "17", CheckpointId(3), None).unwrap();
        index::update(&prefix, |index| index.add(CheckpointId(3), &directory, time())).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), Some(directory.clone()));
        index::update(&prefix, |index| index.set_complete(&directory, false)).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), Some(directory.clone()));
        index::update(&prefix, |index| index.set_complete(&directory, true)).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), None);
    }

    #[test]
    fn a_killed_drain_of_another_dataset_is_entered_into_the_index_and_continued_later() {
        let (_base, prefix) = store();
        let make = |id| new_directory::create(&prefix, time(), "17", CheckpointId(id), None).unwrap();
        let (killed, next) = (make(4), make(3));
        begin(&prefix, "17", CheckpointId(4), &killed).unwrap();
        begin(&prefix, "17", CheckpointId(3), &next).unwrap();
        let entries = index::read(&prefix).unwrap().unwrap().entries();
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!((&entries[0].directory, entries[0].complete), (&killed, Some(false)));
        assert_eq!(directory_of(&prefix, "17", CheckpointId(4)).unwrap(), Some(killed));
    }

    #[test]
    fn what_a_restart_supersedes_is_not_continued() {
        let (_base, prefix) = store();
        let make = |job, id| new_directory::create(&prefix, time(), job, CheckpointId(id), None).unwrap();
        let enter = |id, directory: &DirectoryName| {
            index::update(&prefix, |index| index.add(CheckpointId(id), directory, time())).unwrap();
        };
        let known = |job, id| directory_of(&prefix, job, CheckpointId(id)).unwrap();
        let (third, fourth, fifth, other) = (make("17", 3), make("17", 4), make("17", 5), make("18", 4));
        [(3, &third), (4, &fourth), (4, &other)].into_iter().for_each(|(id, directory)| enter(id, directory));
        begin(&prefix, "17", CheckpointId(5), &fifth).unwrap();
        assert_eq!(
            [known("17", 3), known("17", 4), known("17", 5)],
            [&third, &fourth, &fifth].map(|d| Some(d.clone()))
        );
        supersede(&prefix, "17", Some(CheckpointId(3))).unwrap();
        assert_eq!([known("17", 3), known("17", 4), known("17", 5)], [Some(third.clone()), None, None]);
        assert_eq!(known("18", 4), Some(other));
        // What is written afterwards is.
        let again = new_directory::create(&prefix, time(), "17", CheckpointId(4), Some("again")).unwrap();
        enter(4, &again);
        dataset::write(&named("again"), "17", &*prefix.open(&again, DatasetAccess::Write).unwrap()).unwrap();
        supersede(&prefix, "17", Some(CheckpointId(4))).unwrap();
        assert_eq!(known("17", 4), Some(again));
        supersede(&prefix, "17", None).unwrap();
        assert_eq!([known("17", 3), known("17", 4)], [None, None]);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_kept_and_no_directory_is_continued_meanwhile() {
        let (_base, prefix) = store();
        let directory = new_directory::create(&prefix, time(), "17", CheckpointId(3), None).unwrap();
        index::update(&prefix, |index| index.add(CheckpointId(3), &directory, time())).unwrap();
        let damaged = r#"{"directories":["scr.2"#;
        state_files::replace(&superseded_path(&prefix), damaged.as_bytes()).unwrap();
        let error = supersede(&prefix, "17", None).unwrap_err().to_string();
        assert!(error.contains("superseded.json"), "{error}");
        assert_eq!(std::fs::read_to_string(superseded_path(&prefix)).unwrap(), damaged);
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), None);
    }

    #[test]
    fn restarts_that_are_recorded_at_the_same_time_are_all_in_the_list() {
        let (_base, prefix) = store();
        let jobs: Vec<String> = (0..16).map(|job| format!("{job}")).collect();
        for job in &jobs {
            let directory = new_directory::create(&prefix, time(), job, CheckpointId(3), None).unwrap();
            index::update(&prefix, |index| index.add(CheckpointId(3), &directory, time())).unwrap();
        }
        std::thread::scope(|scope| {
            for job in &jobs {
                scope.spawn(|| supersede(&prefix, job, None).unwrap());
            }
        });
        assert_eq!(superseded(&prefix).unwrap().directories.len(), jobs.len());
        assert!(jobs.iter().all(|job| directory_of(&prefix, job, CheckpointId(3)).unwrap().is_none()));
    }

    fn named(name: &str) -> holdfast_model::Dataset {
        holdfast_model::Dataset { name: Some(name.to_owned()), ..holdfast_model::Dataset::default() }
    }
}
