//! Where the content of each checkpoint file is, and which files the open dataset still needs. Pure.
//!
//! The program sees its checkpoint files under the names it uses; their content lies in datasets. Names are absolute,
//! so that a change of the working directory does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where a checkpoint file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Dataset(PathBuf),
    /// The program has removed it, or the checkpoint that it restarts from does not contain it.
    Absent,
    /// The job has no checkpoint: under its own name.
    OwnName,
}

/// The files of the checkpoint to restart from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartFiles {
    pub directory: PathBuf,
    /// Base names.
    pub names: BTreeSet<String>,
}

/// The checkpoint files of a rank.
#[derive(Debug)]
pub struct Files {
    restart: Option<RestartFiles>,
    /// Of the newest complete dataset that contains the file.
    complete: BTreeMap<PathBuf, PathBuf>,
    removed: BTreeSet<PathBuf>,
    dataset: Option<OpenDataset>,
    /// The number of expressions of the rank.
    expressions: usize,
}

#[derive(Debug)]
struct OpenDataset {
    paths: BTreeMap<PathBuf, PathBuf>,
    /// For each expression, whether a file was closed.
    closed: Vec<bool>,
    /// Files that are open for writing.
    writing: usize,
    valid: bool,
}

impl Files {
    pub fn new(restart: Option<RestartFiles>, expressions: usize) -> Self {
        let (complete, removed) = Default::default();
        Files { restart, complete, removed, dataset: None, expressions }
    }

    /// Where the content of the file is that the program names.
    pub fn locate(&self, name: &Path) -> Location {
        if let Some(path) = self.in_dataset(name) {
            return Location::Dataset(path.to_owned());
        }
        if self.removed.contains(name) {
            return Location::Absent;
        }
        if let Some(path) = self.complete.get(name) {
            return Location::Dataset(path.clone());
        }
        let Some(restart) = &self.restart else { return Location::OwnName };
        let base = name.file_name().and_then(|base| base.to_str());
        match base.filter(|base| restart.names.contains(*base)) {
            Some(base) => Location::Dataset(restart.directory.join(base)),
            None => Location::Absent,
        }
    }

    /// The path of a file of the open dataset.
    pub fn in_dataset(&self, name: &Path) -> Option<&Path> {
        self.dataset.as_ref().and_then(|dataset| dataset.paths.get(name)).map(PathBuf::as_path)
    }

    /// True between the start and the completion of a dataset.
    pub fn has_dataset(&self) -> bool {
        self.dataset.is_some()
    }

    pub fn started(&mut self) {
        let (paths, closed) = (BTreeMap::new(), vec![false; self.expressions]);
        self.dataset = Some(OpenDataset { paths, closed, writing: 0, valid: true });
    }

    /// A file of the open dataset is written to this path from now on.
    pub fn routed(&mut self, name: &Path, path: &Path) {
        if let Some(dataset) = &mut self.dataset {
            dataset.paths.insert(name.to_owned(), path.to_owned());
            self.removed.remove(name);
        }
    }

    /// A file of the open dataset is open for writing.
    pub fn opened(&mut self) {
        if let Some(dataset) = &mut self.dataset {
            dataset.writing += 1;
        }
    }

    /// A file that was open for writing was closed, by all its descriptors. True if the dataset is complete.
    pub fn closed(&mut self, expression: usize, is_written: bool) -> bool {
        if let Some(dataset) = &mut self.dataset {
            dataset.writing = dataset.writing.saturating_sub(1);
        }
        self.finished(expression, is_written)
    }

    /// A file is complete, or cannot be written. True if the dataset is complete: each expression has a file, and none
    /// is open.
    pub fn finished(&mut self, expression: usize, is_written: bool) -> bool {
        let Some(dataset) = &mut self.dataset else { return false };
        dataset.valid &= is_written;
        if let Some(closed) = dataset.closed.get_mut(expression) {
            *closed = true;
        }
        dataset.writing == 0 && dataset.closed.iter().all(|closed| *closed)
    }

    /// True if this rank has written all files of the open dataset without an error.
    pub fn is_valid(&self) -> bool {
        self.dataset.as_ref().is_some_and(|dataset| dataset.valid)
    }

    /// The dataset was completed; `kept` is false if it was dropped.
    pub fn completed(&mut self, kept: bool) {
        let Some(dataset) = self.dataset.take() else { return };
        if kept {
            self.complete.extend(dataset.paths);
        }
    }

    /// The program removed the file.
    pub fn removed(&mut self, name: &Path) {
        self.complete.remove(name);
        self.removed.insert(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restart(names: &[&str]) -> Option<RestartFiles> {
        Some(RestartFiles {
            directory: "/cache/7".into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        })
    }

    fn at(path: &str) -> Location {
        Location::Dataset(path.into())
    }

    /// One file is written and closed.
    fn write(files: &mut Files, name: &str, path: &str) -> bool {
        if !files.has_dataset() {
            files.started();
        }
        files.routed(Path::new(name), Path::new(path));
        files.opened();
        files.closed(0, true)
    }

    #[test]
    fn without_a_checkpoint_files_are_under_their_own_names_until_they_are_written() {
        let mut files = Files::new(None, 1);
        let name = Path::new("/run/state_0");
        assert_eq!(files.locate(name), Location::OwnName);
        assert!(write(&mut files, "/run/state_0", "/cache/1/state_0"));
        assert_eq!(files.locate(name), at("/cache/1/state_0"));
        files.completed(true);
        assert_eq!(files.locate(name), at("/cache/1/state_0"));
        assert_eq!(files.locate(Path::new("/run/other")), Location::OwnName);
    }

    #[test]
    fn with_a_checkpoint_only_its_files_exist() {
        let files = Files::new(restart(&["state_0"]), 1);
        assert_eq!(files.locate(Path::new("/run/state_0")), at("/cache/7/state_0"));
        assert_eq!(files.locate(Path::new("/run/state_1")), Location::Absent);
    }

    #[test]
    fn a_dataset_that_is_dropped_leaves_the_file_of_the_one_before() {
        let mut files = Files::new(restart(&["state_0"]), 1);
        write(&mut files, "/run/state_0", "/cache/8/state_0");
        files.completed(true);
        write(&mut files, "/run/state_0", "/cache/9/state_0");
        files.completed(false);
        assert_eq!(files.locate(Path::new("/run/state_0")), at("/cache/8/state_0"));
    }

    #[test]
    fn a_dataset_needs_a_file_of_each_expression_and_none_open() {
        let mut files = Files::new(None, 2);
        files.started();
        files.opened();
        files.opened();
        assert!(!files.closed(0, true));
        files.opened();
        assert!(!files.closed(1, true), "another file is open");
        assert!(files.closed(1, true));
        assert!(files.is_valid());
    }

    #[test]
    fn one_file_with_an_error_makes_the_dataset_invalid() {
        let mut files = Files::new(None, 2);
        files.started();
        assert!(!files.finished(0, false));
        assert!(files.finished(1, true));
        assert!(!files.is_valid());
    }

    #[test]
    fn removed_files_do_not_exist_until_they_are_written_again() {
        let mut files = Files::new(restart(&["state_0"]), 1);
        files.removed(Path::new("/run/state_0"));
        assert_eq!(files.locate(Path::new("/run/state_0")), Location::Absent);
        write(&mut files, "/run/state_0", "/cache/8/state_0");
        assert_eq!(files.locate(Path::new("/run/state_0")), at("/cache/8/state_0"));
    }
}
