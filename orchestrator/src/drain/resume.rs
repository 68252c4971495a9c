//! The directory that a drain or a flush of the same dataset left incomplete, so that another drain can complete it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_agent::dataset_directory::OPEN_DATASET;
use holdfast_core::prefix::{DirectoryName, Prefix, dataset, index, unfinished};
use holdfast_model::{CheckpointId, Generation};
use serde::{Deserialize, Serialize};

use super::error::PrefixStepError;
use crate::host::own_files;

/// The record has a few hundred bytes.
const LARGEST_RECORD: u64 = 64 << 10;
/// Directories of earlier drains that are remembered.
const MOST_EARLIER: usize = 64;

/// Whose datasets are drained. The ids of checkpoints repeat when the application is restarted from an older one, also
/// after a requeue, which keeps the job id: the files of two such checkpoints must not come into one directory.
#[derive(Clone, Copy, Debug)]
pub struct Timeline<'a> {
    pub job_id: &'a str,
    /// What changes whenever the application is restarted: the newest generation of the run, which goes on through all
    /// allocations of a job id. Without one, the allocation.
    pub timeline: &'a str,
}

/// The timeline in whose last generation a dataset is drained.
pub fn of_generation(generation: Generation) -> String {
    format!("generation {generation}")
}

/// The drain that is under way, in `.holdfast/drain.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DrainRecord {
    job_id: String,
    checkpoint: CheckpointId,
    directory: String,
    /// See [`Timeline`]. Earlier releases did not record it.
    #[serde(default)]
    timeline: Option<String>,
    /// The timelines of directories that earlier drains left incomplete, by their names.
    #[serde(default)]
    earlier: BTreeMap<String, Option<String>>,
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
    timeline: Timeline<'_>,
    checkpoint: CheckpointId,
    directory: &DirectoryName,
) -> Result<(), PrefixStepError> {
    let path = path(prefix);
    let killed = read_record(&path);
    let mut earlier = BTreeMap::new();
    if let Some(killed) = &killed {
        let known = killed.earlier.iter().chain([(&killed.directory, &killed.timeline)]);
        let exists = |name: &String| DirectoryName::new(name).is_ok_and(|name| prefix.checkpoint_path(&name).is_dir());
        let left = known.filter(|(name, _)| name.as_str() != directory.as_str() && exists(name));
        // One that is forgotten is not continued.
        earlier = left.take(MOST_EARLIER).map(|(name, timeline)| (name.clone(), timeline.clone())).collect();
    }
    let record = DrainRecord {
        job_id: timeline.job_id.to_owned(),
        checkpoint,
        directory: directory.as_str().to_owned(),
        timeline: Some(timeline.timeline.to_owned()),
        earlier,
    };
    if let Some(killed) = killed
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
/// What a drain of another [`Timeline`] left is not continued: ranks of which no node has the files any more would be
/// completed with its files. A flush is: when the application is restarted, the directories of flushes whose datasets
/// the nodes do not have are removed.
///
/// # Errors
/// The index cannot be read.
pub fn directory_of(
    prefix: &Prefix,
    timeline: Timeline<'_>,
    checkpoint: CheckpointId,
) -> Result<Option<DirectoryName>, PrefixStepError> {
    let Timeline { job_id, timeline } = timeline;
    let record = read_record(&path(prefix));
    if let Some(record) = &record
        && record.job_id == job_id
        && record.checkpoint == checkpoint
        && record.timeline.as_deref() == Some(timeline)
        && let Ok(directory) = DirectoryName::new(record.directory.as_str())
        && prefix.checkpoint_path(&directory).is_dir()
    {
        return Ok(Some(directory));
    }
    let entries = index::read(prefix)?.unwrap_or_default().entries();
    let drained_in = |directory: &DirectoryName| {
        let record = record.as_ref()?;
        if record.directory == directory.as_str() {
            return Some(&record.timeline);
        }
        record.earlier.get(directory.as_str())
    };
    let is_ours = |directory: &DirectoryName| match drained_in(directory) {
        Some(drained_in) => drained_in.as_deref() == Some(timeline),
        None => unfinished::holds_only_a_flush(prefix, directory, OPEN_DATASET).unwrap_or(false),
    };
    let incomplete = entries.into_iter().filter_map(|entry| {
        let continued = entry.id == checkpoint
            && entry.complete != Some(true)
            && prefix.checkpoint_path(&entry.directory).is_dir()
            && dataset::job_of(prefix, &entry.directory).is_some_and(|job| job == job_id)
            && is_ours(&entry.directory);
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
    use holdfast_core::prefix::rank_filemap::{FilemapWriter, RankFilemap};
    use holdfast_model::Rank;

    const OURS: Timeline<'_> = Timeline { job_id: "17", timeline: "generation 2" };
    const LATER: Timeline<'_> = Timeline { job_id: "17", timeline: "generation 3" };

    fn time() -> NaiveDateTime {
        NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap()
    }

    #[test]
    fn a_drain_that_was_killed_is_continued_in_its_directory() {
        let base = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(base.path()).unwrap();
        let directory = prefix.create_checkpoint_directory(time(), "17", CheckpointId(3)).unwrap();
        begin(&prefix, OURS, CheckpointId(3), &directory).unwrap();
        assert_eq!(directory_of(&prefix, OURS, CheckpointId(3)).unwrap(), Some(directory));
        assert_eq!(directory_of(&prefix, Timeline { job_id: "18", ..OURS }, CheckpointId(3)).unwrap(), None);
        assert_eq!(directory_of(&prefix, OURS, CheckpointId(4)).unwrap(), None);
        end(&prefix).unwrap();
        assert_eq!(directory_of(&prefix, OURS, CheckpointId(3)).unwrap(), None);
    }

    #[test]
    fn an_incomplete_drain_and_a_killed_flush_are_continued_and_a_complete_dataset_is_not() {
        let base = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(base.path()).unwrap();
        let directory = prefix.create_checkpoint_directory(time(), "17", CheckpointId(3)).unwrap();
        index::update(&prefix, |index| index.add(CheckpointId(3), &directory, time())).unwrap();
        assert_eq!(directory_of(&prefix, OURS, CheckpointId(3)).unwrap(), Some(directory.clone()));
        index::update(&prefix, |index| index.set_complete(&directory, false)).unwrap();
        assert_eq!(directory_of(&prefix, OURS, CheckpointId(3)).unwrap(), Some(directory.clone()));
        index::update(&prefix, |index| index.set_complete(&directory, true)).unwrap();
        assert_eq!(directory_of(&prefix, OURS, CheckpointId(3)).unwrap(), None);
    }

    #[test]
    fn a_killed_drain_of_another_dataset_is_entered_into_the_index_and_continued_later() {
        let base = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(base.path()).unwrap();
        let make = |id| prefix.create_checkpoint_directory(time(), "17", CheckpointId(id)).unwrap();
        let (killed, next) = (make(4), make(3));
        begin(&prefix, OURS, CheckpointId(4), &killed).unwrap();
        begin(&prefix, OURS, CheckpointId(3), &next).unwrap();
        let entries = index::read(&prefix).unwrap().unwrap().entries();
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!((&entries[0].directory, entries[0].complete), (&killed, Some(false)));
        assert_eq!(directory_of(&prefix, OURS, CheckpointId(4)).unwrap(), Some(killed));
    }

    #[test]
    fn what_a_drain_left_before_the_application_was_restarted_is_not_continued() {
        let base = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(base.path()).unwrap();
        let id = CheckpointId(3);
        let of_drain = prefix.create_checkpoint_directory(time(), "17", id).unwrap();
        begin(&prefix, OURS, id, &of_drain).unwrap();
        assert_eq!(directory_of(&prefix, LATER, id).unwrap(), None, "of a killed drain");
        // It published what it had.
        let filemap = RankFilemap { rank: Rank(0), id, files: vec!["a".to_owned()], expected: 1 };
        filemap.write(&prefix.checkpoint_path(&of_drain), FilemapWriter::Copy).unwrap();
        index::update(&prefix, |index| {
            index.add(id, &of_drain, time());
            index.set_complete(&of_drain, false);
        })
        .unwrap();
        assert_eq!(directory_of(&prefix, LATER, id).unwrap(), None, "of an incomplete drain");
        assert_eq!(directory_of(&prefix, OURS, id).unwrap().as_ref(), Some(&of_drain));
        let newer = prefix.create_checkpoint_directory(time(), "17", id).unwrap();
        begin(&prefix, LATER, id, &newer).unwrap();
        assert_eq!(directory_of(&prefix, LATER, id).unwrap(), Some(newer));
        assert_eq!(directory_of(&prefix, OURS, id).unwrap(), Some(of_drain), "it is remembered");
        end(&prefix).unwrap();
        assert_eq!(directory_of(&prefix, OURS, id).unwrap(), None, "not known any more");
    }
}
