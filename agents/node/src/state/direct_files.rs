//! The files of the dataset that the local ranks write below the prefix directory themselves, past the cache.
//!
//! A rank routes a file once, so an agent that is started again in the middle of the dataset must find its name on
//! disk. Each name is appended to a log before the rank gets its path: constant time for each file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_core::control::ControlError;
use holdfast_core::control::filemap::log::{self, FilemapLog, LogPosition};
use holdfast_core::control::filemap::{Filemap, FilemapChange, RankChange};
use holdfast_core::durable;
use holdfast_model::{CheckpointId, Rank};

/// The routed files of one dataset, and their log.
#[derive(Debug)]
pub(crate) struct DirectFiles {
    path: PathBuf,
    /// Identifies the dataset; empty without one. A log of another dataset is ignored.
    dataset: Vec<u8>,
    files: Filemap,
    log: FilemapLog,
}

impl DirectFiles {
    /// What the log at `path` lists for this dataset.
    pub(crate) fn open(path: PathBuf, dataset: Vec<u8>) -> Self {
        let (files, position) = log::read_alone(&path, &dataset).unwrap_or_else(|error| {
            tracing::warn!(%error, "direct_files_unreadable");
            (Filemap::new(), LogPosition::alone(&dataset))
        });
        if position.is_folded() {
            remove(&path);
        }
        let log = FilemapLog::new(path.clone(), position);
        DirectFiles { path, dataset, files, log }
    }

    /// Begins the list of another dataset; the same dataset keeps its list.
    pub(crate) fn switch_to(&mut self, dataset: Vec<u8>) {
        if dataset != self.dataset {
            // Also when the next dataset has no files below the prefix: this one's identity may come again.
            remove(&self.path);
            *self = DirectFiles::open(std::mem::take(&mut self.path), dataset);
        }
    }

    /// Adds a file of a rank, on disk first; one that is listed already is not added again.
    pub(crate) fn add(&mut self, checkpoint: CheckpointId, rank: Rank, name: &str) -> Result<(), ControlError> {
        let change = FilemapChange::of_rank(checkpoint, rank, RankChange::AddFile(name.to_owned()));
        if !change.is_void(&self.files) {
            self.log.append(&change)?;
            change.apply(&mut self.files);
        }
        Ok(())
    }

    /// The files of each rank that has any, the newest first, as a filemap lists them.
    pub(crate) fn of_ranks(&self, checkpoint: CheckpointId) -> BTreeMap<Rank, Vec<String>> {
        let files = |rank| self.files.files(checkpoint, rank).map(str::to_owned).collect();
        self.files.ranks(checkpoint).into_iter().map(|rank| (rank, files(rank))).collect()
    }
}

/// If it cannot be removed, it is truncated before the next file is added.
fn remove(path: &Path) {
    if let Err(error) = durable::remove_unsynced(path) {
        tracing::warn!(%error, "direct_files_not_removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CheckpointId = CheckpointId(7);

    fn names(files: &DirectFiles) -> BTreeMap<Rank, Vec<String>> {
        files.of_ranks(ID)
    }

    #[test]
    fn a_restarted_agent_lists_the_files_of_the_same_dataset_newest_first_and_of_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let open = |dataset: &[u8]| DirectFiles::open(path.clone(), dataset.to_vec());
        let mut files = open(b"A");
        for (rank, name) in [(0, "a"), (0, "all"), (1, "all"), (0, "a")] {
            files.add(ID, Rank(rank), name).unwrap();
        }
        let expected =
            BTreeMap::from([(Rank(0), vec!["all".to_owned(), "a".to_owned()]), (Rank(1), vec!["all".to_owned()])]);
        assert_eq!(names(&files), expected);
        assert_eq!(names(&open(b"A")), expected);
        assert!(names(&open(b"B")).is_empty());
        assert!(!path.exists(), "the log of another dataset is removed");
    }

    #[test]
    fn a_dataset_that_is_begun_again_has_none_of_the_files_of_its_first_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut files = DirectFiles::open(path.clone(), b"A".to_vec());
        files.add(ID, Rank(0), "a").unwrap();
        files.switch_to(b"A".to_vec());
        assert_eq!(names(&files).len(), 1);
        files.switch_to(Vec::new());
        files.switch_to(b"A".to_vec());
        assert!(names(&files).is_empty() && names(&DirectFiles::open(path.clone(), b"A".to_vec())).is_empty());
        files.add(ID, Rank(1), "b").unwrap();
        assert_eq!(names(&DirectFiles::open(path, b"A".to_vec())), names(&files));
    }

    #[test]
    fn a_log_that_cannot_be_read_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::create_dir(&path).unwrap();
        let mut files = DirectFiles::open(path.clone(), b"A".to_vec());
        assert!(files.add(ID, Rank(0), "a").is_err());
        std::fs::remove_dir(&path).unwrap();
        files.add(ID, Rank(0), "a").unwrap();
        assert_eq!(names(&DirectFiles::open(path, b"A".to_vec())), names(&files));
    }
}
