//! Groups: which ranks protect each other (`SCR manual §7.3`, `docs/scr-files.md` §5), and the tools by which schemes
//! form them.
//!
//! The groups are the original's wherever the original forms any, so that a site can change over with its data. Where
//! the original gives up (a group of one), the lone rank joins a neighbour group; and two ranks of one failure domain
//! are never in one group, whatever a failure domain is: a node, a rack, a power feed.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{Descriptor, Rank, RankDescriptor, Scheme, SchemeNumbers};
use thiserror::Error;

use super::numbers::{HOP_DISTANCE, NumberError, SET_SIZE};

/// Where a rank runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    pub node: u32,
    /// Index of its failure domain: what is lost together. The node itself, unless the topology defines larger domains.
    pub domain: u32,
}

impl Site {
    /// A rank whose failure domain is its node.
    pub fn on_node(node: u32) -> Site {
        Site { node, domain: node }
    }
}

/// What the descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRules<'a> {
    pub scheme: Scheme,
    pub numbers: &'a SchemeNumbers,
}

impl GroupRules<'_> {
    /// The rules of a requested descriptor.
    pub fn of(asked: &Descriptor) -> GroupRules<'_> {
        GroupRules { scheme: asked.scheme, numbers: &asked.numbers }
    }

    /// Distance between neighbours in the list of nodes.
    pub fn hop_distance(&self) -> u32 {
        HOP_DISTANCE.of(self.numbers)
    }

    /// Largest number of members of a set.
    pub fn set_size(&self) -> u32 {
        SET_SIZE.of(self.numbers)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// World rank of member 0.
    pub id: u32,
    /// World ranks by index of the member: ascending where the groups were formed here.
    pub members: Vec<Rank>,
}

impl Group {
    pub fn size(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }
}

/// A rank's place in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership<'a> {
    pub group: &'a Group,
    /// Its index in the group, from 0.
    pub index: u32,
    /// The rank whose data it receives.
    pub left: Rank,
    /// The rank that it sends to.
    pub right: Rank,
    /// Number of groups of the run (GROUPS).
    pub total: u32,
}

/// Why a run has not the requested protection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForcedLocal {
    #[error(
        "{asked} was requested, but all ranks run in one failure domain: checkpoints in cache are LOCAL and do not \
         survive its loss; use more nodes"
    )]
    OneDomain { asked: Scheme },
    #[error(
        "{asked} was requested, but failure domain {domain} runs {ranks} of {world} ranks, more than all others \
         together: checkpoints in cache are LOCAL; spread the ranks more evenly"
    )]
    DomainTooLarge { asked: Scheme, domain: u32, ranks: usize, world: usize },
}

/// Sets that have fewer members than the requested protection needs: they survive the loss of all members but one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{scheme} was requested to survive {asked} lost nodes of a set, but {sets} {} fewer members than that needs; the \
     smallest one has {members} and survives {}: use more nodes, or spread the ranks more evenly",
    if *sets == 1 { "set has" } else { "sets have" },
    members - 1
)]
pub struct WeakerSets {
    pub scheme: Scheme,
    /// How many sets have too few members.
    pub sets: usize,
    /// Members of the smallest one.
    pub members: usize,
    /// Losses that a set was requested to survive.
    pub asked: usize,
}

/// There are too few failure domains for sets without two members in one: sets avoid common nodes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the nodes with ranks are in too few failure domains for {scheme} without two members of a set in one: sets have \
     no two members on one node, and the loss of a failure domain may not be survived; use nodes of more of them"
)]
pub struct SharedDomains {
    pub scheme: Scheme,
}

/// Why no groups can be formed by the requested rules.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GroupRulesError {
    /// No scheme of this name is registered.
    #[error("there is no redundancy scheme `{asked}`; known are {known}")]
    UnknownScheme { asked: Scheme, known: String },
    #[error(transparent)]
    Number(#[from] NumberError),
    /// A run has at least one rank.
    #[error("there are no ranks to form groups of")]
    NoRanks,
}

/// Why stored descriptors do not describe valid groups.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InconsistentDescriptors {
    #[error("ranks {} and {} both are member {index} of group {group_id}", ranks[0], ranks[1])]
    SameMember {
        /// World rank of member 0.
        group_id: u32,
        index: u32,
        ranks: [Rank; 2],
    },
    /// Members are missing, or their number differs.
    #[error("the descriptors of group {group_id} do not describe all its members")]
    NotAllMembers {
        /// World rank of member 0.
        group_id: u32,
    },
    #[error(transparent)]
    Rules(#[from] GroupRulesError),
}

/// All groups of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The scheme in force; LOCAL if there is a `forced_local`.
    pub scheme: Scheme,
    /// Why the scheme is not the requested one, for the user.
    pub forced_local: Option<ForcedLocal>,
    /// Sets that survive fewer losses than requested, for the user.
    pub weaker: Option<WeakerSets>,
    /// Sets have several members in one failure domain, for the user.
    pub shared: Option<SharedDomains>,
    /// The groups, by ascending id.
    pub groups: Vec<Group>,
    places: Vec<GroupSlot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupSlot {
    group: usize,
    index: u32,
    left: Rank,
    right: Rank,
}

impl Groups {
    /// Each rank in a group of its own, without protection.
    pub fn alone(scheme: Scheme, world: usize) -> Groups {
        Groups::of_rings(scheme, world, (0..world).map(|rank| Ring { order: vec![rank], hop: 1 }).collect())
    }

    /// The groups that the ranks' stored descriptors describe, each a ring in the order of the members.
    ///
    /// # Errors
    /// Where they contradict each other.
    pub fn described(scheme: Scheme, descriptors: &[RankDescriptor]) -> Result<Groups, InconsistentDescriptors> {
        let mut found: BTreeMap<u32, BTreeMap<u32, usize>> = BTreeMap::new();
        for (rank, descriptor) in descriptors.iter().enumerate() {
            let (group_id, index) = (descriptor.group_id, descriptor.group_rank);
            if let Some(other) = found.entry(group_id).or_default().insert(index, rank) {
                return Err(InconsistentDescriptors::SameMember {
                    group_id,
                    index,
                    ranks: [rank_of(other), rank_of(rank)],
                });
            }
        }
        let mut groups = Vec::with_capacity(found.len());
        let mut places = vec![GroupSlot { group: 0, index: 0, left: Rank(0), right: Rank(0) }; descriptors.len()];
        for (id, members) in found {
            let size = members.len();
            let complete = members.keys().copied().eq((0u32..).take(size))
                && members.values().all(|rank| descriptors[*rank].group_size as usize == size);
            if !complete {
                return Err(InconsistentDescriptors::NotAllMembers { group_id: id });
            }
            let members: Vec<Rank> = members.into_values().map(rank_of).collect();
            for (at, rank) in members.iter().enumerate() {
                places[rank.index()] = GroupSlot {
                    group: groups.len(),
                    index: u32::try_from(at).unwrap_or(u32::MAX),
                    left: members[(at + size - 1) % size],
                    right: members[(at + 1) % size],
                };
            }
            groups.push(Group { id, members });
        }
        Ok(Groups { scheme, forced_local: None, weaker: None, shared: None, groups, places })
    }

    /// Writes each rank's group into its descriptor.
    pub fn describe(&self, descriptors: &mut [RankDescriptor]) {
        for (rank, descriptor) in (0u32..).map(Rank).zip(descriptors) {
            if let Some(place) = self.of(rank) {
                descriptor.groups = place.total;
                descriptor.group_id = place.group.id;
                descriptor.group_size = place.group.size();
                descriptor.group_rank = place.index;
            }
        }
    }

    /// The place of `rank`, if there is such a rank.
    pub fn of(&self, rank: Rank) -> Option<Membership<'_>> {
        let place = self.places.get(rank.index())?;
        Some(Membership {
            group: self.groups.get(place.group)?,
            index: place.index,
            left: place.left,
            right: place.right,
            total: u32::try_from(self.groups.len()).unwrap_or(u32::MAX),
        })
    }

    /// The largest number of members that a group has in one failure domain.
    fn most_in_one_domain(&self, sites: &[Site]) -> usize {
        let most = |group: &Group| {
            let mut members = DomainSizes::new();
            for site in group.members.iter().filter_map(|rank| sites.get(rank.index())) {
                *members.entry(site.domain).or_default() += 1;
            }
            members.into_values().max().unwrap_or(0)
        };
        self.groups.iter().map(most).max().unwrap_or(0)
    }

    /// Groups of these rings.
    pub(super) fn of_rings(scheme: Scheme, world: usize, mut rings: Vec<Ring>) -> Groups {
        rings.sort_by_key(|ring| ring.order.iter().min().copied());
        let mut groups = Vec::with_capacity(rings.len());
        let mut places = vec![GroupSlot { group: 0, index: 0, left: Rank(0), right: Rank(0) }; world];
        for (group, ring) in rings.iter().enumerate() {
            let mut members = ring.order.clone();
            members.sort_unstable();
            for (index, &rank) in members.iter().enumerate() {
                places[rank].group = group;
                places[rank].index = u32::try_from(index).unwrap_or(u32::MAX);
            }
            let n = ring.order.len();
            for (at, &rank) in ring.order.iter().enumerate() {
                places[rank].right = rank_of(ring.order[(at + ring.hop) % n]);
                places[rank].left = rank_of(ring.order[(at + n - ring.hop % n) % n]);
            }
            let members: Vec<Rank> = members.into_iter().map(rank_of).collect();
            groups.push(Group { id: members.first().map_or(0, |rank| rank.0), members });
        }
        Groups { scheme, forced_local: None, weaker: None, shared: None, groups, places }
    }
}

/// A copy of one rank's files: made by its own node, kept on its right neighbour's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourCopy {
    pub rank: Rank,
    /// Index of the node where the rank runs.
    pub from_node: u32,
    /// The rank that takes the files over: it also stores the owner's descriptor and the name of the owner's node.
    pub holder: Rank,
    /// Index of the node where that rank runs.
    pub to_node: u32,
}

impl NeighbourCopy {
    /// The copies at the right neighbours, by rank. `sites` are those that the groups were formed from.
    pub fn of_groups(groups: &Groups, sites: &[Site]) -> Vec<NeighbourCopy> {
        let mut copies = Vec::with_capacity(sites.len());
        for (rank, site) in (0u32..).map(Rank).zip(sites) {
            let Some(place) = groups.of(rank) else { continue };
            let Some(holder) = sites.get(place.right.index()) else { continue };
            if place.right != rank {
                copies.push(NeighbourCopy { rank, from_node: site.node, holder: place.right, to_node: holder.node });
            }
        }
        copies
    }
}

/// Ranks are u32 everywhere, so that no run is larger.
fn rank_of(index: usize) -> Rank {
    Rank(u32::try_from(index).unwrap_or(u32::MAX))
}

/// A group while it is formed: the order of its ring, and how far apart neighbours are in it.
pub(super) struct Ring {
    pub(super) order: Vec<usize>,
    pub(super) hop: usize,
}

/// How many ranks each failure domain has.
pub(super) type DomainSizes = BTreeMap<u32, usize>;

/// Groups over several failure domains: `first_choice` where that finds any, else `dealt_out`, which is called only if
/// no domain has more than half of the ranks.
pub(super) fn spread(
    asked: Scheme,
    sites: &[Site],
    first_choice: impl FnOnce() -> Option<Vec<Ring>>,
    dealt_out: impl FnOnce(&DomainSizes) -> Vec<Ring>,
) -> Result<Groups, ForcedLocal> {
    let mut sizes = DomainSizes::new();
    for site in sites {
        *sizes.entry(site.domain).or_default() += 1;
    }
    if sizes.len() == 1 {
        return Err(ForcedLocal::OneDomain { asked });
    }
    let rings = match (first_choice(), sizes.iter().max_by_key(|(_, ranks)| **ranks)) {
        (Some(rings), _) => rings,
        (None, Some((&domain, &ranks))) if ranks > sites.len() / 2 => {
            return Err(ForcedLocal::DomainTooLarge { asked, domain, ranks, world: sites.len() });
        }
        (None, _) => dealt_out(&sizes),
    };
    Ok(Groups::of_rings(asked, sites.len(), rings))
}

/// Level k holds the k-th rank of each failure domain, by world rank: no two of one level are lost together.
pub(super) fn levels(sites: &[Site]) -> Vec<Vec<usize>> {
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    let mut levels: Vec<Vec<usize>> = Vec::new();
    for (rank, site) in sites.iter().enumerate() {
        let level = seen.entry(site.domain).or_default();
        if *level == levels.len() {
            levels.push(Vec::new());
        }
        levels[*level].push(rank);
        *level += 1;
    }
    levels
}

/// Sets of up to `set_size` members for schemes that compute redundancy: at least `smallest` where the placement allows
/// it, so that the members of a smaller remainder join other sets. With too few failure domains, the members in one are
/// spread over the sets.
pub(super) fn sets(
    scheme: Scheme,
    sites: &[Site],
    rules: GroupRules<'_>,
    smallest: u32,
) -> Result<Groups, ForcedLocal> {
    let least = smallest.max(2) as usize;
    let by_level = || sets_by_level(sites, rules, least);
    let formed = spread(scheme, sites, by_level, |sizes| sets_dealt_out(sites, rules, sizes, least));
    let too_small = |groups: &Groups| groups.groups.iter().any(|set| set.members.len() < least);
    let other = || {
        let dealt_out = |sizes: &DomainSizes| sets_dealt_out(sites, rules, sizes, least);
        let groups = spread(scheme, &by_nodes(sites), || None, dealt_out)?;
        let survives = groups.most_in_one_domain(sites) < least;
        Ok((groups, survives))
    };
    let mut groups = match formed {
        // Larger sets survive the loss of as many failure domains, and of more nodes.
        Ok(groups) if has_larger_domains(sites) && too_small(&groups) => match other() {
            Ok((larger, true)) if !too_small(&larger) => larger,
            Ok(_) | Err(_) => groups,
        },
        Err(_) if has_larger_domains(sites) => {
            let (groups, survives) = other()?;
            Groups { shared: (!survives).then_some(SharedDomains { scheme }), ..groups }
        }
        formed => formed?,
    };
    let small: Vec<usize> = groups.groups.iter().map(|set| set.members.len()).filter(|size| *size < least).collect();
    groups.weaker = small.iter().min().map(|least_members| WeakerSets {
        scheme,
        sets: small.len(),
        members: *least_members,
        asked: least - 1,
    });
    Ok(groups)
}

fn sets_by_level(sites: &[Site], rules: GroupRules<'_>, least: usize) -> Option<Vec<Ring>> {
    let (hop, size) = (rules.hop_distance().max(1) as usize, rules.set_size().max(1) as usize);
    let mut sets: Vec<Vec<usize>> = Vec::new();
    let mut lone: Vec<(usize, usize)> = Vec::new();
    for level in levels(sites) {
        let mut by_key: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (at, &rank) in level.iter().enumerate() {
            // The original's key is (at/h/s)*h + at%h: row and lane as one number.
            by_key.entry(((at / hop) / size, at % hop)).or_default().push(rank);
        }
        let first = sets.len();
        let mut place: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (&key, members) in &by_key {
            if members.len() >= least {
                place.insert(key, sets.len());
                sets.push(members.clone());
            }
        }
        for (&(row, lane), members) in &by_key {
            if members.len() < least {
                // Its own lane's previous set is the natural neighbour.
                let neighbour = row.checked_sub(1).and_then(|row| place.get(&(row, lane)).copied());
                lone.extend(members.iter().map(|rank| (*rank, neighbour.unwrap_or(first))));
            }
        }
    }
    let mut taken: Vec<BTreeSet<u32>> =
        sets.iter().map(|set| set.iter().map(|&rank| sites[rank].domain).collect()).collect();
    // One more for each rank of a remainder.
    let largest = size + least - 2;
    let mut search_from = 0;
    for (rank, preferred) in lone {
        let domain = sites[rank].domain;
        let fits = |at: usize, sets: &[Vec<usize>], taken: &[BTreeSet<u32>]| {
            sets.get(at).is_some_and(|set| set.len() <= largest) && !taken[at].contains(&domain)
        };
        // A full set stays full, so that the search can skip the full sets in front.
        while sets.get(search_from).is_some_and(|set| set.len() > largest) {
            search_from += 1;
        }
        let at = if fits(preferred, &sets, &taken) {
            preferred
        } else {
            (search_from..sets.len()).find(|&at| fits(at, &sets, &taken))?
        };
        sets[at].push(rank);
        taken[at].insert(domain);
    }
    for set in &mut sets {
        set.sort_unstable();
    }
    Some(sets.into_iter().map(|order| Ring { order, hop: 1 }).collect())
}

/// Sets for ranks that are spread too unevenly for levels: ranks sorted by domain are assigned round-robin, so that the
/// ranks of one domain, which are adjacent, are in different sets.
fn sets_dealt_out(sites: &[Site], rules: GroupRules<'_>, sizes: &DomainSizes, least: usize) -> Vec<Ring> {
    let world = sites.len();
    let largest = sizes.values().copied().max().unwrap_or(1);
    let count = world.div_ceil(rules.set_size() as usize).min(world / least).max(largest);
    let mut sets = vec![Vec::new(); count];
    for (at, rank) in by_domain(sites).into_iter().enumerate() {
        sets[at % count].push(rank);
    }
    sets.into_iter()
        .map(|mut order: Vec<usize>| {
            order.sort_unstable();
            Ring { order, hop: 1 }
        })
        .collect()
}

/// All ranks, those of one failure domain adjacent, and in it those of one node.
pub(super) fn by_domain(sites: &[Site]) -> Vec<usize> {
    let mut ranks: Vec<usize> = (0..sites.len()).collect();
    match has_larger_domains(sites) {
        true => ranks.sort_by_key(|&rank| (sites[rank].domain, sites[rank].node, rank)),
        false => ranks.sort_by_key(|&rank| (sites[rank].domain, rank)),
    }
    ranks
}

/// True if a failure domain has several nodes.
fn has_larger_domains(sites: &[Site]) -> bool {
    let nodes: BTreeSet<(u32, u32)> = sites.iter().map(|site| (site.domain, site.node)).collect();
    let domains: BTreeSet<u32> = sites.iter().map(|site| site.domain).collect();
    nodes.len() > domains.len()
}

/// Groups over failure domains; with too few of them, over nodes.
pub(super) fn or_by_nodes(
    scheme: Scheme,
    sites: &[Site],
    form: impl Fn(&[Site]) -> Result<Groups, ForcedLocal>,
) -> Result<Groups, ForcedLocal> {
    form(sites).or_else(|forced| {
        if !has_larger_domains(sites) {
            return Err(forced);
        }
        Ok(Groups { shared: Some(SharedDomains { scheme }), ..form(&by_nodes(sites))? })
    })
}

/// The same sites, where only nodes are lost together.
fn by_nodes(sites: &[Site]) -> Vec<Site> {
    sites.iter().map(|site| Site::on_node(site.node)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::redundancy::{local, partner, registry, xor as xor_scheme};

    fn numbers(hop_distance: u32, set_size: u32) -> SchemeNumbers {
        [(HOP_DISTANCE.name, hop_distance), (SET_SIZE.name, set_size)].into_iter().collect()
    }

    fn xor(hop_distance: u32, set_size: u32) -> (Scheme, SchemeNumbers) {
        (xor_scheme::NAME, numbers(hop_distance, set_size))
    }

    fn form(sites: &[Site], (scheme, numbers): (Scheme, SchemeNumbers)) -> Result<Groups, GroupRulesError> {
        registry::form(sites, GroupRules { scheme, numbers: &numbers })
    }

    fn members(groups: &Groups) -> Vec<Vec<u32>> {
        groups.groups.iter().map(|g| g.members.iter().map(|r| r.0).collect()).collect()
    }

    fn one_a_node(n: u32) -> Vec<Site> {
        (0..n).map(Site::on_node).collect()
    }

    #[test]
    fn ten_nodes_in_sets_of_four_leave_a_set_of_two() {
        let groups = form(&one_a_node(10), xor(1, 4)).unwrap();
        assert_eq!(members(&groups), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
    }

    #[test]
    fn hop_distance_makes_lanes() {
        let groups = form(&one_a_node(12), xor(3, 2)).unwrap();
        assert_eq!(members(&groups), [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8, 11]]);
    }

    #[test]
    fn a_remainder_of_one_joins_its_neighbour_set() {
        let groups = form(&one_a_node(9), xor(1, 4)).unwrap();
        assert_eq!(members(&groups), [vec![0, 1, 2, 3], vec![4, 5, 6, 7, 8]]);
        let groups = form(&one_a_node(5), xor(3, 4)).unwrap();
        assert_eq!(members(&groups), [vec![0, 2, 3], vec![1, 4]]);
    }

    #[test]
    fn a_lone_rank_of_a_higher_level_joins_a_set_without_its_node() {
        let sites: Vec<Site> = [0, 0, 1, 2, 3, 4, 5].map(Site::on_node).to_vec();
        let groups = form(&sites, xor(1, 3)).unwrap();
        assert_eq!(members(&groups), [vec![0, 2, 3], vec![1, 4, 5, 6]]);
    }

    #[test]
    fn racks_as_failure_domains_are_never_shared() {
        let sites: Vec<Site> = (0..8).map(|node| Site { node, domain: node / 2 }).collect();
        let groups = form(&sites, xor(1, 4)).unwrap();
        assert_eq!(members(&groups), [[0, 2, 4, 6], [1, 3, 5, 7]]);
    }

    #[test]
    fn all_ranks_in_one_domain_fall_back_to_local_with_a_reason() {
        let groups = form(&[Site::on_node(7); 4], xor(1, 4)).unwrap();
        assert_eq!((groups.scheme, groups.groups.len()), (local::NAME, 4));
        assert!(groups.forced_local.unwrap().to_string().contains("one failure domain"));
    }

    #[test]
    fn a_domain_with_more_than_half_of_the_ranks_falls_back_to_local_with_a_reason() {
        let groups = form(&[0, 0, 0, 0, 1].map(Site::on_node), xor(1, 4)).unwrap();
        assert_eq!(groups.scheme, local::NAME);
        assert!(groups.forced_local.unwrap().to_string().contains("4 of 5 ranks"));
    }

    #[test]
    fn partners_are_a_hop_apart_and_never_the_rank_itself() {
        for (hop, right_of_0) in [(1, 1), (2, 2), (4, 1), (5, 1), (8, 1)] {
            let groups = form(&one_a_node(4), (partner::NAME, numbers(hop, 8))).unwrap();
            assert_eq!(groups.of(Rank(0)).unwrap().right, Rank(right_of_0), "hop {hop}");
            assert_eq!(groups.of(Rank(right_of_0)).unwrap().left, Rank(0), "hop {hop}");
        }
    }

    #[test]
    fn impossible_rules_are_errors() {
        for (rules, number) in [(xor(1, 1), &SET_SIZE), (xor(0, 4), &HOP_DISTANCE)] {
            let error = form(&one_a_node(4), rules).unwrap_err();
            assert!(matches!(&error, GroupRulesError::Number(refused) if refused.number == number), "{error}");
        }
        assert_eq!(form(&[], xor(1, 4)), Err(GroupRulesError::NoRanks));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn every_rank_is_protected_by_others_of_other_domains(
            domains in prop_oneof![
                proptest::collection::vec(0u32..40, 1..3000),
                proptest::collection::vec(0u32..4, 1..40),
                (1u32..2000).prop_map(|n| (0..n).collect::<Vec<u32>>()),
                (2u32..400, 1u32..8).prop_map(|(n, ppn)| (0..n * ppn).map(|r| r / ppn).collect::<Vec<u32>>()),
            ],
            hop in 1u32..6,
            size in 2u32..17,
            partner: bool,
        ) {
            let sites: Vec<Site> = domains.iter().enumerate()
                .map(|(node, &domain)| Site { node: node as u32, domain }).collect();
            let scheme = if partner { partner::NAME } else { xor_scheme::NAME };
            let groups = form(&sites, (scheme, numbers(hop, size))).unwrap();
            let mut seen = vec![0; sites.len()];
            for group in &groups.groups {
                prop_assert_eq!(group.id, group.members[0].0);
                prop_assert!(group.members.is_sorted());
                for member in &group.members { seen[member.index()] += 1; }
                if groups.scheme == xor_scheme::NAME && groups.shared.is_none() {
                    prop_assert!((2..=size as usize + 1).contains(&group.members.len()));
                    let distinct: BTreeSet<u32> = group.members.iter().map(|m| domains[m.index()]).collect();
                    prop_assert_eq!(distinct.len(), group.members.len());
                }
            }
            prop_assert!(seen.iter().all(|&times| times == 1));
            let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
            for domain in &domains { *counts.entry(*domain).or_default() += 1; }
            let largest = counts.values().copied().max().unwrap();
            if groups.scheme == local::NAME {
                prop_assert!(groups.forced_local.is_some() && sites.len() == 1);
            } else if groups.shared.is_some() {
                prop_assert!(largest > sites.len() / 2);
                prop_assert!((0..sites.len()).all(|rank| groups.of(Rank(rank as u32)).unwrap().right.index() != rank));
            } else {
                for rank in 0..sites.len() {
                    let place = groups.of(Rank(rank as u32)).unwrap();
                    prop_assert_eq!(place.group.members[place.index as usize].index(), rank);
                    prop_assert_ne!(domains[place.right.index()], domains[rank]);
                    prop_assert_eq!(groups.of(place.right).unwrap().left, Rank(rank as u32));
                }
            }
        }
    }
}
