//! Fencing: a node that was given up may become reachable again (it was frozen, or cut off from the network), with
//! ranks of an old generation and an agent that continues it. Both are ended as soon as they can be reached.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::agent::{KillRequest, PollRequest, StopRequest};

use super::client::AgentClient;

/// The pause between two attempts.
const ATTEMPT_EVERY: Duration = Duration::from_secs(2);
/// How long an attempt may take.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(3);

/// Repeats the attempt until the ranks and the agent of the node are ended, or another node's agent has the address.
pub(super) async fn end_returned_node(client: AgentClient, node: NodeName, address: SocketAddr) {
    let kill = KillRequest { generation: Generation(u64::MAX), reason: "the node is down".to_owned() };
    loop {
        if let Ok(reply) = client.poll(address, &PollRequest::HEALTH_ONLY, ATTEMPT_WITHIN).await {
            // Virtual nodes share a machine: another node's agent may listen at this address now.
            if reply.health.node != node {
                return;
            }
            let stop = StopRequest { remove: false };
            if client.kill(address, &kill).await.is_ok() && client.stop(address, &stop).await.is_ok() {
                tracing::warn!(%node, "a node that is down is reachable again; its ranks and its agent were ended");
                return;
            }
        }
        tokio::time::sleep(ATTEMPT_EVERY).await;
    }
}
