//! Group formation: who protects whom (`SCR manual §7.3`, `FORMATS.md` §5).
//!
//! The groups are the original's wherever the original forms any, so that a site can change over with its data. Where
//! the original gives up (a group of one), the lone rank joins a neighbour group; and two ranks of one failure domain
//! are never in one group, whatever a failure domain is: a node, a rack, a power feed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thiserror::Error;

use super::descriptor::Scheme;
use holdfast_model::Rank;

/// Where a rank runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Index of its node.
    pub node: u32,
    /// Index of its failure domain: what is lost together. The node itself unless the site's topology says more.
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
pub struct Rules {
    /// The scheme asked for.
    pub scheme: Scheme,
    /// Distance between neighbours in the list of nodes, at least 1.
    pub hop_distance: u32,
    /// Largest number of members of an XOR set, at least 2.
    pub set_size: u32,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// World rank of member 0.
    pub id: u32,
    /// World ranks in ascending order; the position is the member's index.
    pub members: Vec<Rank>,
}

/// A rank's place in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership<'a> {
    /// Its group.
    pub group: &'a Group,
    /// Its index in the group, from 0.
    pub index: u32,
    /// Whose data it receives.
    pub left: Rank,
    /// To whom it sends.
    pub right: Rank,
    /// Number of groups of the whole run (GROUPS).
    pub total: u32,
}

/// Why a run is without the protection that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForcedLocal {
    /// All ranks share one failure domain.
    OneDomain {
        /// What was asked for.
        asked: Scheme,
    },
    /// One failure domain has more ranks than all others together.
    DomainTooLarge {
        /// What was asked for.
        asked: Scheme,
        /// The domain.
        domain: u32,
        /// Ranks in it.
        ranks: usize,
        /// Ranks of the run.
        world: usize,
    },
}

impl fmt::Display for ForcedLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForcedLocal::OneDomain { asked } => write!(
                f,
                "{asked} asked for, but all ranks run in one failure domain: checkpoints in cache are LOCAL and do not survive its loss; use more nodes"
            ),
            ForcedLocal::DomainTooLarge { asked, domain, ranks, world } => write!(
                f,
                "{asked} asked for, but failure domain {domain} runs {ranks} of {world} ranks, more than all others together: checkpoints in cache are LOCAL; spread the ranks more evenly"
            ),
        }
    }
}

/// Rules that no groups can be formed by.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RulesError {
    /// An XOR set needs two members.
    #[error("XOR set size {0} is too small; a set has at least 2 members")]
    SetSize(u32),
    /// Neighbours are at least one apart.
    #[error("hop distance 0 would make each rank its own neighbour; use 1 or more")]
    HopDistance,
    /// A run has at least one rank.
    #[error("there are no ranks to form groups of")]
    NoRanks,
}

/// All groups of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The scheme in force, LOCAL where `forced_local` says why.
    pub scheme: Scheme,
    /// Why the scheme is not the one asked for, for the user to see.
    pub forced_local: Option<ForcedLocal>,
    /// The groups, by ascending id.
    pub groups: Vec<Group>,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    group: usize,
    index: u32,
    left: Rank,
    right: Rank,
}

impl Groups {
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
}

/// Forms the groups of a run; `sites[r]` is where rank `r` runs.
pub fn form(sites: &[Site], rules: Rules) -> Result<Groups, RulesError> {
    if sites.is_empty() {
        return Err(RulesError::NoRanks);
    }
    if rules.hop_distance == 0 {
        return Err(RulesError::HopDistance);
    }
    if rules.scheme == Scheme::Xor && rules.set_size < 2 {
        return Err(RulesError::SetSize(rules.set_size));
    }
    if rules.scheme == Scheme::Local {
        return Ok(local(sites.len(), None));
    }
    let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
    for site in sites {
        *sizes.entry(site.domain).or_default() += 1;
    }
    let asked = rules.scheme;
    if sizes.len() == 1 {
        return Ok(local(sites.len(), Some(ForcedLocal::OneDomain { asked })));
    }
    if let Some((&domain, &ranks)) = sizes.iter().max_by_key(|(_, ranks)| **ranks)
        && ranks > sites.len() / 2
        && first_choice(sites, rules).is_none()
    {
        let reason = ForcedLocal::DomainTooLarge { asked, domain, ranks, world: sites.len() };
        return Ok(local(sites.len(), Some(reason)));
    }
    let rings = first_choice(sites, rules).unwrap_or_else(|| dealt_out(sites, rules, &sizes));
    Ok(assemble(sites.len(), asked, rings))
}

/// A group while it is formed: the order of its ring, and how far apart neighbours are in it.
struct Ring {
    order: Vec<usize>,
    hop: usize,
}

fn first_choice(sites: &[Site], rules: Rules) -> Option<Vec<Ring>> {
    match rules.scheme {
        Scheme::Xor => xor_sets(sites, rules),
        Scheme::Partner | Scheme::Local => partner_rings(sites, rules),
    }
}

/// Level k holds the k-th rank of each failure domain, by world rank: no two of one level are lost together.
fn levels(sites: &[Site]) -> Vec<Vec<usize>> {
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

fn xor_sets(sites: &[Site], rules: Rules) -> Option<Vec<Ring>> {
    let (hop, size) = (rules.hop_distance as usize, rules.set_size as usize);
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
            if members.len() > 1 {
                place.insert(key, sets.len());
                sets.push(members.clone());
            }
        }
        for (&(row, lane), members) in &by_key {
            if let [rank] = members[..] {
                // Its own lane's previous set is the natural neighbour.
                let neighbour = row.checked_sub(1).and_then(|row| place.get(&(row, lane)).copied());
                lone.push((rank, neighbour.unwrap_or(first)));
            }
        }
    }
    let mut taken: Vec<BTreeSet<u32>> =
        sets.iter().map(|set| set.iter().map(|&rank| sites[rank].domain).collect()).collect();
    let mut search_from = 0;
    for (rank, preferred) in lone {
        let domain = sites[rank].domain;
        let fits = |at: usize, sets: &[Vec<usize>], taken: &[BTreeSet<u32>]| {
            sets.get(at).is_some_and(|set| set.len() <= size) && !taken[at].contains(&domain)
        };
        // Sets that are full stay full, so that the search need not look at the full ones in front again.
        while sets.get(search_from).is_some_and(|set| set.len() > size) {
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

fn partner_rings(sites: &[Site], rules: Rules) -> Option<Vec<Ring>> {
    let mut rings: Vec<Vec<usize>> = levels(sites);
    let lone: Vec<usize> = rings.iter().filter(|ring| ring.len() == 1).map(|ring| ring[0]).collect();
    rings.retain(|ring| ring.len() > 1);
    for rank in lone {
        let home = rings.iter_mut().find(|ring| ring.iter().all(|&other| sites[other].domain != sites[rank].domain))?;
        home.push(rank);
        home.sort_unstable();
    }
    Some(
        rings
            .into_iter()
            .map(|order| {
                // A hop of once around the ring would lead back to the rank itself; the original gives up there.
                let hop = (rules.hop_distance as usize % order.len()).max(1);
                Ring { order, hop }
            })
            .collect(),
    )
}

/// Groups for ranks that are spread too unevenly for levels: ranks sorted by domain are dealt out like cards, so that
/// the ranks of one domain, standing together, go to different groups. Called only if no domain has more than half of
/// the ranks, and then it always succeeds.
fn dealt_out(sites: &[Site], rules: Rules, sizes: &BTreeMap<u32, usize>) -> Vec<Ring> {
    let world = sites.len();
    let largest = sizes.values().copied().max().unwrap_or(1);
    let mut ranks: Vec<usize> = (0..world).collect();
    ranks.sort_by_key(|&rank| (sites[rank].domain, rank));
    if rules.scheme == Scheme::Partner {
        // One ring; so far apart, no two neighbours stand in one domain's stretch.
        return vec![Ring { order: ranks, hop: largest }];
    }
    let count = world.div_ceil(rules.set_size as usize).max(largest).min(world / 2);
    let mut sets = vec![Vec::new(); count];
    for (at, rank) in ranks.into_iter().enumerate() {
        sets[at % count].push(rank);
    }
    sets.into_iter()
        .map(|mut order: Vec<usize>| {
            order.sort_unstable();
            Ring { order, hop: 1 }
        })
        .collect()
}

fn local(world: usize, forced_local: Option<ForcedLocal>) -> Groups {
    let rings = (0..world).map(|rank| Ring { order: vec![rank], hop: 1 }).collect();
    Groups { forced_local, ..assemble(world, Scheme::Local, rings) }
}

fn assemble(world: usize, scheme: Scheme, mut rings: Vec<Ring>) -> Groups {
    // Ranks are u32 everywhere; a world larger than that does not exist.
    let rank_of = |index: usize| Rank(u32::try_from(index).unwrap_or(u32::MAX));
    rings.sort_by_key(|ring| ring.order.iter().min().copied());
    let mut groups = Vec::with_capacity(rings.len());
    let mut places = vec![Place { group: 0, index: 0, left: Rank(0), right: Rank(0) }; world];
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
    Groups { scheme, forced_local: None, groups, places }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn xor(hop_distance: u32, set_size: u32) -> Rules {
        Rules { scheme: Scheme::Xor, hop_distance, set_size }
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
    fn all_ranks_in_one_domain_fall_back_to_local_and_say_so() {
        let groups = form(&[Site::on_node(7); 4], xor(1, 4)).unwrap();
        assert_eq!((groups.scheme, groups.groups.len()), (Scheme::Local, 4));
        assert!(groups.forced_local.unwrap().to_string().contains("one failure domain"));
    }

    #[test]
    fn a_domain_with_more_than_half_of_the_ranks_falls_back_to_local_and_says_so() {
        let groups = form(&[0, 0, 0, 0, 1].map(Site::on_node), xor(1, 4)).unwrap();
        assert_eq!(groups.scheme, Scheme::Local);
        assert!(groups.forced_local.unwrap().to_string().contains("4 of 5 ranks"));
    }

    #[test]
    fn partners_are_a_hop_apart_and_never_the_rank_itself() {
        for (hop, right_of_0) in [(1, 1), (2, 2), (4, 1), (5, 1), (8, 1)] {
            let rules = Rules { scheme: Scheme::Partner, hop_distance: hop, set_size: 8 };
            let groups = form(&one_a_node(4), rules).unwrap();
            assert_eq!(groups.of(Rank(0)).unwrap().right, Rank(right_of_0), "hop {hop}");
            assert_eq!(groups.of(Rank(right_of_0)).unwrap().left, Rank(0), "hop {hop}");
        }
    }

    #[test]
    fn impossible_rules_are_errors() {
        assert_eq!(form(&one_a_node(4), xor(1, 1)), Err(RulesError::SetSize(1)));
        assert_eq!(form(&one_a_node(4), xor(0, 4)), Err(RulesError::HopDistance));
        assert_eq!(form(&[], xor(1, 4)), Err(RulesError::NoRanks));
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
            let scheme = if partner { Scheme::Partner } else { Scheme::Xor };
            let groups = form(&sites, Rules { scheme, hop_distance: hop, set_size: size }).unwrap();
            let mut seen = vec![0; sites.len()];
            for group in &groups.groups {
                prop_assert_eq!(group.id, group.members[0].0);
                prop_assert!(group.members.is_sorted());
                for member in &group.members { seen[member.index()] += 1; }
                if groups.scheme == Scheme::Xor {
                    prop_assert!((2..=size as usize + 1).contains(&group.members.len()));
                    let distinct: BTreeSet<u32> = group.members.iter().map(|m| domains[m.index()]).collect();
                    prop_assert_eq!(distinct.len(), group.members.len());
                }
            }
            prop_assert!(seen.iter().all(|&times| times == 1));
            let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
            for domain in &domains { *counts.entry(*domain).or_default() += 1; }
            let largest = counts.values().copied().max().unwrap();
            if groups.scheme == Scheme::Local {
                prop_assert!(groups.forced_local.is_some() && largest > sites.len() / 2);
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
