//! The directory that a drain or a flush of the same dataset left incomplete, so that another drain can complete it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use holdfast_core::prefix::{DirectoryName, Prefix, dataset, index};
use holdfast_model::CheckpointId;
use serde::{Deserialize, Serialize};

use super::error::PrefixStepError;
use crate::host::own_files;

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

fn path(prefix: &Prefix) -> PathBuf {
    prefix.path().join(own_files::OWN).join("drain.json")
}

/// The directories that are not continued, in `.holdfast/superseded.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Superseded {
    directories: BTreeSet<String>,
}

fn superseded_path(prefix: &Prefix) -> PathBuf {
    prefix.path().join(own_files::OWN).join("superseded.json")
}

fn superseded(prefix: &Prefix) -> Superseded {
    let text = own_files::read(&superseded_path(prefix), LARGEST_LIST).ok().flatten();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// The application goes on from this checkpoint, or from none: a dataset with a higher number will be another one. A
/// drain of it must not continue a directory with files of the earlier one: if a file cannot be copied, that of the
/// earlier dataset would be taken for it.
///
/// # Errors
/// The index cannot be read, or [`PrefixStepError::Owned`].
pub fn supersede(prefix: &Prefix, job_id: &str, from: Option<CheckpointId>) -> Result<(), PrefixStepError> {
    let is_newer = |checkpoint| from.is_none_or(|from| checkpoint > from);
    let mut left: Vec<DirectoryName> = index::read(prefix)?
        .unwrap_or_default()
        .entries()
        .into_iter()
        .filter(|entry| is_newer(entry.id) && entry.complete != Some(true))
        .filter(|entry| dataset::job_of(prefix, &entry.directory).is_some_and(|job| job == job_id))
        .map(|entry| entry.directory)
        .collect();
    let killed = read_record(&path(prefix)).filter(|record| record.job_id == job_id && is_newer(record.checkpoint));
    left.extend(killed.and_then(|record| DirectoryName::new(record.directory).ok()));
    let mut known = superseded(prefix);
    let before = known.clone();
    known.directories.extend(left.iter().map(|directory| directory.as_str().to_owned()));
    if known == before {
        return Ok(());
    }
    known.directories.retain(|name| {
        DirectoryName::new(name.clone()).is_ok_and(|directory| prefix.checkpoint_path(&directory).is_dir())
    });
    own_files::create_directory(&prefix.path().join(own_files::OWN))?;
    let mut text = serde_json::json!(known).to_string();
    text.push('\n');
    Ok(own_files::replace(&superseded_path(prefix), text.as_bytes())?)
}

/// Records which directory is written, before the first file is copied. If an earlier drain was killed while it wrote
/// another one, that is entered into the index as incomplete: another drain of its dataset continues there.
///
/// # Errors
/// [`PrefixStepError::Owned`].
pub fn begin(
    prefix: &Prefix,
    job_id: &str,
    checkpoint: CheckpointId,
    directory: &DirectoryName,
) -> Result<(), PrefixStepError> {
    let record = DrainRecord { job_id: job_id.to_owned(), checkpoint, directory: directory.as_str().to_owned() };
    let path = path(prefix);
    if let Some(killed) = read_record(&path)
        && let Ok(left) = DirectoryName::new(killed.directory)
        && left != *directory
        && prefix.checkpoint_path(&left).is_dir()
    {
        let now = left.parts().map(|parts| parts.stamp).unwrap_or_default();
        index::update(prefix, |index| {
            if index.entry(&left).is_none() {
                index.add(killed.checkpoint, &left, now);
                index.set_complete(&left, false);
            }
        })?;
    }
    own_files::create_directory(path.parent().unwrap_or(Path::new(".")))?;
    let mut text = serde_json::json!(record).to_string();
    text.push('\n');
    Ok(own_files::replace(&path, text.as_bytes())?)
}

/// Removes the record: the dataset is complete.
///
/// # Errors
/// [`PrefixStepError::Owned`].
pub fn end(prefix: &Prefix) -> Result<(), PrefixStepError> {
    own_files::remove(&path(prefix))?;
    Ok(())
}

/// The directory of the drain that is under way, or was killed.
pub fn under_way(prefix: &Prefix) -> Option<DirectoryName> {
    read_record(&path(prefix)).and_then(|record| DirectoryName::new(record.directory).ok())
}

/// The directory to continue: of a drain that was killed, or else the newest of a drain or flush that is indexed and
/// not complete. SCR leaves the directory of a killed flush as it is and copies to another one. A directory that was
/// [superseded](supersede) is not continued.
///
/// # Errors
/// The index cannot be read.
pub fn directory_of(
    prefix: &Prefix,
    job_id: &str,
    checkpoint: CheckpointId,
) -> Result<Option<DirectoryName>, PrefixStepError> {
    let superseded = superseded(prefix);
    if let Some(record) = read_record(&path(prefix))
        && record.job_id == job_id
        && record.checkpoint == checkpoint
        && !superseded.directories.contains(&record.directory)
        && let Ok(directory) = DirectoryName::new(record.directory)
        && prefix.checkpoint_path(&directory).is_dir()
    {
        return Ok(Some(directory));
    }
    let entries = index::read(prefix)?.unwrap_or_default().entries();
    let incomplete = entries.into_iter().filter_map(|entry| {
        let continued = entry.id == checkpoint
            && entry.complete != Some(true)
            && !superseded.directories.contains(entry.directory.as_str())
            && prefix.checkpoint_path(&entry.directory).is_dir()
            && dataset::job_of(prefix, &entry.directory).is_some_and(|job| job == job_id);
        continued.then_some((entry.flushed, entry.directory))
    });
    Ok(incomplete.max_by_key(|(flushed, _)| *flushed).map(|(_, directory)| directory))
}

/// A record that cannot be read, or is not ours, is ignored: the drain then begins in a new directory.
fn read_record(path: &Path) -> Option<DrainRecord> {
    let text = own_files::read(path, LARGEST_RECORD).ok()??;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::NaiveDateTime;

    fn time() -> NaiveDateTime {
        NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap()
    }

    #[test]
    fn a_drain_that_was_killed_is_continued_in_its_directory() {
        let base = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(base.path()).unwrap();
        let directory = prefix.create_checkpoint_directory(time(), "17", CheckpointId(3)).unwrap();
        begin(&prefix, "17", CheckpointId(3), &directory).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), Some(directory));
        assert_eq!(directory_of(&prefix, "18", CheckpointId(3)).unwrap(), None);
        assert_eq!(directory_of(&prefix, "17", CheckpointId(4)).unwrap(), None);
        end(&prefix).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), None);
    }

    #[test]
    fn an_incomplete_drain_and_a_killed_flush_are_continued_and_a_complete_dataset_is_not() {
        let base = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(base.path()).unwrap();
        let directory = prefix.create_checkpoint_directory(time(), "17", CheckpointId(3)).unwrap();
        index::update(&prefix, |index| index.add(CheckpointId(3), &directory, time())).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), Some(directory.clone()));
        index::update(&prefix, |index| index.set_complete(&directory, false)).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), Some(directory.clone()));
        index::update(&prefix, |index| index.set_complete(&directory, true)).unwrap();
        assert_eq!(directory_of(&prefix, "17", CheckpointId(3)).unwrap(), None);
    }

    #[test]
    fn a_killed_drain_of_another_dataset_is_entered_into_the_index_and_continued_later() {
        let base = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(base.path()).unwrap();
        let make = |id| prefix.create_checkpoint_directory(time(), "17", CheckpointId(id)).unwrap();
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
        let base = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(base.path()).unwrap();
        let make = |job, id| prefix.create_checkpoint_directory(time(), job, CheckpointId(id)).unwrap();
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
        let again = prefix.create_dataset_directory(time(), "17", CheckpointId(4), Some("again")).unwrap();
        enter(4, &again);
        dataset::write(&named("again"), "17", &prefix.checkpoint_path(&again)).unwrap();
        supersede(&prefix, "17", Some(CheckpointId(4))).unwrap();
        assert_eq!(known("17", 4), Some(again));
        supersede(&prefix, "17", None).unwrap();
        assert_eq!([known("17", 3), known("17", 4)], [None, None]);
    }

    fn named(name: &str) -> holdfast_model::Dataset {
        holdfast_model::Dataset { name: Some(name.to_owned()), ..holdfast_model::Dataset::default() }
    }
}
