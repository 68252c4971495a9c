//! The node's checkpoint files, and the filemaps that know of them.
//!
//! Each rank of the node has a *slot*, the file `filemap_<level>.scrinfo`; entries of ranks that live elsewhere (a
//! neighbour's descriptor, a partner's copies, what an earlier run left) lie in the slot of a rank that lives here. The
//! master filemap lists the slots. An entry is on disk before its file may exist, and leaves it after the file is
//! deleted, so that no file is ever without an owner (`docs/scr-files.md` §4).
//!
//! Beside each filemap file lies its log: a change is appended there, in constant time, and the file is replaced when a step
//! is over ([`Store::fold_logs`]). Who reads the filemaps through this module sees both.
//!
//! Every method that changes something returns after the change survives this process. They block: call them from blocking
//! threads.
//!
//! * [`loading`]: what is on disk, read with every damaged file stepped over;
//! * `slots`: one filemap with its log, and who gets which entries when a run begins (`SCR manual §11.4.1`);
//!   `filemaps`: all of them together;
//! * `entries`: entering and changing what they say; `deletion`: deleting files, then their entries;
//! * [`descriptions`]: what the application said of its datasets;
//! * [`examine`]: are all files of a rank there and whole;
//! * [`locations`]: the flush file.

mod deletion;
pub mod descriptions;
mod entries;
mod error;
pub mod examine;
mod filemaps;
pub mod loading;
pub mod locations;
mod names;
mod slots;

use std::collections::BTreeSet;
use std::path::PathBuf;

use holdfast_core::control::filemap::Filemap;
use holdfast_core::control::nodes;
use holdfast_core::durable;
use holdfast_core::kvtree::Tree;
use holdfast_model::{CheckpointId, NodeName, Rank};
use parking_lot::Mutex;

pub use error::StoreError;

use crate::paths::{Paths, base_name};
use descriptions::Descriptions;
use filemaps::Filemaps;
use loading::OnDisk;
use locations::FlushRecord;
use slots::Slot;

const NODES_FILE: &str = "nodes.scrinfo";

/// The node's checkpoint files and their filemaps.
#[derive(Debug)]
pub struct Store {
    /// Where the checkpoints are.
    pub flush: FlushRecord,
    /// What the application said of its datasets.
    pub descriptions: Descriptions,
    paths: Paths,
    filemaps: Mutex<Filemaps>,
}

impl Store {
    /// Reads what an earlier run or agent left in the control directory. `bases` are the cache bases below which the
    /// job's files may lie. Damaged filemaps are reported by [`Store::faults`] and otherwise stepped over.
    ///
    /// # Errors
    /// None today: whatever is found, the node can serve. The result is one for what may come.
    pub fn open(paths: Paths, bases: Vec<String>) -> Result<Store, StoreError> {
        let OnDisk { slots, logs, faults, .. } = loading::read(&paths, &bases);
        let position = |level| logs.get(&level).copied().unwrap_or_default();
        let slots =
            slots.into_iter().map(|(level, map)| Slot::new(&paths, level, None, map, position(level))).collect();
        let filemaps = Mutex::new(Filemaps::new(bases, slots, faults));
        let (flush, descriptions) = (FlushRecord::open(&paths), Descriptions::open(&paths));
        Ok(Store { flush, descriptions, paths, filemaps })
    }

    /// The node's directories.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The files that could not be read at [`Store::open`] or [`Store::begin_run`], and why.
    pub fn faults(&self) -> Vec<String> {
        self.filemaps.lock().faults.clone()
    }

    /// Begins a run with these local ranks, ascending: every entry of the earlier run goes to the slot of a rank that
    /// lives here, its own if it does. The files are read again, since LLNL's library may have changed them meanwhile.
    /// The same run begun again changes nothing.
    ///
    /// # Errors
    /// When a filemap cannot be written; what is on disk then still names every file.
    pub fn begin_run(&self, local: &[Rank], bases: &[String]) -> Result<(), StoreError> {
        let mut filemaps = self.filemaps.lock();
        let mut all_bases = filemaps.bases.clone();
        for base in bases {
            if !all_bases.contains(base) {
                all_bases.push(base.clone());
            }
        }
        filemaps.bases.clone_from(&all_bases);
        let on_disk = loading::read(&self.paths, &all_bases);
        let faults = on_disk.faults.clone();
        filemaps.faults.clone_from(&faults);
        let slots = slots::begin_run(&self.paths, on_disk, local)?;
        *filemaps = Filemaps::new(all_bases, slots, faults);
        Ok(())
    }

    /// A rank's descriptor, wherever on the node it is known.
    pub fn descriptor(&self, checkpoint: CheckpointId, rank: Rank) -> Option<Tree> {
        self.filemaps.lock().descriptor(checkpoint, rank).cloned()
    }

    /// The rank whose file of this base name is here.
    pub fn writer(&self, checkpoint: CheckpointId, name: &str) -> Option<Rank> {
        self.filemaps.lock().writer(checkpoint, name)
    }

    /// The base names of a rank's files, in filemap order: the one that was added last is the first.
    pub fn files(&self, checkpoint: CheckpointId, rank: Rank) -> Vec<String> {
        let filemaps = self.filemaps.lock();
        let Some(map) = filemaps.holder(checkpoint, rank) else { return Vec::new() };
        map.files(checkpoint, rank).filter_map(|path| base_name(path).ok()).map(str::to_owned).collect()
    }

    /// True if all files of the rank that are expected are there, whole by their meta files. The content is not read.
    pub fn has(&self, checkpoint: CheckpointId, rank: Rank) -> bool {
        let (map, bases) = {
            let filemaps = self.filemaps.lock();
            let Some(map) = filemaps.holder(checkpoint, rank) else { return false };
            (map.clone(), filemaps.bases.clone())
        };
        // Outside the lock: a slow file system must not hold up the others.
        examine::examine(&map, checkpoint, rank, &self.paths, &bases).complete
    }

    /// True if as many files of the rank are listed as are expected. Whether they are there is another question.
    pub fn is_listed(&self, checkpoint: CheckpointId, rank: Rank) -> bool {
        self.filemaps.lock().holder(checkpoint, rank).is_some_and(|map| map.is_complete(checkpoint, rank))
    }

    /// The node whose files these are copies of; `None` for a rank's own files.
    pub fn partner(&self, checkpoint: CheckpointId, rank: Rank) -> Option<NodeName> {
        self.filemaps.lock().holder(checkpoint, rank)?.partner(checkpoint, rank)
    }

    /// The directory of a checkpoint with this descriptor, as the node sees it and as this process opens it.
    ///
    /// # Errors
    /// When the descriptor names none, or one outside of the job's directories.
    pub fn directory(&self, checkpoint: CheckpointId, descriptor: &Tree) -> Result<(String, PathBuf), StoreError> {
        self.directory_below(&self.filemaps.lock().bases, checkpoint, descriptor)
    }

    /// The directory of a rank's files of a checkpoint, as this process opens it.
    ///
    /// # Errors
    /// When the checkpoint was not started here.
    pub fn rank_directory(&self, checkpoint: CheckpointId, rank: Rank) -> Result<PathBuf, StoreError> {
        let filemaps = self.filemaps.lock();
        let descriptor = filemaps.descriptor(checkpoint, rank).ok_or(StoreError::NoDirectory(checkpoint))?;
        self.directory_below(&filemaps.bases, checkpoint, descriptor).map(|(_, real)| real)
    }

    /// Makes that directory, and what is missing above it.
    ///
    /// # Errors
    /// As [`Store::directory`], and when it cannot be made.
    pub fn make_directory(&self, checkpoint: CheckpointId, descriptor: &Tree) -> Result<(String, PathBuf), StoreError> {
        let (node_path, real) = self.directory(checkpoint, descriptor)?;
        if let Some(index) = real.parent() {
            durable::create_directory_unsynced(index, 0o750)?;
        }
        durable::create_directory_unsynced(&real, 0o700)?;
        Ok((node_path, real))
    }

    /// The checkpoints of which anything is known here, ascending.
    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        let filemaps = self.filemaps.lock();
        let all: BTreeSet<_> = filemaps.slots.iter().flat_map(|slot| slot.map.checkpoints()).collect();
        all.into_iter().collect()
    }

    /// The ranks of which anything is known here in a checkpoint, be it a mere descriptor; ascending.
    pub fn ranks(&self, checkpoint: CheckpointId) -> Vec<Rank> {
        self.filemaps.lock().ranks(checkpoint).into_iter().collect()
    }

    /// The checkpoints that lie in the cache below `base`, by their descriptors; ascending.
    pub fn in_base(&self, base: &str) -> Vec<CheckpointId> {
        let filemaps = self.filemaps.lock();
        let of_base = |map: &Filemap, checkpoint| {
            map.ranks(checkpoint).into_iter().any(|rank| {
                map.descriptor(checkpoint, rank).and_then(|descriptor| descriptor.value("BASE")) == Some(base)
            })
        };
        let all: BTreeSet<_> = filemaps
            .slots
            .iter()
            .flat_map(|slot| slot.map.checkpoints().into_iter().filter(|id| of_base(&slot.map, *id)))
            .collect();
        all.into_iter().collect()
    }

    /// Writes the nodes file: how many nodes the run uses.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_nodes(&self, nodes: u32) -> Result<(), StoreError> {
        Ok(nodes::write(&self.paths.control().join(NODES_FILE), nodes)?)
    }

    /// What the nodes file says; `None` without one.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn nodes(&self) -> Result<Option<u32>, StoreError> {
        Ok(nodes::read(&self.paths.control().join(NODES_FILE))?)
    }

    /// What is on disk now, and the cache bases that count; for readers that must see what LLNL's library wrote.
    pub fn on_disk(&self) -> (OnDisk, Vec<String>) {
        let filemaps = self.filemaps.lock();
        (loading::read(&self.paths, &filemaps.bases), filemaps.bases.clone())
    }

    /// Blocks every access to the filemaps until the guard is dropped, as a disk that hangs does.
    #[cfg(test)]
    pub(crate) fn stall(&self) -> impl Sized + '_ {
        self.filemaps.lock()
    }

    fn directory_below(
        &self,
        bases: &[String],
        checkpoint: CheckpointId,
        descriptor: &Tree,
    ) -> Result<(String, PathBuf), StoreError> {
        let directory = descriptor.value("DIRECTORY").ok_or(StoreError::NoDirectory(checkpoint))?;
        let node_path = format!("{}/checkpoint.{checkpoint}", directory.trim_end_matches('/'));
        let real = self.paths.real_of_job(&node_path, bases)?;
        Ok((node_path, real))
    }
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
pub(crate) mod fixture_node;
#[cfg(test)]
mod tests;
