//! Names and addresses of nodes, by their position in the allocation.

use std::net::SocketAddr;

use holdfast_model::{NodeName, RunNode};
use holdfast_wire::run::RunPlan;

/// A node's position in the allocation.
pub type NodeIndex = u32;

pub fn name(at: NodeIndex) -> NodeName {
    NodeName::new(format!("n{at}"))
}

/// The position of a node; `None` for one that is not of the allocation.
pub fn position(node: &NodeName) -> Option<NodeIndex> {
    node.as_str().strip_prefix('n')?.parse().ok()
}

/// The address of a node's agent: another port after each start.
pub fn address(at: NodeIndex, start: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, (at >> 8) as u8, at as u8], 1000 + start))
}

/// The number of the start in which an agent got this address.
pub fn start_of(address: SocketAddr) -> u16 {
    address.port() - 1000
}

/// A node of a plan, whose nodes are in the order of the allocation.
pub fn planned(plan: &RunPlan, at: NodeIndex) -> Option<&RunNode> {
    let found = plan.nodes.binary_search_by_key(&Some(at), |node| position(&node.name));
    found.ok().map(|index| &plan.nodes[index])
}
