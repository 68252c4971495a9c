//! The restart plan: what has to be moved, rebuilt and copied again so that every rank has its files of a checkpoint on
//! the node where it now runs (`SCR manual §11.4.2` to `§11.4.4`). A pure function; the agents carry the plan out.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Holding, Inventory, Rank, RankDescriptor, Scheme};

use super::groups::{Group, Groups, NeighbourCopy, Site};
use super::inventory::{Held, by_rank, named};
use super::lost_set::LostSet;
use super::registry;
use super::survival::Survival;

/// Files of a rank that go to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Move {
    pub rank: Rank,
    pub from_node: u32,
    /// Where the rank runs.
    pub to_node: u32,
}

/// One group of which some members' files are computed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// World rank of member 0.
    pub group_id: u32,
    /// Indices of the members to rebuild, ascending; all others have their files on their node when the moves are done.
    pub missing: Vec<u32>,
    pub ranks: Vec<Rank>,
}

/// Files of a rank on a node that are incomplete, or that do not belong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deletion {
    pub node: u32,
    pub rank: Rank,
}

/// What to do, in this order: deletions, moves, rebuilds, copies, and at last the deletion of surplus copies. Until
/// then no step removes complete files: another node may be lost between any two of them.
///
/// Afterwards a rank's files on its node carry no partner tag in the file map, and each copy elsewhere carries the name
/// of the rank's present node, whatever the tags were before: a copy may have become the original, and the other way
/// round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartPlan {
    pub checkpoint: CheckpointId,
    /// How it is protected, and the groups for the new placement.
    pub groups: Groups,
    /// Incomplete files, which are in the way.
    pub deletions: Vec<Deletion>,
    /// Files that are sent to their rank's node. The source is kept, as a copy or until the end.
    pub moves: Vec<Move>,
    pub rebuilds: Vec<Rebuild>,
    /// Copies to make (again).
    pub recopy: Vec<NeighbourCopy>,
    /// Complete files that the new placement does not need, the sources of moves among them. They are deleted last:
    /// until the copies are made, they may be the only ones that survive the loss of another node.
    pub surplus: Vec<Deletion>,
    /// Each rank's descriptor for the new run.
    pub descriptors: Vec<RankDescriptor>,
    /// The groups whose redundancy was not made, by their ids. The plan does not make it: all files are there.
    pub unencoded: BTreeSet<u32>,
    /// Afterwards it survives the loss of a node.
    pub protected: bool,
}

impl RestartPlan {
    /// The ranks whose files stay on their node and are read by no step of the plan: neither moved, nor of a group that
    /// is rebuilt.
    pub fn unread(&self) -> Vec<Rank> {
        let rebuilt: BTreeSet<u32> = self.rebuilds.iter().map(|rebuild| rebuild.group_id).collect();
        let moved: BTreeSet<Rank> = self.moves.iter().map(|step| step.rank).collect();
        let groups = self.groups.groups.iter().filter(|group| !rebuilt.contains(&group.id));
        let mut ranks: Vec<Rank> = groups.flat_map(|group| group.members.iter().copied()).collect();
        ranks.retain(|rank| !moved.contains(rank));
        ranks.sort_unstable();
        ranks
    }

    /// How many nodes can be lost when the plan is carried out and all redundancy is made.
    pub fn survives(&self, sites: &[Site]) -> u32 {
        let nodes =
            self.descriptors.first().map_or(0, |first| Survival::of(&self.groups, sites, &first.descriptor).nodes);
        u32::try_from(nodes).unwrap_or(u32::MAX)
    }

    /// True if every file is on its node already.
    pub fn is_empty(&self) -> bool {
        self.deletions.is_empty()
            && self.moves.is_empty()
            && self.rebuilds.is_empty()
            && self.recopy.is_empty()
            && self.surplus.is_empty()
    }
}

/// Why a checkpoint cannot be used for this run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableCheckpoint {
    #[error("no healthy node has files of it")]
    NothingHeld,
    /// It has files of a rank that this run does not have, or was written by a run of another size.
    #[error("it was written by a run of {found} or more ranks, and this run has {world}")]
    OtherWorldSize {
        /// Ranks of this run.
        world: u32,
        /// What was found: a number of ranks at least this.
        found: u32,
    },
    /// It is unknown how these ranks were protected.
    #[error("all files of {} are lost, and so are the copies of the descriptors", named(_0))]
    NoDescriptor(Vec<Rank>),
    #[error("its descriptors contradict each other: {0}")]
    InconsistentDescriptors(String),
    #[error("group {group_id} lost {}, and the redundancy of {} was not made", named(ranks), named(unprotected))]
    Unprotected {
        /// World rank of the group's member 0.
        group_id: u32,
        ranks: Vec<Rank>,
        /// Those without redundancy.
        unprotected: Vec<Rank>,
    },
    /// More is lost than the scheme can restore.
    #[error(transparent)]
    Lost(LostSet),
}

/// Plans the restart from checkpoint `id`. `sites[r]` is where rank `r` of the new run runs; inventories, each with the
/// index of its node, are those of all nodes that can be used, spares included.
///
/// # Errors
/// Why the checkpoint cannot be used.
pub fn plan(
    id: CheckpointId,
    sites: &[Site],
    inventories: &[(u32, Inventory)],
) -> Result<RestartPlan, UnusableCheckpoint> {
    let held = by_rank(id, inventories.iter().map(|(node, inventory)| (*node, inventory)));
    if !held.values().flatten().any(|(_, holding)| holding.has_files()) {
        return Err(UnusableCheckpoint::NothingHeld);
    }
    let world = u32::try_from(sites.len()).unwrap_or(u32::MAX);
    check_world(world, &held)?;
    let mut descriptors = collect_descriptors(world, &held)?;
    let scheme = descriptors[0].descriptor.scheme;
    if let Some(at) = descriptors.iter().position(|descriptor| descriptor.descriptor.scheme != scheme) {
        let other = descriptors[at].descriptor.scheme;
        return Err(UnusableCheckpoint::InconsistentDescriptors(format!("rank 0 has {scheme}, rank {at} has {other}")));
    }
    let known = registry::get(scheme).ok_or_else(|| {
        UnusableCheckpoint::InconsistentDescriptors(format!("they name the scheme {scheme}, which is not known here"))
    })?;
    let groups = known
        .regroup(sites, &mut descriptors)
        .map_err(|error| UnusableCheckpoint::InconsistentDescriptors(error.to_string()))?;
    let copies = known.copies(&groups, sites);
    let wanted_copies: BTreeSet<(u32, Rank)> = copies.iter().map(|copy| (copy.to_node, copy.rank)).collect();

    let (mut missing, mut unprotected) = (BTreeSet::new(), BTreeSet::new());
    let mut moves = Vec::new();
    let mut sent: BTreeMap<u32, u32> = BTreeMap::new();
    let mut kept: BTreeSet<(u32, Rank)> = BTreeSet::new();
    for (rank, site) in (0..world).map(Rank).zip(sites) {
        let holders: Vec<(u32, &Holding)> =
            held.get(&rank).into_iter().flatten().filter(|(_, holding)| holding.complete).copied().collect();
        if !holders.iter().any(|(_, holding)| holding.protection.is_complete()) {
            unprotected.insert(rank);
        }
        for (node, _) in &holders {
            if wanted_copies.contains(&(*node, rank)) {
                kept.insert((*node, rank));
            }
        }
        if holders.iter().any(|(node, _)| *node == site.node) {
            kept.insert((site.node, rank));
            continue;
        }
        // The rank's own files are preferred to a copy that has to be kept anyway; then the node that sends least.
        let source = holders
            .iter()
            .min_by_key(|(node, holding)| (holding.partner_of.is_some(), sent.get(node).copied().unwrap_or(0), *node));
        match source {
            Some((node, _)) => {
                *sent.entry(*node).or_default() += 1;
                moves.push(Move { rank, from_node: *node, to_node: site.node });
            }
            None => {
                missing.insert(rank);
            }
        }
    }
    unprotected.retain(|rank| !missing.contains(rank));
    let tolerance = |rank: Rank| known.tolerance(&descriptors[rank.index()]);
    let rebuilds = rebuilds(scheme, &groups, &missing, &unprotected, tolerance)?;
    // Copies are made again by the plan, on other nodes. Other redundancy is not, and in another placement a set may
    // have more members on a node than it can lose.
    let computed = known.protects() && copies.is_empty();
    let is_unencoded = |group: &&Group| computed && group.members.iter().any(|rank| unprotected.contains(rank));
    let unencoded: BTreeSet<u32> = groups.groups.iter().filter(is_unencoded).map(|group| group.id).collect();
    let survives_a_node = || Survival::of(&groups, sites, &descriptors[0].descriptor).nodes > 0;
    let protected = known.protects() && (!computed || unencoded.is_empty() && survives_a_node());
    let sources: BTreeSet<(u32, Rank)> = moves.iter().map(|step| (step.from_node, step.rank)).collect();
    let unwanted = held
        .iter()
        .flat_map(|(rank, holders)| holders.iter().map(move |(node, holding)| (*node, *rank, *holding)))
        .filter(|(node, rank, holding)| holding.has_files() && !kept.contains(&(*node, *rank)))
        .map(|(node, rank, holding)| (holding.complete || sources.contains(&(node, rank)), Deletion { node, rank }));
    let (mut deletions, mut surplus) = (BTreeSet::new(), BTreeSet::new());
    for (needed, deletion) in unwanted {
        if needed { &mut surplus } else { &mut deletions }.insert(deletion);
    }
    // A node with a complete and an incomplete holding of a rank: deleting one takes both.
    surplus.retain(|deletion| !deletions.contains(deletion));
    let (deletions, surplus) = (deletions.into_iter().collect(), surplus.into_iter().collect());
    let recopy = copies.into_iter().filter(|copy| !kept.contains(&(copy.to_node, copy.rank))).collect();
    Ok(RestartPlan {
        checkpoint: id,
        groups,
        deletions,
        moves,
        rebuilds,
        recopy,
        surplus,
        descriptors,
        unencoded,
        protected,
    })
}

fn check_world(world: u32, held: &Held<'_>) -> Result<(), UnusableCheckpoint> {
    if let Some((rank, _)) = held.last_key_value()
        && rank.0 >= world
    {
        return Err(UnusableCheckpoint::OtherWorldSize { world, found: rank.0.saturating_add(1) });
    }
    let mut sizes = held.values().flatten().filter_map(|(_, holding)| holding.ranks);
    match sizes.find(|ranks| *ranks != world) {
        Some(found) => Err(UnusableCheckpoint::OtherWorldSize { world, found }),
        None => Ok(()),
    }
}

/// Each rank's descriptor, from wherever it was kept; the owner's own before a neighbour's copy.
fn collect_descriptors(world: u32, held: &Held<'_>) -> Result<Vec<RankDescriptor>, UnusableCheckpoint> {
    let mut found = Vec::new();
    let mut unknown = Vec::new();
    for rank in (0..world).map(Rank) {
        let holders = held.get(&rank).into_iter().flatten();
        let best = holders
            .filter_map(|(_, holding)| Some((holding, holding.descriptor.as_ref()?)))
            .min_by_key(|(holding, _)| (!holding.complete, holding.partner_of.is_some(), !holding.has_files()));
        match best {
            Some((_, descriptor)) => found.push(descriptor.clone()),
            None => unknown.push(rank),
        }
    }
    if unknown.is_empty() { Ok(found) } else { Err(what_was_lost(unknown, held)) }
}

/// What is lost if the descriptors of some ranks are unknown, derived from the known ones.
fn what_was_lost(unknown: Vec<Rank>, held: &Held<'_>) -> UnusableCheckpoint {
    let mut groups: BTreeMap<u32, (u32, Vec<Rank>)> = BTreeMap::new();
    let mut first = None;
    for (rank, holders) in held {
        let Some(descriptor) = holders.iter().find_map(|(_, holding)| holding.descriptor.as_ref()) else { continue };
        first = first.or(Some(descriptor));
        groups.entry(descriptor.group_id).or_insert_with(|| (descriptor.group_size, Vec::new())).1.push(*rank);
    }
    let Some(first) = first else { return UnusableCheckpoint::NoDescriptor(unknown) };
    let scheme = first.descriptor.scheme;
    let tolerance = registry::get(scheme).map(|known| known.tolerance(first));
    if tolerance == Some(0) {
        return UnusableCheckpoint::Lost(without_copies(scheme, unknown));
    }
    groups.retain(|_, (size, known)| known.len() < *size as usize);
    let (Some((group_id, (size, known))), None) = (groups.pop_first(), groups.pop_first()) else {
        return UnusableCheckpoint::NoDescriptor(unknown);
    };
    let is_lost = |rank: &&Rank| !held.get(rank).into_iter().flatten().any(|(_, holding)| holding.complete);
    let mut lost: Vec<Rank> = known.iter().filter(is_lost).chain(&unknown).copied().collect();
    lost.sort_unstable();
    if tolerance.is_some_and(|tolerance| lost.len() as u64 <= u64::from(tolerance)) {
        // While they make their redundancy, the members send each other the descriptors.
        let is_protected =
            |rank: &Rank| held.get(rank).into_iter().flatten().any(|(_, one)| one.protection.is_complete());
        let unprotected: Vec<Rank> =
            known.into_iter().filter(|rank| !lost.contains(rank) && !is_protected(rank)).collect();
        return match unprotected.is_empty() {
            true => UnusableCheckpoint::NoDescriptor(unknown),
            false => UnusableCheckpoint::Unprotected { group_id, ranks: lost, unprotected },
        };
    }
    UnusableCheckpoint::Lost(LostSet {
        scheme,
        group_id,
        size,
        tolerance: tolerance.unwrap_or(0),
        members: known.into_iter().chain(unknown).collect(),
        missing: count(&lost),
        lost,
    })
}

/// Ranks of a scheme that computes no files.
fn without_copies(scheme: Scheme, lost: Vec<Rank>) -> LostSet {
    let group_id = lost.first().map_or(0, |rank| rank.0);
    LostSet { scheme, group_id, size: 1, tolerance: 0, members: Vec::new(), missing: count(&lost), lost }
}

fn count(ranks: &[Rank]) -> u32 {
    u32::try_from(ranks.len()).unwrap_or(u32::MAX)
}

/// What to rebuild; `tolerance` is how many members of a rank's group may be missing, if all others are protected.
fn rebuilds(
    scheme: Scheme,
    groups: &Groups,
    missing: &BTreeSet<Rank>,
    unprotected: &BTreeSet<Rank>,
    tolerance: impl Fn(Rank) -> u32,
) -> Result<Vec<Rebuild>, UnusableCheckpoint> {
    let mut rebuilds = Vec::new();
    let mut beyond = Vec::new();
    for group in &groups.groups {
        let lost = (0u32..).zip(&group.members).filter(|(_, rank)| missing.contains(rank));
        let (indices, ranks): (Vec<u32>, Vec<Rank>) = lost.map(|(index, rank)| (index, *rank)).unzip();
        let Some(first) = ranks.first() else { continue };
        match tolerance(*first) {
            0 => beyond.extend(ranks),
            tolerance if indices.len() > tolerance as usize => {
                return Err(UnusableCheckpoint::Lost(LostSet {
                    scheme,
                    group_id: group.id,
                    size: group.size(),
                    tolerance,
                    members: group.members.clone(),
                    missing: count(&ranks),
                    lost: ranks,
                }));
            }
            _ if group.members.iter().any(|rank| unprotected.contains(rank)) => {
                let unprotected = group.members.iter().copied().filter(|rank| unprotected.contains(rank)).collect();
                return Err(UnusableCheckpoint::Unprotected { group_id: group.id, ranks, unprotected });
            }
            _ => rebuilds.push(Rebuild { group_id: group.id, missing: indices, ranks }),
        }
    }
    if beyond.is_empty() {
        Ok(rebuilds)
    } else {
        beyond.sort_unstable();
        Err(UnusableCheckpoint::Lost(without_copies(scheme, beyond)))
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
