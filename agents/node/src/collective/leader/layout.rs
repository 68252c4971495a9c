//! Groups and descriptors of a run, formed once.

use std::collections::BTreeMap;

use holdfast_core::redundancy::descriptor::select;
use holdfast_core::redundancy::groups::{Groups, Rules, RulesError, Site};
use holdfast_core::redundancy::registry::form;
use holdfast_model::{CheckpointId, Descriptor, NodeName, Rank, RankDescriptor, Scheme};
use holdfast_wire::peer::{GroupWork, Member};
use holdfast_wire::run::RunPlan;

use crate::paths::Paths;

/// Why a plan allows no groups.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A rank that no node runs.
    #[error("rank {rank} of {ranks} has no node")]
    NoNode {
        /// The rank.
        rank: Rank,
        /// The number of ranks.
        ranks: u32,
    },
    /// A descriptor whose groups cannot be formed.
    #[error("descriptor {index}: {source}")]
    Descriptor {
        /// Its index.
        index: u32,
        /// What is wrong.
        source: RulesError,
    },
    /// Nothing was asked for.
    #[error("no redundancy descriptor is given")]
    NoDescriptors,
}

/// Who is grouped with whom.
#[derive(Debug)]
pub(super) struct Layout {
    /// Where each rank lives.
    pub(super) sites: Vec<Site>,
    /// The descriptors that were asked for, with the groups that this placement allows.
    protections: Vec<Protection>,
    /// The node of each rank.
    homes: Vec<NodeName>,
}

/// A descriptor in force: what was asked for, with the groups that the placement allows.
#[derive(Debug)]
pub(super) struct Protection {
    /// What was asked for, with the scheme in force.
    descriptor: Descriptor,
    /// Directory of its checkpoints, as the nodes see it.
    directory: String,
    /// The groups.
    pub(super) groups: Groups,
}

impl Layout {
    /// Forms the groups for each descriptor.
    pub(super) fn new(paths: &Paths, plan: &RunPlan) -> Result<Layout, LayoutError> {
        let ranks = plan.ranks();
        let (mut sites, mut homes) = (Vec::new(), Vec::new());
        let mut domains: BTreeMap<&str, u32> = BTreeMap::new();
        for rank in (0..ranks).map(Rank) {
            let at = plan.nodes.iter().position(|node| node.ranks.contains(&rank));
            let Some((node, at)) = at.and_then(|at| Some((&plan.nodes[at], u32::try_from(at).ok()?))) else {
                return Err(LayoutError::NoNode { rank, ranks });
            };
            let next = u32::try_from(domains.len()).unwrap_or(u32::MAX);
            let domain = *domains.entry(&node.failure_domain).or_insert(next);
            sites.push(Site { node: at, domain });
            homes.push(node.name.clone());
        }
        let mut protections = Vec::new();
        for (index, asked) in (0u32..).zip(&plan.settings.descriptors) {
            let groups = form(&sites, Rules::of(asked)).map_err(|source| LayoutError::Descriptor { index, source })?;
            let directory = paths.index_node_path(&asked.base, index);
            let descriptor = Descriptor { index, scheme: groups.scheme, ..asked.clone() };
            protections.push(Protection { descriptor, directory, groups });
        }
        if protections.is_empty() {
            return Err(LayoutError::NoDescriptors);
        }
        Ok(Layout { sites, protections, homes })
    }

    /// Reasons why a scheme is weaker than asked for, for a person to read.
    pub(super) fn warnings(&self) -> Vec<String> {
        let forced = self.protections.iter().filter_map(|protection| protection.groups.forced_local.as_ref());
        forced.map(ToString::to_string).collect()
    }

    /// The node of a rank.
    pub(super) fn home(&self, rank: Rank) -> Option<&NodeName> {
        self.homes.get(rank.index())
    }

    /// What protects a new checkpoint; `None` if no descriptor is due for this id.
    pub(super) fn protection(&self, checkpoint: CheckpointId) -> Option<&Protection> {
        let requested: Vec<Descriptor> = self.protections.iter().map(|each| each.descriptor.clone()).collect();
        let index = select(checkpoint, &requested)?.index;
        self.protections.iter().find(|protection| protection.descriptor.index == index)
    }

    /// Each node's ranks with their descriptors.
    pub(super) fn by_node(&self, descriptors: &[RankDescriptor]) -> BTreeMap<NodeName, Vec<Member>> {
        let mut nodes: BTreeMap<NodeName, Vec<Member>> = BTreeMap::new();
        for (at, descriptor) in (0u32..).zip(descriptors) {
            if let Some(home) = self.home(Rank(at)) {
                let member = Member { rank: Rank(at), descriptor: descriptor.clone() };
                nodes.entry(home.clone()).or_default().push(member);
            }
        }
        nodes
    }

    /// Each node's part in the work of these groups, for ranks that have `bytes` bytes of files. Ranks without a group are
    /// left out: they protect nobody.
    pub(super) fn work(&self, groups: &Groups, bytes: &BTreeMap<Rank, u64>) -> BTreeMap<NodeName, Vec<GroupWork>> {
        let mut nodes: BTreeMap<NodeName, Vec<GroupWork>> = BTreeMap::new();
        for group in groups.groups.iter().filter(|group| group.members.len() > 1) {
            let largest = group.members.iter().filter_map(|rank| bytes.get(rank)).max().copied().unwrap_or(0);
            let members: Vec<(Rank, NodeName)> =
                group.members.iter().filter_map(|rank| Some((*rank, self.home(*rank)?.clone()))).collect();
            for (member, (rank, home)) in (0u32..).zip(&members) {
                let Some(place) = groups.of(*rank) else { continue };
                let neighbours = group.index_of(place.left).zip(group.index_of(place.right));
                let Some((left, right)) = neighbours else { continue };
                nodes.entry(home.clone()).or_default().push(GroupWork {
                    scheme: groups.scheme,
                    group_id: group.id,
                    members: members.clone(),
                    member,
                    left,
                    right,
                    largest,
                });
            }
        }
        nodes
    }
}

impl Protection {
    /// The scheme in force.
    pub(super) fn scheme(&self) -> Scheme {
        self.groups.scheme
    }

    /// The cache base.
    pub(super) fn base(&self) -> &str {
        &self.descriptor.base
    }

    /// Each rank's descriptor.
    pub(super) fn descriptors(&self) -> Vec<RankDescriptor> {
        let world = self.groups.groups.iter().map(|group| group.members.len()).sum();
        let unplaced = RankDescriptor {
            descriptor: self.descriptor.clone(),
            directory: self.directory.clone(),
            groups: 0,
            group_id: 0,
            group_size: 0,
            group_rank: 0,
        };
        let mut descriptors = vec![unplaced; world];
        self.groups.describe(&mut descriptors);
        descriptors
    }
}
