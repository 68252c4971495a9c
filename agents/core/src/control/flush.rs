//! The flush file: where each checkpoint of a node is (`FORMATS.md` §7).
//!
//! An entry appears when a checkpoint is complete and disappears when it is deleted from cache.

use std::path::Path;

use super::{ContentError, ControlError};
use crate::kvtree::{Tree, file};
use holdfast_model::CheckpointId;

const CKPT: &str = "CKPT";
const LOCATION: &str = "LOCATION";

/// A place where a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// In the cache of the nodes.
    Cache,
    /// Complete on the parallel file system.
    ParallelFileSystem,
    /// On its way there. Left by a run that was killed, it says nothing: the copy is not complete.
    Flushing,
}

impl Location {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Location::Cache => "CACHE",
            Location::ParallelFileSystem => "PFS",
            Location::Flushing => "FLUSHING",
        }
    }
}

/// Where the checkpoints of a node are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushFile {
    tree: Tree,
}

impl FlushFile {
    /// Without entries.
    pub fn new() -> Self {
        FlushFile::default()
    }

    /// Takes a tree, after a look at its ids. Keys that are not known stay in it.
    ///
    /// # Errors
    /// A checkpoint id that is not a number.
    pub fn from_tree(tree: Tree) -> Result<FlushFile, ContentError> {
        for id in tree.get(CKPT).into_iter().flat_map(Tree::keys) {
            super::parse::<CheckpointId>(CKPT, id, "a checkpoint id")?;
        }
        Ok(FlushFile { tree })
    }

    /// The tree, as it would be written.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Reads a flush file; `None` when there is none.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub fn read(path: &Path) -> Result<Option<FlushFile>, ControlError> {
        let in_file =
            |tree| FlushFile::from_tree(tree).map_err(|source| ControlError::Content { path: path.to_owned(), source });
        file::read_if_there(path)?.map(in_file).transpose()
    }

    /// Replaces a flush file.
    ///
    /// # Errors
    /// When it cannot be replaced; the old one is then untouched.
    pub fn write(&self, path: &Path) -> Result<(), ControlError> {
        Ok(file::write(path, &self.tree)?)
    }

    /// The ids, in ascending order.
    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        let ids = self.tree.get(CKPT).into_iter().flat_map(Tree::keys);
        let mut ids: Vec<CheckpointId> = ids.filter_map(|id| id.parse().ok()).collect();
        ids.sort_unstable();
        ids
    }

    /// The highest id (`scr_flush_file --latest`).
    pub fn latest(&self) -> Option<CheckpointId> {
        self.checkpoints().pop()
    }

    /// True if the checkpoint has an entry.
    pub fn contains(&self, checkpoint: CheckpointId) -> bool {
        self.tree.get_kv(CKPT, checkpoint).is_some()
    }

    /// True if the checkpoint is in this place.
    pub fn is_in(&self, checkpoint: CheckpointId, location: Location) -> bool {
        self.tree.get_kv(CKPT, checkpoint).and_then(|entry| entry.get_kv(LOCATION, location.as_str())).is_some()
    }

    /// True if the checkpoint is known and not on the parallel file system (`scr_flush_file --needflush`): a copy that was on
    /// its way when the run died does not count, and whether it is in cache is another question. Ids that are not
    /// known, and 0, need none.
    pub fn needs_flush(&self, checkpoint: CheckpointId) -> bool {
        checkpoint != CheckpointId::NONE
            && self.contains(checkpoint)
            && !self.is_in(checkpoint, Location::ParallelFileSystem)
    }

    /// Says that the checkpoint is in this place.
    pub fn set(&mut self, checkpoint: CheckpointId, location: Location) {
        self.tree.set_kv(CKPT, checkpoint).set_kv(LOCATION, location.as_str());
    }

    /// Says that the checkpoint is not in this place; its entry stays.
    pub fn unset(&mut self, checkpoint: CheckpointId, location: Location) {
        if let Some(entry) = self.tree.get_kv_mut(CKPT, checkpoint) {
            entry.unset_kv(LOCATION, location.as_str());
        }
    }

    /// Removes the entry of a checkpoint, and says whether there was one.
    pub fn remove(&mut self, checkpoint: CheckpointId) -> bool {
        self.tree.unset_kv(CKPT, checkpoint)
    }
}
