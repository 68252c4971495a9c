//! Jobs that lose several nodes at once.

use serde_json::Value;

use crate::job::Job;
use crate::pfs;
use crate::world::World;

/// These nodes are lost after this checkpoint.
pub fn losing<'a>(job: Job<'a>, nodes: &[u32], after: u32) -> Job<'a> {
    let fault = |node: &u32| format!("{{node: {node}, after_checkpoint: {after}}}");
    nodes.iter().map(fault).fold(job, |job, fault| job.faults(&fault))
}

/// Runs a job that waits until all these nodes are down; returns how it last restarted.
pub fn run_with_losses(job: &Job<'_>, world: &World, nodes: &[u32]) -> Value {
    let mut running = job.start();
    for node in nodes.iter().map(|node| format!("node{node}")) {
        running.sees_where("node_down", "node", node.as_str());
    }
    job.finishes(running);
    let newest = world.all("checkpoint_complete").pop().unwrap()["checkpoint"].as_u64().unwrap();
    pfs::assert_current(&world.prefix(), newest);
    world.assert_nothing_is_left();
    world.all("restarted").pop().unwrap()
}
