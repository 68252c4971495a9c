//! What an agent must not forget when it dies alone: state files in the control directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_model::{CheckpointId, Dataset, Generation, Rank};
use holdfast_wire::peer::Outcome;
use holdfast_wire::plan::RunRequest;
use holdfast_wire::rank::Reply;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::state_file;

/// The run that was taken on.
const RUN: &str = "holdfast.run";
/// What this node knows of the checkpoints of the run.
const MEMBER: &str = "holdfast.member";
/// The leader's results.
const LEADER: &str = "holdfast.leader";
/// Where the leader flushes to.
const FLUSHES: &str = "holdfast.flushes";
/// The last generation of the steps that were forgotten.
const FORGOTTEN: &str = "holdfast.forgotten";

/// What a node knows of the run's checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The run that this is about.
    pub generation: Generation,
    /// The checkpoint between start and complete.
    pub open: Option<CheckpointId>,
    /// The checkpoint that the run restarts from, until the first start.
    pub restart: Option<CheckpointId>,
    /// The files of that checkpoint (the open one, or else the one to restart from) are below the prefix, where the
    /// ranks themselves write and read them.
    #[serde(default)]
    pub direct: Option<Direct>,
}

/// A dataset whose files never lie in cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direct {
    /// Its directory, absolute.
    pub directory: PathBuf,
    /// The local ranks' files, in routing order.
    pub files: BTreeMap<Rank, Vec<String>>,
}

impl Memory {
    /// At the beginning of a run.
    pub fn fresh(generation: Generation) -> Self {
        Memory { generation, open: None, restart: None, direct: None }
    }

    /// A checkpoint is gone: nothing is written to it or read from it any more.
    pub fn forget(&mut self, checkpoint: CheckpointId) {
        if self.open.or(self.restart) == Some(checkpoint) {
            self.direct = None;
        }
        self.open = self.open.filter(|open| *open != checkpoint);
        self.restart = self.restart.filter(|restart| *restart != checkpoint);
    }
}

/// [`Memory`], kept on disk.
#[derive(Debug)]
pub struct Remembered {
    path: PathBuf,
    memory: Mutex<Memory>,
}

impl Remembered {
    /// What is on disk about this generation, or a fresh start.
    pub fn open(control: &Path, generation: Generation) -> Self {
        let path = control.join(MEMBER);
        let known = state_file::read::<Memory>(&path).filter(|memory| memory.generation == generation);
        Remembered { path, memory: Mutex::new(known.unwrap_or(Memory::fresh(generation))) }
    }

    /// A copy of it.
    pub fn read(&self) -> Memory {
        self.memory.lock().clone()
    }

    /// Changes it, on disk first.
    pub fn change(&self, change: impl FnOnce(&mut Memory)) -> io::Result<()> {
        let mut memory = self.memory.lock();
        let mut changed = memory.clone();
        change(&mut changed);
        if changed != *memory {
            state_file::write(&self.path, &changed)?;
            *memory = changed;
        }
        Ok(())
    }
}

/// What the leader must not forget: enough to answer the last collective again, and to go on with the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderMemory {
    /// The run.
    pub generation: Generation,
    /// The last collective that ended.
    pub seq: u64,
    /// Its results.
    pub outcome: Outcome,
    /// The newest checkpoint id that was given out.
    pub last: CheckpointId,
    /// The checkpoint between start and complete.
    pub open: Option<CheckpointId>,
    /// The newest checkpoint that is complete in cache.
    pub complete: Option<CheckpointId>,
    /// What the run restarted from, until the ranks confirm that they could read it.
    pub restart: Option<Restarted>,
    /// What the application said of the datasets; plain checkpoints are not listed.
    #[serde(default)]
    pub datasets: BTreeMap<CheckpointId, Dataset>,
}

/// What was restarted from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarted {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Its directory below the prefix, if it was fetched.
    pub fetched: Option<String>,
}

impl LeaderMemory {
    /// At the beginning of a run.
    pub fn fresh(generation: Generation) -> Self {
        LeaderMemory {
            generation,
            seq: 0,
            outcome: Ok(Reply::Done),
            last: CheckpointId::NONE,
            open: None,
            complete: None,
            restart: None,
            datasets: BTreeMap::new(),
        }
    }

    /// What the application said of a dataset.
    pub fn dataset(&self, checkpoint: CheckpointId) -> Dataset {
        self.datasets.get(&checkpoint).cloned().unwrap_or_default()
    }

    /// What is on disk about this generation, or a fresh start.
    pub fn open(control: &Path, generation: Generation) -> Self {
        state_file::read::<LeaderMemory>(&control.join(LEADER))
            .filter(|memory| memory.generation == generation)
            .unwrap_or_else(|| LeaderMemory::fresh(generation))
    }

    /// Puts it on disk.
    pub fn save(&self, control: &Path) -> io::Result<()> {
        state_file::write(&control.join(LEADER), self)
    }
}

/// The directories below the prefix into which the leader of a run flushes, until each is published. A flush that failed,
/// or whose leader was restarted, is resumed there; what is complete in it is not copied again.
#[derive(Debug)]
pub struct UnfinishedFlushes {
    path: PathBuf,
    known: Mutex<Flushes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Flushes {
    generation: Generation,
    directories: BTreeMap<CheckpointId, String>,
}

impl UnfinishedFlushes {
    /// Those of this generation. What another one began holds, under the same id, other files perhaps.
    pub fn open(control: &Path, generation: Generation) -> Self {
        let path = control.join(FLUSHES);
        let known = state_file::read::<Flushes>(&path).filter(|known| known.generation == generation);
        let known = known.unwrap_or(Flushes { generation, directories: BTreeMap::new() });
        UnfinishedFlushes { path, known: Mutex::new(known) }
    }

    /// Where the flush of this dataset was interrupted.
    pub fn directory_of(&self, checkpoint: CheckpointId) -> Option<String> {
        self.known.lock().directories.get(&checkpoint).cloned()
    }

    /// A flush begins, or is resumed. Blocks.
    pub fn begin(&self, checkpoint: CheckpointId, directory: &str) -> io::Result<()> {
        self.change(|directories| drop(directories.insert(checkpoint, directory.to_owned())))
    }

    /// It is published, or the dataset is deleted. Blocks.
    pub fn end(&self, checkpoint: CheckpointId) -> io::Result<()> {
        self.change(|directories| drop(directories.remove(&checkpoint)))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<CheckpointId, String>)) -> io::Result<()> {
        let mut known = self.known.lock();
        let before = known.clone();
        change(&mut known.directories);
        if *known == before { Ok(()) } else { state_file::write(&self.path, &*known) }
    }
}

/// What an earlier agent on this node was sent of the run that it had taken on.
pub fn read_plan(control: &Path) -> Option<RunRequest> {
    state_file::read(&control.join(RUN))
}

/// Records what this node was sent of a run: its own part, and the table of all nodes if it leads.
pub fn write_plan(control: &Path, request: &RunRequest) -> io::Result<()> {
    state_file::write(&control.join(RUN), request)
}

/// The last generation of the finished steps of the job that this node has forgotten.
pub fn read_forgotten(control: &Path) -> Generation {
    state_file::read(&control.join(FORGOTTEN)).unwrap_or(Generation::NONE)
}

/// Notes that the steps up to this generation are forgotten.
pub fn write_forgotten(control: &Path, finished: Generation) -> io::Result<()> {
    state_file::write(&control.join(FORGOTTEN), &finished)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_was_changed_is_there_for_the_next_agent_of_the_same_generation_only() {
        let control = tempfile::tempdir().unwrap();
        let remembered = Remembered::open(control.path(), Generation(2));
        remembered.change(|memory| memory.open = Some(CheckpointId(7))).unwrap();
        assert_eq!(Remembered::open(control.path(), Generation(2)).read().open, Some(CheckpointId(7)));
        assert_eq!(Remembered::open(control.path(), Generation(3)).read().open, None);
    }

    #[test]
    fn a_damaged_state_file_is_a_fresh_start() {
        let control = tempfile::tempdir().unwrap();
        fs::write(control.path().join(LEADER), b"{\"generation\":1,").unwrap();
        assert_eq!(LeaderMemory::open(control.path(), Generation(1)), LeaderMemory::fresh(Generation(1)));
    }

    #[test]
    fn an_unfinished_flush_is_resumed_by_the_next_leader_of_the_same_generation_only() {
        let control = tempfile::tempdir().unwrap();
        let flushes = UnfinishedFlushes::open(control.path(), Generation(2));
        flushes.begin(CheckpointId(5), "five").unwrap();
        flushes.begin(CheckpointId(6), "six").unwrap();
        flushes.end(CheckpointId(6)).unwrap();
        let next = UnfinishedFlushes::open(control.path(), Generation(2));
        assert_eq!(next.directory_of(CheckpointId(5)).as_deref(), Some("five"));
        assert_eq!(next.directory_of(CheckpointId(6)), None);
        assert_eq!(UnfinishedFlushes::open(control.path(), Generation(3)).directory_of(CheckpointId(5)), None);
    }

    #[test]
    fn the_leader_s_last_results_survive() {
        let control = tempfile::tempdir().unwrap();
        let mut memory = LeaderMemory::fresh(Generation(1));
        memory.seq = 4;
        memory.outcome = Ok(Reply::Flag(true));
        memory.save(control.path()).unwrap();
        assert_eq!(LeaderMemory::open(control.path(), Generation(1)), memory);
    }
}
