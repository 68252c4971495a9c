//! The node of every rank. Nodes that are up keep their ranks, and spares take those of lost nodes, so that only the
//! files of these ranks have to be moved or rebuilt. The nodes with ranks are spread over the failure domains, because
//! no set of ranks should have two members in one.

use std::collections::{BTreeMap, BTreeSet};

/// The home of every rank, as a position in the allocation.
pub(super) type Homes = Vec<u32>;

/// The requirements of a placement.
pub(super) struct Demand {
    pub ranks: u32,
    /// Ranks of a node while there are enough nodes.
    pub ranks_per_node: u32,
    /// Nodes to use, at most.
    pub nodes: u32,
}

/// The position of the node of every rank in the first generation of a run: see [`place`].
pub fn first_placement(
    ranks: u32,
    ranks_per_node: u32,
    nodes: u32,
    usable: &[bool],
    domains: &[u32],
) -> Option<Vec<u32>> {
    place(&Demand { ranks, ranks_per_node, nodes }, &[], usable, domains)
}

/// The failure domain of each node, numbered in the order of the nodes.
pub fn numbered<Name: Ord>(names: impl Iterator<Item = Name>) -> Vec<u32> {
    let mut known: BTreeMap<Name, u32> = BTreeMap::new();
    names
        .map(|name| {
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            *known.entry(name).or_insert(next)
        })
        .collect()
}

/// Places every rank on one of the `usable` nodes, whose failure domains are `domains`; `before` is empty for the first
/// generation. `None` if no node is usable.
///
/// The ranks of a lost node stay together and go to a spare of its failure domain. If there is none, they go to one of
/// the domain in which the fewest nodes have ranks, the first one in allocation order. When the spares are used up, the
/// ranks are spread, one by one, over the nodes with the fewest ranks. If there are spares again later, they take the
/// ranks that a node has above the usual number.
pub(super) fn place(demand: &Demand, before: &[u32], usable: &[bool], domains: &[u32]) -> Option<Homes> {
    let usable_nodes = || (0u32..).zip(usable).filter(|(_, usable)| **usable).map(|(node, _)| node);
    usable_nodes().next()?;
    let mut homes: Vec<Option<u32>> = vec![None; demand.ranks as usize];
    let mut lost: Vec<Block> = Vec::new();
    let mut load = vec![0u32; usable.len()];
    if before.is_empty() {
        let all: Vec<usize> = (0..homes.len()).collect();
        lost.extend(blocks(demand, &all));
    } else {
        let mut by_node: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (rank, &node) in before.iter().enumerate().take(homes.len()) {
            if usable.get(node as usize).copied().unwrap_or(false) {
                homes[rank] = Some(node);
                load[node as usize] += 1;
            } else {
                by_node.entry(node).or_default().push(rank);
            }
        }
        lost.extend(by_node.into_iter().map(|(node, ranks)| Block { ranks, lost: Some(node) }));
    }
    let mut spares = Spares::new(demand, usable_nodes(), &load, domains);
    if lost.len() < spares.left() {
        lost.extend(surplus(demand, &mut homes, &mut load));
    }
    if before.is_empty() {
        spares.keep_the_first(lost.len());
    }
    let mut unplaced = Vec::new();
    for block in lost {
        match spares.take(block.lost) {
            Some(node) => {
                load[node as usize] += block.ranks.len() as u32;
                block.ranks.iter().for_each(|rank| homes[*rank] = Some(node));
            }
            None => unplaced.extend(block.ranks),
        }
    }
    let mut lightest: BTreeSet<(u32, u32)> =
        usable_nodes().filter(|node| load[*node as usize] > 0).map(|node| (load[node as usize], node)).collect();
    for rank in unplaced {
        let (ranks, node) = lightest.pop_first()?;
        homes[rank] = Some(node);
        lightest.insert((ranks + 1, node));
    }
    homes.into_iter().collect()
}

/// Ranks that stay together.
struct Block {
    ranks: Vec<usize>,
    /// The node that they had, if it is lost.
    lost: Option<u32>,
}

/// Blocks of the usual number of ranks of a node.
fn blocks(demand: &Demand, ranks: &[usize]) -> impl Iterator<Item = Block> {
    let blocks = ranks.chunks(demand.ranks_per_node.max(1) as usize);
    blocks.map(|ranks| Block { ranks: ranks.to_vec(), lost: None })
}

/// Usable nodes without ranks.
struct Spares<'a> {
    domains: &'a [u32],
    /// Those of each domain, in allocation order.
    of_domain: BTreeMap<u32, BTreeSet<u32>>,
    /// The number of nodes of a domain that have ranks, and its first spare: of the domains with spares.
    order: BTreeSet<(u32, u32, u32)>,
    /// The number of nodes with ranks of each domain.
    used: BTreeMap<u32, u32>,
    /// As many may be taken.
    free: usize,
}

impl<'a> Spares<'a> {
    fn new(demand: &Demand, usable: impl Iterator<Item = u32>, load: &[u32], domains: &'a [u32]) -> Self {
        let mut of_domain: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut used: BTreeMap<u32, u32> = BTreeMap::new();
        let domain_of = |node: u32| domains.get(node as usize).copied().unwrap_or(node);
        for node in usable.filter(|node| load[*node as usize] == 0) {
            of_domain.entry(domain_of(node)).or_default().insert(node);
        }
        let mut busy = 0;
        for (node, _) in (0u32..).zip(load).filter(|(_, ranks)| **ranks > 0) {
            busy += 1;
            *used.entry(domain_of(node)).or_default() += 1;
        }
        let free = (demand.nodes.max(1) as usize).saturating_sub(busy);
        let mut spares = Spares { domains, of_domain, order: BTreeSet::new(), used, free };
        let all: Vec<u32> = spares.of_domain.keys().copied().collect();
        all.into_iter().for_each(|domain| spares.queue(domain));
        spares
    }

    /// How many nodes can be taken.
    fn left(&self) -> usize {
        self.of_domain.values().map(BTreeSet::len).sum::<usize>().min(self.free)
    }

    fn queue(&mut self, domain: u32) {
        if let Some(first) = self.of_domain.get(&domain).and_then(BTreeSet::first) {
            let used = self.used.get(&domain).copied().unwrap_or(0);
            self.order.insert((used, *first, domain));
        }
    }

    /// Takes a spare for the ranks of a lost node, or for others.
    fn take(&mut self, lost: Option<u32>) -> Option<u32> {
        self.free = self.free.checked_sub(1)?;
        let preferred = lost.and_then(|node| self.domains.get(node as usize)).copied();
        let has_spare = |domain: &u32| self.of_domain.get(domain).is_some_and(|spares| !spares.is_empty());
        let domain = preferred.filter(has_spare).or_else(|| self.order.first().map(|(_, _, domain)| *domain))?;
        let spares = self.of_domain.get_mut(&domain)?;
        let node = spares.pop_first()?;
        let used = self.used.entry(domain).or_default();
        self.order.remove(&(*used, node, domain));
        *used += 1;
        self.queue(domain);
        Some(node)
    }

    /// Keeps the spares that would be taken first, so that they are taken in allocation order.
    fn keep_the_first(&mut self, number: usize) {
        let kept: BTreeSet<u32> = (0..number).map_while(|_| self.take(None)).collect();
        // Each a domain of its own.
        self.domains = &[];
        self.free = kept.len();
        self.of_domain = kept.iter().map(|node| (*node, BTreeSet::from([*node]))).collect();
        self.used.clear();
        self.order = kept.iter().map(|node| (0, *node, *node)).collect();
    }
}

/// Takes the ranks that nodes have above the usual number from them, in blocks for spares.
fn surplus(demand: &Demand, homes: &mut [Option<u32>], load: &mut [u32]) -> Vec<Block> {
    let mut taken = Vec::new();
    for (rank, home) in homes.iter_mut().enumerate().rev() {
        let Some(node) = *home else { continue };
        if load[node as usize] > demand.ranks_per_node.max(1) {
            load[node as usize] -= 1;
            *home = None;
            taken.push(rank);
        }
    }
    taken.reverse();
    blocks(demand, &taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: Demand = Demand { ranks: 4, ranks_per_node: 1, nodes: 4 };

    /// Each node is a failure domain of its own.
    fn place_alone(demand: &Demand, before: &[u32], usable: &[bool]) -> Option<Homes> {
        let domains: Vec<u32> = (0..usable.len() as u32).collect();
        place(demand, before, usable, &domains)
    }

    #[test]
    fn the_first_run_takes_the_first_healthy_nodes_in_allocation_order() {
        let usable = [true, false, true, true, true, true];
        assert_eq!(place_alone(&DEMAND, &[], &usable), Some(vec![0, 2, 3, 4]));
    }

    #[test]
    fn the_last_node_may_have_fewer_ranks() {
        let demand = Demand { ranks: 7, ranks_per_node: 3, nodes: 3 };
        assert_eq!(place_alone(&demand, &[], &[true; 4]), Some(vec![0, 0, 0, 1, 1, 1, 2]));
    }

    #[test]
    fn survivors_keep_their_ranks_and_the_first_spare_takes_the_lost_ones_together() {
        let demand = Demand { ranks: 6, ranks_per_node: 2, nodes: 3 };
        let usable = [true, false, true, false, true, true];
        assert_eq!(place_alone(&demand, &[0, 0, 1, 1, 2, 2], &usable), Some(vec![0, 0, 4, 4, 2, 2]));
    }

    #[test]
    fn a_spare_before_the_first_used_node_is_taken_first() {
        assert_eq!(place_alone(&DEMAND, &[1, 2, 3, 4], &[true, true, false, true, true, true]), Some(vec![1, 0, 3, 4]));
    }

    #[test]
    fn without_spares_lost_ranks_are_spread_over_the_least_loaded_nodes() {
        let demand = Demand { ranks: 6, ranks_per_node: 2, nodes: 3 };
        assert_eq!(place_alone(&demand, &[0, 0, 1, 1, 2, 2], &[true, false, true]), Some(vec![0, 0, 0, 2, 2, 2]));
        assert_eq!(place_alone(&demand, &[], &[true, false, true]), Some(vec![0, 0, 2, 2, 0, 2]));
    }

    #[test]
    fn a_spare_that_comes_later_takes_the_surplus_of_the_others() {
        let demand = Demand { ranks: 6, ranks_per_node: 2, nodes: 3 };
        assert_eq!(place_alone(&demand, &[0, 0, 0, 2, 2, 2], &[true, true, true]), Some(vec![0, 0, 1, 2, 2, 1]));
        assert_eq!(place_alone(&demand, &[0, 0, 0, 2, 2, 2], &[true, false, true]), Some(vec![0, 0, 0, 2, 2, 2]));
        // The spare is needed for lost ranks.
        assert_eq!(place_alone(&demand, &[0, 0, 0, 2, 2, 2], &[true, true, false]), Some(vec![0, 0, 0, 1, 1, 1]));
    }

    #[test]
    fn nothing_can_be_placed_on_no_node() {
        assert_eq!(place_alone(&DEMAND, &[], &[false, false]), None);
        assert_eq!(place_alone(&DEMAND, &[0, 1, 0, 1], &[false, false]), None);
    }

    #[test]
    fn the_first_run_takes_nodes_of_as_many_failure_domains_as_there_are() {
        let racks = [0, 0, 0, 1, 1, 2, 2, 3];
        assert_eq!(place(&DEMAND, &[], &[true; 8], &racks), Some(vec![0, 3, 5, 7]));
        // The second round begins with the first rack.
        let demand = Demand { ranks: 10, ranks_per_node: 2, nodes: 5 };
        assert_eq!(place(&demand, &[], &[true; 8], &racks), Some(vec![0, 0, 1, 1, 3, 3, 5, 5, 7, 7]));
    }

    #[test]
    fn lost_ranks_go_to_a_spare_of_the_same_failure_domain_else_to_the_least_used_one() {
        let racks = numbered(["a", "a", "a", "b", "b", "c", "c", "d"].into_iter());
        let lost = |nodes: &[usize]| {
            let usable: Vec<bool> = (0..8).map(|node| !nodes.contains(&node)).collect();
            place(&DEMAND, &[0, 3, 5, 7], &usable, &racks)
        };
        assert_eq!(lost(&[5]), Some(vec![0, 3, 6, 7]));
        // None is left in rack d: racks a, b and c have one node each with ranks.
        assert_eq!(lost(&[7]), Some(vec![0, 3, 5, 1]));
        // The rack b is lost as a whole.
        assert_eq!(lost(&[3, 4]), Some(vec![0, 1, 5, 7]));
        assert_eq!(lost(&[0, 7]), Some(vec![1, 3, 5, 2]));
    }
}
