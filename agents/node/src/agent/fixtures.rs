//! Agents on nodes of the SCR fixtures, for tests.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_model::CheckpointId;
use holdfast_wire::agent::CopyRequest;
use holdfast_wire::run::AgentStart;
use tempfile::TempDir;

use super::Agent;
use crate::directories::paths::Paths;
use crate::fixtures::{fixture_start, lay_out};
use crate::store::StoreError;

/// The state of an agent with all its cache bases; nothing is served yet.
pub(crate) fn set_up(start: AgentStart, paths: Paths) -> Result<Agent, StoreError> {
    let bases = start.cache_bases.keys().cloned().collect();
    Agent::new(start, paths, bases)
}

/// The copy of this node's files of a checkpoint to a directory.
pub(crate) fn copy_request(directory: PathBuf, checkpoint: CheckpointId) -> CopyRequest {
    CopyRequest {
        checkpoint,
        directory,
        crc: true,
        on_behalf_of: Vec::new(),
        partners_only: false,
        buffer_bytes: 1 << 20,
        threads: None,
        container: None,
    }
}

/// The agent of a node on which LLNL's library left checkpoints 2 and 3; it serves nothing yet.
pub(crate) fn fixture_agent(node: &str, job_id: &str) -> (TempDir, Arc<Agent>) {
    let root = tempfile::tempdir().unwrap();
    lay_out(root.path(), "a-xor4/killed-before-flush", node);
    let mut start = fixture_start(root.path(), node);
    start.job_id = job_id.to_owned();
    let paths = Paths::new(&start);
    fs::create_dir_all(paths.control()).unwrap();
    (root, Arc::new(set_up(start, paths).unwrap()))
}
