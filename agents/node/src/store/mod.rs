//! The node's checkpoint files, and the filemaps that list them.
//!
//! Each local rank has a *slot*, the file `filemap_<level>.scrinfo`. Entries of ranks on other nodes (a neighbour's
//! descriptor, a partner's copies, entries of an earlier run) are in the slot of a local rank. The master filemap lists
//! the slots. An entry is on disk before its file may exist, and is removed after the file is deleted, so that no file
//! is ever without an entry (`docs/scr-files.md` §4).
//!
//! Each filemap file has a log: a change is appended to it, in constant time, and the file is replaced at the end of a
//! step ([`Store::fold_logs`]). This module reads both.
//!
//! A method that changes something returns when the change survives this process. All methods block: call them from
//! blocking threads.
//!
//! * [`loading`]: reads what is on disk, without the damaged files;
//! * `slots`: one filemap with its log, and the distribution of entries when a run begins (`SCR manual §11.4.1`);
//!   `filemaps`: all filemaps together;
//! * `entries`: adds and changes entries; `deletion`: deletes files, then their entries;
//! * [`descriptions`]: the names and purposes that the application gave its datasets;
//! * [`examine`]: checks that the files of a rank are present and complete;
//! * [`locations`]: the flush file.

mod deleted;
mod deletion;
pub mod descriptions;
mod entries;
mod error;
pub mod examine;
mod filemaps;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod loading;
pub mod locations;
mod names;
mod slots;

use std::collections::BTreeSet;
use std::path::PathBuf;

use holdfast_core::control::filemap::Filemap;
use holdfast_core::control::nodes;
use holdfast_core::kvtree::Tree;
use holdfast_model::{CheckpointId, NodeName, Rank};
use parking_lot::Mutex;

pub use error::StoreError;

use crate::directories::claim;
use crate::directories::paths::{Paths, base_name};
use deleted::DeletedFiles;
use descriptions::Descriptions;
use filemaps::Filemaps;
use loading::OnDisk;
pub use locations::FlushRecord;
use slots::Slot;

const NODES_FILE: &str = "nodes.scrinfo";

#[derive(Debug)]
pub struct Store {
    pub flush: FlushRecord,
    pub descriptions: Descriptions,
    pub paths: Paths,
    filemaps: Mutex<Filemaps>,
    deleted: DeletedFiles,
}

impl Store {
    /// Reads what an earlier run or agent left in the control directory. `bases` are the cache bases below which the
    /// job's files may lie. Damaged filemaps are listed by [`Store::faults`] and otherwise ignored.
    ///
    /// # Errors
    /// When descriptors or memory are exhausted. Whatever is found otherwise, the node can serve.
    pub fn open(paths: Paths, bases: Vec<String>) -> Result<Store, StoreError> {
        let OnDisk { slots, logs, faults, .. } = loading::read(&paths, &bases)?;
        let position = |level| logs.get(&level).copied().unwrap_or_default();
        let slots =
            slots.into_iter().map(|(level, map)| Slot::new(&paths, level, None, map, position(level))).collect();
        let filemaps = Mutex::new(Filemaps::new(bases, slots, faults));
        let (flush, descriptions) = (FlushRecord::open(&paths), Descriptions::open(&paths));
        Ok(Store { flush, descriptions, paths, filemaps, deleted: DeletedFiles::default() })
    }

    /// The files that could not be read at [`Store::open`] or [`Store::begin_run`], and why.
    pub fn faults(&self) -> Vec<String> {
        self.filemaps.lock().faults.clone()
    }

    /// Begins a run with these local ranks, ascending. Every entry of the earlier run goes to the slot of a local rank,
    /// its own if it is local. The files are read again, since LLNL's library may have changed them meanwhile. The same
    /// run again changes nothing.
    ///
    /// # Errors
    /// When a filemap cannot be written; what is on disk then still names every file.
    pub fn begin_run(&self, local: &[Rank], bases: &[String]) -> Result<(), StoreError> {
        self.deleted.free();
        let mut filemaps = self.filemaps.lock();
        let mut all_bases = filemaps.bases.clone();
        for base in bases {
            if !all_bases.contains(base) {
                all_bases.push(base.clone());
            }
        }
        filemaps.bases.clone_from(&all_bases);
        let on_disk = loading::read(&self.paths, &all_bases)?;
        let faults = on_disk.faults.clone();
        filemaps.faults.clone_from(&faults);
        let slots = slots::begin_run(&self.paths, on_disk, local)?;
        *filemaps = Filemaps::new(all_bases, slots, faults);
        Ok(())
    }

    /// A rank's descriptor, in whichever slot it is.
    pub fn descriptor(&self, checkpoint: CheckpointId, rank: Rank) -> Option<Tree> {
        self.filemaps.lock().descriptor(checkpoint, rank).cloned()
    }

    /// The rank that has a file of this base name on this node.
    pub fn writer(&self, checkpoint: CheckpointId, name: &str) -> Option<Rank> {
        self.filemaps.lock().writer(checkpoint, name)
    }

    /// The base names of a rank's files, in filemap order: the newest first.
    pub fn files(&self, checkpoint: CheckpointId, rank: Rank) -> Vec<String> {
        let filemaps = self.filemaps.lock();
        let Some(map) = filemaps.holder(checkpoint, rank) else { return Vec::new() };
        map.files(checkpoint, rank).filter_map(|path| base_name(path).ok()).map(str::to_owned).collect()
    }

    /// True if all expected files of the rank are present and complete by their meta files. The content is not read.
    ///
    /// # Errors
    /// When descriptors or memory are exhausted.
    pub fn has(&self, checkpoint: CheckpointId, rank: Rank) -> Result<bool, StoreError> {
        let (map, bases) = {
            let filemaps = self.filemaps.lock();
            let Some(map) = filemaps.holder(checkpoint, rank) else { return Ok(false) };
            (map.clone(), filemaps.bases.clone())
        };
        // Outside the lock, which a slow file system must not hold.
        let found = examine::examine(&map, checkpoint, rank, &self.paths, &bases).map_err(StoreError::Unexamined)?;
        Ok(found.complete)
    }

    /// True if as many files of the rank are listed as are expected, apart from redundancy files that are being made;
    /// they may be missing.
    pub fn is_listed(&self, checkpoint: CheckpointId, rank: Rank) -> bool {
        self.filemaps.lock().holder(checkpoint, rank).is_some_and(|map| examine::is_listed(map, checkpoint, rank))
    }

    /// The node whose files these are copies of; `None` for a rank's own files.
    pub fn partner(&self, checkpoint: CheckpointId, rank: Rank) -> Option<NodeName> {
        self.filemaps.lock().holder(checkpoint, rank)?.partner(checkpoint, rank)
    }

    /// The directory of a checkpoint with this descriptor: its node path and its real path.
    ///
    /// # Errors
    /// When the descriptor names no directory, or one outside of the job's directories.
    pub fn directory(&self, checkpoint: CheckpointId, descriptor: &Tree) -> Result<(String, PathBuf), StoreError> {
        self.directory_below(&self.filemaps.lock().bases, checkpoint, descriptor)
    }

    /// The real path of the directory of a rank's files.
    ///
    /// # Errors
    /// When the checkpoint was not started here.
    pub fn rank_directory(&self, checkpoint: CheckpointId, rank: Rank) -> Result<PathBuf, StoreError> {
        let filemaps = self.filemaps.lock();
        let descriptor = filemaps.descriptor(checkpoint, rank).ok_or(StoreError::NoDirectory(checkpoint))?;
        self.directory_below(&filemaps.bases, checkpoint, descriptor).map(|(_, real)| real)
    }

    /// Creates that directory, and the missing ones above it.
    ///
    /// # Errors
    /// As [`Store::directory`], and when it cannot be created, or another user may have a hand in it.
    pub fn make_directory(&self, checkpoint: CheckpointId, descriptor: &Tree) -> Result<(String, PathBuf), StoreError> {
        let bases = self.filemaps.lock().bases.clone();
        let (node_path, real) = self.directory_below(&bases, checkpoint, descriptor)?;
        let found = self.paths.job_directory_of(&node_path, &bases);
        let (job_directory, below) = found.ok_or(StoreError::NoDirectory(checkpoint))?;
        claim::directory_below(&self.paths, &job_directory, below)?;
        Ok((node_path, real))
    }

    /// The checkpoints that have an entry on this node, ascending.
    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        let filemaps = self.filemaps.lock();
        let all: BTreeSet<_> = filemaps.slots.iter().flat_map(|slot| slot.map.checkpoints()).collect();
        all.into_iter().collect()
    }

    /// The ranks that have an entry in a checkpoint, which may be only a descriptor; ascending.
    pub fn ranks(&self, checkpoint: CheckpointId) -> Vec<Rank> {
        self.filemaps.lock().ranks(checkpoint).into_iter().collect()
    }

    /// The checkpoints in the cache below `base`, by their descriptors; ascending.
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

    /// Writes the number of the run's nodes to the nodes file.
    pub fn write_nodes(&self, nodes: u32) -> Result<(), StoreError> {
        Ok(nodes::write(&self.paths.control().join(NODES_FILE), nodes)?)
    }

    /// The number in the nodes file; `None` without the file.
    pub fn nodes(&self) -> Result<Option<u32>, StoreError> {
        Ok(nodes::read(&self.paths.control().join(NODES_FILE))?)
    }

    /// What is on disk now, and the cache bases of the job; for readers that must see what LLNL's library wrote.
    ///
    /// # Errors
    /// When descriptors or memory are exhausted.
    pub fn on_disk(&self) -> Result<(OnDisk, Vec<String>), StoreError> {
        let filemaps = self.filemaps.lock();
        Ok((loading::read(&self.paths, &filemaps.bases)?, filemaps.bases.clone()))
    }

    /// The cache bases below which the job's files may lie.
    pub fn bases(&self) -> Vec<String> {
        self.filemaps.lock().bases.clone()
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
mod tests;
