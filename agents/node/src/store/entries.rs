//! Adds, changes and moves entries of the filemaps.

use std::path::PathBuf;

use holdfast_core::control::filemap::{FilemapChange, RankChange};
use holdfast_core::kvtree::Tree;
use holdfast_model::{CheckpointId, NodeName, Rank};

use super::Store;
use super::error::{Result, StoreError};
use crate::directories::paths::base_name;

impl Store {
    /// Stores a rank's descriptor in the slot of the local rank `slot`, with the element order of the tree.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written.
    pub fn set_descriptor(&self, checkpoint: CheckpointId, slot: Rank, rank: Rank, descriptor: &Tree) -> Result<()> {
        self.change(checkpoint, slot, rank, RankChange::SetDescriptor(descriptor.clone()))
    }

    /// Adds a file of a rank to the slot of the local rank `slot`; returns the path at which it is to be written. When
    /// this returns, the entry survives this process. Takes constant time. Only the last component of `name` counts.
    ///
    /// # Errors
    /// When the name is invalid, the checkpoint was not started here, or the filemap cannot be written.
    pub fn add_file(&self, checkpoint: CheckpointId, slot: Rank, rank: Rank, name: &str) -> Result<PathBuf> {
        let name = base_name(name)?;
        let mut filemaps = self.filemaps.lock();
        // The files of another node's rank are stored with those of the slot's own rank: its own descriptor may name a
        // directory of the other node.
        let descriptor = filemaps
            .descriptor(checkpoint, slot)
            .or_else(|| filemaps.descriptor(checkpoint, rank))
            .ok_or(StoreError::NoDescriptor { checkpoint, rank })?;
        let (directory, _) = self.directory_below(&filemaps.bases, checkpoint, descriptor)?;
        let node_path = format!("{directory}/{name}");
        let real = self.paths.real_of_job(&node_path, &filemaps.bases)?;
        filemaps.change(slot, &FilemapChange::of_rank(checkpoint, rank, RankChange::AddFile(node_path)))?;
        Ok(real)
    }

    /// Sets how many files the rank has, redundancy files included.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written.
    pub fn set_expected(&self, checkpoint: CheckpointId, slot: Rank, rank: Rank, files: u32) -> Result<()> {
        self.change(checkpoint, slot, rank, RankChange::SetExpected(files))
    }

    /// Removes the number of expected files: the rank's files count as incomplete until it is set again.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written.
    pub fn unset_expected(&self, checkpoint: CheckpointId, slot: Rank, rank: Rank) -> Result<()> {
        self.change(checkpoint, slot, rank, RankChange::UnsetExpected)
    }

    /// Marks a rank's files as copies of those on its own node.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written.
    pub fn set_partner(&self, checkpoint: CheckpointId, slot: Rank, rank: Rank, owner: &NodeName) -> Result<()> {
        self.change(checkpoint, slot, rank, RankChange::SetPartner(owner.clone()))
    }

    /// Moves all entries of a rank to the slot of the local rank `slot`. If that is the rank itself, partner copies
    /// become its own files.
    ///
    /// # Errors
    /// When there is no such slot, or it cannot be written; the entries are then where they were.
    pub fn move_rank_to_slot(&self, rank: Rank, slot: Rank) -> Result<()> {
        self.filemaps.lock().move_rank(&self.paths, rank, slot)
    }

    /// Brings the filemap files up to date with their logs, for SCR's own tools, which read only the files. Called at
    /// the end of each step that changes entries, such as the completion of a checkpoint.
    ///
    /// # Errors
    /// When a filemap cannot be written; its log then still has the changes.
    pub fn fold_logs(&self) -> Result<()> {
        self.filemaps.lock().fold(&self.paths)
    }

    fn change(&self, checkpoint: CheckpointId, slot: Rank, rank: Rank, change: RankChange) -> Result<()> {
        self.filemaps.lock().change(slot, &FilemapChange::of_rank(checkpoint, rank, change))
    }
}
