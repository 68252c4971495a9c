//! Which agents are there now: kept by whoever starts and polls them, watched by whoever works with them (the drain).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::NodeName;
use tokio::sync::watch;

/// The agents that are there, and the nodes that will not come back.
#[derive(Clone, Debug, Default)]
struct Present {
    agents: BTreeMap<NodeName, SocketAddr>,
    down: BTreeSet<NodeName>,
}

/// A list of agents that changes while it is worked with; clones are the same list.
#[derive(Clone, Debug)]
pub struct Roster {
    present: Arc<watch::Sender<Present>>,
}

impl Default for Roster {
    fn default() -> Self {
        Roster { present: Arc::new(watch::Sender::new(Present::default())) }
    }
}

impl Roster {
    /// An agent is there.
    pub fn arrived(&self, node: &NodeName, address: SocketAddr) {
        self.present.send_modify(|present| {
            present.agents.insert(node.clone(), address);
        });
    }

    /// An agent is not there any more; maybe it comes back.
    pub fn lost(&self, node: &NodeName) {
        self.present.send_modify(|present| {
            present.agents.remove(node);
        });
    }

    /// A node will not come back.
    pub fn down(&self, node: &NodeName) {
        self.present.send_modify(|present| {
            present.agents.remove(node);
            present.down.insert(node.clone());
        });
    }

    /// The agents that are there.
    pub fn agents(&self) -> BTreeMap<NodeName, SocketAddr> {
        self.present.borrow().agents.clone()
    }

    /// Where the agent of a node listens, if it is there.
    pub fn address(&self, node: &NodeName) -> Option<SocketAddr> {
        self.present.borrow().agents.get(node).copied()
    }

    /// Ends when the node's agent is no longer there, or somewhere else.
    pub async fn gone(&self, node: &NodeName, address: SocketAddr) {
        let mut changes = self.present.subscribe();
        // We hold a sender, so the channel stays open.
        let _ = changes.wait_for(|present| present.agents.get(node) != Some(&address)).await;
    }

    /// Waits for a lost agent to come back, at another address than `old`; `None` if the node is down, or not in time.
    pub async fn back(&self, node: &NodeName, old: SocketAddr, patience: Duration) -> Option<SocketAddr> {
        let mut changes = self.present.subscribe();
        let decided = changes.wait_for(|present| {
            present.down.contains(node) || present.agents.get(node).is_some_and(|address| *address != old)
        });
        tokio::time::timeout(patience, decided).await.ok()?.ok()?.agents.get(node).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[tokio::test]
    async fn who_waits_for_an_agent_learns_that_it_came_back_or_never_will() {
        let (roster, node) = (Roster::default(), NodeName::from("node0"));
        roster.arrived(&node, address(1));
        let (other, name) = (roster.clone(), node.clone());
        let waiting = tokio::spawn(async move {
            other.gone(&name, address(1)).await;
            other.back(&name, address(1), Duration::from_secs(60)).await
        });
        roster.lost(&node);
        roster.arrived(&node, address(2));
        assert_eq!(waiting.await.unwrap(), Some(address(2)));
        roster.down(&node);
        assert_eq!(roster.back(&node, address(2), Duration::from_secs(60)).await, None);
    }
}
