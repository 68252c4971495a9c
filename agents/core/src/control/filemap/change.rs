//! One change of a filemap: what the log of a filemap records, and how it is carried out.

use super::map::{CKPT, DESCRIPTOR, EXPECT, FILE, Filemap, PARTNER, RANK};
use crate::control::{ContentError, required};
use crate::kvtree::Tree;
use holdfast_model::{CheckpointId, NodeName, Rank};

/// The kind of a change, in a record.
const CHANGE: &str = "CHANGE";

/// A change of what a filemap lists of one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilemapChange {
    pub checkpoint: CheckpointId,
    pub kind: ChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    RemoveCheckpoint,
    OfRank(Rank, RankChange),
}

/// What changes of one rank in one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankChange {
    SetDescriptor(Tree),
    AddFile(String),
    RemoveFile(String),
    SetExpected(u32),
    UnsetExpected,
    SetPartner(NodeName),
    Remove,
}

impl RankChange {
    fn name(&self) -> &'static str {
        match self {
            RankChange::SetDescriptor(_) => "SET_DESCRIPTOR",
            RankChange::AddFile(_) => "ADD_FILE",
            RankChange::RemoveFile(_) => "REMOVE_FILE",
            RankChange::SetExpected(_) => "SET_EXPECTED",
            RankChange::UnsetExpected => "UNSET_EXPECTED",
            RankChange::SetPartner(_) => "SET_PARTNER",
            RankChange::Remove => "REMOVE_RANK",
        }
    }
}

const REMOVE_CHECKPOINT: &str = "REMOVE_CHECKPOINT";

impl FilemapChange {
    pub fn remove_checkpoint(checkpoint: CheckpointId) -> Self {
        FilemapChange { checkpoint, kind: ChangeKind::RemoveCheckpoint }
    }

    pub fn of_rank(checkpoint: CheckpointId, rank: Rank, change: RankChange) -> Self {
        FilemapChange { checkpoint, kind: ChangeKind::OfRank(rank, change) }
    }

    pub fn apply(&self, map: &mut Filemap) {
        let checkpoint = self.checkpoint;
        match &self.kind {
            ChangeKind::RemoveCheckpoint => map.remove_checkpoint(checkpoint),
            ChangeKind::OfRank(rank, change) => match change {
                RankChange::SetDescriptor(tree) => map.set_descriptor(checkpoint, *rank, tree.clone()),
                RankChange::AddFile(path) => map.add_file(checkpoint, *rank, path),
                RankChange::RemoveFile(path) => drop(map.remove_file(checkpoint, *rank, path)),
                RankChange::SetExpected(files) => map.set_expected(checkpoint, *rank, *files),
                RankChange::UnsetExpected => map.unset_expected(checkpoint, *rank),
                RankChange::SetPartner(owner) => map.set_partner(checkpoint, *rank, owner),
                RankChange::Remove => map.remove(checkpoint, *rank),
            },
        }
    }

    /// True if it leaves the filemap as it is, in constant time. A value that is set again counts as a change, because
    /// it moves to the front.
    pub fn is_void(&self, map: &Filemap) -> bool {
        let checkpoint = self.checkpoint;
        let has_file = |rank, path: &str| {
            map.get(checkpoint, rank).and_then(|entry| entry.get(FILE)).is_some_and(|files| files.get(path).is_some())
        };
        match &self.kind {
            ChangeKind::RemoveCheckpoint => map.tree().get_kv(CKPT, checkpoint).is_none(),
            ChangeKind::OfRank(rank, change) => match change {
                RankChange::AddFile(path) => has_file(*rank, path),
                RankChange::RemoveFile(path) => !has_file(*rank, path),
                RankChange::UnsetExpected => map.expected(checkpoint, *rank).is_none(),
                RankChange::Remove => map.get(checkpoint, *rank).is_none(),
                RankChange::SetDescriptor(_) | RankChange::SetExpected(_) | RankChange::SetPartner(_) => false,
            },
        }
    }

    pub(super) fn to_tree(&self) -> Tree {
        let mut tree = Tree::new();
        tree.put(CKPT, self.checkpoint);
        match &self.kind {
            ChangeKind::RemoveCheckpoint => tree.put(CHANGE, REMOVE_CHECKPOINT),
            ChangeKind::OfRank(rank, change) => {
                tree.put(CHANGE, change.name());
                tree.put(RANK, rank);
                match change {
                    RankChange::SetDescriptor(descriptor) => tree.set(DESCRIPTOR, descriptor.clone()),
                    RankChange::AddFile(path) | RankChange::RemoveFile(path) => tree.put(FILE, path),
                    RankChange::SetExpected(files) => tree.put(EXPECT, files),
                    RankChange::SetPartner(owner) => tree.put(PARTNER, owner),
                    RankChange::UnsetExpected | RankChange::Remove => {}
                }
            }
        }
        tree
    }

    /// The change that a record describes.
    ///
    /// # Errors
    /// When it describes none.
    pub(super) fn from_tree(tree: &Tree) -> Result<FilemapChange, ContentError> {
        let checkpoint = required(tree, CKPT, "a checkpoint id")?;
        let name: String = required(tree, CHANGE, "a change of a filemap")?;
        if name == REMOVE_CHECKPOINT {
            return Ok(FilemapChange::remove_checkpoint(checkpoint));
        }
        let path = || required(tree, FILE, "a path");
        let change = match name.as_str() {
            "SET_DESCRIPTOR" => RankChange::SetDescriptor(tree.get(DESCRIPTOR).cloned().unwrap_or_default()),
            "ADD_FILE" => RankChange::AddFile(path()?),
            "REMOVE_FILE" => RankChange::RemoveFile(path()?),
            "SET_EXPECTED" => RankChange::SetExpected(required(tree, EXPECT, "a number of files")?),
            "UNSET_EXPECTED" => RankChange::UnsetExpected,
            "SET_PARTNER" => RankChange::SetPartner(NodeName::new(required::<String>(tree, PARTNER, "a node")?)),
            "REMOVE_RANK" => RankChange::Remove,
            _ => {
                let expected = "a change of a filemap";
                return Err(ContentError::Value { key: CHANGE.to_owned(), value: name, expected });
            }
        };
        Ok(FilemapChange::of_rank(checkpoint, required(tree, RANK, "a rank")?, change))
    }
}
