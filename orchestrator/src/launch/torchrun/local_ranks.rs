//! Which ranks share a node, in one variable that all ranks can have: a run-length code of all ranks in their order.
//!
//! A segment is a sequence of ranks on one node: `0:4/8` are four ranks, the first of which is local rank 0 of 8 on its
//! node. `0:4/4*1000` are a thousand such segments. Ranks in blocks and ranks spread round-robin are one segment kind
//! each, so that the code of a large job stays short.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use holdfast_model::{NodeName, Rank};

/// The place of a rank on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalRank {
    /// Counted from 0, in the order of the ranks.
    pub(super) rank: u32,
    /// The number of ranks on the node.
    pub(super) ranks: u32,
}

/// Consecutive ranks with consecutive local ranks on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    first: u32,
    length: u32,
    ranks: u32,
}

/// The code of ranks with their nodes. The ranks are counted from 0, without a gap.
pub(super) fn encode(homes: &BTreeMap<Rank, NodeName>) -> String {
    let mut sizes = BTreeMap::<&NodeName, u32>::new();
    homes.values().for_each(|node| *sizes.entry(node).or_default() += 1);
    let mut placed = BTreeMap::<&NodeName, u32>::new();
    let mut segments = Vec::<(Segment, &NodeName)>::new();
    for node in homes.values() {
        let local = placed.entry(node).or_default();
        match segments.last_mut() {
            Some((segment, last)) if *last == node => segment.length += 1,
            _ => segments.push((Segment { first: *local, length: 1, ranks: sizes[node] }, node)),
        }
        *local += 1;
    }
    let mut code = String::new();
    for alike in segments.chunk_by(|(one, _), (next, _)| one == next) {
        let Segment { first, length, ranks } = alike[0].0;
        let separator = if code.is_empty() { "" } else { "," };
        let _ = write!(code, "{separator}{first}:{length}/{ranks}");
        if alike.len() > 1 {
            let _ = write!(code, "*{}", alike.len());
        }
    }
    code
}

/// The place of a rank in the code; `None` if the code does not contain it, or is malformed.
pub(super) fn find(code: &str, rank: Rank) -> Option<LocalRank> {
    let mut left = rank.0;
    for part in code.split(',') {
        let (segment, repeated) = part.split_once('*').unwrap_or((part, "1"));
        let (first, rest) = segment.split_once(':')?;
        let (length, ranks) = rest.split_once('/')?;
        let number = |text: &str| text.parse::<u32>().ok();
        let (first, length, ranks, repeated) = (number(first)?, number(length)?, number(ranks)?, number(repeated)?);
        let all = length.checked_mul(repeated)?;
        if left < all {
            return Some(LocalRank { rank: first.checked_add(left.checked_rem(length)?)?, ranks });
        }
        left -= all;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn homes(nodes: &[usize]) -> BTreeMap<Rank, NodeName> {
        let home = |(rank, node): (u32, &usize)| (Rank(rank), NodeName::new(format!("n{node}")));
        (0..).zip(nodes).map(home).collect()
    }

    fn in_blocks(nodes: usize, each: usize) -> Vec<usize> {
        (0..nodes * each).map(|rank| rank / each).collect()
    }

    #[test]
    fn regular_placements_have_a_short_code() {
        assert_eq!(encode(&homes(&in_blocks(1000, 4))), "0:4/4*1000");
        let round_robin: Vec<usize> = (0..6).map(|rank| rank % 3).collect();
        assert_eq!(encode(&homes(&round_robin)), "0:1/2*3,1:1/2*3");
        // The ranks of a lost node run on the first one.
        assert_eq!(encode(&homes(&[0, 0, 0, 0, 2, 2])), "0:4/4,0:2/2");
        assert_eq!(encode(&homes(&[0, 0, 1, 1, 0, 0])), "0:2/4,0:2/2,2:2/4");
    }

    #[test]
    fn a_malformed_code_has_no_ranks() {
        for code in ["", "0", "0:4", "0:0/4", "x:4/4", "0:4/4*x", "4294967295:4/4", "0:4294967295/4*2"] {
            assert_eq!(find(code, Rank(1)), None, "{code}");
        }
        assert_eq!(find("0:4/4*2", Rank(8)), None);
    }

    proptest! {
        #[test]
        fn every_rank_finds_its_place(nodes in prop::collection::vec(0_usize..5, 1..40)) {
            let code = encode(&homes(&nodes));
            for (rank, node) in nodes.iter().enumerate() {
                let count = |of: &[usize]| u32::try_from(of.iter().filter(|other| *other == node).count()).unwrap();
                let expected = LocalRank { rank: count(&nodes[..rank]), ranks: count(&nodes) };
                prop_assert_eq!(find(&code, Rank(u32::try_from(rank).unwrap())), Some(expected));
            }
        }
    }
}
