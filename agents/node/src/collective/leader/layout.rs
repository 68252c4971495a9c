//! Groups and descriptors of a run, formed once.

use std::collections::BTreeMap;

use holdfast_core::redundancy::descriptor::DescriptorError;
use holdfast_core::redundancy::descriptor::select;
use holdfast_core::redundancy::groups::{Groups, Rules, RulesError, Site, form};
use holdfast_core::redundancy::xor::header::chunk_size;
use holdfast_core::redundancy::{Descriptor, Scheme};
use holdfast_model::{CheckpointId, NodeName, Rank};
use holdfast_wire::peer::{GroupWork, Member};
use holdfast_wire::run::RunPlan;

use crate::paths::Paths;
use holdfast_core::redundancy::convert::{self, to_model};

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
    /// A descriptor of an unknown scheme.
    #[error("descriptor {index}: {source}")]
    Scheme {
        /// Its index.
        index: u32,
        /// What is wrong.
        source: DescriptorError,
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
    schemes: Vec<InForce>,
    /// The node of each rank.
    homes: Vec<NodeName>,
}

#[derive(Debug)]
struct InForce {
    /// What all ranks share; the group fields are filled in for each.
    common: Descriptor,
    groups: Groups,
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
        let mut schemes = Vec::new();
        for (index, asked) in (0u32..).zip(&plan.settings.descriptors) {
            let unknown = |source| LayoutError::Scheme { index, source };
            let scheme: Scheme = asked.scheme.as_str().parse().map_err(unknown)?;
            let rules = Rules { scheme, hop_distance: asked.hop_distance, set_size: asked.set_size };
            let groups = form(&sites, rules).map_err(|source| LayoutError::Descriptor { index, source })?;
            let common = Descriptor {
                enabled: true,
                index,
                interval: asked.interval,
                base: asked.base.clone(),
                directory: paths.index_node_path(&asked.base, index),
                scheme: groups.scheme,
                groups: 0,
                group_id: 0,
                group_size: 0,
                group_rank: 0,
                hop_distance: asked.hop_distance,
                set_size: asked.set_size,
            };
            schemes.push(InForce { common, groups });
        }
        if schemes.is_empty() {
            return Err(LayoutError::NoDescriptors);
        }
        Ok(Layout { sites, schemes, homes })
    }

    /// Reasons why a scheme is weaker than asked for, for a person to read.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.schemes.iter().filter_map(|scheme| scheme.groups.forced_local.as_ref().map(ToString::to_string)).collect()
    }

    /// The node of a rank.
    pub(super) fn home(&self, rank: Rank) -> Option<&NodeName> {
        self.homes.get(rank.index())
    }

    /// Each rank's descriptor for a new checkpoint; `None` if no descriptor is due for this id.
    pub(super) fn descriptors(&self, checkpoint: CheckpointId) -> Option<Vec<Descriptor>> {
        let commons: Vec<Descriptor> = self.schemes.iter().map(|scheme| scheme.common.clone()).collect();
        let chosen = select(checkpoint, &commons)?;
        let scheme = self.schemes.iter().find(|scheme| scheme.common.index == chosen.index)?;
        let ranks = u32::try_from(self.sites.len()).unwrap_or(u32::MAX);
        (0..ranks).map(Rank).map(|rank| scheme.of(rank)).collect()
    }

    /// Each node's ranks with their descriptors.
    pub(super) fn by_node(&self, descriptors: &[Descriptor]) -> BTreeMap<NodeName, Vec<Member>> {
        let mut nodes: BTreeMap<NodeName, Vec<Member>> = BTreeMap::new();
        for (at, descriptor) in (0u32..).zip(descriptors) {
            if let Some(home) = self.home(Rank(at)) {
                let member = Member { rank: Rank(at), descriptor: to_model(descriptor) };
                nodes.entry(home.clone()).or_default().push(member);
            }
        }
        nodes
    }

    /// Each node's part in making the redundancy of a checkpoint whose ranks have `bytes` bytes of files.
    pub(super) fn work(
        &self,
        descriptors: &[Descriptor],
        bytes: &BTreeMap<Rank, u64>,
    ) -> BTreeMap<NodeName, Vec<GroupWork>> {
        let mut nodes: BTreeMap<NodeName, Vec<GroupWork>> = BTreeMap::new();
        let Some(first) = descriptors.first() else { return nodes };
        let hop = if first.scheme == Scheme::Partner { first.hop_distance.max(1) } else { 1 };
        for members in sets(descriptors).values() {
            let size = u32::try_from(members.len()).unwrap_or(u32::MAX);
            if size < 2 {
                continue;
            }
            let largest = members.iter().filter_map(|rank| bytes.get(rank)).max().copied().unwrap_or(0);
            let named: Vec<(Rank, NodeName)> =
                members.iter().filter_map(|rank| Some((*rank, self.home(*rank)?.clone()))).collect();
            for (member, (_, home)) in (0u32..).zip(&named) {
                nodes.entry(home.clone()).or_default().push(GroupWork {
                    scheme: convert::scheme(first.scheme),
                    group_id: members[0].0,
                    members: named.clone(),
                    member,
                    right: (member + hop) % size,
                    chunk: chunk_size(largest, size),
                });
            }
        }
        nodes
    }
}

impl InForce {
    fn of(&self, rank: Rank) -> Option<Descriptor> {
        let place = self.groups.of(rank)?;
        Some(Descriptor {
            groups: place.total,
            group_id: place.group.id,
            group_size: u32::try_from(place.group.members.len()).ok()?,
            group_rank: place.index,
            ..self.common.clone()
        })
    }
}

/// The members of each group, in order, from the ranks' descriptors.
pub(super) fn sets(descriptors: &[Descriptor]) -> BTreeMap<u32, Vec<Rank>> {
    let mut sets: BTreeMap<u32, Vec<(u32, Rank)>> = BTreeMap::new();
    for (rank, descriptor) in (0u32..).zip(descriptors) {
        sets.entry(descriptor.group_id).or_default().push((descriptor.group_rank, Rank(rank)));
    }
    sets.into_iter()
        .map(|(id, mut members)| {
            members.sort_unstable();
            (id, members.into_iter().map(|(_, rank)| rank).collect())
        })
        .collect()
}
