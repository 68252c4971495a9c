//! The node's checkpoint files, and the filemaps that know of them.
//!
//! Each rank of the node has a *slot*, the file `filemap_<level>.scrinfo`; entries of ranks that live elsewhere (a
//! neighbour's descriptor, a partner's copies, what an earlier run left) lie in the slot of a rank that lives here. The
//! master filemap lists the slots. An entry is on disk before its file may exist, and leaves it after the file is
//! deleted, so that no file is ever without an owner (`FORMATS.md` §4).
//!
//! Every method that changes something returns after the change is on disk. They block: call them from blocking threads.
//!
//! * [`loading`]: what is on disk, read with every damaged file stepped over;
//! * `slots`: who gets which entries when a run begins (`SCR manual §11.4.1`);
//! * [`descriptions`]: what the application said of its datasets;
//! * [`examine`]: are all files of a rank there and whole;
//! * [`locations`]: the flush file.

pub mod descriptions;
pub mod examine;
pub mod loading;
pub mod locations;
mod names;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use holdfast_core::control::ControlError;
use holdfast_core::control::filemap::Filemap;
use holdfast_core::control::meta::Meta;
use holdfast_core::control::nodes;
use holdfast_core::durable::{self, DurableError};
use holdfast_core::kvtree::Tree;
use holdfast_model::{CheckpointId, Failure, NodeName, Rank};
use parking_lot::Mutex;

use crate::paths::{PathError, Paths, base_name};
use descriptions::Descriptions;
use loading::OnDisk;
use locations::FlushRecord;
use slots::Slot;

/// What went wrong with the node's checkpoint files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A filemap, flush or nodes file.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A path that must not be followed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A directory could not be made.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// A checkpoint file or directory could not be deleted.
    #[error("cannot delete {}: {source}; check owner and mode of its directory on this node", path.display())]
    Delete {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The names of the datasets could not be put on disk.
    #[error("cannot record the datasets' names in {}: {source}; is the file system full or read-only?", directory.display())]
    Describe {
        /// The control directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No local rank of this number, so there is no filemap to write to.
    #[error("rank {0} does not live on this node in this run: it has no filemap here")]
    NoSlot(Rank),
    /// The descriptor of a rank is not known, so there is no directory for its files.
    #[error(
        "checkpoint {checkpoint} of rank {rank} has no redundancy descriptor on this node: it was not started here"
    )]
    NoDescriptor {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The rank.
        rank: Rank,
    },
    /// A descriptor without DIRECTORY.
    #[error("the redundancy descriptor of checkpoint {0} names no directory: the filemap that holds it is damaged")]
    NoDirectory(CheckpointId),
}

impl StoreError {
    /// Adds rank, dataset and file to a failure that this error becomes.
    pub(crate) fn locate(self, failure: Failure) -> Failure {
        match self {
            StoreError::Delete { path, .. } | StoreError::Describe { directory: path, .. } => failure.at(path),
            StoreError::NoSlot(rank) => failure.of_rank(rank),
            StoreError::NoDescriptor { checkpoint, rank } => failure.of_rank(rank).of_checkpoint(checkpoint),
            StoreError::NoDirectory(checkpoint) => failure.of_checkpoint(checkpoint),
            StoreError::Control(_) | StoreError::Path(_) | StoreError::Durable(_) => failure,
        }
    }
}

const NODES_FILE: &str = "nodes.scrinfo";

/// The node's checkpoint files and their filemaps.
#[derive(Debug)]
pub struct Store {
    /// Where the checkpoints are.
    pub flush: FlushRecord,
    /// What the application said of its datasets.
    pub descriptions: Descriptions,
    paths: Paths,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    bases: Vec<String>,
    slots: Vec<Slot>,
    faults: Vec<String>,
}

impl Store {
    /// Reads what an earlier run or agent left in the control directory. `bases` are the cache bases below which the
    /// job's files may lie. Damaged filemaps are reported by [`Store::faults`] and otherwise stepped over.
    ///
    /// # Errors
    /// None today: whatever is found, the node can serve. The result is one for what may come.
    pub fn open(paths: Paths, bases: Vec<String>) -> Result<Store, StoreError> {
        let on_disk = loading::read(&paths, &bases);
        let slots = on_disk.slots.into_iter().map(|(level, map)| Slot { owner: None, level, map }).collect();
        let inner = Inner { bases, slots, faults: on_disk.faults };
        let (flush, descriptions) = (FlushRecord::open(&paths), Descriptions::open(&paths));
        Ok(Store { flush, descriptions, paths, inner: Mutex::new(inner) })
    }

    /// The node's directories.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The files that could not be read at [`Store::open`] or [`Store::begin_run`], and why.
    pub fn faults(&self) -> Vec<String> {
        self.inner.lock().faults.clone()
    }

    /// Begins a run with these local ranks, ascending: every entry of the earlier run goes to the slot of a rank that
    /// lives here, its own if it does. The files are read again, since LLNL's library may have changed them meanwhile.
    /// The same run begun again changes nothing.
    ///
    /// # Errors
    /// When a filemap cannot be written; what is on disk then still names every file.
    pub fn begin_run(&self, local: &[Rank], bases: &[String]) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        for base in bases {
            if !inner.bases.contains(base) {
                inner.bases.push(base.clone());
            }
        }
        let on_disk = loading::read(&self.paths, &inner.bases);
        inner.faults.clone_from(&on_disk.faults);
        let new = slots::distribute(&on_disk, local);
        slots::write_all(&self.paths, &on_disk, &new)?;
        inner.slots = new;
        Ok(())
    }

    /// Stores a rank's descriptor in the slot of the local rank `slot`, in the order that the tree has.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written.
    pub fn set_descriptor(
        &self,
        checkpoint: CheckpointId,
        slot: Rank,
        rank: Rank,
        descriptor: &Tree,
    ) -> Result<(), StoreError> {
        self.change(slot, |map| map.set_descriptor(checkpoint, rank, descriptor.clone()))
    }

    /// A rank's descriptor, wherever on the node it is known.
    pub fn descriptor(&self, checkpoint: CheckpointId, rank: Rank) -> Option<Tree> {
        self.inner.lock().descriptor(checkpoint, rank)
    }

    /// Adds a file of a rank to the slot of the local rank `slot`; returns where it is to be written. The entry is on
    /// disk before this returns. Only the last part of `name` counts.
    ///
    /// # Errors
    /// When the name is none, the checkpoint was not started here, or the filemap cannot be written.
    pub fn add_file(
        &self,
        checkpoint: CheckpointId,
        slot: Rank,
        rank: Rank,
        name: &str,
    ) -> Result<PathBuf, StoreError> {
        let name = base_name(name)?;
        let mut inner = self.inner.lock();
        // The files of a foreign rank lie with those of the slot's own rank: its descriptor may name a directory of
        // another node.
        let descriptor = inner
            .descriptor(checkpoint, slot)
            .or_else(|| inner.descriptor(checkpoint, rank))
            .ok_or(StoreError::NoDescriptor { checkpoint, rank })?;
        let (directory, _) = self.directory_below(&inner.bases, checkpoint, &descriptor)?;
        let node_path = format!("{directory}/{name}");
        let real = self.paths.real_of_job(&node_path, &inner.bases)?;
        inner.change(&self.paths, slot, |map| map.add_file(checkpoint, rank, &node_path))?;
        Ok(real)
    }

    /// The rank whose file of this base name is here.
    pub fn writer(&self, checkpoint: CheckpointId, name: &str) -> Option<Rank> {
        let inner = self.inner.lock();
        let is_it = |path: &str| base_name(path).is_ok_and(|known| known == name);
        inner.slots.iter().find_map(|slot| {
            let ranks = slot.map.ranks(checkpoint);
            ranks.into_iter().find(|rank| slot.map.files(checkpoint, *rank).any(is_it))
        })
    }

    /// Deletes a file of a rank and its meta file, then its entry; one that is not known is no error.
    ///
    /// # Errors
    /// When it cannot be deleted, or the filemap cannot be written.
    pub fn remove_file(&self, checkpoint: CheckpointId, rank: Rank, name: &str) -> Result<(), StoreError> {
        let name = base_name(name)?;
        let mut inner = self.inner.lock();
        for (node_path, real) in self.files_in(&inner, checkpoint, rank) {
            if base_name(&node_path)? == name {
                delete_file(&real)?;
                inner.change_all(&self.paths, |map| {
                    map.remove_file(checkpoint, rank, &node_path);
                })?;
            }
        }
        Ok(())
    }

    /// The base names of a rank's files, in filemap order: the one that was added last is the first.
    pub fn files(&self, checkpoint: CheckpointId, rank: Rank) -> Vec<String> {
        let inner = self.inner.lock();
        let Some(slot) = inner.holder(checkpoint, rank) else { return Vec::new() };
        slot.map.files(checkpoint, rank).filter_map(|path| base_name(path).ok()).map(str::to_owned).collect()
    }

    /// Where the files of a rank really are, in filemap order, with their base names.
    ///
    /// # Errors
    /// When an entry leads out of the job's directories.
    pub fn file_paths(&self, checkpoint: CheckpointId, rank: Rank) -> Result<Vec<(String, PathBuf)>, StoreError> {
        let inner = self.inner.lock();
        let Some(slot) = inner.holder(checkpoint, rank) else { return Ok(Vec::new()) };
        let mut paths = Vec::new();
        for node_path in slot.map.files(checkpoint, rank) {
            let real = self.paths.real_of_job(node_path, &inner.bases)?;
            paths.push((base_name(node_path)?.to_owned(), real));
        }
        Ok(paths)
    }

    /// True if all files of the rank that are expected are there, whole by their meta files. The content is not read.
    pub fn has(&self, checkpoint: CheckpointId, rank: Rank) -> bool {
        let (map, bases) = {
            let inner = self.inner.lock();
            let Some(slot) = inner.holder(checkpoint, rank) else { return false };
            (slot.map.clone(), inner.bases.clone())
        };
        // Outside the lock: a slow file system must not hold up the others.
        examine::examine(&map, checkpoint, rank, &self.paths, &bases).complete
    }

    /// Says how many files the rank has, redundancy files included.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written.
    pub fn set_expected(&self, checkpoint: CheckpointId, slot: Rank, rank: Rank, files: u32) -> Result<(), StoreError> {
        self.change(slot, |map| map.set_expected(checkpoint, rank, files))
    }

    /// Forgets how many files there should be: the rank's files count as incomplete until it is said again.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written.
    pub fn unset_expected(&self, checkpoint: CheckpointId, slot: Rank, rank: Rank) -> Result<(), StoreError> {
        self.change(slot, |map| map.unset_expected(checkpoint, rank))
    }

    /// Marks a rank's files as copies of those on its own node.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written.
    pub fn set_partner(
        &self,
        checkpoint: CheckpointId,
        slot: Rank,
        rank: Rank,
        owner: &NodeName,
    ) -> Result<(), StoreError> {
        self.change(slot, |map| map.set_partner(checkpoint, rank, owner))
    }

    /// The node whose files these are copies of; `None` for a rank's own files.
    pub fn partner(&self, checkpoint: CheckpointId, rank: Rank) -> Option<NodeName> {
        self.inner.lock().holder(checkpoint, rank)?.map.partner(checkpoint, rank)
    }

    /// The directory of a checkpoint with this descriptor, as the node sees it and as this process opens it.
    ///
    /// # Errors
    /// When the descriptor names none, or one outside of the job's directories.
    pub fn directory(&self, checkpoint: CheckpointId, descriptor: &Tree) -> Result<(String, PathBuf), StoreError> {
        self.directory_below(&self.inner.lock().bases, checkpoint, descriptor)
    }

    /// The directory of a rank's files of a checkpoint, as this process opens it.
    ///
    /// # Errors
    /// When the checkpoint was not started here.
    pub fn rank_directory(&self, checkpoint: CheckpointId, rank: Rank) -> Result<PathBuf, StoreError> {
        let descriptor = self.descriptor(checkpoint, rank).unwrap_or_default();
        self.directory(checkpoint, &descriptor).map(|(_, real)| real)
    }

    /// Makes that directory, and what is missing above it.
    ///
    /// # Errors
    /// As [`Store::directory`], and when it cannot be made.
    pub fn make_directory(&self, checkpoint: CheckpointId, descriptor: &Tree) -> Result<(String, PathBuf), StoreError> {
        let (node_path, real) = self.directory(checkpoint, descriptor)?;
        if let Some(index) = real.parent() {
            durable::create_directory(index, 0o750)?;
        }
        durable::create_directory(&real, 0o700)?;
        Ok((node_path, real))
    }

    /// Gives all entries of a rank to the slot of the local rank `slot`; if that is the rank itself, its files are
    /// no partner copies any more: they are its own now.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written; the entries are then where they were.
    pub fn move_rank_to_slot(&self, rank: Rank, slot: Rank) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        let target = inner.slot_index(slot)?;
        // Taking out and putting in reverse the order once each: the files keep theirs.
        let others = inner.slots.iter().enumerate().filter(|(at, _)| *at != target);
        let moved: Vec<Filemap> = others.map(|(_, other)| other.map.clone().extract_rank(rank)).collect();
        let own = slot == rank;
        inner.change(&self.paths, slot, |map| {
            moved.iter().for_each(|entries| map.merge(entries));
            if own {
                slots::forget_partners(map, rank);
            }
        })?;
        // Now twice on disk, which harms nobody; then gone where it was.
        inner.change_others(&self.paths, target, |map| map.remove_rank(rank))
    }

    /// Deletes a checkpoint from this node: files, meta files and directories first, then the entries, then its place
    /// in the flush file. What is not there is no error.
    ///
    /// # Errors
    /// When something cannot be deleted; the entries then stay, and it can be done again.
    pub fn delete(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        let mut directories = BTreeSet::new();
        for rank in inner.ranks(checkpoint) {
            for (_, real) in self.files_in(&inner, checkpoint, rank) {
                delete_file(&real)?;
            }
            for slot in &inner.slots {
                // A neighbour's descriptor can name a directory of another node, which is not ours to touch.
                let directory = slot
                    .map
                    .descriptor(checkpoint, rank)
                    .map(|descriptor| self.directory_below(&inner.bases, checkpoint, descriptor));
                if let Some(Ok((_, real))) = directory {
                    directories.insert(real);
                }
            }
        }
        for directory in directories {
            // With whatever else lies in it: no one else would ever delete that, and the cache is often memory.
            ignore_missing(std::fs::remove_dir_all(&directory))
                .map_err(|source| StoreError::Delete { path: directory, source })?;
        }
        inner.change_all(&self.paths, |map| map.remove_checkpoint(checkpoint))?;
        self.descriptions.forget(checkpoint)?;
        self.flush.forget(checkpoint)
    }

    /// Deletes every checkpoint from this node, with all that is noted of them.
    ///
    /// # Errors
    /// When something cannot be deleted; it can be done again.
    pub fn clear(&self) -> Result<(), StoreError> {
        self.checkpoints().into_iter().try_for_each(|checkpoint| self.delete(checkpoint))?;
        self.descriptions.clear()?;
        self.flush.clear()
    }

    /// Deletes the files of one rank of a checkpoint, then all that is known of it.
    ///
    /// # Errors
    /// When something cannot be deleted; the entries then stay, and it can be done again.
    pub fn delete_rank(&self, checkpoint: CheckpointId, rank: Rank) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        for (_, real) in self.files_in(&inner, checkpoint, rank) {
            delete_file(&real)?;
        }
        inner.change_all(&self.paths, |map| map.remove(checkpoint, rank))
    }

    /// The checkpoints of which anything is known here, ascending.
    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        let inner = self.inner.lock();
        let all: BTreeSet<_> = inner.slots.iter().flat_map(|slot| slot.map.checkpoints()).collect();
        all.into_iter().collect()
    }

    /// The ranks of which anything is known here in a checkpoint, be it a mere descriptor; ascending.
    pub fn ranks(&self, checkpoint: CheckpointId) -> Vec<Rank> {
        self.inner.lock().ranks(checkpoint).into_iter().collect()
    }

    /// The checkpoints that lie in the cache below `base`, by their descriptors; ascending.
    pub fn in_base(&self, base: &str) -> Vec<CheckpointId> {
        let inner = self.inner.lock();
        let of_base = |map: &Filemap, checkpoint| {
            map.ranks(checkpoint).into_iter().any(|rank| {
                map.descriptor(checkpoint, rank).and_then(|descriptor| descriptor.value("BASE")) == Some(base)
            })
        };
        let all: BTreeSet<_> = inner
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
        let inner = self.inner.lock();
        (loading::read(&self.paths, &inner.bases), inner.bases.clone())
    }

    /// Blocks every access to the filemaps until the guard is dropped, as a disk that hangs does.
    #[cfg(test)]
    pub(crate) fn stall(&self) -> impl Sized + '_ {
        self.inner.lock()
    }

    fn change(&self, slot: Rank, change: impl FnOnce(&mut Filemap)) -> Result<(), StoreError> {
        self.inner.lock().change(&self.paths, slot, change)
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

    /// A rank's files in all slots that are ours to delete. An entry that leads elsewhere, because it is damaged or of a
    /// cache that the job does not use any more, is forgotten with the others, and its file left alone: refusing would
    /// keep the checkpoint, and with it the run, for ever.
    fn files_in(&self, inner: &Inner, checkpoint: CheckpointId, rank: Rank) -> BTreeMap<String, PathBuf> {
        let mut files = BTreeMap::new();
        for path in inner.slots.iter().flat_map(|slot| slot.map.files(checkpoint, rank)) {
            match self.paths.real_of_job(path, &inner.bases) {
                Ok(real) => {
                    files.insert(path.to_owned(), real);
                }
                Err(error) => tracing::warn!(%error, "file_left_alone"),
            }
        }
        files
    }
}

impl Inner {
    fn slot_index(&self, slot: Rank) -> Result<usize, StoreError> {
        let own = self.slots.iter().position(|candidate| candidate.owner == Some(slot));
        // A spare has one slot that is nobody's.
        let spare = || (self.slots.len() == 1 && self.slots[0].owner.is_none()).then_some(0);
        own.or_else(spare).ok_or(StoreError::NoSlot(slot))
    }

    fn ranks(&self, checkpoint: CheckpointId) -> BTreeSet<Rank> {
        self.slots.iter().flat_map(|slot| slot.map.ranks(checkpoint)).collect()
    }

    fn descriptor(&self, checkpoint: CheckpointId, rank: Rank) -> Option<Tree> {
        let own = self.slots.iter().filter(|slot| slot.owner == Some(rank));
        own.chain(&self.slots).find_map(|slot| slot.map.descriptor(checkpoint, rank)).cloned()
    }

    /// The slot that has files of the rank, or knows how many there should be.
    fn holder(&self, checkpoint: CheckpointId, rank: Rank) -> Option<&Slot> {
        self.slots.iter().find(|slot| {
            slot.map.expected(checkpoint, rank).is_some() || slot.map.files(checkpoint, rank).next().is_some()
        })
    }

    /// Changes a slot on disk, then in memory: what cannot be written has not happened.
    fn change(&mut self, paths: &Paths, slot: Rank, change: impl FnOnce(&mut Filemap)) -> Result<(), StoreError> {
        let at = self.slot_index(slot)?;
        self.slots[at].change(paths, change)
    }

    fn change_all(&mut self, paths: &Paths, change: impl Fn(&mut Filemap)) -> Result<(), StoreError> {
        self.slots.iter_mut().try_for_each(|slot| slot.change(paths, &change))
    }

    fn change_others(&mut self, paths: &Paths, but: usize, change: impl Fn(&mut Filemap)) -> Result<(), StoreError> {
        let others = self.slots.iter_mut().enumerate().filter(|(at, _)| *at != but);
        others.map(|(_, slot)| slot).try_for_each(|slot| slot.change(paths, &change))
    }
}

/// Deletes a checkpoint file and its meta file.
fn delete_file(file: &Path) -> Result<(), StoreError> {
    for path in [file.to_owned(), Meta::path_for(file)] {
        ignore_missing(std::fs::remove_file(&path)).map_err(|source| StoreError::Delete { path, source })?;
    }
    Ok(())
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
pub(crate) mod fixture_node;
#[cfg(test)]
mod tests;
