//! The inventories of the nodes: requested from every agent, and again if it is lost and comes back in time. The second
//! loss of an agent is not waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_model::{Inventory, NodeName};

use super::awaited::Awaited;

/// After this many requests, a lost agent is not waited for.
const MOST_TIMES: u8 = 2;

/// The answers so far.
#[derive(Clone, Debug)]
pub(super) struct InventoryRound {
    inventories: BTreeMap<NodeName, Inventory>,
    silent: BTreeMap<NodeName, String>,
    /// The number of requests to each node.
    asked: BTreeMap<NodeName, u8>,
    pub(super) awaited: Awaited,
}

impl InventoryRound {
    /// Begins with a request to each of these nodes.
    pub(super) fn new(nodes: impl IntoIterator<Item = NodeName>, patience: Duration) -> Self {
        InventoryRound {
            inventories: BTreeMap::new(),
            silent: BTreeMap::new(),
            asked: nodes.into_iter().map(|node| (node, 1)).collect(),
            awaited: Awaited::new(patience),
        }
    }

    /// An agent came up. True if its inventory is to be requested, which also ends the run at its node.
    pub(super) fn came_up(&mut self, node: &NodeName) -> bool {
        self.awaited.remove(node);
        if self.inventories.contains_key(node) {
            return false;
        }
        let asked = self.asked.entry(node.clone()).or_default();
        *asked = asked.saturating_add(1);
        true
    }

    pub(super) fn answered(&mut self, node: NodeName, mut inventory: Inventory) {
        self.silent.remove(&node);
        inventory.node = Some(node.clone());
        self.inventories.insert(node, inventory);
    }

    /// A node did not answer, or its agent is lost.
    pub(super) fn failed(&mut self, node: NodeName, reason: String, is_down: bool) {
        if !is_down && self.asked.get(&node).is_none_or(|asked| *asked < MOST_TIMES) {
            self.awaited.add(node.clone());
        }
        self.silent.insert(node, reason);
    }

    /// The inventories, and why the other nodes did not answer.
    pub(super) fn finish(self) -> (Vec<Inventory>, BTreeMap<NodeName, String>) {
        (self.inventories.into_values().collect(), self.silent)
    }
}
