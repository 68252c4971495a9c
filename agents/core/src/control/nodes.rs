//! The nodes file: how many nodes the last run used (`docs/scr-files.md` §9).

use std::path::Path;

use super::{ContentError, ControlError, in_file, required};
use crate::kvtree::{Tree, file};

const NODES: &str = "NODES";

pub fn to_tree(nodes: u32) -> Tree {
    let mut tree = Tree::new();
    tree.put(NODES, nodes);
    tree
}

/// The number of nodes in the tree of a nodes file.
///
/// # Errors
/// When it is not there, or not a number.
pub fn from_tree(tree: &Tree) -> Result<u32, ContentError> {
    required(tree, NODES, "a number of nodes")
}

/// Reads a nodes file; `None` when there is none.
///
/// # Errors
/// When there is one that cannot be read, or that does not contain the number.
pub fn read(path: &Path) -> Result<Option<u32>, ControlError> {
    file::read_if_there(path)?.map(|tree| in_file(path, from_tree(&tree))).transpose()
}

/// Replaces a nodes file.
///
/// # Errors
/// When it cannot be replaced; the old one is then untouched.
pub fn write(path: &Path, nodes: u32) -> Result<(), ControlError> {
    Ok(file::write_unsynced(path, &to_tree(nodes))?)
}
