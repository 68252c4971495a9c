//! The directory that a drain or a flush of the same dataset left incomplete, so that another drain can complete it.

use std::path::{Path, PathBuf};

use holdfast_core::prefix::{DirectoryName, Prefix, dataset, index};
use holdfast_model::CheckpointId;
use serde::{Deserialize, Serialize};

use super::error::PrefixStepError;
use crate::host::own_files;

/// The record has a few hundred bytes.
const LARGEST_RECORD: u64 = 64 << 10;

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
/// not complete. SCR leaves the directory of a killed flush as it is and copies to another one.
///
/// # Errors
/// The index cannot be read.
pub fn directory_of(
    prefix: &Prefix,
    job_id: &str,
    checkpoint: CheckpointId,
) -> Result<Option<DirectoryName>, PrefixStepError> {
    if let Some(record) = read_record(&path(prefix))
        && record.job_id == job_id
        && record.checkpoint == checkpoint
        && let Ok(directory) = DirectoryName::new(record.directory)
        && prefix.checkpoint_path(&directory).is_dir()
    {
        return Ok(Some(directory));
    }
    let entries = index::read(prefix)?.unwrap_or_default().entries();
    let incomplete = entries.into_iter().filter_map(|entry| {
        let continued = entry.id == checkpoint
            && entry.complete != Some(true)
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
}
