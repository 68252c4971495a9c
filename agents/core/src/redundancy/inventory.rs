//! What the nodes of an allocation hold: the input of the restart plan and of the choice of what to drain.

use std::collections::{BTreeMap, BTreeSet};

use super::descriptor::Descriptor;
use holdfast_model::{CheckpointId, NodeName, Rank};

/// What one node holds of one rank in one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The rank that owns the files.
    pub rank: Rank,
    /// All expected files are there, and their meta data says that they are whole.
    pub complete: bool,
    /// Files listed, redundancy files included; 0 where only a neighbour's descriptor is stored.
    pub files: u32,
    /// EXPECT: `None` if the redundancy step was not over, or if only a descriptor is stored.
    pub expected: Option<u32>,
    /// RANKS of the meta files, where there are any.
    pub ranks: Option<u32>,
    /// For a partner's copy: the node of the owner when it was made.
    pub copy_of: Option<NodeName>,
    /// The rank's descriptor: its own, or what it gave to its right neighbour.
    pub descriptor: Option<Descriptor>,
}

impl Holding {
    /// True if there is something to delete: files, or an entry that expects some.
    pub fn has_files(&self) -> bool {
        self.files > 0 || self.expected.is_some()
    }
}

/// What one node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// Index of the node; the same as in [`Site`](super::groups::Site).
    pub node: u32,
    /// Its name.
    pub name: NodeName,
    /// What a node holds that is not healthy counts as lost.
    pub healthy: bool,
    /// Everything in its cache.
    pub holdings: Vec<Holding>,
}

/// The ids of which some healthy node has files, newest first: what to try in a restart or a drain.
pub fn candidates(inventories: &[Inventory]) -> Vec<CheckpointId> {
    let healthy = inventories.iter().filter(|inventory| inventory.healthy);
    let holdings = healthy.flat_map(|inventory| &inventory.holdings).filter(|holding| holding.has_files());
    let ids: BTreeSet<CheckpointId> = holdings.map(|holding| holding.checkpoint).collect();
    ids.into_iter().rev().collect()
}

/// The healthy nodes' holdings of one checkpoint, by rank.
pub(crate) fn by_rank(id: CheckpointId, inventories: &[Inventory]) -> BTreeMap<Rank, Vec<(u32, &Holding)>> {
    let mut found: BTreeMap<Rank, Vec<(u32, &Holding)>> = BTreeMap::new();
    for inventory in inventories.iter().filter(|inventory| inventory.healthy) {
        for holding in inventory.holdings.iter().filter(|holding| holding.checkpoint == id) {
            found.entry(holding.rank).or_default().push((inventory.node, holding));
        }
    }
    found
}

/// `1`, `1 and 2`, `1, 2 and 3`, `1, 2, 3, 4 and 96 more`: for reasons that people read.
pub(crate) fn in_words(ranks: &[Rank]) -> String {
    const NAMED: usize = 8;
    let text: Vec<String> = ranks.iter().take(NAMED).map(ToString::to_string).collect();
    match (text.split_last(), ranks.len().saturating_sub(NAMED)) {
        (None, _) => String::new(),
        (Some((only, [])), 0) => only.clone(),
        (Some((last, others)), 0) => format!("{} and {last}", others.join(", ")),
        (Some(_), more) => format!("{} and {more} more", text.join(", ")),
    }
}

/// `rank 1`, `ranks 1 and 2`.
pub(crate) fn named(ranks: &[Rank]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, in_words(ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranks_are_read_aloud() {
        let ranks: Vec<Rank> = (1..=20).map(Rank).collect();
        assert_eq!(named(&ranks[..1]), "rank 1");
        assert_eq!(named(&ranks[..3]), "ranks 1, 2 and 3");
        assert_eq!(named(&ranks), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 12 more");
    }
}
