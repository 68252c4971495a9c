//! The tree of a filemap, and its operations.

use std::path::Path;

use crate::control::{ContentError, ControlError, is_number_key};
use crate::kvtree::{Tree, file};
use holdfast_model::{CheckpointId, NodeName, Rank};

pub(super) const CKPT: &str = "CKPT";
pub(super) const RANK: &str = "RANK";
pub(super) const FILE: &str = "FILE";
pub(super) const EXPECT: &str = "EXPECT";
pub(super) const DESCRIPTOR: &str = "CKPTDESC";
pub(super) const PARTNER: &str = "PARTNER";
const FILEMAP: &str = "Filemap";

/// The files of one node, or of one of its ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filemap {
    tree: Tree,
}

impl Filemap {
    pub fn new() -> Self {
        Filemap::default()
    }

    /// Makes a filemap of a tree after checking its numbers. Unknown keys are kept.
    ///
    /// # Errors
    /// A rank, an id or a count that is not a number.
    pub fn from_tree(tree: Tree) -> Result<Filemap, ContentError> {
        let map = Filemap { tree };
        let bad = |key: &str, value: &str, expected| {
            Err(ContentError::Value { key: key.to_owned(), value: value.to_owned(), expected })
        };
        for (rank, entry) in map.tree.get(RANK).into_iter().flat_map(Tree::iter) {
            if !is_number_key::<Rank>(rank) {
                return bad(RANK, rank, "a rank");
            }
            for (checkpoint, entry) in entry.get(CKPT).into_iter().flat_map(Tree::iter) {
                if !is_number_key::<CheckpointId>(checkpoint) {
                    return bad("RANK/CKPT", checkpoint, "a checkpoint id");
                }
                if let Some(count) = entry.value(EXPECT).filter(|count| count.parse::<u32>().is_err()) {
                    return bad("RANK/CKPT/EXPECT", count, "a number of files");
                }
            }
        }
        for (checkpoint, entry) in map.tree.get(CKPT).into_iter().flat_map(Tree::iter) {
            if !is_number_key::<CheckpointId>(checkpoint) {
                return bad(CKPT, checkpoint, "a checkpoint id");
            }
            let ranks = entry.get(RANK).into_iter().flat_map(Tree::keys);
            if let Some(rank) = ranks.into_iter().find(|rank| !is_number_key::<Rank>(rank)) {
                return bad("CKPT/RANK", rank, "a rank");
            }
        }
        Ok(map)
    }

    /// The tree, as it would be written.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Reads a filemap file.
    ///
    /// # Errors
    /// When it cannot be read or is no filemap.
    pub fn read(path: &Path) -> Result<Filemap, ControlError> {
        Filemap::from_tree(file::read(path)?).map_err(|source| ControlError::Content { path: path.to_owned(), source })
    }

    /// Replaces a filemap file.
    ///
    /// # Errors
    /// When it cannot be replaced; the old one is then untouched.
    pub fn write(&self, path: &Path) -> Result<(), ControlError> {
        Ok(file::write(path, &self.tree)?)
    }

    /// As [`Filemap::write`], without a sync: for the filemaps of the control directory.
    pub fn write_unsynced(&self, path: &Path) -> Result<(), ControlError> {
        Ok(file::write_unsynced(path, &self.tree)?)
    }

    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Adds a file of a rank; a file that is listed already keeps its position.
    pub fn add_file(&mut self, checkpoint: CheckpointId, rank: Rank, path: &str) {
        self.entry(checkpoint, rank).set_kv(FILE, path);
    }

    /// Removes a file and returns whether it was listed. The rank's other entries (EXPECT, descriptor) are kept: a rank
    /// with fewer files than expected is incomplete, one without an entry is not on this node.
    pub fn remove_file(&mut self, checkpoint: CheckpointId, rank: Rank, path: &str) -> bool {
        self.get_mut(checkpoint, rank).is_some_and(|entry| entry.unset_kv(FILE, path))
    }

    /// The files of a rank in stored order: the last one added first. That is the order in which XOR concatenates.
    pub fn files(&self, checkpoint: CheckpointId, rank: Rank) -> impl DoubleEndedIterator<Item = &str> {
        self.get(checkpoint, rank).and_then(|entry| entry.get(FILE)).into_iter().flat_map(Tree::keys)
    }

    /// Records how many files the rank has in the checkpoint, redundancy files included.
    pub fn set_expected(&mut self, checkpoint: CheckpointId, rank: Rank, files: u32) {
        self.entry(checkpoint, rank).put(EXPECT, files);
    }

    /// Removes the expected number: the rank's files are then incomplete.
    pub fn unset_expected(&mut self, checkpoint: CheckpointId, rank: Rank) {
        if let Some(entry) = self.get_mut(checkpoint, rank) {
            entry.unset(EXPECT);
        }
    }

    /// How many files the rank should have. `None`: the rank's redundancy has not been computed, or only a neighbour's
    /// descriptor is stored here. Treat it as "no files of this rank".
    pub fn expected(&self, checkpoint: CheckpointId, rank: Rank) -> Option<u32> {
        self.get(checkpoint, rank)?.parsed(EXPECT)
    }

    /// True if as many files are listed as are expected. Does not check that they exist and are intact.
    pub fn is_complete(&self, checkpoint: CheckpointId, rank: Rank) -> bool {
        let listed = self.get(checkpoint, rank).and_then(|entry| entry.get(FILE)).map_or(0, Tree::len);
        self.expected(checkpoint, rank).is_some_and(|expected| expected as usize == listed)
    }

    /// Stores the redundancy descriptor of a rank, in the order that the tree has.
    pub fn set_descriptor(&mut self, checkpoint: CheckpointId, rank: Rank, descriptor: Tree) {
        self.entry(checkpoint, rank).set(DESCRIPTOR, descriptor);
    }

    pub fn descriptor(&self, checkpoint: CheckpointId, rank: Rank) -> Option<&Tree> {
        self.get(checkpoint, rank)?.get(DESCRIPTOR)
    }

    /// Marks the files of a rank as copies of those on another node.
    pub fn set_partner(&mut self, checkpoint: CheckpointId, rank: Rank, owner: &NodeName) {
        self.entry(checkpoint, rank).put(PARTNER, owner);
    }

    /// The node whose files these are copies of; `None` for the rank's own.
    pub fn partner(&self, checkpoint: CheckpointId, rank: Rank) -> Option<NodeName> {
        self.get(checkpoint, rank)?.value(PARTNER).map(NodeName::from)
    }

    /// The checkpoint ids, in ascending order.
    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        sorted(self.tree.get(CKPT).map(Tree::keys))
    }

    /// The ranks that have an entry in a checkpoint, in ascending order; that may be a mere descriptor.
    pub fn ranks(&self, checkpoint: CheckpointId) -> Vec<Rank> {
        sorted(self.tree.get_kv(CKPT, checkpoint).and_then(|entry| entry.get(RANK)).map(Tree::keys))
    }

    /// The ranks that have an entry in any checkpoint, in ascending order.
    pub fn all_ranks(&self) -> Vec<Rank> {
        sorted(self.tree.get(RANK).map(Tree::keys))
    }

    /// The checkpoints in which a rank has an entry, in ascending order.
    pub fn checkpoints_of(&self, rank: Rank) -> Vec<CheckpointId> {
        sorted(self.tree.get_kv(RANK, rank).and_then(|entry| entry.get(CKPT)).map(Tree::keys))
    }

    pub fn remove_checkpoint(&mut self, checkpoint: CheckpointId) {
        for rank in self.ranks(checkpoint) {
            self.remove(checkpoint, rank);
        }
    }

    pub fn remove_rank(&mut self, rank: Rank) {
        for checkpoint in self.checkpoints_of(rank) {
            self.remove(checkpoint, rank);
        }
    }

    /// Removes what is known of a rank in a checkpoint, and what becomes empty by that.
    pub fn remove(&mut self, checkpoint: CheckpointId, rank: Rank) {
        remove_pair(&mut self.tree, CKPT, &checkpoint.to_string(), RANK, &rank.to_string());
        remove_pair(&mut self.tree, RANK, &rank.to_string(), CKPT, &checkpoint.to_string());
    }

    /// Adds all entries of another filemap.
    pub fn merge(&mut self, other: &Filemap) {
        self.tree.merge(&other.tree);
    }

    /// Moves all entries of a rank into a filemap of its own.
    #[must_use]
    pub fn extract_rank(&mut self, rank: Rank) -> Filemap {
        let mut extracted = Filemap::new();
        let Some(entry) = self.tree.get_kv(RANK, rank) else { return extracted };
        extracted.tree.set_kv(RANK, rank).merge(entry);
        // The index entries, oldest first, so that the newest is in front as in every filemap.
        for checkpoint in self.checkpoints_of(rank) {
            extracted.tree.set_kv(CKPT, checkpoint).set_kv(RANK, rank);
        }
        self.remove_rank(rank);
        extracted
    }

    /// What is known of a rank in a checkpoint.
    pub(super) fn get(&self, checkpoint: CheckpointId, rank: Rank) -> Option<&Tree> {
        self.tree.get_kv(RANK, rank)?.get_kv(CKPT, checkpoint)
    }

    fn get_mut(&mut self, checkpoint: CheckpointId, rank: Rank) -> Option<&mut Tree> {
        self.tree.get_kv_mut(RANK, rank)?.get_kv_mut(CKPT, checkpoint)
    }

    /// The same, made if absent, together with its index entry. The index is made last, which puts it in front.
    fn entry(&mut self, checkpoint: CheckpointId, rank: Rank) -> &mut Tree {
        self.tree.entry(RANK);
        self.tree.set_kv(CKPT, checkpoint).set_kv(RANK, rank);
        self.tree.set_kv(RANK, rank).set_kv(CKPT, checkpoint)
    }
}

/// Removes `outer/value/inner/leaf`, and above it whatever is empty then.
fn remove_pair(tree: &mut Tree, outer: &str, value: &str, inner: &str, leaf: &str) {
    let Some(entry) = tree.get_kv_mut(outer, value) else { return };
    entry.unset_kv(inner, leaf);
    if entry.is_empty() {
        tree.unset_kv(outer, value);
    }
}

fn sorted<'a, T: std::str::FromStr + Ord>(keys: Option<impl Iterator<Item = &'a str>>) -> Vec<T> {
    let mut values: Vec<T> = keys.into_iter().flatten().filter_map(|key| key.parse().ok()).collect();
    values.sort_unstable();
    values
}

/// The master filemap: the filemap files of a node, as the node sees their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterFilemap {
    tree: Tree,
}

impl MasterFilemap {
    pub fn new() -> Self {
        MasterFilemap::default()
    }

    /// Adds the path of a filemap file.
    pub fn add(&mut self, path: &str) {
        self.tree.set_kv(FILEMAP, path);
    }

    /// The paths, in stored order.
    pub fn filemaps(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.tree.get(FILEMAP).into_iter().flat_map(Tree::keys)
    }

    /// The tree, as it would be written.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Reads a master filemap file.
    pub fn read(path: &Path) -> Result<MasterFilemap, ControlError> {
        Ok(MasterFilemap { tree: file::read(path)? })
    }

    /// Replaces a master filemap file.
    ///
    /// # Errors
    /// When it cannot be replaced; the old one is then untouched.
    pub fn write(&self, path: &Path) -> Result<(), ControlError> {
        Ok(file::write_unsynced(path, &self.tree)?)
    }
}
