//! Which rank runs on which node.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeName, Rank};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNode {
    pub name: NodeName,
    /// Where its agent listens.
    pub address: SocketAddr,
    /// What is expected to fail together with it: ranks of one domain are never in the same redundancy group.
    pub failure_domain: String,
    /// The ranks placed on it, ascending; none on a spare.
    pub ranks: Vec<Rank>,
}

/// Which rank runs on which node in a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Every healthy node in allocation order, spares (without ranks) included.
    pub nodes: Vec<RunNode>,
    /// The node whose agent gathers collectives: the first one with ranks.
    pub leader: NodeName,
}

impl Placement {
    pub fn used(&self) -> impl Iterator<Item = &RunNode> {
        self.nodes.iter().filter(|node| !node.ranks.is_empty())
    }

    pub fn ranks(&self) -> u32 {
        self.nodes.iter().map(|node| node.ranks.len() as u32).sum()
    }

    pub fn node(&self, name: &NodeName) -> Option<&RunNode> {
        self.nodes.iter().find(|node| node.name == *name)
    }
}
