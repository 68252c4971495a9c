//! Publishes a dataset in the prefix directory: after a flush, after a drain, for a dataset that its ranks write there
//! themselves, and for `holdfast index add`.
//!
//! [`begin`] enters the directory into the index before the first file is copied: a copy that is killed leaves an entry
//! without COMPLETE. [`Publication::publish`] records what the directory holds afterwards, always in this order and
//! under the lock of the index:
//!
//! 1. the entry with COMPLETE 0, if the dataset is not complete;
//! 2. the filemaps of ranks whose files were rebuilt, then `summary.scr`;
//! 3. the files of an output at the paths that the application named, if the dataset is complete ([`outputs`]);
//! 4. the entry with COMPLETE 1, if the dataset is complete;
//! 5. `scr.current`, if the dataset is complete and restarts are to take it.
//!
//! Each step replaces one file by a rename, so that a kill leaves the state before a step or after it. At every instant
//! an entry with COMPLETE 1 has a complete summary, and the link has been moved only to such an entry. All steps can be
//! repeated, which then completes the publication.

use chrono::NaiveDateTime;

use super::directory::{DirectoryName, Prefix};
use super::error::PrefixError;
use super::index;
use super::inspect::{Inspection, summary_of};
use super::outputs;
use super::rank_filemap::{FilemapWriter, RankFilemap};
use super::scan::Scan;
use super::summary::{self, Summary};
use crate::temporary;
use holdfast_model::{CheckpointId, Dataset};

/// Records what the application declared of a dataset in its directory, and enters the directory into the index without
/// COMPLETE: before the first file is written there.
///
/// # Errors
/// The first step that failed; both can be repeated.
pub fn begin(
    prefix: &Prefix,
    id: CheckpointId,
    directory: &DirectoryName,
    dataset: &Dataset,
    job: &str,
    now: NaiveDateTime,
) -> Result<(), PrefixError> {
    super::dataset::write(dataset, job, &prefix.checkpoint_path(directory))?;
    index::update(prefix, |index| index.add(id, directory, now))
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

    /// Records it: summary, index, link. Returns whether the dataset is complete.
    ///
    /// An incomplete dataset gets a summary without COMPLETE that lists what is there, and the link stays where it is.
    ///
    /// # Errors
    /// The first step that failed; the steps before it remain done, and the call can be repeated.
    pub fn publish(&self, prefix: &Prefix) -> Result<bool, PrefixError> {
        let name = &self.directory;
        // Held to the end: two processes that publish the same directory must not mix their results.
        let index = index::lock(prefix)?;
        // Left by copies that were killed. No reader uses them: a failure must not prevent the publication.
        let _ = temporary::remove_abandoned(&prefix.checkpoint_path(name));
        let Some(summary) = &self.summary else {
            // The link first, because a restart would follow it. A link that cannot be read is followed by no restart.
            if prefix.current().is_ok_and(|current| current.as_ref() == Some(name)) {
                prefix.remove_current()?;
            }
            index.change(|index| index.set_complete(name, false))?;
            return Ok(false);
        };
        let record = |complete: bool| {
            index.change(|index| {
                index.add(summary.id, name, self.now);
                index.set_complete(name, complete);
            })
        };
        if !summary.complete {
            record(false)?;
        }
        let directory = prefix.checkpoint_path(name);
        for filemap in &self.filemaps {
            filemap.write(&directory, FilemapWriter::Copy)?;
        }
        // The summary of a flush by the library is kept if it lists the same files.
        if !summary::read(&directory).is_ok_and(|old| lists_the_same(&old, summary)) {
            summary::write(&directory, summary)?;
        }
        if summary.complete {
            if let Err(error) = outputs::place(prefix, &index, name, summary) {
                record(false)?;
                return Err(error);
            }
            record(true)?;
            if self.make_current {
                prefix.set_current(name)?;
            }
        }
        Ok(summary.complete)
    }
}

/// Points `scr.current` at a directory that is complete already, or that the user chose.
///
/// # Errors
/// Those of the lock and of the link.
pub fn make_current(prefix: &Prefix, directory: &DirectoryName) -> Result<(), PrefixError> {
    let _held = index::lock(prefix)?;
    prefix.set_current(directory)
}

/// Removes a directory from the index; its files stay. The link is removed first if it leads there, because a restart
/// would follow it. Returns whether the index listed the directory.
///
/// # Errors
/// Those of the link and of the index.
pub fn withdraw(prefix: &Prefix, directory: &DirectoryName) -> Result<bool, PrefixError> {
    withdraw_locked(&index::lock(prefix)?, prefix, directory)
}

pub(super) fn withdraw_locked(
    index: &index::LockedIndex<'_>,
    prefix: &Prefix,
    directory: &DirectoryName,
) -> Result<bool, PrefixError> {
    if prefix.current()?.as_ref() == Some(directory) {
        prefix.remove_current()?;
    }
    index.change(|index| index.remove(directory))
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
    use super::*;

    #[test]
    fn the_link_is_removed_from_a_directory_that_cannot_be_used_and_only_from_that() {
        let scratch = tempfile::tempdir().unwrap();
        let prefix = Prefix::open(scratch.path()).unwrap();
        let now = NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap();
        let name = |name: &str| DirectoryName::new(name).unwrap();
        let publish = |directory: &str, complete: bool| {
            let id = CheckpointId(1);
            let summary = Summary { id, ranks: 0, complete: true, by_rank: std::collections::BTreeMap::new() };
            Publication::of_copy(name(directory), complete.then_some(summary), true, now).publish(&prefix).unwrap()
        };
        for directory in ["a", "b"] {
            std::fs::create_dir(prefix.checkpoint_path(&name(directory))).unwrap();
            assert!(publish(directory, true));
        }
        assert!(!publish("a", false));
        assert_eq!(prefix.current().unwrap(), Some(name("b")));
        assert!(!publish("b", false));
        assert_eq!(prefix.current().unwrap(), None);
    }
}
