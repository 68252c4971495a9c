//! The two rounds of copies as a pure state machine.
//!
//! Round 1: every healthy node copies the files of its ranks, and partners copy for the nodes that are known to be
//! down. Round 2: for nodes whose copies failed, the nodes that are known to have copies of their files; if none is
//! known, all nodes that are left. An answer lists single ranks, so that a damaged file affects its rank only. A node
//! that answers without a rank of which another node has a copy has lost it, as after a reboot: its copy failed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_model::{NodeName, PackedRank, Rank};
use holdfast_wire::agent::CopyReply;

use super::error::RequestFailure;

/// The copies that a node is to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOrder {
    /// The node that copies.
    pub node: NodeName,
    pub round: u8,
    /// Other nodes whose files it copies if it has copies of them; all orders of a round share the list.
    pub on_behalf_of: Arc<[NodeName]>,
    /// Only files of other nodes.
    pub partners_only: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Ranks whose files were copied, with bytes.
    pub ranks: BTreeMap<Rank, u64>,
    /// Ranks whose files were not copied, with the last reason.
    pub failed: BTreeMap<Rank, String>,
    /// Nodes that did not answer, with the reason.
    pub unreachable: BTreeMap<NodeName, String>,
    /// What was written to the container.
    pub packed: BTreeMap<Rank, PackedRank>,
    /// Those of the failed ranks whose files could not be written.
    unwritable_ranks: BTreeSet<Rank>,
    /// Those of the unreachable nodes that could not write anything.
    unwritable_nodes: BTreeSet<NodeName>,
}

impl Copied {
    /// True if files of some ranks could not be written to the prefix directory.
    pub fn is_unwritable(&self) -> bool {
        self.failed.keys().any(|rank| self.unwritable_ranks.contains(rank))
            || self.unreachable.keys().any(|node| self.unwritable_nodes.contains(node))
    }
}

/// The state of the rounds.
#[derive(Clone, Debug)]
pub struct Rounds {
    healthy: BTreeSet<NodeName>,
    down: BTreeSet<NodeName>,
    /// Nodes for which partners copy in round 1.
    on_behalf_of: Arc<[NodeName]>,
    partner_copies: bool,
    /// For each node, the nodes that have copies of its files.
    holders: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// For each rank with copies, the nodes that the copies name as its own.
    owners: BTreeMap<Rank, BTreeSet<NodeName>>,
    /// Nodes with ranks whose files were not copied in round 1.
    not_copied: BTreeSet<NodeName>,
    copied: Copied,
}

impl Rounds {
    /// The copies of a dataset from `healthy` nodes. `partner_copies` is true if some node has copies of another node's
    /// files; otherwise round 2 has no orders.
    pub fn new(
        healthy: impl IntoIterator<Item = NodeName>,
        down: impl IntoIterator<Item = NodeName>,
        partner_copies: bool,
    ) -> Self {
        let down: BTreeSet<NodeName> = down.into_iter().collect();
        Rounds {
            healthy: healthy.into_iter().collect(),
            on_behalf_of: if partner_copies { down.iter().cloned().collect() } else { Arc::default() },
            down,
            partner_copies,
            holders: BTreeMap::new(),
            owners: BTreeMap::new(),
            not_copied: BTreeSet::new(),
            copied: Copied::default(),
        }
    }

    /// The orders of round 1.
    pub fn first(&self) -> Vec<CopyOrder> {
        self.healthy.iter().map(|node| self.first_of(node)).collect()
    }

    /// The order of round 1 for one node, also after its agent was restarted.
    pub fn first_of(&self, node: &NodeName) -> CopyOrder {
        CopyOrder { node: node.clone(), round: 1, on_behalf_of: Arc::clone(&self.on_behalf_of), partners_only: false }
    }

    pub fn answered(&mut self, order: &CopyOrder, reply: CopyReply) {
        for (rank, owner) in reply.partners {
            self.owners.entry(rank).or_default().insert(owner.clone());
            self.holders.entry(owner).or_default().insert(order.node.clone());
        }
        if order.round == 1 {
            self.copied.unreachable.remove(&order.node);
            self.not_copied.remove(&order.node);
            if !reply.failed.is_empty() {
                self.not_copied.insert(order.node.clone());
            }
        }
        self.copied.unwritable_ranks.extend(reply.unwritable);
        for (rank, packed) in reply.packed {
            // What an earlier round copied completely stays. An agent that is restarted writes to the same place.
            if order.round == 1 || !self.copied.ranks.contains_key(&rank) {
                self.copied.packed.insert(rank, packed);
            }
        }
        for (rank, bytes) in reply.copied {
            self.copied.failed.remove(&rank);
            self.copied.ranks.insert(rank, bytes);
        }
        for (rank, reason) in reply.failed {
            // Another node may have had an intact copy.
            if !self.copied.ranks.contains_key(&rank) {
                self.copied.failed.insert(rank, reason);
            }
        }
    }

    /// Records that nothing was copied: the agent is lost, or refused.
    pub fn unanswered(&mut self, order: &CopyOrder, failure: RequestFailure) {
        let RequestFailure { reason, unwritable } = failure;
        if unwritable {
            self.copied.unwritable_nodes.insert(order.node.clone());
        }
        self.copied.unreachable.insert(order.node.clone(), reason);
        if order.round == 1 {
            self.not_copied.insert(order.node.clone());
        }
    }

    /// The orders of round 2; none if nothing failed, or no other node can have copies.
    pub fn second(&self) -> Vec<CopyOrder> {
        if !self.partner_copies {
            return Vec::new();
        }
        // Copies may name the node of their rank otherwise than the drain does, by its host name.
        let not_copied = self.owners.iter().filter(|(rank, _)| !self.copied.ranks.contains_key(rank));
        let owners = not_copied.flat_map(|(_, owners)| owners);
        let failed: BTreeSet<&NodeName> = self.not_copied.iter().chain(&self.down).chain(owners).collect();
        // Files of down nodes that partners copied in round 1 are not requested again.
        let is_incomplete = failed.iter().any(|node| !self.down.contains(*node)) || !self.copied.failed.is_empty();
        if !is_incomplete {
            return Vec::new();
        }
        let reachable = |node: &&NodeName| !self.copied.unreachable.contains_key(*node);
        let known: BTreeSet<&NodeName> =
            failed.iter().filter_map(|node| self.holders.get(*node)).flatten().filter(reachable).collect();
        let asked = if known.is_empty() { self.healthy.iter().filter(reachable).collect() } else { known };
        let on_behalf_of: Arc<[NodeName]> = failed.into_iter().cloned().collect();
        asked
            .into_iter()
            .map(|node| CopyOrder {
                node: node.clone(),
                round: 2,
                on_behalf_of: Arc::clone(&on_behalf_of),
                partners_only: true,
            })
            .collect()
    }

    pub fn finish(self) -> Copied {
        self.copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(nodes: &[&str]) -> Vec<NodeName> {
        nodes.iter().map(|name| NodeName::from(*name)).collect()
    }

    fn reply(copied: &[u32], failed: &[u32], partners: &[(u32, &str)]) -> CopyReply {
        CopyReply {
            partners: partners.iter().map(|(rank, owner)| (Rank(*rank), NodeName::from(*owner))).collect(),
            copied: copied.iter().map(|rank| (Rank(*rank), 10)).collect(),
            failed: failed.iter().map(|rank| (Rank(*rank), "disk error".to_owned())).collect(),
            ..CopyReply::default()
        }
    }

    #[test]
    fn without_failures_there_is_no_second_round() {
        let mut rounds = Rounds::new(names(&["a", "b"]), names(&[]), true);
        for (order, rank) in rounds.first().into_iter().zip(0..) {
            rounds.answered(&order, reply(&[rank], &[], &[]));
        }
        assert!(rounds.second().is_empty());
        assert_eq!(rounds.finish().ranks.len(), 2);
    }

    #[test]
    fn only_the_partner_of_a_node_that_failed_copies_for_it() {
        let mut rounds = Rounds::new(names(&["a", "b", "c"]), names(&[]), true);
        let orders = rounds.first();
        rounds.unanswered(&orders[0], "connection reset".into());
        rounds.answered(&orders[1], reply(&[1], &[], &[(0, "a")]));
        rounds.answered(&orders[2], reply(&[2], &[], &[(1, "b")]));
        let second = rounds.second();
        assert_eq!(second.len(), 1);
        assert_eq!((second[0].node.as_str(), second[0].partners_only), ("b", true));
        assert_eq!(*second[0].on_behalf_of, names(&["a"]));
        rounds.answered(&second[0], reply(&[0], &[], &[(0, "a")]));
        let copied = rounds.finish();
        assert_eq!(copied.ranks.len(), 3);
        assert!(copied.failed.is_empty());
    }

    #[test]
    fn if_no_node_with_copies_is_known_every_reachable_node_gets_an_order() {
        let mut rounds = Rounds::new(names(&["a", "b", "c"]), names(&[]), true);
        let orders = rounds.first();
        rounds.unanswered(&orders[0], "silent".into());
        rounds.answered(&orders[1], reply(&[1], &[], &[]));
        rounds.answered(&orders[2], reply(&[2], &[], &[]));
        let asked: Vec<NodeName> = rounds.second().into_iter().map(|order| order.node).collect();
        assert_eq!(asked, names(&["b", "c"]));
    }

    #[test]
    fn a_damaged_file_affects_its_rank_only_and_is_copied_from_the_partner() {
        let mut rounds = Rounds::new(names(&["a", "b"]), names(&[]), true);
        let orders = rounds.first();
        rounds.answered(&orders[0], reply(&[0], &[1], &[]));
        rounds.answered(&orders[1], reply(&[2], &[], &[(0, "a"), (1, "a")]));
        assert_eq!(rounds.second().len(), 1);
        let second = rounds.second().remove(0);
        rounds.answered(&second, reply(&[0, 1], &[], &[]));
        assert!(rounds.finish().failed.is_empty());
    }

    #[test]
    fn partner_copies_for_a_node_that_answers_and_has_lost_its_files() {
        let mut rounds = Rounds::new(names(&["a", "b", "c"]), names(&[]), true);
        let orders = rounds.first();
        rounds.answered(&orders[0], reply(&[], &[], &[(2, "c")]));
        rounds.answered(&orders[1], reply(&[1], &[], &[(0, "a")]));
        rounds.answered(&orders[2], reply(&[2], &[], &[(1, "b")]));
        let second = rounds.second();
        let asked: Vec<&str> = second.iter().map(|order| order.node.as_str()).collect();
        assert_eq!((asked, &*second[0].on_behalf_of), (vec!["b"], &*names(&["a"])));
    }

    #[test]
    fn partners_copy_in_round_1_for_nodes_that_are_down() {
        let mut rounds = Rounds::new(names(&["b"]), names(&["a"]), true);
        let orders = rounds.first();
        assert_eq!(*orders[0].on_behalf_of, names(&["a"]));
        rounds.answered(&orders[0], reply(&[0, 1], &[], &[(0, "a")]));
        assert!(rounds.second().is_empty());
    }

    #[test]
    fn without_partner_copies_no_node_copies_for_another() {
        let mut rounds = Rounds::new(names(&["a", "b"]), names(&["c"]), false);
        let orders = rounds.first();
        assert!(orders[0].on_behalf_of.is_empty());
        rounds.unanswered(&orders[0], "silent".into());
        assert!(rounds.second().is_empty());
    }

    #[test]
    fn a_restarted_agent_copies_after_all() {
        let mut rounds = Rounds::new(names(&["a"]), names(&[]), true);
        let order = rounds.first().remove(0);
        rounds.unanswered(&order, "killed".into());
        rounds.answered(&rounds.first_of(&order.node), reply(&[0], &[], &[]));
        assert!(rounds.second().is_empty());
        assert!(rounds.finish().unreachable.is_empty());
    }

    #[test]
    fn copies_that_name_a_node_by_another_name_are_used() {
        let mut rounds = Rounds::new(names(&["a", "b"]), names(&[]), true);
        let orders = rounds.first();
        rounds.answered(&orders[0], reply(&[0], &[1], &[]));
        rounds.answered(&orders[1], reply(&[2], &[], &[(0, "host-a"), (1, "host-a")]));
        let second = rounds.second();
        let asked: Vec<&str> = second.iter().map(|order| order.node.as_str()).collect();
        assert_eq!(asked, ["b"]);
        assert!(second[0].on_behalf_of.contains(&NodeName::from("host-a")));
    }

    #[test]
    fn a_rank_that_could_not_be_written_counts_until_it_is_copied() {
        let mut rounds = Rounds::new(names(&["a", "b"]), names(&[]), true);
        let orders = rounds.first();
        let unwritable = CopyReply { unwritable: [Rank(0)].into(), ..reply(&[], &[0], &[]) };
        rounds.answered(&orders[0], unwritable);
        rounds.answered(&orders[1], reply(&[1], &[], &[(0, "a")]));
        let second = rounds.second().remove(0);
        assert!(rounds.clone().finish().is_unwritable());
        rounds.answered(&second, reply(&[0], &[], &[(0, "a")]));
        assert!(!rounds.finish().is_unwritable());
    }
}
