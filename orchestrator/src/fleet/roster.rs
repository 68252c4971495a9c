//! The agents that are up now: updated by the supervisor, followed by the drain.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_model::NodeName;
use parking_lot::Mutex;
use tokio::sync::mpsc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterChange {
    Up {
        node: NodeName,
        address: SocketAddr,
    },
    /// An agent is lost; it may be restarted.
    Lost {
        node: NodeName,
    },
    /// The agent of a node is lost for good.
    Down {
        node: NodeName,
    },
}

/// The agents of a job by their state.
#[derive(Clone, Debug, Default)]
pub struct RosterState {
    /// The agents that are up.
    pub agents: BTreeMap<NodeName, SocketAddr>,
    /// Nodes whose agents are lost and may be restarted.
    pub lost: BTreeSet<NodeName>,
    /// Nodes whose agents are lost for good.
    pub down: BTreeSet<NodeName>,
}

#[derive(Debug, Default)]
struct Shared {
    present: RosterState,
    followers: Vec<mpsc::UnboundedSender<RosterChange>>,
}

impl Shared {
    fn announce(&mut self, change: &RosterChange) {
        self.followers.retain(|follower| follower.send(change.clone()).is_ok());
    }
}

/// The agents of a job and their state. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    shared: Arc<Mutex<Shared>>,
}

impl Roster {
    pub fn agent_up(&self, node: &NodeName, address: SocketAddr) {
        let mut shared = self.shared.lock();
        shared.present.lost.remove(node);
        shared.present.down.remove(node);
        shared.present.agents.insert(node.clone(), address);
        shared.announce(&RosterChange::Up { node: node.clone(), address });
    }

    /// An agent is lost; it may be restarted.
    pub fn agent_lost(&self, node: &NodeName) {
        let mut shared = self.shared.lock();
        if shared.present.agents.remove(node).is_some() {
            shared.present.lost.insert(node.clone());
            shared.announce(&RosterChange::Lost { node: node.clone() });
        }
    }

    /// The agent of a node that was down is started again.
    pub fn agent_started(&self, node: &NodeName) {
        let mut shared = self.shared.lock();
        if shared.present.down.remove(node) {
            shared.present.lost.insert(node.clone());
            shared.announce(&RosterChange::Lost { node: node.clone() });
        }
    }

    /// The agent of a node is lost for good.
    pub fn node_down(&self, node: &NodeName) {
        let mut shared = self.shared.lock();
        shared.present.agents.remove(node);
        shared.present.lost.remove(node);
        shared.present.down.insert(node.clone());
        shared.announce(&RosterChange::Down { node: node.clone() });
    }

    /// The agents that are up.
    pub fn agents(&self) -> BTreeMap<NodeName, SocketAddr> {
        self.shared.lock().present.agents.clone()
    }

    /// The roster as it is, and every change from now on.
    pub fn follow(&self) -> (RosterState, mpsc::UnboundedReceiver<RosterChange>) {
        let (follower, changes) = mpsc::unbounded_channel();
        let mut shared = self.shared.lock();
        shared.followers.push(follower);
        (shared.present.clone(), changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_receives_the_agents_that_are_up_and_every_change_since() {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let (roster, node) = (Roster::default(), NodeName::from("node0"));
        roster.agent_up(&node, address(1));
        let (followed, mut changes) = roster.follow();
        assert_eq!(followed.agents, BTreeMap::from([(node.clone(), address(1))]));
        roster.agent_lost(&node);
        assert_eq!(roster.follow().0.lost, BTreeSet::from([node.clone()]));
        roster.agent_lost(&node);
        roster.agent_up(&node, address(2));
        assert_eq!(roster.agents().get(&node), Some(&address(2)));
        roster.node_down(&node);
        assert_eq!(roster.follow().0.down, BTreeSet::from([node.clone()]));
        roster.agent_started(&node);
        let received: Vec<_> = std::iter::from_fn(|| changes.try_recv().ok()).collect();
        let up = RosterChange::Up { node: node.clone(), address: address(2) };
        let [lost, down] = [RosterChange::Lost { node: node.clone() }, RosterChange::Down { node: node.clone() }];
        assert_eq!(received, [lost.clone(), up, down, lost]);
        let (RosterState { agents, lost, down }, _) = roster.follow();
        assert!(agents.is_empty() && down.is_empty());
        assert_eq!(lost, BTreeSet::from([node]));
    }
}
