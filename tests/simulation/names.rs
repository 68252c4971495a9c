//! Nodes by their position in the allocation.

use std::net::SocketAddr;

use holdfast_model::NodeName;

/// A node's position in the allocation.
pub type At = u32;

pub fn name(at: At) -> NodeName {
    NodeName::new(format!("n{at}"))
}

/// The position of a node; `None` for one that is not of the allocation.
pub fn position(node: &NodeName) -> Option<At> {
    node.as_str().strip_prefix('n')?.parse().ok()
}

/// Where the agent of a node listens: another port after each start.
pub fn address(at: At, start: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, (at >> 8) as u8, at as u8], 1000 + start))
}

/// The start at which an agent got this address.
pub fn start_of(address: SocketAddr) -> u16 {
    address.port() - 1000
}
