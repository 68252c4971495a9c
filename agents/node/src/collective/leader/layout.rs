//! Groups and descriptors of a run, formed once.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use holdfast_core::redundancy::descriptor::{self, select};
use holdfast_core::redundancy::groups::{Group, GroupRules, GroupRulesError, Groups, Site};
use holdfast_core::redundancy::registry::{self, form, get};
use holdfast_core::redundancy::survival::Survival;
use holdfast_model::{AsyncRedundancy, CheckpointId, Dataset, Descriptor, NodeName, Rank, RankDescriptor, Scheme};
use holdfast_wire::peer::{CopyLimits, GroupWork, Member};
use holdfast_wire::run::RunPlan;

use super::context::Context;
use crate::collective::error::CallError;

/// Why a plan allows no groups.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    #[error("rank {rank} of {ranks} has no node")]
    NoNode { rank: Rank, ranks: u32 },
    /// A descriptor whose groups cannot be formed.
    #[error("descriptor {index}: {source}")]
    Descriptor { index: u32, source: GroupRulesError },
    #[error("no redundancy descriptor is given")]
    NoDescriptors,
}

/// Which ranks run where, and which of them are grouped.
#[derive(Debug)]
pub(super) struct Layout {
    /// The node of each rank, by its position in the plan.
    pub(super) sites: Vec<Site>,
    /// The requested descriptors, with the groups that this placement allows.
    protections: Vec<Protection>,
    /// Their descriptors again, for [`select`].
    descriptors: Vec<Descriptor>,
    nodes: Vec<NodeName>,
}

/// A descriptor in force: the requested one, with the groups that the placement allows.
#[derive(Debug)]
pub(super) struct Protection {
    /// The scheme that was requested; the placement may not allow it.
    requested: Scheme,
    /// The requested descriptor, with the scheme in force.
    descriptor: Descriptor,
    /// Directory of its checkpoints, as the nodes see it.
    directory: String,
    pub(super) groups: Groups,
    /// How many nodes can be lost when the redundancy of a checkpoint is complete.
    pub(super) survives: u32,
}

impl Layout {
    /// Forms the groups for each descriptor; `directories` has the directory of each, as the nodes see it.
    pub(super) fn new(plan: &RunPlan, directories: Vec<String>) -> Result<Layout, LayoutError> {
        let sites = sites(plan)?;
        let mut protections = Vec::new();
        for ((index, requested), directory) in (0u32..).zip(&plan.settings.descriptors).zip(directories) {
            let groups =
                form(&sites, GroupRules::of(requested)).map_err(|source| LayoutError::Descriptor { index, source })?;
            let descriptor = Descriptor { index, scheme: groups.scheme, ..requested.clone() };
            let survives = u32::try_from(Survival::of(&groups, &sites, requested).nodes).unwrap_or(u32::MAX);
            protections.push(Protection { requested: requested.scheme, descriptor, directory, groups, survives });
        }
        if protections.is_empty() {
            return Err(LayoutError::NoDescriptors);
        }
        let descriptors = protections.iter().map(|each| each.descriptor.clone()).collect();
        let nodes = plan.nodes.iter().map(|node| node.name.clone()).collect();
        Ok(Layout { sites, protections, descriptors, nodes })
    }

    pub(super) fn ranks(&self) -> u32 {
        u32::try_from(self.sites.len()).unwrap_or(u32::MAX)
    }

    /// Why schemes are weaker than requested, as sentences.
    pub(super) fn warnings(&self) -> Vec<String> {
        let groups = || self.protections.iter().map(|protection| &protection.groups);
        let forced = groups().filter_map(|groups| groups.forced_local.as_ref()).map(ToString::to_string);
        let weaker = groups().filter_map(|groups| groups.weaker.as_ref()).map(ToString::to_string);
        let shared = groups().filter_map(|groups| groups.shared.as_ref()).map(ToString::to_string);
        forced.chain(weaker).chain(shared).collect()
    }

    pub(super) fn home(&self, rank: Rank) -> Option<&NodeName> {
        self.nodes.get(self.sites.get(rank.index())?.node as usize)
    }

    /// The protection of a new checkpoint; `None` if no descriptor is due for this id.
    pub(super) fn protection(&self, checkpoint: CheckpointId) -> Option<&Protection> {
        self.protections.get(select(checkpoint, &self.descriptors)?.index as usize)
    }

    /// The protection of a dataset: by its level if the program requested one, otherwise by its id. Also by its id if
    /// the run has no descriptor of the level: the checkpoint is fetched, and was taken in a run with another source.
    pub(super) fn protection_of(&self, checkpoint: CheckpointId, dataset: &Dataset) -> Result<&Protection, CallError> {
        let Some(level) = dataset.level else {
            return self.protection(checkpoint).ok_or(CallError::NoDescriptor(checkpoint));
        };
        let serves = |each: &&Protection| each.descriptor.enabled && registry::serves(each.requested, level);
        let requested = self.protections.iter().find(serves).or_else(|| self.protection(checkpoint));
        requested.ok_or(CallError::NoDescriptorOfLevel { level, scheme: registry::of_level(level) })
    }

    /// True if checkpoints are protected in several ways.
    pub(super) fn has_levels(&self) -> bool {
        descriptor::has_levels(&self.descriptors)
    }

    /// The number of the descriptor of a checkpoint in cache, if there are several and the program does not request one
    /// of the levels of variables.
    pub(super) fn level_of(&self, checkpoint: CheckpointId, dataset: &Dataset) -> Option<u32> {
        let is_by_id = dataset.level.is_none() && dataset.direct.is_none();
        descriptor::level(checkpoint, &self.descriptors).filter(|_| is_by_id)
    }

    /// A value of each rank, by the rank's node: nodes without any are left out.
    pub(super) fn by_node<T>(&self, of_ranks: impl IntoIterator<Item = (Rank, T)>) -> BTreeMap<NodeName, Vec<T>> {
        // By position first: a lookup by name for each rank would be most of the work of a large run.
        let mut nodes: Vec<Vec<T>> = Vec::new();
        nodes.resize_with(self.nodes.len(), Vec::new);
        for (rank, of_rank) in of_ranks {
            let site = self.sites.get(rank.index());
            if let Some(node) = site.and_then(|site| nodes.get_mut(site.node as usize)) {
                node.push(of_rank);
            }
        }
        let used = self.nodes.iter().zip(nodes).filter(|(_, of_node)| !of_node.is_empty());
        used.map(|(node, of_node)| (node.clone(), of_node)).collect()
    }

    /// Each node's ranks with their descriptors.
    pub(super) fn members(&self, descriptors: &[RankDescriptor]) -> BTreeMap<NodeName, Vec<Member>> {
        let ranks = (0u32..).map(Rank).zip(descriptors);
        self.by_node(ranks.map(|(rank, descriptor)| (rank, Member { rank, descriptor: descriptor.clone() })))
    }

    /// Each node's part in the work of these groups, for ranks that have `bytes` bytes of files. Ranks without a group
    /// are left out: they have no redundancy.
    pub(super) fn work(&self, groups: &Groups, bytes: &BTreeMap<Rank, u64>) -> BTreeMap<NodeName, Vec<GroupWork>> {
        self.work_of(groups, |_| true, bytes)
    }

    /// The same for the selected groups.
    pub(super) fn work_of(
        &self,
        groups: &Groups,
        selected: impl Fn(&Group) -> bool,
        bytes: &BTreeMap<Rank, u64>,
    ) -> BTreeMap<NodeName, Vec<GroupWork>> {
        let shared = groups.groups.iter().filter(|group| group.members.len() > 1 && selected(group));
        let neighbours_only = get(groups.scheme).is_some_and(|scheme| scheme.is_between_neighbours());
        self.by_node(shared.flat_map(|group| {
            let largest = group.members.iter().filter_map(|rank| bytes.get(rank)).max().copied().unwrap_or(0);
            let all_members = if neighbours_only { None } else { Some(View::of(self, group.members.iter().copied())) };
            group.members.iter().filter_map(move |rank| {
                let place = groups.of(*rank)?;
                let of_neighbours = || View::of(self, BTreeSet::from([place.left, *rank, place.right]));
                let view = all_members.clone().unwrap_or_else(of_neighbours);
                let work = GroupWork {
                    scheme: groups.scheme,
                    group_id: group.id,
                    member: *view.index.get(rank)?,
                    left: *view.index.get(&place.left)?,
                    right: *view.index.get(&place.right)?,
                    members: view.members,
                    largest,
                };
                Some((*rank, work))
            })
        }))
    }
}

/// The members of a group that one of them works with.
#[derive(Clone)]
struct View {
    members: Vec<(Rank, NodeName)>,
    index: Rc<BTreeMap<Rank, u32>>,
}

impl View {
    fn of(layout: &Layout, ranks: impl IntoIterator<Item = Rank>) -> View {
        let members: Vec<(Rank, NodeName)> =
            ranks.into_iter().filter_map(|rank| Some((rank, layout.home(rank)?.clone()))).collect();
        let index = members.iter().map(|(rank, _)| *rank).zip(0u32..).collect();
        View { members, index: Rc::new(index) }
    }
}

impl Protection {
    pub(super) fn scheme(&self) -> Scheme {
        self.groups.scheme
    }

    /// The limits of its redundancy if the application does not wait for it.
    pub(super) fn limits(&self, cx: &Context) -> Option<CopyLimits> {
        let AsyncRedundancy { bandwidth, percent } = cx.settings().levels.get(&self.descriptor.index)?.behind?;
        Some(CopyLimits { bandwidth, percent, ..CopyLimits::NONE })
    }

    /// How many of its checkpoints are kept, if they are counted apart from the others of the cache.
    pub(super) fn keep(&self, cx: &Context) -> Option<u32> {
        cx.settings().levels.get(&self.descriptor.index)?.keep
    }

    pub(super) fn index(&self) -> u32 {
        self.descriptor.index
    }

    pub(super) fn base(&self) -> &str {
        &self.descriptor.base
    }

    pub(super) fn descriptors(&self) -> Vec<RankDescriptor> {
        let world = self.groups.groups.iter().map(|group| group.members.len()).sum();
        let unplaced = RankDescriptor::unplaced(self.descriptor.clone(), &self.directory);
        let mut descriptors = vec![unplaced; world];
        self.groups.describe(&mut descriptors);
        descriptors
    }
}

/// Where each rank runs; a rank that two nodes list runs on the first.
fn sites(plan: &RunPlan) -> Result<Vec<Site>, LayoutError> {
    let ranks = plan.ranks();
    let mut homes: Vec<Option<u32>> = vec![None; ranks as usize];
    for (at, node) in (0u32..).zip(&plan.nodes) {
        for rank in &node.ranks {
            if let Some(home @ None) = homes.get_mut(rank.index()) {
                *home = Some(at);
            }
        }
    }
    // Domains are numbered in the order of the ranks, as the groups have always been formed; once for each node,
    // because there are more ranks than nodes.
    let mut domains: BTreeMap<&str, u32> = BTreeMap::new();
    let mut of_nodes: Vec<Option<u32>> = vec![None; plan.nodes.len()];
    let mut sites = Vec::with_capacity(homes.len());
    for (rank, home) in (0u32..).map(Rank).zip(homes) {
        let node = home.and_then(|at| Some((at, plan.nodes.get(at as usize)?, of_nodes.get_mut(at as usize)?)));
        let Some((at, node, of_node)) = node else { return Err(LayoutError::NoNode { rank, ranks }) };
        let next = u32::try_from(domains.len()).unwrap_or(u32::MAX);
        let domain = *of_node.get_or_insert_with(|| *domains.entry(&node.failure_domain).or_insert(next));
        sites.push(Site { node: at, domain });
    }
    Ok(sites)
}
