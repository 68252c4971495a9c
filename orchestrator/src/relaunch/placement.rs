//! Which rank goes where (DESIGN §5.5).

use holdfast_wire::run::RunNode;
use holdfast_wire::{NodeName, Rank};
use serde::{Deserialize, Serialize};

/// Who runs where in a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Every healthy node in allocation order, spares (without ranks) included.
    pub nodes: Vec<RunNode>,
    /// The agent where collectives gather: that of the first node with ranks.
    pub leader: NodeName,
}

// Every field is compared exactly: `RunNode` has no floating point.
impl Eq for Placement {}

impl Placement {
    /// The nodes that have ranks.
    pub fn used(&self) -> impl Iterator<Item = &RunNode> {
        self.nodes.iter().filter(|node| !node.ranks.is_empty())
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.nodes.iter().map(|node| node.ranks.len() as u32).sum()
    }

    /// The node of a rank.
    pub fn home(&self, rank: Rank) -> Option<&RunNode> {
        self.nodes.iter().find(|node| node.ranks.contains(&rank))
    }
}
