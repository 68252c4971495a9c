//! The restart plan: what has to be moved, rebuilt and copied again so that every rank has its files of a checkpoint on
//! the node where it now runs (`SCR manual §11.4.2` to `§11.4.4`). A pure function; the agents perform what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::descriptor::{Descriptor, Scheme};
use super::groups::{Rules, Site, form};
use super::inventory::{Holding, Inventory, by_rank, named};
use super::partner;
use holdfast_model::{CheckpointId, Rank};

/// Files of a rank that go to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Move {
    /// Whose files.
    pub rank: Rank,
    /// Where they are.
    pub from_node: u32,
    /// Where the rank runs.
    pub to_node: u32,
    /// The source stays: it is the partner copy that this placement wants there. Otherwise it is removed.
    pub keep_source: bool,
}

/// One XOR set of which one member's files are computed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRebuild {
    /// World rank of member 0.
    pub group_id: u32,
    /// Each member's rank and the node where it runs, by index; all but the missing one have their files there when the
    /// moves are done.
    pub members: Vec<(Rank, u32)>,
    /// Index of the member to rebuild.
    pub missing: u32,
}

/// Files of a rank on a node that are neither complete there nor wanted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deletion {
    /// The node.
    pub node: u32,
    /// Whose files.
    pub rank: Rank,
}

/// What to do, in this order: deletions, moves, rebuilds, copies.
///
/// Afterwards a rank's files at home carry no PARTNER tag in the file map, and each copy elsewhere carries the name of the
/// rank's present node, whatever the tags were before: a copy may have become the original, and the other way round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartPlan {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// How it is protected.
    pub scheme: Scheme,
    /// Stale or incomplete files.
    pub deletions: Vec<Deletion>,
    /// Files that go home.
    pub moves: Vec<Move>,
    /// Sets to rebuild.
    pub rebuilds: Vec<GroupRebuild>,
    /// Partner copies to make (again).
    pub recopy: Vec<partner::Copy>,
    /// Each rank's descriptor for the new run.
    pub descriptors: Vec<Descriptor>,
    /// For each rank, the right neighbour that keeps a copy of its descriptor; with LOCAL the rank itself.
    pub keepers: Vec<Rank>,
}

impl RestartPlan {
    /// True if every file already lies where it should.
    pub fn is_empty(&self) -> bool {
        self.deletions.is_empty() && self.moves.is_empty() && self.rebuilds.is_empty() && self.recopy.is_empty()
    }
}

/// Why a checkpoint cannot be used for this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// No healthy node has anything of it.
    NothingHeld,
    /// It has files of a rank that this run does not have, or was written by a run of another size.
    OtherWorldSize {
        /// Ranks of this run.
        world: u32,
        /// What was found: a number of ranks at least this.
        found: u32,
    },
    /// Nobody knows how these ranks were protected: they and those who kept their descriptors are gone.
    NoDescriptor(Vec<Rank>),
    /// Descriptors contradict each other.
    Contradiction(String),
    /// Ranks without a second copy are gone.
    Lost {
        /// The scheme.
        scheme: Scheme,
        /// The ranks.
        ranks: Vec<Rank>,
    },
    /// A set lost more than one member.
    SetLost {
        /// World rank of its member 0.
        group_id: u32,
        /// The ranks that are gone.
        ranks: Vec<Rank>,
    },
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::NothingHeld => f.write_str("no healthy node has files of it"),
            Unusable::OtherWorldSize { world, found } => {
                write!(f, "it was written by a run of {found} or more ranks, and this run has {world}")
            }
            Unusable::NoDescriptor(ranks) => {
                write!(f, "nothing is left of {}, not even how it was protected", named(ranks))
            }
            Unusable::Contradiction(what) => write!(f, "its descriptors contradict each other: {what}"),
            Unusable::Lost { scheme: Scheme::Partner, ranks } => {
                write!(f, "{} lost both the files and their partner copies", named(ranks))
            }
            Unusable::Lost { scheme, ranks } => {
                write!(f, "{} lost all files, and {scheme} keeps no second copy", named(ranks))
            }
            Unusable::SetLost { group_id, ranks } => write!(f, "XOR set {group_id} lost {}", named(ranks)),
        }
    }
}

/// Plans the restart from checkpoint `id`. `sites[r]` is where rank `r` of the new run lives; inventories of spare nodes
/// belong to the input, and those of nodes that are not healthy are ignored.
pub fn plan(id: CheckpointId, sites: &[Site], inventories: &[Inventory]) -> Result<RestartPlan, Unusable> {
    let held = by_rank(id, inventories);
    if !held.values().flatten().any(|(_, holding)| holding.has_files()) {
        return Err(Unusable::NothingHeld);
    }
    let world = u32::try_from(sites.len()).unwrap_or(u32::MAX);
    check_world(world, &held)?;
    let mut descriptors = collect_descriptors(world, &held)?;
    let scheme = descriptors[0].scheme;
    if let Some(at) = descriptors.iter().position(|descriptor| descriptor.scheme != scheme) {
        let other = descriptors[at].scheme;
        return Err(Unusable::Contradiction(format!("rank 0 says {scheme}, rank {at} says {other}")));
    }
    let copies = match scheme {
        Scheme::Partner => partner_copies(sites, &mut descriptors)?,
        Scheme::Local | Scheme::Xor => Vec::new(),
    };
    let mut keepers: Vec<Rank> = (0..world).map(Rank).collect();
    for copy in &copies {
        keepers[copy.rank.index()] = copy.holder;
    }
    let wanted_copies: BTreeSet<(u32, Rank)> = copies.iter().map(|copy| (copy.to_node, copy.rank)).collect();

    let mut missing = BTreeSet::new();
    let mut moves = Vec::new();
    let mut sent: BTreeMap<u32, u32> = BTreeMap::new();
    let mut kept: BTreeSet<(u32, Rank)> = BTreeSet::new();
    for (rank, site) in (0..world).map(Rank).zip(sites) {
        let holders: Vec<(u32, &Holding)> =
            held.get(&rank).into_iter().flatten().filter(|(_, holding)| holding.complete).copied().collect();
        for (node, _) in &holders {
            if wanted_copies.contains(&(*node, rank)) {
                kept.insert((*node, rank));
            }
        }
        if holders.iter().any(|(node, _)| *node == site.node) {
            kept.insert((site.node, rank));
            continue;
        }
        // The rank's own files before a copy that has to stay anyway; then whoever has to send least.
        let source = holders
            .iter()
            .min_by_key(|(node, holding)| (holding.copy_of.is_some(), sent.get(node).copied().unwrap_or(0), *node));
        match source {
            Some((node, _)) => {
                *sent.entry(*node).or_default() += 1;
                let keep_source = kept.contains(&(*node, rank));
                moves.push(Move { rank, from_node: *node, to_node: site.node, keep_source });
            }
            None => {
                missing.insert(rank);
            }
        }
    }
    let rebuilds = match scheme {
        Scheme::Xor => {
            let sets = xor_sets(&descriptors)?;
            for set in sets.values() {
                for (at, rank) in set.iter().enumerate() {
                    keepers[rank.index()] = set[(at + 1) % set.len()];
                }
            }
            rebuilds(sites, &sets, &missing)?
        }
        Scheme::Local | Scheme::Partner if missing.is_empty() => Vec::new(),
        Scheme::Local | Scheme::Partner => {
            return Err(Unusable::Lost { scheme, ranks: missing.into_iter().collect() });
        }
    };
    let sources: BTreeSet<(u32, Rank)> = moves.iter().map(|step| (step.from_node, step.rank)).collect();
    let mut deletions: Vec<Deletion> = held
        .iter()
        .flat_map(|(rank, holders)| holders.iter().map(move |(node, holding)| (*node, *rank, *holding)))
        .filter(|(node, rank, holding)| {
            holding.has_files() && !kept.contains(&(*node, *rank)) && !sources.contains(&(*node, *rank))
        })
        .map(|(node, rank, _)| Deletion { node, rank })
        .collect();
    deletions.sort_unstable();
    deletions.dedup();
    let recopy = copies.into_iter().filter(|copy| !kept.contains(&(copy.to_node, copy.rank))).collect();
    Ok(RestartPlan { checkpoint: id, scheme, deletions, moves, rebuilds, recopy, descriptors, keepers })
}

fn check_world(world: u32, held: &BTreeMap<Rank, Vec<(u32, &Holding)>>) -> Result<(), Unusable> {
    if let Some((rank, _)) = held.last_key_value()
        && rank.0 >= world
    {
        return Err(Unusable::OtherWorldSize { world, found: rank.0.saturating_add(1) });
    }
    let mut sizes = held.values().flatten().filter_map(|(_, holding)| holding.ranks);
    match sizes.find(|ranks| *ranks != world) {
        Some(found) => Err(Unusable::OtherWorldSize { world, found }),
        None => Ok(()),
    }
}

/// Each rank's descriptor, from wherever it was kept; the owner's own before a neighbour's copy.
fn collect_descriptors(world: u32, held: &BTreeMap<Rank, Vec<(u32, &Holding)>>) -> Result<Vec<Descriptor>, Unusable> {
    let mut found = Vec::new();
    let mut unknown = Vec::new();
    for rank in (0..world).map(Rank) {
        let holders = held.get(&rank).into_iter().flatten();
        let best = holders
            .filter_map(|(_, holding)| Some((holding, holding.descriptor.as_ref()?)))
            .min_by_key(|(holding, _)| (!holding.complete, holding.copy_of.is_some(), !holding.has_files()));
        match best {
            Some((_, descriptor)) => found.push(descriptor.clone()),
            None => unknown.push(rank),
        }
    }
    if unknown.is_empty() { Ok(found) } else { Err(what_was_lost(unknown, held)) }
}

/// Says what it means that nobody knows the descriptors of some ranks, as far as the others' tell.
fn what_was_lost(unknown: Vec<Rank>, held: &BTreeMap<Rank, Vec<(u32, &Holding)>>) -> Unusable {
    let mut sets: BTreeMap<u32, (u32, Vec<Rank>)> = BTreeMap::new();
    let mut scheme = None;
    for (rank, holders) in held {
        let Some(descriptor) = holders.iter().find_map(|(_, holding)| holding.descriptor.as_ref()) else { continue };
        scheme = scheme.or(Some(descriptor.scheme));
        sets.entry(descriptor.group_id).or_insert_with(|| (descriptor.group_size, Vec::new())).1.push(*rank);
    }
    match scheme {
        Some(Scheme::Xor) => {}
        Some(scheme) => return Unusable::Lost { scheme, ranks: unknown },
        None => return Unusable::NoDescriptor(unknown),
    }
    sets.retain(|_, (size, known)| known.len() < *size as usize);
    let (Some((group_id, (_, known))), None) = (sets.pop_first(), sets.pop_first()) else {
        return Unusable::NoDescriptor(unknown);
    };
    let gone = |rank: &Rank| !held.get(rank).into_iter().flatten().any(|(_, holding)| holding.complete);
    let mut ranks: Vec<Rank> = known.into_iter().filter(gone).chain(unknown).collect();
    ranks.sort_unstable();
    Unusable::SetLost { group_id, ranks }
}

/// The copies that the new placement asks for; the descriptors get its groups.
fn partner_copies(sites: &[Site], descriptors: &mut [Descriptor]) -> Result<Vec<partner::Copy>, Unusable> {
    let rules = Rules {
        scheme: Scheme::Partner,
        hop_distance: descriptors[0].hop_distance.max(1),
        set_size: descriptors[0].set_size,
    };
    let groups = form(sites, rules).map_err(|error| Unusable::Contradiction(error.to_string()))?;
    if groups.forced_local.is_some() {
        // One node holds everything now: there is nowhere to copy to, and the descriptors of the next checkpoint say so.
        return Ok(Vec::new());
    }
    for (rank, descriptor) in (0u32..).map(Rank).zip(descriptors) {
        if let Some(place) = groups.of(rank) {
            descriptor.groups = place.total;
            descriptor.group_id = place.group.id;
            descriptor.group_size = u32::try_from(place.group.members.len()).unwrap_or(u32::MAX);
            descriptor.group_rank = place.index;
        }
    }
    Ok(partner::copies(&groups, sites))
}

/// The members of each set by group id, as the descriptors say.
fn xor_sets(descriptors: &[Descriptor]) -> Result<BTreeMap<u32, Vec<Rank>>, Unusable> {
    let mut sets: BTreeMap<u32, BTreeMap<u32, Rank>> = BTreeMap::new();
    for (rank, descriptor) in (0u32..).map(Rank).zip(descriptors) {
        let set = sets.entry(descriptor.group_id).or_default();
        if let Some(other) = set.insert(descriptor.group_rank, rank) {
            let (set, place) = (descriptor.group_id, descriptor.group_rank);
            let what = format!("ranks {other} and {rank} both are member {place} of XOR set {set}");
            return Err(Unusable::Contradiction(what));
        }
    }
    let mut ordered = BTreeMap::new();
    for (group_id, set) in sets {
        let size = set.len();
        let whole = set.keys().copied().eq((0u32..).take(size))
            && set.values().all(|rank| descriptors[rank.index()].group_size as usize == size);
        if !whole {
            let what = format!("the descriptors of XOR set {group_id} do not make up a whole set");
            return Err(Unusable::Contradiction(what));
        }
        ordered.insert(group_id, set.into_values().collect());
    }
    Ok(ordered)
}

/// What to rebuild; each set may have lost one member.
fn rebuilds(
    sites: &[Site],
    sets: &BTreeMap<u32, Vec<Rank>>,
    missing: &BTreeSet<Rank>,
) -> Result<Vec<GroupRebuild>, Unusable> {
    let mut rebuilds = Vec::new();
    for (&group_id, set) in sets {
        let lost: Vec<(u32, Rank)> =
            (0u32..).zip(set.iter().copied()).filter(|(_, rank)| missing.contains(rank)).collect();
        match lost[..] {
            [] => {}
            [(missing, _)] if set.len() >= 2 => {
                let members = set.iter().map(|rank| (*rank, sites[rank.index()].node)).collect();
                rebuilds.push(GroupRebuild { group_id, members, missing });
            }
            _ => return Err(Unusable::SetLost { group_id, ranks: lost.into_iter().map(|(_, rank)| rank).collect() }),
        }
    }
    Ok(rebuilds)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
