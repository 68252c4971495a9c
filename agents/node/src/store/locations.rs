//! The flush file: where each checkpoint is. It is read each time, since LLNL's library writes it too.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_core::control::flush::FlushFile;
use holdfast_model::{CheckpointId, Locations};
use parking_lot::Mutex;

use super::error::StoreError;
use super::slots::set_aside;
use crate::directories::paths::Paths;

#[derive(Debug)]
pub struct FlushRecord {
    path: PathBuf,
    /// Held while the file is read, changed and replaced.
    changing: Mutex<()>,
    /// Held by the flush that copies: one of an ended run, which is cancelled, ends first. It leaves what it has
    /// written for the next one, which would not find it otherwise.
    copying: Mutex<()>,
    /// The newest checkpoint that the file lists in cache, for readers that must not wait for a disk. Never held
    /// during file access.
    newest: Mutex<Option<CheckpointId>>,
}

impl FlushRecord {
    pub(crate) fn open(paths: &Paths) -> Self {
        let path = paths.control().join("flush.scrinfo");
        let newest = FlushFile::read(&path).ok().flatten().and_then(|flush| newest_in_cache(&flush));
        FlushRecord { path, changing: Mutex::default(), copying: Mutex::default(), newest: Mutex::new(newest) }
    }

    /// Waits until no other flush copies files of this node.
    pub(crate) fn begin_to_copy(&self) -> impl Drop + '_ {
        self.copying.lock()
    }

    /// The newest checkpoint in cache, as of the last access to the flush file. Does not access it.
    pub fn newest(&self) -> Option<CheckpointId> {
        *self.newest.lock()
    }

    /// The locations of all checkpoints.
    pub fn locations(&self) -> Result<BTreeMap<CheckpointId, Locations>, StoreError> {
        // Locked, so that an older value does not replace that of a change.
        let _changing = self.changing.lock();
        let flush = FlushFile::read(&self.path)?.unwrap_or_default();
        *self.newest.lock() = newest_in_cache(&flush);
        Ok(flush.checkpoints().into_iter().filter_map(|id| Some((id, flush.locations(id)?))).collect())
    }

    /// Records the locations of a checkpoint.
    pub fn note(&self, checkpoint: CheckpointId, locations: Locations) -> Result<(), StoreError> {
        self.change_entry(checkpoint, |now| *now = locations)
    }

    /// Records that a checkpoint is on the prefix directory; its other locations stay.
    pub fn note_flushed(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        self.change_entry(checkpoint, |now| {
            now.pfs = true;
            now.flushing = false;
        })
    }

    /// Removes a checkpoint.
    pub fn forget(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        self.update(|flush| flush.remove(checkpoint))
    }

    pub(super) fn clear(&self) -> Result<(), StoreError> {
        self.update(|flush| {
            *flush = FlushFile::default();
            true
        })
    }

    /// Changes the entry of a checkpoint; an unchanged entry keeps its position.
    fn change_entry(&self, checkpoint: CheckpointId, change: impl FnOnce(&mut Locations)) -> Result<(), StoreError> {
        self.update(|flush| {
            let mut locations = flush.locations(checkpoint).unwrap_or_default();
            change(&mut locations);
            flush.record(checkpoint, locations);
            true
        })
    }

    /// Changes the file; `change` returns whether it is to be written.
    fn update(&self, change: impl FnOnce(&mut FlushFile) -> bool) -> Result<(), StoreError> {
        let _changing = self.changing.lock();
        let mut flush = self.read_to_change()?;
        if change(&mut flush) {
            flush.write(&self.path)?;
        }
        *self.newest.lock() = newest_in_cache(&flush);
        Ok(())
    }

    /// A damaged flush file is set aside and begun again: that costs at most an unnecessary flush, while an error would
    /// prevent every further checkpoint.
    ///
    /// # Errors
    /// When descriptors or memory are exhausted.
    fn read_to_change(&self) -> Result<FlushFile, StoreError> {
        match FlushFile::read(&self.path) {
            Ok(flush) => Ok(flush.unwrap_or_default()),
            Err(error) if error.is_exhaustion() => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "flush_file_begun_again");
                set_aside(std::slice::from_ref(&self.path));
                Ok(FlushFile::default())
            }
        }
    }

    /// Blocks every access until the guard is dropped, as a disk that hangs does.
    #[cfg(test)]
    pub(crate) fn stall(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.changing.lock()
    }
}

fn newest_in_cache(flush: &FlushFile) -> Option<CheckpointId> {
    flush.checkpoints().into_iter().filter(|id| flush.locations(*id).is_some_and(|at| at.cache)).max()
}
