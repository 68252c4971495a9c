//! The flush file: where each checkpoint of a node is (`docs/scr-files.md` §7).
//!
//! An entry appears when a checkpoint is complete and disappears when it is deleted from cache.

use std::path::Path;

use super::{ContentError, ControlError, in_file, is_number_key};
use crate::kvtree::{Tree, file};
use holdfast_model::{CheckpointId, Location, Locations};

const CKPT: &str = "CKPT";
const LOCATION: &str = "LOCATION";

/// Where the checkpoints of a node are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushFile {
    tree: Tree,
}

impl FlushFile {
    pub fn new() -> Self {
        FlushFile::default()
    }

    /// Makes a flush file of a tree after checking its ids. Unknown keys are kept.
    ///
    /// # Errors
    /// A checkpoint id that is not a number.
    pub fn from_tree(tree: Tree) -> Result<FlushFile, ContentError> {
        for id in tree.get(CKPT).into_iter().flat_map(Tree::keys) {
            if !is_number_key::<CheckpointId>(id) {
                let (key, value) = (CKPT.to_owned(), id.to_owned());
                return Err(ContentError::Value { key, value, expected: "a checkpoint id" });
            }
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
        file::read_if_there(path)?.map(|tree| in_file(path, FlushFile::from_tree(tree))).transpose()
    }

    /// Replaces a flush file.
    ///
    /// # Errors
    /// When it cannot be replaced; the old one is then untouched.
    pub fn write(&self, path: &Path) -> Result<(), ControlError> {
        Ok(file::write_unsynced(path, &self.tree)?)
    }

    /// The ids, in ascending order.
    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        let ids = self.tree.get(CKPT).into_iter().flat_map(Tree::keys);
        let mut ids: Vec<CheckpointId> = ids.filter_map(|id| id.parse().ok()).collect();
        ids.sort_unstable();
        ids
    }

    /// Where a checkpoint is; `None` without an entry.
    pub fn locations(&self, checkpoint: CheckpointId) -> Option<Locations> {
        let entry = self.tree.get_kv(CKPT, checkpoint)?;
        let mut locations = Locations::default();
        for location in Location::ALL {
            locations.set(location, entry.get_kv(LOCATION, location.as_str()).is_some());
        }
        Some(locations)
    }

    /// Records where a checkpoint is. Unchanged locations keep their position in the file; an entry without locations
    /// is kept.
    pub fn record(&mut self, checkpoint: CheckpointId, locations: Locations) {
        for location in Location::ALL {
            if locations.contains(location) {
                self.tree.set_kv(CKPT, checkpoint).set_kv(LOCATION, location.as_str());
            } else if let Some(entry) = self.tree.get_kv_mut(CKPT, checkpoint) {
                entry.unset_kv(LOCATION, location.as_str());
            }
        }
    }

    /// Removes the entry of a checkpoint and returns whether there was one.
    pub fn remove(&mut self, checkpoint: CheckpointId) -> bool {
        self.tree.unset_kv(CKPT, checkpoint)
    }
}
