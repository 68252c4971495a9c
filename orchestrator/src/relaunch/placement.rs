//! The node of every rank. Nodes that are up keep their ranks, and spares take those of lost nodes, so that only the
//! files of these ranks have to be moved or rebuilt.

use std::collections::BTreeSet;

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
pub fn first_placement(ranks: u32, ranks_per_node: u32, nodes: u32, usable: &[bool]) -> Option<Vec<u32>> {
    place(&Demand { ranks, ranks_per_node, nodes }, &[], usable)
}

/// Places every rank on one of the `usable` nodes; `before` is empty for the first generation. `None` if no node is
/// usable.
///
/// The ranks of a lost node stay together and go to the first spare in allocation order. When the spares are used up,
/// they are spread, one by one, over the nodes with the fewest ranks. If there are spares again later, they take the
/// ranks that a node has above the usual number.
pub(super) fn place(demand: &Demand, before: &[u32], usable: &[bool]) -> Option<Homes> {
    let usable_nodes = || (0u32..).zip(usable).filter(|(_, usable)| **usable).map(|(node, _)| node);
    usable_nodes().next()?;
    let mut homes: Vec<Option<u32>> = vec![None; demand.ranks as usize];
    let mut lost: Vec<Vec<usize>> = Vec::new();
    let mut load = vec![0u32; usable.len()];
    if before.is_empty() {
        let all: Vec<usize> = (0..homes.len()).collect();
        lost.extend(all.chunks(demand.ranks_per_node.max(1) as usize).map(<[usize]>::to_vec));
    } else {
        let mut by_node: std::collections::BTreeMap<u32, Vec<usize>> = std::collections::BTreeMap::new();
        for (rank, &node) in before.iter().enumerate().take(homes.len()) {
            if usable.get(node as usize).copied().unwrap_or(false) {
                homes[rank] = Some(node);
                load[node as usize] += 1;
            } else {
                by_node.entry(node).or_default().push(rank);
            }
        }
        lost.extend(by_node.into_values());
    }
    let used = load.iter().filter(|ranks| **ranks > 0).count();
    let free = (demand.nodes.max(1) as usize).saturating_sub(used);
    let mut spares = usable_nodes().filter(|node| load[*node as usize] == 0).take(free).collect::<Vec<_>>().into_iter();
    if lost.len() < spares.len() {
        lost.extend(surplus(demand, &mut homes, &mut load));
    }
    let mut unplaced = Vec::new();
    for block in lost {
        match spares.next() {
            Some(node) => {
                load[node as usize] += block.len() as u32;
                block.iter().for_each(|rank| homes[*rank] = Some(node));
            }
            None => unplaced.extend(block),
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

/// Takes the ranks that nodes have above the usual number from them, in blocks for spares.
fn surplus(demand: &Demand, homes: &mut [Option<u32>], load: &mut [u32]) -> Vec<Vec<usize>> {
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
    taken.chunks(demand.ranks_per_node.max(1) as usize).map(<[usize]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: Demand = Demand { ranks: 4, ranks_per_node: 1, nodes: 4 };

    #[test]
    fn the_first_run_takes_the_first_healthy_nodes_in_allocation_order() {
        let usable = [true, false, true, true, true, true];
        assert_eq!(place(&DEMAND, &[], &usable), Some(vec![0, 2, 3, 4]));
    }

    #[test]
    fn the_last_node_may_have_fewer_ranks() {
        let demand = Demand { ranks: 7, ranks_per_node: 3, nodes: 3 };
        assert_eq!(place(&demand, &[], &[true; 4]), Some(vec![0, 0, 0, 1, 1, 1, 2]));
    }

    #[test]
    fn survivors_keep_their_ranks_and_the_first_spare_takes_the_lost_ones_together() {
        let demand = Demand { ranks: 6, ranks_per_node: 2, nodes: 3 };
        let usable = [true, false, true, false, true, true];
        assert_eq!(place(&demand, &[0, 0, 1, 1, 2, 2], &usable), Some(vec![0, 0, 4, 4, 2, 2]));
    }

    #[test]
    fn a_spare_before_the_first_used_node_is_taken_first() {
        assert_eq!(place(&DEMAND, &[1, 2, 3, 4], &[true, true, false, true, true, true]), Some(vec![1, 0, 3, 4]));
    }

    #[test]
    fn without_spares_lost_ranks_are_spread_over_the_least_loaded_nodes() {
        let demand = Demand { ranks: 6, ranks_per_node: 2, nodes: 3 };
        assert_eq!(place(&demand, &[0, 0, 1, 1, 2, 2], &[true, false, true]), Some(vec![0, 0, 0, 2, 2, 2]));
        assert_eq!(place(&demand, &[], &[true, false, true]), Some(vec![0, 0, 2, 2, 0, 2]));
    }

    #[test]
    fn a_spare_that_comes_later_takes_the_surplus_of_the_others() {
        let demand = Demand { ranks: 6, ranks_per_node: 2, nodes: 3 };
        assert_eq!(place(&demand, &[0, 0, 0, 2, 2, 2], &[true, true, true]), Some(vec![0, 0, 1, 2, 2, 1]));
        assert_eq!(place(&demand, &[0, 0, 0, 2, 2, 2], &[true, false, true]), Some(vec![0, 0, 0, 2, 2, 2]));
        // The spare is needed for lost ranks.
        assert_eq!(place(&demand, &[0, 0, 0, 2, 2, 2], &[true, true, false]), Some(vec![0, 0, 0, 1, 1, 1]));
    }

    #[test]
    fn nothing_can_be_placed_on_no_node() {
        assert_eq!(place(&DEMAND, &[], &[false, false]), None);
        assert_eq!(place(&DEMAND, &[0, 1, 0, 1], &[false, false]), None);
    }
}
