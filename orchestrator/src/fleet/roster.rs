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

/// A copy of the roster, and its later changes.
#[derive(Debug)]
pub struct FollowedRoster {
    /// The agents that are up.
    pub agents: BTreeMap<NodeName, SocketAddr>,
    /// Nodes whose agents are lost and may be restarted.
    pub lost: BTreeSet<NodeName>,
    /// Nodes whose agents are lost for good.
    pub down: BTreeSet<NodeName>,
    /// Every change after that.
    pub changes: mpsc::UnboundedReceiver<RosterChange>,
}

#[derive(Debug, Default)]
struct RosterState {
    agents: BTreeMap<NodeName, SocketAddr>,
    lost: BTreeSet<NodeName>,
    down: BTreeSet<NodeName>,
    followers: Vec<mpsc::UnboundedSender<RosterChange>>,
}

impl RosterState {
    fn announce(&mut self, change: &RosterChange) {
        self.followers.retain(|follower| follower.send(change.clone()).is_ok());
    }
}

/// The agents of a job and their state. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    present: Arc<Mutex<RosterState>>,
}

impl Roster {
    pub fn agent_up(&self, node: &NodeName, address: SocketAddr) {
        let mut present = self.present.lock();
        present.lost.remove(node);
        present.down.remove(node);
        present.agents.insert(node.clone(), address);
        present.announce(&RosterChange::Up { node: node.clone(), address });
    }

    /// An agent is lost; it may be restarted.
    pub fn agent_lost(&self, node: &NodeName) {
        let mut present = self.present.lock();
        if present.agents.remove(node).is_some() {
            present.lost.insert(node.clone());
            present.announce(&RosterChange::Lost { node: node.clone() });
        }
    }

    /// The agent of a node is lost for good.
    pub fn node_down(&self, node: &NodeName) {
        let mut present = self.present.lock();
        present.agents.remove(node);
        present.lost.remove(node);
        present.down.insert(node.clone());
        present.announce(&RosterChange::Down { node: node.clone() });
    }

    /// The agents that are up.
    pub fn agents(&self) -> BTreeMap<NodeName, SocketAddr> {
        self.present.lock().agents.clone()
    }

    /// The roster as it is, and every change from now on.
    pub fn follow(&self) -> FollowedRoster {
        let (follower, changes) = mpsc::unbounded_channel();
        let mut present = self.present.lock();
        present.followers.push(follower);
        let RosterState { agents, lost, down, .. } = &*present;
        FollowedRoster { agents: agents.clone(), lost: lost.clone(), down: down.clone(), changes }
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
        let mut followed = roster.follow();
        assert_eq!(followed.agents, BTreeMap::from([(node.clone(), address(1))]));
        roster.agent_lost(&node);
        assert_eq!(roster.follow().lost, BTreeSet::from([node.clone()]));
        roster.agent_lost(&node);
        roster.agent_up(&node, address(2));
        assert_eq!(roster.agents().get(&node), Some(&address(2)));
        roster.node_down(&node);
        let received: Vec<_> = std::iter::from_fn(|| followed.changes.try_recv().ok()).collect();
        let up = RosterChange::Up { node: node.clone(), address: address(2) };
        let [lost, down] = [RosterChange::Lost { node: node.clone() }, RosterChange::Down { node: node.clone() }];
        assert_eq!(received, [lost, up, down]);
        let FollowedRoster { agents, lost, down, .. } = roster.follow();
        assert!(agents.is_empty() && lost.is_empty());
        assert_eq!(down, BTreeSet::from([node]));
    }
}
