//! Nodes of the SCR fixtures, for tests: there, all nodes share one file system, and each has its own base.

use std::fs;
use std::path::Path;

use holdfast_wire::run::AgentStart;
use serde_json::json;
use tempfile::TempDir;

use super::Store;
use crate::paths::Paths;

/// What the orchestrator would tell the agent of that node.
pub(crate) fn fixture_start(root: &Path, node: &str) -> AgentStart {
    serde_json::from_value(json!({
        "version": holdfast_wire::VERSION, "job": "heat", "job_id": "1145655", "user": "user1", "node": node,
        "root": root, "control_base": base(node), "cache_bases": {base(node): null}, "control_bytes": null,
        "listen": "127.0.0.1:0", "trust": {"certificate": "", "key": "", "token": ""}, "abandon_after": 60_000,
    }))
    .unwrap()
}

pub(crate) fn base(node: &str) -> String {
    format!("/tmp/scr-fixture/{node}")
}

/// Lays a node of a fixture out below `root`.
pub(crate) fn lay_out(root: &Path, tree: &str, node: &str) {
    let home = root.join("tmp/scr-fixture").join(node);
    fs::create_dir_all(&home).unwrap();
    let source = holdfast_testkit::fixtures("scr").join(tree).join("tree").join(node);
    holdfast_testkit::copy_tree(&source, &home).unwrap();
}

/// The store of a node of a fixture.
pub(crate) fn fixture(tree: &str, node: &str) -> (TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path(), tree, node);
    let store = Store::open(Paths::new(&fixture_start(root.path(), node)), vec![base(node)]).unwrap();
    (root, store)
}
