//! All filemaps of the node together: finds and changes entries.

use std::collections::{BTreeSet, HashMap};

use holdfast_core::control::filemap::{ChangeKind, Filemap, FilemapChange, RankChange};
use holdfast_core::kvtree::Tree;
use holdfast_model::{CheckpointId, Rank};

use super::error::StoreError;
use super::slots::{Slot, forget_partners};
use crate::directories::paths::{Paths, base_name};

#[derive(Debug)]
pub(super) struct Filemaps {
    /// The cache bases below which the job's files may lie.
    pub(super) bases: Vec<String>,
    pub(super) slots: Vec<Slot>,
    /// The files that could not be read, and why.
    pub(super) faults: Vec<String>,
    /// The rank of each file name, for the checkpoints for which it was requested.
    writers: HashMap<CheckpointId, HashMap<String, Rank>>,
}

impl Filemaps {
    pub(super) fn new(bases: Vec<String>, slots: Vec<Slot>, faults: Vec<String>) -> Self {
        Filemaps { bases, slots, faults, writers: HashMap::new() }
    }

    pub(super) fn slot_index(&self, slot: Rank) -> Result<usize, StoreError> {
        let own = self.slots.iter().position(|candidate| candidate.owner == Some(slot));
        // A spare has one slot without an owner.
        let spare = || (self.slots.len() == 1 && self.slots[0].owner.is_none()).then_some(0);
        own.or_else(spare).ok_or(StoreError::NoSlot(slot))
    }

    /// The ranks that have an entry.
    pub(super) fn ranks(&self, checkpoint: CheckpointId) -> BTreeSet<Rank> {
        self.slots.iter().flat_map(|slot| slot.map.ranks(checkpoint)).collect()
    }

    /// The slots in the order in which an entry of the rank is looked for: its own first, where it usually is.
    fn slots_for(&self, rank: Rank) -> impl Iterator<Item = &Slot> {
        let own = self.slots.iter().filter(move |slot| slot.owner == Some(rank));
        own.chain(&self.slots)
    }

    pub(super) fn descriptor(&self, checkpoint: CheckpointId, rank: Rank) -> Option<&Tree> {
        self.slots_for(rank).find_map(|slot| slot.map.descriptor(checkpoint, rank))
    }

    /// The filemap that lists files of the rank, or their expected number.
    pub(super) fn holder(&self, checkpoint: CheckpointId, rank: Rank) -> Option<&Filemap> {
        let found = self.slots_for(rank).find(|slot| slot.holds(checkpoint, rank));
        found.map(|slot| &slot.map)
    }

    /// The rank that has a file of this base name on this node. Looked up in a table, since each routed file needs it.
    pub(super) fn writer(&mut self, checkpoint: CheckpointId, name: &str) -> Option<Rank> {
        if !self.writers.contains_key(&checkpoint) {
            let writers = self.writers_of(checkpoint);
            self.writers.insert(checkpoint, writers);
        }
        self.writers.get(&checkpoint)?.get(name).copied()
    }

    fn writers_of(&self, checkpoint: CheckpointId) -> HashMap<String, Rank> {
        let mut writers = HashMap::new();
        for slot in &self.slots {
            for rank in slot.map.ranks(checkpoint) {
                for name in slot.map.files(checkpoint, rank).filter_map(|path| base_name(path).ok()) {
                    writers.entry(name.to_owned()).or_insert(rank);
                }
            }
        }
        writers
    }

    /// Changes a slot, on disk first.
    pub(super) fn change(&mut self, slot: Rank, change: &FilemapChange) -> Result<(), StoreError> {
        let at = self.slot_index(slot)?;
        self.slots[at].change(change)?;
        self.note_writers(change);
        Ok(())
    }

    /// Changes all slots that have an entry of it.
    pub(super) fn change_all(&mut self, change: &FilemapChange) -> Result<(), StoreError> {
        self.note_writers(change);
        self.slots.iter_mut().try_for_each(|slot| slot.change(change))
    }

    fn note_writers(&mut self, change: &FilemapChange) {
        match &change.kind {
            ChangeKind::OfRank(rank, RankChange::AddFile(path)) => {
                if let (Some(writers), Ok(name)) = (self.writers.get_mut(&change.checkpoint), base_name(path)) {
                    writers.entry(name.to_owned()).or_insert(*rank);
                }
            }
            // Files may be removed: the table is made again when it is needed.
            ChangeKind::RemoveCheckpoint | ChangeKind::OfRank(_, RankChange::Remove | RankChange::RemoveFile(_)) => {
                self.writers.remove(&change.checkpoint);
            }
            ChangeKind::OfRank(..) => {}
        }
    }

    /// Moves all entries of a rank to the slot of the local rank `slot`.
    pub(super) fn move_rank(&mut self, paths: &Paths, rank: Rank, slot: Rank) -> Result<(), StoreError> {
        let target = self.slot_index(slot)?;
        let mut map = self.slots[target].map.clone();
        for (at, other) in self.slots.iter().enumerate() {
            if at != target && !other.map.checkpoints_of(rank).is_empty() {
                // `extract_rank` and `merge` each reverse the order, so that the files keep theirs.
                map.merge(&other.map.clone().extract_rank(rank));
            }
        }
        if slot == rank {
            forget_partners(&mut map, rank);
        }
        self.slots[target].replace(paths, map)?;
        // Now in two slots on disk, which is harmless; then removed from the old slot.
        for at in (0..self.slots.len()).filter(|at| *at != target) {
            for checkpoint in self.slots[at].map.checkpoints_of(rank) {
                self.slots[at].change(&FilemapChange::of_rank(checkpoint, rank, RankChange::Remove))?;
            }
        }
        Ok(())
    }

    /// Brings the filemap files up to date with their logs.
    pub(super) fn fold(&mut self, paths: &Paths) -> Result<(), StoreError> {
        self.slots.iter_mut().try_for_each(|slot| slot.fold(paths))
    }
}
