//! Nodes by their position in the allocation.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast::relaunch::{AllocatedNode, Config};
use holdfast_model::NodeName;

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn name(position: usize) -> NodeName {
    NodeName::new(format!("n{position}"))
}

/// Where the agent of a node listens; another port after each start.
pub fn address(node: &NodeName, start: u16) -> SocketAddr {
    let position: u16 = node.as_str()[1..].parse().unwrap();
    SocketAddr::from(([10, 0, (position >> 8) as u8, position as u8], 1000 + start))
}

pub fn config(nodes: usize, needed: u32) -> Config {
    let node = |position| AllocatedNode { name: name(position), failure_domain: format!("n{position}") };
    Config::new((0..nodes).map(node).collect(), needed, 1)
}
