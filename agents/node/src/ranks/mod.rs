//! The ranks' socket: who is connected, routing, calls, killing.

use std::sync::Arc;

use holdfast_wire::agent::KillRequest;

use crate::agent::Agent;

/// The ranks of this node.
#[derive(Debug, Default)]
pub struct Ranks {}

/// Serves the ranks' socket until the agent ends.
pub async fn serve(_agent: Arc<Agent>) -> std::io::Result<()> {
    Ok(())
}

/// Kills the node's ranks of the generation and older ones; returns the processes that were sent SIGKILL.
pub fn kill(_agent: &Agent, _request: &KillRequest) -> Vec<u32> {
    Vec::new()
}
