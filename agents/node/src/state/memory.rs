//! State that must survive the agent's process: state files in the control directory. Those of the leader are in
//! [`collective::leader`](crate::collective::leader).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::control::ControlError;
use holdfast_model::{CheckpointId, Generation, OutputPath, Rank};
use holdfast_wire::plan::RunRequest;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::direct_files::DirectFiles;
use super::state_file;

/// The plan of the run in force.
const RUN: &str = "holdfast.run";
/// The open checkpoint and the one to restart from.
const MEMBER: &str = "holdfast.member";
/// The files of the open dataset that lie below the prefix directory.
const DIRECT_FILES: &str = "holdfast.direct_files.log";
/// The generation that ended, if the job is being drained.
const ENDED: &str = "holdfast.ended";

/// This node's state of the run's checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub generation: Generation,
    /// The checkpoint between start and complete.
    pub open: Option<CheckpointId>,
    /// The checkpoint that the run restarts from, until the first start.
    pub restart: Option<CheckpointId>,
    /// The files of that checkpoint (the open one, or else the one to restart from) are below the prefix, where the
    /// ranks themselves write and read them.
    pub direct: Option<Direct>,
}

/// A dataset that bypasses the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direct {
    /// The absolute path of its directory below the prefix.
    pub directory: PathBuf,
    /// The files that the local ranks restart from, in routing order; empty while the dataset is written
    /// ([`Remembered::direct_files`]).
    pub files: BTreeMap<Rank, Vec<String>>,
    /// Where the files of an output are below the prefix directory, by base name.
    #[serde(default)]
    pub output_paths: BTreeMap<Rank, BTreeMap<String, OutputPath>>,
    /// The number of ranks that wrote the dataset to restart from, if the run has another one: each rank reads any of
    /// its files, which its summary lists.
    pub written_by: Option<u32>,
}

impl Direct {
    /// Begins a dataset in a directory.
    pub fn in_directory(directory: PathBuf) -> Self {
        Direct { directory, files: BTreeMap::new(), output_paths: BTreeMap::new(), written_by: None }
    }

    /// The path of a file of a rank.
    pub fn path(&self, rank: Rank, name: &str) -> PathBuf {
        match self.output_paths.get(&rank).and_then(|paths| paths.get(name)) {
            Some(path) => self.prefix().join(path.as_str()),
            None => self.directory.join(name),
        }
    }

    /// The prefix directory, which contains the dataset's directory.
    pub fn prefix(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }
}

impl Memory {
    /// At the beginning of a run.
    pub fn fresh(generation: Generation) -> Self {
        Memory { generation, open: None, restart: None, direct: None }
    }

    /// The checkpoint was deleted: nothing is written to it or read from it any more.
    pub fn forget(&mut self, checkpoint: CheckpointId) {
        if self.open.or(self.restart) == Some(checkpoint) {
            self.direct = None;
        }
        self.open = self.open.filter(|open| *open != checkpoint);
        self.restart = self.restart.filter(|restart| *restart != checkpoint);
    }

    /// Identifies the open dataset if its files lie below the prefix directory; empty otherwise.
    fn direct_dataset(&self) -> Vec<u8> {
        let Some((checkpoint, direct)) = self.open.zip(self.direct.as_ref()) else { return Vec::new() };
        format!("{} {checkpoint} {}", self.generation, direct.directory.display()).into_bytes()
    }
}

/// [`Memory`], kept on disk.
#[derive(Debug)]
pub struct Remembered {
    path: PathBuf,
    memory: Mutex<Arc<Memory>>,
    direct_files: Mutex<DirectFiles>,
}

impl Remembered {
    /// The state on disk if it is of this generation, otherwise a fresh one.
    ///
    /// # Errors
    /// When descriptors or memory are exhausted.
    pub fn open(control: &Path, generation: Generation) -> io::Result<Self> {
        let path = control.join(MEMBER);
        let known = state_file::read::<Memory>(&path)?.filter(|memory| memory.generation == generation);
        let memory = known.unwrap_or(Memory::fresh(generation));
        let direct_files = DirectFiles::open(control.join(DIRECT_FILES), memory.direct_dataset());
        Ok(Remembered { path, memory: Mutex::new(Arc::new(memory)), direct_files: Mutex::new(direct_files) })
    }

    pub fn read(&self) -> Arc<Memory> {
        self.memory.lock().clone()
    }

    /// Changes it, on disk first.
    pub fn change(&self, change: impl FnOnce(&mut Memory)) -> io::Result<()> {
        let mut memory = self.memory.lock();
        let mut changed = Memory::clone(&memory);
        change(&mut changed);
        if changed != **memory {
            state_file::write(&self.path, &changed)?;
            // After the file: a log of a dataset that the file does not name is ignored.
            self.direct_files.lock().switch_to(changed.direct_dataset());
            *memory = Arc::new(changed);
        }
        Ok(())
    }

    /// Adds a file of the open dataset that is below the prefix directory, on disk first.
    pub fn add_direct_file(&self, checkpoint: CheckpointId, rank: Rank, name: &str) -> Result<(), ControlError> {
        self.direct_files.lock().add(checkpoint, rank, name)
    }

    /// Those files of each rank that has any, the newest first.
    pub fn direct_files(&self, checkpoint: CheckpointId) -> BTreeMap<Rank, Vec<String>> {
        self.direct_files.lock().of_ranks(checkpoint)
    }
}

/// The run plan that an earlier agent on this node received.
///
/// # Errors
/// When descriptors or memory are exhausted.
pub fn read_plan(control: &Path) -> io::Result<Option<RunRequest>> {
    state_file::read(&control.join(RUN))
}

/// Records the run plan that this node received: its own part, and the table of all nodes if it leads.
pub fn write_plan(control: &Path, request: &RunRequest) -> io::Result<()> {
    state_file::write(&control.join(RUN), request)
}

/// The last generation of which this node knows that it has ended.
///
/// # Errors
/// When descriptors or memory are exhausted.
pub fn read_ended(control: &Path) -> io::Result<Generation> {
    Ok(state_file::read(&control.join(ENDED))?.unwrap_or(Generation::NONE))
}

/// Records that a generation has ended: an agent that is restarted takes no part in it.
pub fn write_ended(control: &Path, ended: Generation) -> io::Result<()> {
    state_file::write(&control.join(ENDED), &ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_agent_finds_the_state_of_its_generation_only() {
        let control = tempfile::tempdir().unwrap();
        let remembered = Remembered::open(control.path(), Generation(2)).unwrap();
        remembered.change(|memory| memory.open = Some(CheckpointId(7))).unwrap();
        assert_eq!(Remembered::open(control.path(), Generation(2)).unwrap().read().open, Some(CheckpointId(7)));
        assert_eq!(Remembered::open(control.path(), Generation(3)).unwrap().read().open, None);
    }
}
