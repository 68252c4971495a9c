//! Rounds of work in which nodes exchange data: redundancy of groups, moves of ranks' files.
//!
//! The parts of a group, or the two ends of a copy, must run at the same time: each waits for the others, on a thread.
//! A round has a limited number of them for each node (`checkpoint.redundancy_width`), whatever the number of its
//! ranks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use holdfast_core::redundancy::registry;
use holdfast_model::{CheckpointId, NodeName, Rank};
use holdfast_wire::peer::{CopyLimits, GroupWork, Order};

/// Orders to encode these groups, round after round. Of a scheme that copies between neighbours only the files of the
/// ranks in `copied` are copied, if that is given, and a group need not be complete in a round.
pub(super) fn encode(
    checkpoint: CheckpointId,
    work: &BTreeMap<NodeName, Vec<GroupWork>>,
    copied: Option<&BTreeSet<Rank>>,
    crc: bool,
    width: u32,
) -> Vec<BTreeMap<NodeName, Order>> {
    let scheme = work.values().flatten().next().and_then(|group| registry::get(group.scheme));
    let between_neighbours = scheme.is_some_and(|scheme| scheme.is_between_neighbours());
    let units = |group: &GroupWork| -> Vec<Rank> {
        if !between_neighbours {
            return vec![Rank(group.group_id)];
        }
        let senders = [group.member, group.left].map(|index| group.members.get(index as usize).map(|(rank, _)| *rank));
        senders.into_iter().flatten().filter(|rank| copied.is_none_or(|copied| copied.contains(rank))).collect()
    };
    let parts = work.iter().flat_map(|(node, groups)| groups.iter().flat_map(units).map(move |unit| (unit, node)));
    let turns = Turns::of(parts, width);
    let order = |groups: &[GroupWork], round: usize| {
        let (mut now, mut only) = (Vec::new(), BTreeSet::new());
        for group in groups {
            let units: Vec<Rank> = units(group).into_iter().filter(|unit| turns.of_unit(*unit) == round).collect();
            if !units.is_empty() {
                now.push(group.clone());
                only.extend(units);
            }
        }
        let only = between_neighbours.then(|| only.into_iter().collect());
        (!now.is_empty()).then_some(Order::Encode { checkpoint, groups: now, crc, only, limits: CopyLimits::NONE })
    };
    let orders = |round| work.iter().filter_map(|(node, groups)| Some((node.clone(), order(groups, round)?))).collect();
    (0..turns.rounds).map(orders).collect()
}

/// Divides each node's work into rounds; `unit` is the same for parts that must run at the same time.
pub(super) fn split<P: Clone>(
    work: &BTreeMap<NodeName, Vec<P>>,
    unit: impl Fn(&P) -> Rank,
    width: u32,
) -> Vec<BTreeMap<NodeName, Vec<P>>> {
    let parts = work.iter().flat_map(|(node, parts)| parts.iter().map(&unit).map(move |unit| (unit, node)));
    let turns = Turns::of(parts, width);
    let of_round = |round| {
        let parts = work.iter().map(|(node, parts)| {
            let now = parts.iter().filter(|part| turns.of_unit(unit(part)) == round);
            (node.clone(), now.cloned().collect::<Vec<_>>())
        });
        parts.filter(|(_, parts)| !parts.is_empty()).collect()
    };
    (0..turns.rounds).map(of_round).collect()
}

/// In which round each unit of work runs, from 0.
struct Turns {
    /// Units of round 0 are left out.
    later: BTreeMap<Rank, usize>,
    rounds: usize,
}

impl Turns {
    /// `parts` are the units and the node of each of their parts. A round has at most `width` parts on a node, unless
    /// one unit alone has more.
    fn of<'a>(parts: impl IntoIterator<Item = (Rank, &'a NodeName)>, width: u32) -> Turns {
        let mut of_nodes: HashMap<&NodeName, u32> = HashMap::new();
        let mut units: BTreeMap<Rank, BTreeMap<&NodeName, u32>> = BTreeMap::new();
        for (unit, node) in parts {
            *of_nodes.entry(node).or_default() += 1;
            *units.entry(unit).or_default().entry(node).or_default() += 1;
        }
        let mut later = BTreeMap::new();
        if of_nodes.values().all(|parts| *parts <= width) {
            return Turns { later, rounds: usize::from(!units.is_empty()) };
        }
        let mut rounds: Vec<HashMap<&NodeName, u32>> = Vec::new();
        for (unit, parts) in units {
            let fits = |round: &HashMap<&NodeName, u32>| {
                parts.iter().all(|(node, parts)| round.get(node).is_none_or(|busy| busy + parts <= width))
            };
            let at = rounds.iter().position(fits).unwrap_or(rounds.len());
            if at == rounds.len() {
                rounds.push(HashMap::new());
            }
            if let Some(round) = rounds.get_mut(at) {
                parts.into_iter().for_each(|(node, parts)| *round.entry(node).or_default() += parts);
            }
            if at > 0 {
                later.insert(unit, at);
            }
        }
        Turns { later, rounds: rounds.len() }
    }

    fn of_unit(&self, unit: Rank) -> usize {
        self.later.get(&unit).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeName {
        NodeName::new(format!("n{number}"))
    }

    /// Units 0 to 127 with a part on each of two nodes, and 500 with three parts on one of them.
    fn work() -> BTreeMap<NodeName, Vec<u32>> {
        let column = || (0..128).collect::<Vec<_>>();
        BTreeMap::from([(node(0), column()), (node(1), [column(), vec![500; 3]].concat())])
    }

    #[test]
    fn work_within_the_width_is_one_round_and_no_work_is_none() {
        assert_eq!(split(&work(), |unit| Rank(*unit), 131), [work()]);
        assert!(split(&BTreeMap::<NodeName, Vec<u32>>::new(), |unit| Rank(*unit), 1).is_empty());
    }

    #[test]
    fn no_round_exceeds_the_width_of_a_node_and_every_unit_is_complete_in_one_round() {
        for width in [1, 3, 32] {
            let rounds = split(&work(), |unit| Rank(*unit), width);
            let mut done: BTreeMap<u32, usize> = BTreeMap::new();
            for (at, round) in rounds.iter().enumerate() {
                for parts in round.values() {
                    assert!(
                        parts.len() <= width as usize || parts.iter().all(|unit| *unit == 500),
                        "{width} {parts:?}"
                    );
                    for unit in parts {
                        assert_eq!(*done.entry(*unit).or_insert(at), at, "{unit} is in one round");
                    }
                }
            }
            assert_eq!(done.len(), 129);
            let all: usize = rounds.iter().flat_map(BTreeMap::values).map(Vec::len).sum();
            assert_eq!(all, 128 + 131);
            assert_eq!(rounds.len(), if width == 1 { 129 } else { 131_usize.div_ceil(width as usize) });
        }
    }

    #[test]
    fn copies_of_one_ring_over_all_ranks_need_not_be_made_in_one_round() {
        // Ranks 0 to 3 on one node, 4 to 7 on the other; each rank's files go to the next but three.
        let group = |rank: u32| GroupWork {
            scheme: holdfast_core::redundancy::partner::NAME,
            group_id: 0,
            members: [(rank + 4) % 8, rank].map(|rank| (Rank(rank), node(rank / 4))).to_vec(),
            member: 1,
            left: 0,
            right: 0,
            largest: 1,
        };
        let work = BTreeMap::from([(node(0), (0..4).map(group).collect()), (node(1), (4..8).map(group).collect())]);
        let orders = |copied: Option<&BTreeSet<Rank>>, width| {
            let rounds = encode(CheckpointId(1), &work, copied, false, width);
            let ranks = |order: &Order| match order {
                Order::Encode { groups, only: Some(only), .. } => {
                    (groups.len(), only.iter().map(|rank| rank.0).collect::<Vec<_>>())
                }
                other => panic!("{other:?}"),
            };
            rounds.iter().map(|round| round.values().map(ranks).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let all = (4, (0..8).collect::<Vec<_>>());
        assert_eq!(orders(None, 8), [[all.clone(), all]]);
        let two = orders(None, 2);
        assert_eq!(two.len(), 4);
        assert_eq!(two[0], [(2, vec![0, 1]), (2, vec![0, 1])], "two copies: one end of each on each node");
        assert_eq!(orders(Some(&BTreeSet::from([Rank(5)])), 8), [[(1, vec![5]), (1, vec![5])]]);
    }
}
