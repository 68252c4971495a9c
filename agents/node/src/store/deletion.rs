//! Deletes checkpoint files, then their entries, so that no file is ever without an entry.
//!
//! The filemaps are not locked while files are deleted, which can take long: other checkpoints are read and written
//! meanwhile. The caller ensures that no files are added to the checkpoint at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use holdfast_core::control::filemap::{FilemapChange, RankChange};
use holdfast_core::control::meta::Meta;
use holdfast_core::owned::remove_any;
use holdfast_model::{CheckpointId, Rank};

use super::Store;
use super::error::StoreError;
use super::filemaps::Filemaps;
use crate::directories::claim;
use crate::directories::paths::base_name;

impl Store {
    /// Deletes a file of a rank and its meta file, then its entry; a file without an entry is no error.
    pub fn remove_file(&self, checkpoint: CheckpointId, rank: Rank, name: &str) -> Result<(), StoreError> {
        let name = base_name(name)?;
        self.check_directories()?;
        let files = self.files_in(&self.filemaps.lock(), checkpoint, rank);
        for (node_path, real) in files {
            if base_name(&node_path)? == name {
                delete_file(&real)?;
                let change = FilemapChange::of_rank(checkpoint, rank, RankChange::RemoveFile(node_path));
                self.filemaps.lock().change_all(&change)?;
            }
        }
        Ok(())
    }

    /// These checkpoints are going to be deleted for a new one: the space of their large files is freed when that one
    /// is complete ([`Store::free_behind`]), if there is room for both.
    pub fn free_later(&self, checkpoints: &[CheckpointId]) {
        // What a checkpoint that was not completed has left.
        self.deleted.free();
        let files: Vec<PathBuf> = {
            let filemaps = self.filemaps.lock();
            let ranks = |id: &CheckpointId| filemaps.ranks(*id).into_iter().map(|rank| (*id, rank)).collect::<Vec<_>>();
            let files = |(id, rank)| self.files_in(&filemaps, id, rank).into_values();
            checkpoints.iter().flat_map(ranks).flat_map(files).collect()
        };
        self.deleted.keep_open(files.iter().map(PathBuf::as_path));
    }

    /// A checkpoint is complete: frees the space of those that were deleted for it, on another thread.
    pub fn free_behind(&self) {
        self.deleted.free_behind();
    }

    /// Deletes a checkpoint from this node: files, meta files and directories first, then the entries, then its entry
    /// in the flush file. Missing files are no error.
    ///
    /// # Errors
    /// When something cannot be deleted; the entries then stay, and it can be done again.
    pub fn delete(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        self.check_directories()?;
        let (files, directories) = {
            let filemaps = self.filemaps.lock();
            let (mut files, mut directories) = (BTreeMap::new(), BTreeSet::new());
            for rank in filemaps.ranks(checkpoint) {
                files.extend(self.files_in(&filemaps, checkpoint, rank));
                for slot in &filemaps.slots {
                    // A neighbour's descriptor can name a directory of another node, which this node must not delete.
                    let directory = slot
                        .map
                        .descriptor(checkpoint, rank)
                        .map(|descriptor| self.directory_below(&filemaps.bases, checkpoint, descriptor));
                    if let Some(Ok((_, real))) = directory {
                        directories.insert(real);
                    }
                }
            }
            (files, directories)
        };
        files.values().try_for_each(|real| delete_file(real))?;
        for directory in directories {
            // With all other files in it, which would otherwise never be deleted: the cache is often memory.
            delete_any(&directory)?;
        }
        self.filemaps.lock().change_all(&FilemapChange::remove_checkpoint(checkpoint))?;
        self.descriptions.forget(checkpoint)?;
        self.flush.forget(checkpoint)
    }

    /// Deletes every checkpoint from this node, with its descriptions.
    ///
    /// # Errors
    /// When something cannot be deleted; it can be done again.
    pub fn clear(&self) -> Result<(), StoreError> {
        self.checkpoints().into_iter().try_for_each(|checkpoint| self.delete(checkpoint))?;
        self.fold_logs()?;
        self.descriptions.clear()?;
        self.flush.clear()
    }

    /// Deletes the files of one rank of a checkpoint, then its entries.
    ///
    /// # Errors
    /// When something cannot be deleted; the entries then stay, and it can be done again.
    pub fn delete_rank(&self, checkpoint: CheckpointId, rank: Rank) -> Result<(), StoreError> {
        self.check_directories()?;
        let files = self.files_in(&self.filemaps.lock(), checkpoint, rank);
        files.values().try_for_each(|real| delete_file(real))?;
        self.filemaps.lock().change_all(&FilemapChange::of_rank(checkpoint, rank, RankChange::Remove))
    }

    /// Nothing is deleted by path below a directory that another user may have made.
    fn check_directories(&self) -> Result<(), StoreError> {
        Ok(claim::check(&self.paths, &self.bases())?)
    }

    /// A rank's files in all slots, below the job's directories. An entry with another path is damaged, or of a cache
    /// that the job does not use any more. It is removed with the others, and its file is not deleted: to refuse would
    /// block the deletion of the checkpoint, and with it the run.
    fn files_in(&self, filemaps: &Filemaps, checkpoint: CheckpointId, rank: Rank) -> BTreeMap<String, PathBuf> {
        let mut files = BTreeMap::new();
        for path in filemaps.slots.iter().flat_map(|slot| slot.map.files(checkpoint, rank)) {
            match self.paths.real_of_job(path, &filemaps.bases) {
                Ok(real) => {
                    files.insert(path.to_owned(), real);
                }
                Err(error) => tracing::warn!(%error, "file_not_deleted"),
            }
        }
        files
    }
}

/// Deletes a checkpoint file and its meta file, or what the application has put in their places. Links are deleted, not
/// followed.
fn delete_file(file: &Path) -> Result<(), StoreError> {
    delete_any(file)?;
    delete_any(&Meta::path_for(file))
}

/// Deletes what is there, a directory with all that it contains, also if the application made directories in it without
/// access for their owner: a checkpoint that cannot be deleted would end checkpointing.
fn delete_any(path: &Path) -> Result<(), StoreError> {
    remove_any(path).map(drop).map_err(|source| StoreError::Delete { path: path.to_owned(), source: source.into() })
}
