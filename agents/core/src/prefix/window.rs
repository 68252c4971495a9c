//! The window of a job on the prefix directory (`checkpoint.flush.keep`): its newest checkpoints stay, and older ones
//! are deleted after enough newer ones were completed and verified.
//!
//! Nobody is asked, and other users may write to the prefix directory. A dataset is therefore only deleted if all of
//! this holds:
//!
//! * its entry in the index has the mark of the job's window, which was set when the job made its directory; what the
//!   user added (`holdfast index add`) has none;
//! * its name or its record is of this job, and its directory, its summary and its record belong to this user;
//! * its directory holds nothing but files of the dataset: no directory, no link, no file of the user;
//! * it is complete, no output, not current, not what the job restarted from, and the user does not keep it.
//!
//! Those that are kept were verified, and still have all files of their summary in their sizes.

use super::index::{self, IndexEntry};
use super::outputs::is_of_a_dataset;
use super::prune::{self, PruneCandidate, PruneRules};
use super::summary::Summary;
use super::{dataset, delete, flushed, ownership, summary};
use crate::store::{DatasetAccess, DatasetOpener, DatasetStore, DirectoryName, PrefixError, known};
use holdfast_model::CheckpointId;

/// A window.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The job.
    pub job: &'a str,
    /// So many complete and verified checkpoints stay.
    pub keep: usize,
    /// How datasets are opened.
    pub open: DatasetOpener,
    /// True for the names of the files of containers.
    pub is_container: fn(&str) -> bool,
}

/// What was done with a dataset that the window leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub id: CheckpointId,
    pub directory: DirectoryName,
    /// Why it was not deleted, if it was not.
    pub failure: Option<String>,
}

/// The dataset of this id that the job wrote for its window, if it is complete and not yet verified, with its summary.
///
/// # Errors
/// Those of reading the index or the summary.
pub fn unverified(
    store: &dyn DatasetStore,
    job: &str,
    id: CheckpointId,
) -> Result<Option<(DirectoryName, Summary)>, PrefixError> {
    let entries = index::read(store)?.unwrap_or_default().entries();
    let mut of_window = entries.into_iter().filter(|entry| entry.id == id && is_of(entry, job));
    let Some(entry) = of_window.find(|entry| entry.complete == Some(true) && !entry.marks.verified) else {
        return Ok(None);
    };
    let summary = summary::of(store, &entry.directory)?;
    Ok(Some((entry.directory, summary)))
}

/// Records that a dataset was verified.
///
/// # Errors
/// Those of a change of the index.
pub fn mark_verified(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<(), PrefixError> {
    index::update(store, |index| index.mark_verified(directory)).map(drop)
}

/// Records that the job restarted from its dataset of this id.
///
/// # Errors
/// Those of a change of the index.
pub fn mark_restarted(store: &dyn DatasetStore, job: &str, id: CheckpointId) -> Result<(), PrefixError> {
    index::update(store, |index| {
        let taken = index.entries().into_iter().find(|entry| entry.id == id && is_of(entry, job));
        taken.map(|entry| index.mark_restarted(&entry.directory, job))
    })
    .map(drop)
}

fn is_of(entry: &IndexEntry, job: &str) -> bool {
    entry.marks.window_of.as_deref() == Some(job)
}

impl Window<'_> {
    /// Deletes the datasets that the window leaves out, newest first.
    ///
    /// # Errors
    /// The records cannot be read. What becomes of a single dataset is in the result.
    pub fn enforce(&self, store: &dyn DatasetStore) -> Result<Vec<LeftOut>, PrefixError> {
        let entries = index::read(store)?.unwrap_or_default().entries();
        let current = known(store.current())?.flatten();
        let candidates: Vec<_> = entries.into_iter().filter_map(|entry| self.candidate(store, entry)).collect();
        let rules = PruneRules { keep: Some(self.keep), ..PruneRules::default() };
        let left_out = prune::plan(&candidates, current.as_ref(), rules).into_iter().filter_map(|planned| {
            let (id, directory) = (planned.id, planned.directory);
            // Read again under the lock: the user may have made it current, or keep it.
            let may_be_deleted = |entry: Option<&IndexEntry>, current: Option<&DirectoryName>| {
                let is_unchanged = |entry: &IndexEntry| {
                    entry.id == id && entry.is_usable() && is_of(entry, self.job) && !is_needed(entry)
                };
                entry.is_some_and(is_unchanged) && current != Some(&directory)
            };
            match delete::delete_if(store, &directory, may_be_deleted) {
                Ok(false) => None,
                Ok(true) => Some(LeftOut { id, directory, failure: None }),
                Err(error) => Some(LeftOut { id, directory, failure: Some(error.to_string()) }),
            }
        });
        Ok(left_out.collect())
    }

    /// A dataset that is provably of the window; `None` for all others, which do not count either.
    fn candidate(&self, store: &dyn DatasetStore, entry: IndexEntry) -> Option<PruneCandidate> {
        if !is_of(&entry, self.job) || !entry.is_usable() || !self.is_own(store, &entry) {
            return None;
        }
        let is_output =
            dataset::read(store, &entry.directory).map_or(true, |record| record.is_some_and(|it| it.output));
        let intact = || flushed::files_damage(store, entry.id, &entry.directory, self.open).is_ok();
        let counts = entry.marks.verified && intact();
        Some(PruneCandidate { output: is_output, in_use: is_needed(&entry), counts, entry })
    }

    /// True if name, owner and content are what this job writes.
    fn is_own(&self, store: &dyn DatasetStore, entry: &IndexEntry) -> bool {
        let directory = &entry.directory;
        if dataset::job_of(store, directory).as_deref() != Some(self.job)
            || !matches!(ownership::is_own(store, directory), Ok(true))
        {
            return false;
        }
        let Ok(here) = store.open(directory, DatasetAccess::Write) else { return false };
        let Some(summary) = summary::read(&*here).ok().filter(|summary| summary.id == entry.id) else { return false };
        let listed: std::collections::HashSet<&str> =
            summary.by_rank.values().flat_map(|rank| &rank.files).map(|file| file.name.as_str()).collect();
        here.list().is_ok_and(|files| {
            files.iter().all(|file| {
                let name = file.name.as_str();
                file.is_regular && (listed.contains(name) || is_of_a_dataset(name) || (self.is_container)(name))
            })
        })
    }
}

/// A run relies on it, or the user keeps it.
fn is_needed(entry: &IndexEntry) -> bool {
    entry.marks.restarted || entry.marks.kept
}
