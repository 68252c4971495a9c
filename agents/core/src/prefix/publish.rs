//! Publishes a dataset in the prefix directory: after a flush, after a drain, for a dataset that its ranks write there
//! themselves, and for `holdfast index add`.
//!
//! [`begin`] enters the directory into the index before the first file is copied: a copy that is killed leaves an entry
//! without COMPLETE. [`Publication::publish`] records what the directory holds afterwards, always in this order and
//! under the lock of the index:
//!
//! 1. the entry with COMPLETE 0, if the dataset is not complete;
//! 2. the filemaps of ranks whose files were rebuilt, then `summary.scr`;
//! 3. the files of an output at the paths that the application named, if the dataset is complete
//!    ([`outputs`](super::outputs));
//! 4. the entry with COMPLETE 1, if the dataset is complete;
//! 5. `scr.current`, if the dataset is complete and restarts are to take it.
//!
//! Each step replaces one file at once, so that a kill leaves the state before a step or after it. At every instant an
//! entry with COMPLETE 1 has a complete summary, and the link has been moved only to such an entry. All steps can be
//! repeated, which then completes the publication; where the [store](crate::store) cannot lock, they are repeated if
//! another process changes the index in between.

use chrono::NaiveDateTime;

use super::index;
use super::inspect::{Inspection, summary_of};
use super::outputs::place::move_files;
use super::rank_filemap::{FilemapWriter, RankFilemap};
use super::scan::Scan;
use super::summary::{self, Summary};
use crate::store::{DatasetAccess, DatasetStore, DirectoryName, Occupied, PrefixError, Staged, known};
use holdfast_model::{CheckpointId, Dataset, Unplaced};

/// Records what the application declared of a dataset in its directory, and enters the directory into the index without
/// COMPLETE: before the first file is written there.
///
/// # Errors
/// The first step that failed; both can be repeated.
pub fn begin(
    store: &dyn DatasetStore,
    id: CheckpointId,
    directory: &DirectoryName,
    dataset: &Dataset,
    job: &str,
    now: NaiveDateTime,
) -> Result<(), PrefixError> {
    if !dataset.is_plain() {
        super::dataset::write(dataset, job, &*store.open(directory, DatasetAccess::Write)?)?;
    }
    index::update(store, |index| index.add(id, directory, now))
}

/// What a checkpoint directory holds once its files have been written, and what is to be recorded about it.
#[derive(Clone, Debug)]
pub struct Publication {
    pub directory: DirectoryName,
    /// What is there. `None` if nothing of it can be used, or if the copy failed: no summary is written then, and only
    /// an entry that exists already is marked as not complete; `scr.current` is removed if it leads there.
    pub summary: Option<Summary>,
    /// Filemaps that were lost and are known again.
    pub filemaps: Vec<RankFilemap>,
    /// Point `scr.current` at the directory if it is complete.
    pub make_current: bool,
    /// Local time, for a directory that is not in the index yet.
    pub now: NaiveDateTime,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The dataset is complete.
    pub complete: bool,
    /// Its files that could not be moved to their paths.
    pub unplaced: Option<Unplaced>,
}

impl Publication {
    /// A directory into which every file of the summary was copied, or none that can be used.
    pub fn of_copy(
        directory: DirectoryName,
        summary: Option<Summary>,
        make_current: bool,
        now: NaiveDateTime,
    ) -> Publication {
        Publication { directory, summary, filemaps: Vec::new(), make_current, now }
    }

    /// A directory that was scanned and judged.
    pub fn of_scan(
        directory: DirectoryName,
        scan: &Scan,
        inspection: &Inspection,
        make_current: bool,
        now: NaiveDateTime,
    ) -> Publication {
        let summary = summary_of(scan, inspection);
        let filemaps = if summary.is_some() { scan.lost_filemaps() } else { Vec::new() };
        Publication { directory, summary, filemaps, make_current, now }
    }

    /// Records it: summary, index, link.
    ///
    /// An incomplete dataset gets a summary without COMPLETE that lists what is there, and the link stays where it is.
    ///
    /// # Errors
    /// The first step that failed; the steps before it remain done, and the call can be repeated.
    pub fn publish(&self, store: &dyn DatasetStore) -> Result<Published, PrefixError> {
        // One change: two processes that publish the same directory must not mix their results.
        index::change(store, |index| self.publish_as(index))
    }

    fn publish_as(&self, index: &mut index::IndexChange<'_>) -> Result<Published, PrefixError> {
        let name = &self.directory;
        let dataset = index.store.open(name, DatasetAccess::Write);
        if let Ok(dataset) = &dataset {
            // Left by copies that were killed. No reader uses them: a failure must not prevent the publication.
            let _ = dataset.remove_staged(Staged::Abandoned);
        }
        let Some(summary) = &self.summary else {
            // The link first, because a restart would follow it.
            if known(index.current())?.flatten().as_ref() == Some(name) {
                index.remove_current()?;
            }
            index.update(|index| index.set_complete(name, false))?;
            return Ok(Published::default());
        };
        let dataset = dataset?;
        let record = |index: &mut index::IndexChange<'_>, complete: bool| {
            index.update(|index| {
                index.add(summary.id, name, self.now);
                index.set_complete(name, complete);
            })
        };
        if !summary.complete {
            record(index, false)?;
        }
        for filemap in &self.filemaps {
            filemap.write(&*dataset, FilemapWriter::Copy)?;
        }
        // The summary of a flush by the library is kept if it lists the same files.
        if !summary::read(&*dataset).is_ok_and(|old| lists_the_same(&old, summary)) {
            summary::write(&*dataset, summary)?;
        }
        let mut published = Published { complete: summary.complete, unplaced: None };
        if summary.complete {
            match move_files(index, name, summary, Occupied::Keep) {
                Ok(unplaced) => published.unplaced = unplaced,
                Err(error @ PrefixError::Overtaken { .. }) => return Err(error),
                Err(error) => {
                    record(index, false)?;
                    return Err(error);
                }
            }
            record(index, true)?;
            if self.make_current {
                index.set_current(name)?;
            }
        }
        Ok(published)
    }
}

/// Makes a directory current that is complete already, or that the user chose.
///
/// # Errors
/// Those of a change of the records.
pub fn make_current(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<(), PrefixError> {
    index::change(store, |index| index.set_current(directory))
}

/// Makes a directory current if the index lists it as one that a restart can use; returns whether it does. What was
/// looked up before may have been deleted since.
///
/// # Errors
/// Those of a change of the records.
pub fn make_usable_current(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<bool, PrefixError> {
    index::change(store, |index| {
        let is_usable = index.read()?.entry(directory).is_some_and(|entry| entry.is_usable());
        if is_usable {
            index.set_current(directory)?;
        }
        Ok(is_usable)
    })
}

/// No dataset is current any more; returns whether one was. A record that cannot be read is removed too.
///
/// # Errors
/// Those of a change of the records.
pub fn remove_current(store: &dyn DatasetStore) -> Result<bool, PrefixError> {
    index::change(store, |index| index.remove_current())
}

/// Removes a directory from the index; its files stay. The link is removed first if it leads there, because a restart
/// would follow it. Returns whether the index listed the directory.
///
/// # Errors
/// Those of a change of the records.
pub fn withdraw(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<bool, PrefixError> {
    index::change(store, |index| withdraw_as(index, directory))
}

pub(super) fn withdraw_as(index: &mut index::IndexChange<'_>, directory: &DirectoryName) -> Result<bool, PrefixError> {
    index.remove_current_if(directory)?;
    index.update(|index| index.remove(directory))
}

/// Whether two summaries list the same files of the same ranks. How many files a rank should have may be known to one
/// only, and so may a CRC.
fn lists_the_same(old: &Summary, new: &Summary) -> bool {
    (old.id, old.ranks, old.complete) == (new.id, new.ranks, new.complete)
        && old.by_rank.len() == new.by_rank.len()
        && old.by_rank.iter().zip(&new.by_rank).all(|((old_rank, old), (new_rank, new))| {
            let counts = old.expected.is_none() || old.expected == new.expected;
            let mut old: Vec<_> = old.files.iter().collect();
            let mut new: Vec<_> = new.files.iter().collect();
            old.sort_unstable_by(|left, right| left.name.cmp(&right.name));
            new.sort_unstable_by(|left, right| left.name.cmp(&right.name));
            old_rank == new_rank
                && counts
                && old.len() == new.len()
                && old.iter().zip(&new).all(|(old, new)| {
                    old.name == new.name
                        && old.size == new.size
                        && old.fetch == new.fetch
                        && old.output_path == new.output_path
                        && !old.failed
                        && (old.crc == new.crc || new.crc.is_none())
                })
        })
}

#[cfg(test)]
mod tests {
    use super::super::tests::world::{each_store, name, some_time};
    use super::*;

    #[test]
    fn the_link_is_removed_from_a_directory_that_cannot_be_used_and_only_from_that() {
        each_store(|world| {
            let store = world.store();
            let publish = |directory: &str, complete: bool| {
                let id = CheckpointId(1);
                let summary = Summary { id, ranks: 0, complete: true, by_rank: std::collections::BTreeMap::new() };
                let summary = complete.then_some(summary);
                Publication::of_copy(name(directory), summary, true, some_time()).publish(store).unwrap().complete
            };
            for directory in ["a", "b"] {
                world.dataset(directory);
                assert!(publish(directory, true));
            }
            assert!(!publish("a", false));
            assert_eq!(store.current().unwrap(), Some(name("b")));
            assert!(!publish("b", false));
            assert_eq!(store.current().unwrap(), None);
        });
    }
}
