//! Where the copies and jobs of a spec run, and what each node is told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use holdfast_model::NodeName;
use holdfast_model::pair::{JobConfig, PairConfig, Side};
use holdfast_wire::pairs::{PairOnNode, PairsPlan, PairsSettings, SidesOnNode};
use serde::{Deserialize, Serialize};

use crate::spec::{NodeReference, Replicated};

/// A node that a spec names is not in the allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is to run on node {node}, which is not in the allocation ({} nodes: {}); correct `{key}`",
    nodes.len(),
    nodes.iter().take(8).map(NodeName::as_str).collect::<Vec<_>>().join(", ")
)]
pub struct PlacementError {
    /// The pair or job.
    pub name: String,
    pub node: String,
    pub key: &'static str,
    pub nodes: Vec<NodeName>,
}

/// A pair and the nodes of its copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairPlace {
    pub name: String,
    pub main: NodeName,
    pub replica: NodeName,
}

impl PairPlace {
    /// The node of a copy.
    pub fn node(&self, side: Side) -> &NodeName {
        side.select(&self.main, &self.replica)
    }

    /// True if the copies belong to two nodes.
    pub fn is_split(&self) -> bool {
        self.main != self.replica
    }

    /// The copies of a node.
    fn sides_on(&self, node: &NodeName) -> Option<SidesOnNode> {
        match (self.main == *node, self.replica == *node) {
            (true, true) => Some(SidesOnNode::Both),
            (true, false) => Some(SidesOnNode::Main),
            (false, true) => Some(SidesOnNode::Replica),
            (false, false) => None,
        }
    }
}

/// The pairs and jobs of a job with their nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    pairs: Vec<(PairConfig, PairPlace)>,
    /// The non-critical jobs with their nodes.
    pub jobs: Vec<(JobConfig, NodeName)>,
}

impl Placement {
    /// Places the copies and jobs of a spec on the nodes of the allocation. `programs` are the paths of programs, by
    /// the names in commands.
    ///
    /// # Errors
    /// A node that is not in the allocation.
    pub fn new(
        replicated: &Replicated,
        nodes: &[NodeName],
        programs: &BTreeMap<String, PathBuf>,
    ) -> Result<Self, PlacementError> {
        let found = |command: &[String]| {
            let mut command = command.to_vec();
            if let Some(program) = command.first_mut()
                && let Some(path) = programs.get(program)
            {
                *program = path.to_string_lossy().into_owned();
            }
            command
        };
        let find = |name: &str, node: &NodeReference, key| {
            node.find(nodes).cloned().ok_or_else(|| PlacementError {
                name: name.to_owned(),
                node: node.to_string(),
                key,
                nodes: nodes.to_vec(),
            })
        };
        let pair = |pair: &crate::spec::PlacedPair| {
            let name = &pair.config.name;
            let (main, replica) = (find(name, &pair.main, "nodes")?, find(name, &pair.replica, "nodes")?);
            let config = PairConfig {
                main: found(&pair.config.main),
                replica: found(&pair.config.replica),
                ..pair.config.clone()
            };
            Ok((config, PairPlace { name: name.clone(), main, replica }))
        };
        let job = |job: &crate::spec::PlacedJob| {
            let config = JobConfig { command: found(&job.config.command), ..job.config.clone() };
            Ok((config, find(&job.config.name, &job.node, "node")?))
        };
        Ok(Placement {
            pairs: replicated.pairs.iter().map(pair).collect::<Result<_, _>>()?,
            jobs: replicated.jobs.iter().map(job).collect::<Result<_, _>>()?,
        })
    }

    /// The pairs in the order of their numbers.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = &PairPlace> {
        self.pairs.iter().map(|(_, place)| place)
    }

    /// The settings of the pairs, in the order of their numbers.
    pub fn configs(&self) -> impl ExactSizeIterator<Item = &PairConfig> {
        self.pairs.iter().map(|(config, _)| config)
    }

    /// The nodes that have copies or jobs.
    pub fn nodes(&self) -> BTreeSet<NodeName> {
        let of_pairs = self.pairs.iter().flat_map(|(_, place)| [&place.main, &place.replica]);
        of_pairs.chain(self.jobs.iter().map(|(_, node)| node)).cloned().collect()
    }

    /// The plan of a node. `agents` are the addresses of the agents that are up; of the pairs of all nodes, `finished`
    /// are finished, and copies of `begun` have been awake in this run.
    pub fn plan(
        &self,
        node: &NodeName,
        epoch: u64,
        settings: &PairsSettings,
        agents: &BTreeMap<NodeName, SocketAddr>,
        (finished, begun): (&BTreeSet<u32>, &BTreeSet<u32>),
    ) -> PairsPlan {
        let on_node = |(index, (config, place)): (u32, &(PairConfig, PairPlace))| {
            let sides = place.sides_on(node)?;
            let peer = sides.only().and_then(|side| agents.get(place.node(side.other()))).copied();
            let restore = !settings.restore_from.is_empty() && !begun.contains(&index);
            Some(PairOnNode { index, config: config.clone(), sides, restore, peer })
        };
        let pairs: Vec<PairOnNode> = (0..).zip(&self.pairs).filter_map(on_node).collect();
        PairsPlan {
            epoch,
            finished: pairs.iter().map(|pair| pair.index).filter(|index| finished.contains(index)).collect(),
            pairs,
            jobs: self.jobs.iter().filter(|(_, at)| at == node).map(|(job, _)| job.clone()).collect(),
            settings: settings.clone(),
        }
    }
}
