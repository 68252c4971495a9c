//! The agents that a drain can send requests to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Bound;

use holdfast_model::NodeName;

use super::action::AgentAt;

/// The nodes of a drain, each in one of three sets.
#[derive(Clone, Debug)]
pub(super) struct ReachableAgents {
    up: BTreeMap<NodeName, SocketAddr>,
    /// Nodes whose agents may be restarted.
    lost: BTreeSet<NodeName>,
    /// Nodes whose agents are lost for good.
    down: BTreeSet<NodeName>,
    /// The node that got the last request for any agent.
    last: Option<NodeName>,
}

impl ReachableAgents {
    /// A node that is in several sets counts for the first.
    pub(super) fn new(
        up: BTreeMap<NodeName, SocketAddr>,
        mut lost: BTreeSet<NodeName>,
        mut down: BTreeSet<NodeName>,
    ) -> Self {
        lost.retain(|node| !up.contains_key(node));
        down.retain(|node| !up.contains_key(node) && !lost.contains(node));
        ReachableAgents { up, lost, down, last: None }
    }

    /// The agent of a node, if it is up.
    pub(super) fn get(&self, node: &NodeName) -> Option<AgentAt> {
        self.up.get(node).map(|address| AgentAt { node: node.clone(), address: *address })
    }

    pub(super) fn is_known(&self, node: &NodeName) -> bool {
        self.up.contains_key(node) || self.lost.contains(node) || self.down.contains(node)
    }

    pub(super) fn is_down(&self, node: &NodeName) -> bool {
        self.down.contains(node)
    }

    /// The nodes whose agents are up.
    pub(super) fn up(&self) -> impl Iterator<Item = &NodeName> {
        self.up.keys()
    }

    /// The nodes whose agents may be restarted.
    pub(super) fn lost(&self) -> impl Iterator<Item = &NodeName> {
        self.lost.iter()
    }

    /// The nodes whose agents are lost, for some time or for good.
    pub(super) fn not_up(&self) -> impl Iterator<Item = &NodeName> {
        self.lost.union(&self.down)
    }

    /// The next agent in turn; `None` if none is up.
    pub(super) fn next(&mut self) -> Option<AgentAt> {
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.up.range((after, Bound::Unbounded)).next().or_else(|| self.up.iter().next());
        let (node, address) = next?;
        let agent = AgentAt { node: node.clone(), address: *address };
        self.last = Some(agent.node.clone());
        Some(agent)
    }

    /// An agent came up. Returns the address of the node's agent that was up until now.
    pub(super) fn came_up(&mut self, node: &NodeName, address: SocketAddr) -> Option<SocketAddr> {
        self.lost.remove(node);
        self.down.remove(node);
        self.up.insert(node.clone(), address)
    }

    pub(super) fn went_lost(&mut self, node: &NodeName) {
        if self.up.remove(node).is_some() {
            self.lost.insert(node.clone());
        }
    }

    pub(super) fn went_down(&mut self, node: &NodeName) {
        self.up.remove(node);
        self.lost.remove(node);
        self.down.insert(node.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_to_the_agents_in_turn_and_to_no_lost_agent() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let up = ["a", "b", "c"].map(|name| (NodeName::from(name), address));
        let mut agents = ReachableAgents::new(up.into(), BTreeSet::new(), BTreeSet::new());
        let next = |agents: &mut ReachableAgents| agents.next().map(|agent| agent.node.to_string());
        assert_eq!(next(&mut agents).as_deref(), Some("a"));
        assert_eq!(next(&mut agents).as_deref(), Some("b"));
        agents.went_lost(&"c".into());
        assert_eq!(next(&mut agents).as_deref(), Some("a"));
        agents.went_down(&"a".into());
        agents.went_down(&"b".into());
        assert_eq!(next(&mut agents), None);
        agents.came_up(&"c".into(), address);
        assert_eq!(next(&mut agents).as_deref(), Some("c"));
    }
}
