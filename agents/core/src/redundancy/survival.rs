//! What all sets of a placement survive.

use std::collections::BTreeMap;

use holdfast_model::{Descriptor, Rank, RankDescriptor};

use super::groups::{Groups, NeighbourCopy, Site};
use super::registry::get;

/// Losses after which all files of the ranks are still there, or can be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survival {
    /// Any so many nodes at once.
    pub nodes: usize,
    /// Any so many failure domains at once.
    pub domains: usize,
}

impl Survival {
    /// Of groups that were formed of ranks on these sites, as this descriptor asks.
    pub fn of(groups: &Groups, sites: &[Site], asked: &Descriptor) -> Survival {
        let asked = Descriptor { scheme: groups.scheme, ..asked.clone() };
        let unplaced = RankDescriptor::unplaced(asked, String::new());
        let mut descriptors = vec![unplaced; sites.len()];
        groups.describe(&mut descriptors);
        let Some(scheme) = get(groups.scheme) else { return Survival { nodes: 0, domains: 0 } };
        let copies = scheme.copies(groups, sites);
        let least = |place: fn(&Site) -> u32| {
            if !copies.is_empty() {
                return usize::from(are_apart(&copies, sites, place));
            }
            let of_groups = groups.groups.iter().filter_map(|group| {
                let tolerance = scheme.tolerance(descriptors.get(group.members.first()?.index())?);
                let mut members: BTreeMap<u32, u32> = BTreeMap::new();
                for site in group.members.iter().filter_map(|rank| sites.get(rank.index())) {
                    *members.entry(place(site)).or_default() += 1;
                }
                Some(losses(tolerance, members.into_values().collect()))
            });
            of_groups.min().unwrap_or(0)
        };
        Survival { nodes: least(|site| site.node), domains: least(|site| site.domain) }
    }
}

/// True if every rank has a copy in another place: any one place can be lost. Others of the group may be in the same
/// place.
fn are_apart(copies: &[NeighbourCopy], sites: &[Site], place: fn(&Site) -> u32) -> bool {
    let of = |rank: Rank| sites.get(rank.index()).map(place);
    copies.len() == sites.len() && copies.iter().all(|copy| of(copy.rank) != of(copy.holder))
}

/// How many places can be lost, whichever they are, if a group has so many members on each and tolerates the loss of
/// `tolerance` members.
fn losses(tolerance: u32, mut members: Vec<u32>) -> usize {
    members.sort_unstable_by(|a, b| b.cmp(a));
    let mut lost = 0u32;
    members
        .iter()
        .take_while(|of_place| {
            lost = lost.saturating_add(**of_place);
            lost <= tolerance
        })
        .count()
}

#[cfg(test)]
mod tests {
    use holdfast_model::SchemeNumbers;

    use super::*;
    use crate::redundancy::groups::GroupRules;
    use crate::redundancy::numbers::SET_SIZE;
    use crate::redundancy::registry::form;
    use crate::redundancy::{local, partner, rs, xor};

    /// Ranks on nodes of these racks, one a node.
    fn survives(scheme: holdfast_model::Scheme, set_size: u32, failures: u32, racks: &[u32]) -> (usize, usize) {
        let sites: Vec<Site> = (0..).zip(racks).map(|(node, rack)| Site { node, domain: *rack }).collect();
        of_sites(scheme, set_size, failures, &sites)
    }

    fn of_sites(scheme: holdfast_model::Scheme, set_size: u32, failures: u32, sites: &[Site]) -> (usize, usize) {
        let of_set = [(SET_SIZE.name, set_size), (rs::FAILURES.name, failures)];
        let asked = Descriptor { numbers: of_set.into_iter().collect(), ..Descriptor::new(0, scheme, "/c") };
        let groups = form(sites, GroupRules::of(&asked)).unwrap();
        let Survival { nodes, domains } = Survival::of(&groups, sites, &asked);
        (nodes, domains)
    }

    #[test]
    fn what_is_survived_is_what_every_set_survives() {
        let alone = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(survives(local::NAME, 4, 0, &alone), (0, 0));
        assert_eq!(survives(partner::NAME, 4, 0, &alone), (1, 1));
        assert_eq!(survives(xor::NAME, 4, 0, &alone), (1, 1));
        assert_eq!(survives(rs::NAME, 4, 2, &alone), (2, 2));
        let racks = [0, 0, 1, 1, 2, 2, 3, 3];
        assert_eq!(survives(xor::NAME, 4, 0, &racks), (1, 1));
        assert_eq!(survives(rs::NAME, 4, 2, &racks), (2, 2));
    }

    #[test]
    fn copies_survive_a_node_though_it_has_several_ranks_of_a_ring() {
        // Two ranks on the first node, and one on each of the others: a single ring, in which neighbours are apart.
        let sites = [0, 0, 1, 2].map(Site::on_node);
        let asked = |numbers| GroupRules { scheme: partner::NAME, numbers };
        let groups = form(&sites, asked(&SchemeNumbers::default())).unwrap();
        assert_eq!(groups.groups.len(), 1, "{groups:?}");
        assert_eq!(of_sites(partner::NAME, 4, 0, &sites), (1, 1));
        // Three ranks on one node of two racks: the copies are in the other rack.
        let sites = [(0, 0), (0, 0), (0, 0), (1, 1), (2, 1), (3, 1)].map(|(node, domain)| Site { node, domain });
        assert_eq!(of_sites(partner::NAME, 4, 0, &sites), (1, 1));
        // Neighbours on one node are lost together.
        let moved = [0, 1, 1, 2].map(Site::on_node);
        let asked = Descriptor::new(0, partner::NAME, "/c");
        let survival = |sites: &[Site]| {
            Survival::of(&form(&[0, 1, 2, 3].map(Site::on_node), GroupRules::of(&asked)).unwrap(), sites, &asked)
        };
        assert_eq!((survival(&moved).nodes, survival(&[0, 1, 0, 1].map(Site::on_node)).nodes), (0, 1));
    }

    #[test]
    fn where_there_are_too_few_failure_domains_nodes_are_survived_and_members_are_spread() {
        // All in one rack: sets as without racks.
        assert_eq!(survives(xor::NAME, 4, 0, &[0; 8]), (1, 0));
        assert_eq!(survives(partner::NAME, 4, 0, &[0; 8]), (1, 0));
        // Six of eight in one rack: two sets of four have three members there each.
        assert_eq!(survives(xor::NAME, 4, 0, &[0, 0, 0, 0, 0, 0, 1, 1]), (1, 0));
        // Sets of one member a rack would survive one node only.
        assert_eq!(survives(rs::NAME, 4, 2, &[0, 0, 0, 0, 1, 1, 1, 1]), (2, 1));
        assert_eq!(survives(xor::NAME, 4, 0, &[0, 0, 0, 0, 1, 1, 1, 1]), (1, 1));
    }
}
