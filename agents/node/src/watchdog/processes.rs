//! The processes of the ranks.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::{Generation, Rank};

use crate::ranks::Ranks;

/// The processes of the run's ranks on this node, and those that they have started.
pub(super) fn processes(ranks: &Ranks, generation: Generation) -> BTreeMap<Rank, BTreeSet<u32>> {
    let marked = ranks.marked(|of| of == generation);
    let marked = marked.into_iter().filter_map(|process| Some((process.rank?, process.pid)));
    let mut processes: BTreeMap<Rank, BTreeSet<u32>> = BTreeMap::new();
    for (rank, pid) in ranks.connected(generation).into_iter().chain(marked) {
        processes.entry(rank).or_default().insert(pid);
    }
    processes
}
