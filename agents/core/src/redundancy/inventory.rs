//! What the nodes of an allocation hold: the input of the restart plan and of the choice of what to drain.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{CheckpointId, Holding, Inventory, Rank};

/// The ids of which some node has files, newest first: what to try in a restart or a drain.
pub fn candidates<'a>(inventories: impl IntoIterator<Item = &'a Inventory>) -> Vec<CheckpointId> {
    let holdings = inventories.into_iter().flat_map(|inventory| &inventory.holdings);
    let ids: BTreeSet<CheckpointId> =
        holdings.filter(|holding| holding.has_files()).map(|holding| holding.checkpoint).collect();
    ids.into_iter().rev().collect()
}

/// The holdings of one checkpoint by rank, each with the index of its node.
pub(crate) type Held<'a> = BTreeMap<Rank, Vec<(u32, &'a Holding)>>;

/// The nodes' holdings of one checkpoint, by rank.
pub(crate) fn by_rank<'a>(id: CheckpointId, inventories: impl IntoIterator<Item = (u32, &'a Inventory)>) -> Held<'a> {
    let mut found = Held::new();
    for (node, inventory) in inventories {
        for holding in inventory.holdings.iter().filter(|holding| holding.checkpoint == id) {
            found.entry(holding.rank).or_default().push((node, holding));
        }
    }
    found
}

/// `1`, `1 and 2`, `1, 2 and 3`, `1, 2, 3, 4 and 96 more`: for messages.
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
    fn lists_of_ranks_are_formatted_as_text() {
        let ranks: Vec<Rank> = (1..=20).map(Rank).collect();
        assert_eq!(named(&ranks[..1]), "rank 1");
        assert_eq!(named(&ranks[..3]), "ranks 1, 2 and 3");
        assert_eq!(named(&ranks), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 12 more");
    }
}
