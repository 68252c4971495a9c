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

use std::collections::HashSet;

use super::index::{self, IndexEntry};
use super::outputs::is_of_a_dataset;
use super::prune::{self, PruneCandidate, PruneRules};
use super::summary::Summary;
use super::{dataset, delete, flushed, ownership, summary};
use crate::store::{DatasetAccess, DatasetOpener, DatasetStore, DirectoryName, Result, known};
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
pub fn unverified(store: &dyn DatasetStore, job: &str, id: CheckpointId) -> Result<Option<(DirectoryName, Summary)>> {
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
pub fn mark_verified(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<()> {
    index::update(store, |index| index.mark_verified(directory)).map(drop)
}

/// Records that the job restarted from its dataset of this id.
///
/// # Errors
/// Those of a change of the index.
pub fn mark_restarted(store: &dyn DatasetStore, job: &str, id: CheckpointId) -> Result<()> {
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
    pub fn enforce(&self, store: &dyn DatasetStore) -> Result<Vec<LeftOut>> {
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
        let intact = || matches!(flushed::files_damage(store, entry.id, &entry.directory, self.open), Ok(None));
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
        let listed: HashSet<&str> =
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use super::super::new_directory;
    use super::super::publish::{Publication, begin, make_current};
    use super::super::summary::{RankFiles, SummaryFile};
    use super::super::tests::world::{PosixWorld, TestStore, each_store, some_time};
    use super::*;
    use crate::store::dataset_files::open_plain;
    use holdfast_model::{Dataset, Rank};

    const JOB: &str = "17";

    fn window(keep: usize) -> Window<'static> {
        Window { job: JOB, keep, open: open_plain, is_container: |name| name.ends_with(".sion") }
    }

    /// A complete checkpoint with one file, as a flush of the job writes it.
    fn flushed(world: &dyn TestStore, job: &str, id: u64, dataset: &Dataset) -> DirectoryName {
        let (store, checkpoint) = (world.store(), CheckpointId(id));
        let directory = new_directory::create(store, some_time(), job, checkpoint, dataset.name.as_deref()).unwrap();
        begin(store, checkpoint, &directory, dataset, job, some_time()).unwrap();
        index::update(store, |index| index.mark_of_window(&directory, job)).unwrap();
        world.put(&format!("{directory}/rank_0.ckpt"), b"content");
        let name = "rank_0.ckpt".to_owned();
        let listed = SummaryFile { name, size: Some(7), crc: None, fetch: true, failed: false, output_path: None };
        let by_rank = BTreeMap::from([(Rank(0), RankFiles { expected: None, files: vec![listed] })]);
        let summary = Summary { id: checkpoint, ranks: 1, complete: true, by_rank };
        Publication::of_copy(directory.clone(), Some(summary), false, some_time()).publish(store).unwrap();
        directory
    }

    fn verified(world: &dyn TestStore, id: u64) -> DirectoryName {
        let directory = flushed(world, JOB, id, &Dataset::default());
        assert_eq!(unverified(world.store(), JOB, CheckpointId(id)).unwrap().unwrap().0, directory);
        mark_verified(world.store(), &directory).unwrap();
        assert_eq!(unverified(world.store(), JOB, CheckpointId(id)).unwrap(), None);
        directory
    }

    fn deleted(world: &dyn TestStore, keep: usize) -> Vec<u64> {
        let left_out = window(keep).enforce(world.store()).unwrap();
        assert!(left_out.iter().all(|left| left.failure.is_none() && !world.store().contains(&left.directory)));
        left_out.into_iter().map(|left| left.id.0).collect()
    }

    #[test]
    fn the_newest_verified_checkpoints_stay() {
        each_store(|world| {
            let all: Vec<_> = (1..=5).map(|id| verified(world, id)).collect();
            assert_eq!(deleted(world, 3), [2, 1]);
            assert_eq!(deleted(world, 3), [0_u64; 0]);
            let listed = index::read(world.store()).unwrap().unwrap().entries();
            assert_eq!(
                listed.into_iter().map(|entry| entry.directory).collect::<Vec<_>>(),
                [all[4].clone(), all[3].clone(), all[2].clone()]
            );
        });
    }

    #[test]
    fn one_that_is_not_verified_or_has_lost_a_file_takes_no_place() {
        each_store(|world| {
            verified(world, 1);
            let cut = verified(world, 2);
            flushed(world, JOB, 3, &Dataset::default());
            assert_eq!(deleted(world, 2), [0_u64; 0], "3 is not verified");
            world.put(&format!("{cut}/rank_0.ckpt"), b"cut");
            assert_eq!(deleted(world, 1), [0_u64; 0], "2 is damaged, 3 is not verified");
            verified(world, 4);
            assert_eq!(deleted(world, 1), [3, 2, 1]);
        });
    }

    #[test]
    fn current_kept_and_restarted_ones_stay_and_so_do_outputs() {
        each_store(|world| {
            let store = world.store();
            let output =
                Dataset { output: true, checkpoint: false, name: Some("plot".to_owned()), ..Dataset::default() };
            mark_verified(store, &flushed(world, JOB, 1, &output)).unwrap();
            let all: Vec<_> = (2..=6).map(|id| verified(world, id)).collect();
            make_current(store, &all[0]).unwrap();
            index::update(store, |index| index.set_kept(&all[1], true)).unwrap();
            for id in [3, 4] {
                mark_restarted(store, JOB, CheckpointId(id)).unwrap();
            }
            assert_eq!(deleted(world, 1), [5], "2 is current, 3 is kept, the last restart was from 4");
            index::update(store, |index| index.set_kept(&all[1], false)).unwrap();
            mark_restarted(store, JOB, CheckpointId(6)).unwrap();
            assert_eq!(deleted(world, 1), [4, 3]);
        });
    }

    #[test]
    fn what_another_job_or_the_user_made_stays() {
        each_store(|world| {
            let store = world.store();
            let of_other_job = flushed(world, "16", 1, &Dataset::default());
            mark_verified(store, &of_other_job).unwrap();
            // Added by the user: without the mark. Marked in a foreign index: without the name.
            let added = verified(world, 2);
            let named = Dataset { name: Some("results".to_owned()), ..Dataset::default() };
            let foreign = flushed(world, "16", 3, &named);
            index::update(store, |index| {
                index.remove(&added);
                index.add(CheckpointId(2), &added, some_time());
                index.set_complete(&added, true);
                index.mark_of_window(&foreign, JOB);
                index.mark_verified(&foreign);
            })
            .unwrap();
            verified(world, 9);
            assert_eq!(deleted(world, 1), [0_u64; 0]);
            for directory in [of_other_job, added, foreign] {
                assert!(store.contains(&directory));
            }
        });
    }

    #[test]
    fn planted_links_and_directories_and_files_of_the_user_keep_a_dataset() {
        let world = PosixWorld::new();
        let at = world.scratch.path();
        let all: Vec<_> = (1..=5).map(|id| verified(&world, id)).collect();
        fs::create_dir(at.join("victim")).unwrap();
        fs::write(at.join("victim/file"), "of the victim").unwrap();
        // A link in the place of a dataset.
        fs::rename(at.join(all[0].as_str()), at.join("moved")).unwrap();
        symlink("victim", at.join(all[0].as_str())).unwrap();
        // A directory of the user in the place of another one.
        fs::rename(at.join(all[1].as_str()), at.join("moved too")).unwrap();
        fs::create_dir(at.join(all[1].as_str())).unwrap();
        fs::write(at.join(all[1].as_str()).join("notes"), "of the user").unwrap();
        // Files and links of the user beside those of the dataset.
        fs::write(at.join(all[2].as_str()).join("notes"), "of the user").unwrap();
        symlink("../victim/file", at.join(all[3].as_str()).join("rank_1.ckpt")).unwrap();
        assert_eq!(deleted(&world, 1), [0_u64; 0]);
        assert_eq!(fs::read_to_string(at.join("victim/file")).unwrap(), "of the victim");
        fs::remove_file(at.join(all[2].as_str()).join("notes")).unwrap();
        if rustix::process::geteuid().is_root() {
            let owner = at.join(all[2].as_str());
            lchown(&owner, Some(65_534), None).unwrap();
            assert_eq!(deleted(&world, 1), [0_u64; 0], "the directory of another user");
            lchown(&owner, Some(0), None).unwrap();
            lchown(owner.join("summary.scr"), Some(65_534), None).unwrap();
            assert_eq!(deleted(&world, 1), [0_u64; 0], "the summary of another user");
            lchown(owner.join("summary.scr"), Some(0), None).unwrap();
        }
        assert_eq!(deleted(&world, 1), [3]);
    }
}
