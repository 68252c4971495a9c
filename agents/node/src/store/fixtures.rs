//! Stores of the SCR fixtures, for tests.

use tempfile::TempDir;

use super::Store;
use crate::directories::paths::Paths;
use crate::fixtures::{base, fixture_start, lay_out};

/// The store of a node of a fixture.
pub(crate) fn fixture(tree: &str, node: &str) -> (TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path(), tree, node);
    let store = Store::open(Paths::new(&fixture_start(root.path(), node)), vec![base(node)]).unwrap();
    (root, store)
}
