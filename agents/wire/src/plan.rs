//! The plan of a run as it is sent: a part that all nodes share, each node's own part, and, to the agent that leads
//! only, the table of all nodes. The requests of a relaunch with N nodes and R ranks have O(N + R) bytes together.
//!
//! A member does not have the addresses of its peers: the leader sends them with the orders that need them
//! ([`Delivery`](crate::peer::Delivery)).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use holdfast_model::{Generation, NodeName, Placement, Rank, RunNode};

use crate::run::{RunPlan, Settings};

/// Generations count launches: a larger one is an error, which would make all later ones old.
const LARGEST_GENERATION: u64 = u32::MAX as u64;

/// What is the same for all nodes of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedPlan {
    /// This launch. Anything older is over: its ranks are killed, its messages refused.
    pub generation: Generation,
    /// The number of ranks of the run.
    pub ranks: u32,
    /// The number of nodes that have ranks.
    pub used_nodes: u32,
    /// The agent where collectives gather: that of the run's first node.
    pub leader: NodeName,
    pub leader_address: SocketAddr,
    /// The settings in force; [`NODE_PLACEHOLDER`](crate::run::NODE_PLACEHOLDER) is replaced by the node's name.
    pub settings: Settings,
}

/// What concerns one node only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnPlan {
    pub node: NodeName,
    /// The ranks placed on it, ascending; none on a spare.
    pub ranks: Vec<Rank>,
}

/// Makes a run known to an agent; also what the agent keeps on disk of it. `S` is [`SharedPlan`], or its encoded form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRequest<S = SharedPlan> {
    /// Larger than in plans and updates of addresses that were sent before.
    pub issued: u64,
    pub shared: S,
    pub own: OwnPlan,
    /// To the leader's agent only: every healthy node, spares included, in allocation order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<RunNode>>,
}

/// A run as every agent of it has it.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberPlan {
    pub generation: Generation,
    /// The number of ranks of the run.
    pub ranks: u32,
    /// The number of nodes that have ranks.
    pub used_nodes: u32,
    /// The agent where collectives gather.
    pub leader: NodeName,
    /// Where it listened when the run was prepared.
    pub leader_address: SocketAddr,
    /// This node's ranks, ascending; none on a spare.
    pub local: Vec<Rank>,
    /// The settings in force on this node.
    pub settings: Settings,
}

/// A plan that was accepted on a node.
#[derive(Clone, Debug)]
pub struct AcceptedPlan {
    /// How new its addresses are.
    pub issued: u64,
    /// What every agent has.
    pub member: Arc<MemberPlan>,
    /// The complete plan; only on the node that leads the run.
    pub leader: Option<Arc<RunPlan>>,
}

/// Why a plan cannot be sent, or not be accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The node is not part of the run.
    #[error("node {node} is not part of generation {generation}")]
    UnknownNode { generation: Generation, node: NodeName },
    /// Sent to another node than it is for.
    #[error("the plan of generation {generation} is for node {meant}, this is node {here}")]
    OtherNode { generation: Generation, meant: NodeName, here: NodeName },
    /// The node is to lead a run whose nodes were not sent to it.
    #[error("node {leader} cannot lead generation {generation}: the plan came without the table of nodes")]
    NoTable { generation: Generation, leader: NodeName },
    #[error(
        "the plan of generation {generation} has {shared} ranks in its shared part and {table} in the table of nodes"
    )]
    Ranks { generation: Generation, shared: u32, table: u32 },
    /// A generation that no job reaches: it would be newer than all others for ever.
    #[error("generation {0} is out of range: launches are counted from 1")]
    Generation(Generation),
    /// The node's ranks are not among those of the run, or not ascending.
    #[error("the plan of generation {generation} gives node {node} ranks that the run does not have, or a rank twice")]
    OwnRanks { generation: Generation, node: NodeName },
    #[error("the plan of generation {generation} cannot be encoded: {source}")]
    Encode { generation: Generation, source: serde_json::Error },
}

impl RunRequest {
    /// The plan as the agent of node `here` uses it.
    ///
    /// # Errors
    /// When it is for another node, or this node is to lead without the table of nodes.
    pub fn accept(self, here: &NodeName) -> Result<AcceptedPlan, PlanError> {
        let RunRequest { issued, shared, own, nodes } = self;
        let SharedPlan { generation, ranks, used_nodes, leader, leader_address, settings } = shared;
        if own.node != *here {
            return Err(PlanError::OtherNode { generation, meant: own.node, here: here.clone() });
        }
        if generation.0 > LARGEST_GENERATION {
            return Err(PlanError::Generation(generation));
        }
        let ascending = own.ranks.is_sorted_by(|one, next| one < next);
        if !ascending || own.ranks.last().is_some_and(|last| last.0 >= ranks) {
            return Err(PlanError::OwnRanks { generation, node: own.node });
        }
        let settings = settings.for_node(here);
        let complete = if leader == *here {
            let nodes = nodes.ok_or_else(|| PlanError::NoTable { generation, leader: leader.clone() })?;
            let plan = RunPlan { generation, nodes, leader: leader.clone(), settings: settings.clone() };
            if plan.ranks() != ranks {
                return Err(PlanError::Ranks { generation, shared: ranks, table: plan.ranks() });
            }
            Some(Arc::new(plan))
        } else {
            None
        };
        let member = MemberPlan { generation, ranks, used_nodes, leader, leader_address, local: own.ranks, settings };
        Ok(AcceptedPlan { issued, member: Arc::new(member), leader: complete })
    }
}

impl AcceptedPlan {
    /// True if both are the same run with the same nodes at the same addresses, whenever they were sent.
    pub fn is_same_run(&self, other: &AcceptedPlan) -> bool {
        self.member == other.member && self.leader == other.leader
    }
}

/// A plan, ready to be sent to any of its nodes: the shared part is encoded once.
#[derive(Debug)]
pub struct PlanParts {
    generation: Generation,
    issued: u64,
    shared: Box<RawValue>,
    placement: Arc<Placement>,
    positions: HashMap<NodeName, usize>,
}

impl PlanParts {
    /// Encodes the shared part. `issued` is larger than for anything that was sent to these agents before.
    ///
    /// # Errors
    /// When the leader is not among the nodes.
    pub fn new(
        generation: Generation,
        issued: u64,
        placement: Arc<Placement>,
        settings: &Settings,
    ) -> Result<Self, PlanError> {
        let positions: HashMap<NodeName, usize> =
            placement.nodes.iter().enumerate().map(|(position, node)| (node.name.clone(), position)).collect();
        let unknown = || PlanError::UnknownNode { generation, node: placement.leader.clone() };
        let leader = positions.get(&placement.leader).and_then(|position| placement.nodes.get(*position));
        let shared = SharedPlan {
            generation,
            ranks: placement.ranks(),
            used_nodes: u32::try_from(placement.used().count()).unwrap_or(u32::MAX),
            leader: placement.leader.clone(),
            leader_address: leader.ok_or_else(unknown)?.address,
            settings: settings.clone(),
        };
        let shared = serde_json::value::to_raw_value(&shared);
        let shared = shared.map_err(|source| PlanError::Encode { generation, source })?;
        Ok(PlanParts { generation, issued, shared, placement, positions })
    }

    /// The body of the request to the agent of this node.
    ///
    /// # Errors
    /// When the node is not part of the run.
    pub fn request_to(&self, node: &NodeName) -> Result<Vec<u8>, PlanError> {
        let generation = self.generation;
        let at = self.positions.get(node).and_then(|position| self.placement.nodes.get(*position));
        let at = at.ok_or_else(|| PlanError::UnknownNode { generation, node: node.clone() })?;
        let request = RunRequest {
            issued: self.issued,
            shared: &*self.shared,
            own: OwnPlan { node: node.clone(), ranks: at.ranks.clone() },
            nodes: (*node == self.placement.leader).then(|| self.placement.nodes.clone()),
        };
        serde_json::to_vec(&request).map_err(|source| PlanError::Encode { generation, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use holdfast_model::Scheme;

    fn settings() -> Settings {
        fixtures::settings("/p", "/scratch/{node}", 2, Scheme::new("XOR"))
    }

    /// Nodes with `each` ranks, and one spare.
    fn placement(used: u32, each: u32) -> Arc<Placement> {
        let node = |at: u32| RunNode {
            name: NodeName::new(format!("node{at:05}")),
            address: SocketAddr::from(([10, 0, (at >> 8) as u8, at as u8], 40_000)),
            failure_domain: format!("rack{:04}", at / 16),
            ranks: if at < used { (at * each..(at + 1) * each).map(Rank).collect() } else { Vec::new() },
        };
        Arc::new(Placement { nodes: (0..=used).map(node).collect(), leader: NodeName::new("node00000") })
    }

    fn request(parts: &PlanParts, node: &str) -> RunRequest {
        serde_json::from_slice(&parts.request_to(&NodeName::new(node)).unwrap()).unwrap()
    }

    #[test]
    fn the_leader_gets_the_complete_plan_and_a_member_its_own_part() {
        let placement = placement(3, 2);
        let parts = PlanParts::new(Generation(4), 7, placement.clone(), &settings()).unwrap();
        let accepted = request(&parts, "node00000").accept(&"node00000".into()).unwrap();
        let plan = accepted.leader.unwrap();
        assert_eq!((&plan.nodes, plan.generation), (&placement.nodes, Generation(4)));
        assert_eq!(plan.settings.caches[0].base, "/scratch/node00000");

        let accepted = request(&parts, "node00002").accept(&"node00002".into()).unwrap();
        assert_eq!(accepted.leader, None);
        let member = &accepted.member;
        assert_eq!((member.ranks, member.used_nodes, member.local.as_slice()), (6, 3, &[Rank(4), Rank(5)][..]));
        assert_eq!((member.leader.as_str(), member.leader_address), ("node00000", placement.nodes[0].address));
        assert_eq!(member.settings.descriptors[0].base, "/scratch/node00002");
        assert_eq!(member.settings.caches[0].base, "/scratch/node00002");

        let spare = request(&parts, "node00003").accept(&"node00003".into()).unwrap();
        assert!(spare.member.local.is_empty() && spare.leader.is_none());
    }

    #[test]
    fn the_same_plan_sent_later_is_the_same_run_and_one_with_another_address_is_not() {
        let accepted = |issued, placement| {
            let parts = PlanParts::new(Generation(4), issued, placement, &settings()).unwrap();
            request(&parts, "node00000").accept(&"node00000".into()).unwrap()
        };
        let first = accepted(7, placement(3, 2));
        assert!(first.is_same_run(&accepted(8, placement(3, 2))));
        let mut moved = (*placement(3, 2)).clone();
        moved.nodes[1].address.set_port(1);
        assert!(!first.is_same_run(&accepted(8, Arc::new(moved))));
    }

    #[test]
    fn what_is_kept_on_disk_is_the_same_plan() {
        let parts = PlanParts::new(Generation(4), 7, placement(3, 2), &settings()).unwrap();
        let request = request(&parts, "node00000");
        let kept: RunRequest = serde_json::from_slice(&serde_json::to_vec(&request).unwrap()).unwrap();
        assert_eq!(kept, request);
    }

    #[test]
    fn a_plan_for_another_node_without_its_table_or_with_another_number_of_ranks_is_refused() {
        let parts = PlanParts::new(Generation(4), 7, placement(3, 2), &settings()).unwrap();
        let refused = request(&parts, "node00001").accept(&"node00002".into()).unwrap_err();
        assert!(matches!(refused, PlanError::OtherNode { .. }), "{refused}");

        let to_leader = request(&parts, "node00000");
        let refused = RunRequest { nodes: None, ..to_leader.clone() }.accept(&"node00000".into()).unwrap_err();
        assert!(matches!(refused, PlanError::NoTable { .. }), "{refused}");
        let mut fewer = to_leader;
        fewer.nodes.as_mut().unwrap().pop();
        fewer.nodes.as_mut().unwrap().pop();
        let refused = fewer.accept(&"node00000".into()).unwrap_err();
        assert!(matches!(refused, PlanError::Ranks { shared: 6, table: 4, .. }), "{refused}");

        assert!(matches!(parts.request_to(&"elsewhere".into()), Err(PlanError::UnknownNode { .. })));
        let without_leader = Placement { leader: "elsewhere".into(), ..(*placement(3, 2)).clone() };
        let refused = PlanParts::new(Generation(4), 7, Arc::new(without_leader), &settings());
        assert!(matches!(refused, Err(PlanError::UnknownNode { .. })));
    }

    #[test]
    fn the_bytes_of_a_relaunch_grow_linearly_with_nodes_and_ranks() {
        let bytes = |nodes: u32, each: u32| -> usize {
            let placement = placement(nodes, each);
            let parts = PlanParts::new(Generation(2), 7, placement.clone(), &settings()).unwrap();
            placement.nodes.iter().map(|node| parts.request_to(&node.name).unwrap().len()).sum()
        };
        let ratio = |larger: usize, smaller: usize| larger as f64 / smaller as f64;
        assert!(ratio(bytes(2_000, 8), bytes(1_000, 8)) < 2.2, "twice the nodes and ranks");
        assert!(ratio(bytes(1_000, 16), bytes(1_000, 8)) < 2.0, "twice the ranks");
        let largest_member = {
            let parts = PlanParts::new(Generation(2), 7, placement(4_000, 8), &settings()).unwrap();
            parts.request_to(&"node03999".into()).unwrap().len()
        };
        let parts = PlanParts::new(Generation(2), 7, placement(40, 8), &settings()).unwrap();
        let of_small_run = parts.request_to(&"node00039".into()).unwrap().len();
        assert!(largest_member < of_small_run + 64, "a member's part does not grow with the run");
    }
}
