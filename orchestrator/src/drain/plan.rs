//! Selects the datasets to drain: the newest that can be completed, and the reason for every one that is skipped.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::redundancy::drainable::{Drainability, IncompleteReason, drainable};
use holdfast_core::redundancy::inventory;
use holdfast_formats::sion::dataset::stream_bytes;
use holdfast_model::{CheckpointId, Dataset, Holding, Inventory, Locations, NodeName, Rank};

/// A dataset that is worth copying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub checkpoint: CheckpointId,
    /// Why it cannot be completed. It is copied nevertheless, so that no file is lost that could be saved.
    pub incomplete: Option<String>,
    /// Whether other nodes hold copies of a node's files.
    pub partner_copies: bool,
    /// Nodes of which other nodes hold copies, and of which no node reported the files themselves.
    pub lost_owners: BTreeSet<NodeName>,
    /// Nodes that hold files of the dataset.
    pub holders: BTreeSet<NodeName>,
    /// It is a checkpoint: the current link may point to it.
    pub checkpoint_data: bool,
    /// The application's name for it.
    pub name: Option<String>,
    /// What a container with its files needs. `None` if they must be plain files, as those of an output, or if the
    /// number of ranks is not known.
    pub packing: Option<Packing>,
}

/// How the files of a dataset are packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Ranks of the dataset.
    pub ranks: u32,
    /// Bytes of the stream of each rank of which a node has files.
    pub streams: BTreeMap<Rank, u64>,
    /// For each rank the one node that packs it in round 1: its own, or one with a copy.
    first: BTreeMap<Rank, NodeName>,
    /// For each rank of which another node has a copy: the one node that packs it in round 2.
    second: BTreeMap<Rank, NodeName>,
}

impl Packing {
    fn of<'a>(holdings: impl Iterator<Item = (&'a NodeName, &'a Holding)>) -> Option<Packing> {
        let mut packing = Packing::default();
        // Nodes with complete files are preferred.
        let (mut own, mut copies) = (BTreeMap::new(), BTreeMap::new());
        for (node, holding) in holdings {
            let needed = stream_bytes(holding.files.iter().map(|file| file.size));
            let stream = packing.streams.entry(holding.rank).or_default();
            *stream = needed.max(*stream);
            packing.ranks = packing.ranks.max(holding.ranks.unwrap_or(0));
            let holders = if holding.partner_of.is_none() { &mut own } else { &mut copies };
            let holder: &mut (bool, NodeName) = holders.entry(holding.rank).or_insert((false, node.clone()));
            if holding.complete && !holder.0 {
                *holder = (true, node.clone());
            }
        }
        let nodes =
            |holders: BTreeMap<Rank, (bool, NodeName)>| holders.into_iter().map(|(rank, (_, node))| (rank, node));
        packing.second = nodes(copies.clone()).collect();
        packing.first = nodes(copies).chain(nodes(own)).collect();
        let last = packing.streams.last_key_value().map(|(rank, _)| rank.0)?;
        (last < packing.ranks).then_some(packing)
    }

    /// The ranks that a node packs in a round. No two nodes get the same rank in one round.
    pub fn ranks_of(&self, node: &NodeName, round: u8) -> impl Iterator<Item = Rank> {
        let packers = if round == 1 { &self.first } else { &self.second };
        packers.iter().filter(move |(_, packer)| *packer == node).map(|(rank, _)| *rank)
    }
}

/// The datasets to drain, in this order until one is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainPlan {
    /// Datasets that can be completed, newest first.
    pub candidates: Vec<Candidate>,
    /// Datasets that the application marked as output, oldest first, without the first candidate.
    pub output: Vec<Candidate>,
    /// The newest dataset that was complete at some time and cannot be completed any more: recorded as incomplete if
    /// there is no candidate.
    pub remnant: Option<Candidate>,
    /// Datasets that were skipped, and why.
    pub skipped: Vec<(CheckpointId, String)>,
    /// The newest dataset that is already in the prefix directory.
    pub flushed: Option<CheckpointId>,
    /// Datasets that were flushed, and why their copies in the prefix directory cannot be used.
    pub damaged: BTreeMap<CheckpointId, String>,
    /// If one dataset was requested: what the nodes hold besides.
    pub others: OtherDatasets,
}

/// Datasets that can be completed, are not in the prefix directory, and are not drained because another one was
/// requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherDatasets {
    /// Newer checkpoints, and output.
    pub needed: BTreeSet<CheckpointId>,
    /// Older checkpoints: needed if the requested one could not be completed.
    pub older: BTreeSet<CheckpointId>,
}

impl OtherDatasets {
    /// What is left of a plan, newest first, if only this dataset of it is drained.
    pub fn of(plan: &DrainPlan, requested: CheckpointId) -> OtherDatasets {
        let ids = |of: &[Candidate]| of.iter().map(|each| each.checkpoint).collect::<BTreeSet<_>>();
        let (older, newer) = ids(&plan.candidates).into_iter().partition(|id| *id < requested);
        let mut others = OtherDatasets { needed: &newer | &ids(&plan.output), older };
        others.needed.remove(&requested);
        others
    }

    /// Those that must not be deleted after the drain of the requested one.
    pub fn left(&self, is_complete: bool) -> BTreeSet<CheckpointId> {
        if is_complete { self.needed.clone() } else { &self.needed | &self.older }
    }
}

/// Makes a plan from the inventories. With `requested`, only that dataset counts, also if it is already in the prefix
/// directory. Those in `damaged` were flushed, and their copies in the prefix directory cannot be used.
pub fn plan(
    inventories: &[Inventory],
    requested: Option<CheckpointId>,
    damaged: &BTreeMap<CheckpointId, String>,
) -> DrainPlan {
    let mut ids: BTreeSet<CheckpointId> = inventory::candidates(inventories).into_iter().collect();
    ids.extend(inventories.iter().flat_map(|inventory| inventory.flush.keys().copied()));
    let datasets: BTreeMap<CheckpointId, &Dataset> =
        inventories.iter().flat_map(|inventory| &inventory.datasets).map(|(id, dataset)| (*id, dataset)).collect();
    let output_only =
        |id: &CheckpointId| requested.is_none() && datasets.get(id).is_some_and(|known| !known.checkpoint);
    let mut plan = DrainPlan { damaged: damaged.clone(), ..DrainPlan::default() };
    for id in ids.iter().filter(|id| requested.is_none() && datasets.get(*id).is_some_and(|known| known.output)) {
        match drainable(*id, inventories, locations(*id, inventories)) {
            Drainability::Drainable { .. } => plan.output.push(candidate(*id, inventories, None)),
            Drainability::AlreadyFlushed => {}
            Drainability::Incomplete(reason) if output_only(id) => plan.skipped.push((*id, reason.to_string())),
            Drainability::Incomplete(_) => {}
        }
    }
    ids.retain(|id| !output_only(id));
    for id in ids.into_iter().rev().filter(|id| requested.is_none_or(|requested| requested == *id)) {
        let mut flush = locations(id, inventories);
        if requested.is_some() || damaged.contains_key(&id) {
            flush = flush.map(|known| Locations { pfs: false, ..known });
        }
        match drainable(id, inventories, flush) {
            Drainability::Drainable { .. } => plan.candidates.push(candidate(id, inventories, None)),
            Drainability::AlreadyFlushed => {
                // Older datasets are not needed for a restart.
                plan.flushed = Some(id);
                break;
            }
            // It was only in the prefix directory: there is nothing to copy.
            Drainability::Incomplete(IncompleteReason::NothingHeld) if damaged.contains_key(&id) => {
                plan.skipped.push((id, IncompleteReason::NothingHeld.to_string()));
            }
            Drainability::Incomplete(reason) => {
                if reason != IncompleteReason::NeverComplete && plan.remnant.is_none() {
                    plan.remnant = Some(candidate(id, inventories, Some(reason.to_string())));
                }
                plan.skipped.push((id, reason.to_string()));
            }
        }
    }
    let first = plan.candidates.first().map(|first| first.checkpoint);
    plan.output.retain(|output| Some(output.checkpoint) != first);
    plan
}

fn candidate(id: CheckpointId, inventories: &[Inventory], incomplete: Option<String>) -> Candidate {
    let has_files = |inventory: &Inventory| {
        let mut held =
            inventory.holdings.iter().filter(|holding| holding.checkpoint == id && !holding.files.is_empty());
        held.next().is_some()
    };
    let holders =
        inventories.iter().filter(|inventory| has_files(inventory)).filter_map(|inventory| inventory.node.clone());
    let holdings = || {
        let all = inventories.iter().flat_map(|inventory| &inventory.holdings);
        all.filter(|holding| holding.checkpoint == id && !holding.files.is_empty())
    };
    let own: BTreeSet<Rank> =
        holdings().filter(|holding| holding.partner_of.is_none()).map(|holding| holding.rank).collect();
    let copies = holdings().filter_map(|holding| Some((holding.rank, holding.partner_of.as_ref()?)));
    let partner_copies = copies.clone().next().is_some();
    let lost_owners = copies.filter(|(rank, _)| !own.contains(rank)).map(|(_, owner)| owner.clone()).collect();
    let mut described = inventories.iter().filter_map(|inventory| inventory.datasets.get(&id));
    let described = described.next();
    let checkpoint_data = described.is_none_or(|dataset| dataset.checkpoint);
    let name = described.and_then(|dataset| dataset.name.clone());
    let holders = holders.collect();
    let is_output = described.is_some_and(|dataset| dataset.output || dataset.direct.is_some());
    let by_node = inventories.iter().filter_map(|inventory| Some((inventory.node.as_ref()?, &inventory.holdings)));
    let by_node = by_node.flat_map(|(node, holdings)| holdings.iter().map(move |holding| (node, holding)));
    let packed = by_node.filter(|(_, holding)| holding.checkpoint == id && !holding.files.is_empty());
    let packing = if is_output { None } else { Packing::of(packed) };
    Candidate { checkpoint: id, incomplete, partner_copies, lost_owners, holders, checkpoint_data, name, packing }
}

/// The locations of a dataset according to the nodes' flush files, which agree except for nodes that were down at the
/// end of a flush.
fn locations(id: CheckpointId, inventories: &[Inventory]) -> Option<Locations> {
    let known = inventories.iter().filter_map(|inventory| inventory.flush.get(&id).copied());
    known.reduce(|all, one| if one.pfs { one } else { all })
}

/// The ranks whose files are complete on each node, for a dry run.
pub fn held_ranks(inventories: &[Inventory], id: CheckpointId) -> BTreeMap<NodeName, Vec<Rank>> {
    let mut held = BTreeMap::new();
    for inventory in inventories {
        let Some(node) = &inventory.node else { continue };
        let complete = inventory.holdings.iter().filter(|holding| holding.checkpoint == id && holding.complete);
        held.insert(node.clone(), complete.map(|holding| holding.rank).collect());
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_model::{Descriptor, HeldFile, Protection, RankDescriptor, Scheme};

    fn held(id: u64, rank: u32) -> Holding {
        Holding {
            checkpoint: CheckpointId(id),
            rank: Rank(rank),
            ranks: Some(4),
            complete: true,
            expected: Some(1),
            fault: None,
            protection: Protection::Scheme(Scheme::new("XOR")),
            partner_of: None,
            descriptor: Some(RankDescriptor {
                groups: 1,
                group_size: 4,
                group_rank: rank,
                ..RankDescriptor::unplaced(Descriptor::new(0, Scheme::new("XOR"), "/tmp"), "/tmp/u/scr.1/index.0")
            }),
            files: vec![HeldFile { name: format!("rank_{rank}.ckpt"), size: 1 }],
        }
    }

    /// Four nodes with one rank each that have these datasets; `flushed` are in the prefix directory too.
    fn nodes(ids: &[u64], flushed: &[u64]) -> Vec<Inventory> {
        let locations =
            |id: &u64| (CheckpointId(*id), Locations { cache: true, pfs: flushed.contains(id), flushing: false });
        (0..4)
            .map(|rank| Inventory {
                node: Some(NodeName::new(format!("node{rank}"))),
                holdings: ids.iter().map(|id| held(*id, rank)).collect(),
                flush: ids.iter().map(locations).collect(),
                datasets: BTreeMap::new(),
                nodes: Some(4),
                faults: vec![],
            })
            .collect()
    }

    fn ids(plan: &DrainPlan) -> Vec<u64> {
        plan.candidates.iter().map(|candidate| candidate.checkpoint.0).collect()
    }

    #[test]
    fn the_newest_dataset_is_first_and_those_older_than_a_flushed_one_are_left_out() {
        let plan = plan(&nodes(&[1, 2, 3, 4], &[2]), None, &BTreeMap::new());
        assert_eq!(ids(&plan), [4, 3]);
        assert_eq!(plan.flushed, Some(CheckpointId(2)));
    }

    #[test]
    fn xor_survives_one_lost_node_and_not_two() {
        let mut nodes = nodes(&[3], &[]);
        nodes.remove(1);
        assert_eq!(ids(&plan(&nodes, None, &BTreeMap::new())), [3]);
        nodes.remove(1);
        let plan = plan(&nodes, None, &BTreeMap::new());
        assert!(plan.candidates.is_empty());
        let remnant = plan.remnant.unwrap();
        assert_eq!(remnant.checkpoint, CheckpointId(3));
        assert!(remnant.incomplete.unwrap().contains("two members of the XOR set "));
    }

    #[test]
    fn a_dataset_that_was_never_complete_is_skipped_and_is_no_remnant() {
        let mut nodes = nodes(&[3, 4], &[3]);
        for node in &mut nodes {
            node.flush.remove(&CheckpointId(4));
        }
        let plan = plan(&nodes, None, &BTreeMap::new());
        assert!(plan.candidates.is_empty() && plan.remnant.is_none());
        assert_eq!(plan.skipped[0].0, CheckpointId(4));
    }

    #[test]
    fn a_flushed_dataset_whose_copy_is_damaged_counts_as_not_flushed() {
        let damaged = |ids: &[u64]| ids.iter().map(|id| (CheckpointId(*id), "lost".to_owned())).collect();
        let mut nodes = nodes(&[1, 2, 3], &[2, 3]);
        let found = plan(&nodes, None, &damaged(&[3]));
        assert_eq!((ids(&found), found.flushed), (vec![3], Some(CheckpointId(2))));
        // It is in no cache any more: there is nothing to copy, not even as a remnant.
        for node in &mut nodes {
            node.holdings.retain(|holding| holding.checkpoint != CheckpointId(3));
        }
        let found = plan(&nodes, None, &damaged(&[3]));
        assert_eq!((found.candidates, found.remnant, found.flushed), (vec![], None, Some(CheckpointId(2))));
        assert_eq!(found.skipped[0].0, CheckpointId(3));
    }

    #[test]
    fn output_is_drained_in_addition_to_the_newest_checkpoint() {
        let mut nodes = nodes(&[2, 3, 4, 5], &[2]);
        let output = Dataset { output: true, checkpoint: false, ..Dataset::default() };
        let both = Dataset { output: true, ..Dataset::default() };
        nodes[1].datasets =
            [(CheckpointId(3), both.clone()), (CheckpointId(4), both), (CheckpointId(5), output)].into();
        let plan = plan(&nodes, None, &BTreeMap::new());
        assert_eq!(ids(&plan), [4, 3]);
        let output: Vec<_> = plan.output.iter().map(|each| (each.checkpoint.0, each.checkpoint_data)).collect();
        assert_eq!(output, [(3, true), (5, false)]);
    }

    #[test]
    fn a_requested_dataset_is_drained_even_if_it_was_flushed() {
        let plan = plan(&nodes(&[3, 4], &[3]), Some(CheckpointId(3)), &BTreeMap::new());
        assert_eq!(ids(&plan), [3]);
    }

    #[test]
    fn newer_checkpoints_and_output_are_left_beside_a_requested_one_and_older_ones_if_it_is_not_complete() {
        let mut nodes = nodes(&[1, 2, 3, 4, 5], &[1]);
        let output = Dataset { output: true, checkpoint: false, ..Dataset::default() };
        nodes[1].datasets = [(CheckpointId(2), output)].into();
        let others = OtherDatasets::of(&plan(&nodes, None, &BTreeMap::new()), CheckpointId(4));
        assert_eq!(others.left(true), [2, 5].map(CheckpointId).into());
        assert_eq!(others.left(false), [2, 3, 5].map(CheckpointId).into());
        let newest = OtherDatasets::of(&plan(&nodes, None, &BTreeMap::new()), CheckpointId(5));
        assert_eq!(newest.left(true), [CheckpointId(2)].into());
    }

    #[test]
    fn each_rank_is_packed_by_one_node_in_a_round_and_outputs_are_not_packed() {
        let mut nodes = nodes(&[3], &[]);
        let mut copy = held(3, 1);
        copy.partner_of = Some(NodeName::new("node1"));
        nodes[2].holdings.push(copy.clone());
        nodes[3].holdings.push(copy);
        let packing = |nodes: &[Inventory]| plan(nodes, None, &BTreeMap::new()).candidates[0].packing.clone();
        let ranks = |packing: &Packing, node: &str, round| {
            packing.ranks_of(&NodeName::from(node), round).map(|rank| rank.0).collect::<Vec<_>>()
        };
        let all = packing(&nodes).unwrap();
        assert_eq!((all.ranks, all.streams.len()), (4, 4));
        assert_eq!((ranks(&all, "node1", 1), ranks(&all, "node2", 1)), (vec![1], vec![2]));
        assert_eq!((ranks(&all, "node2", 2), ranks(&all, "node3", 2)), (vec![1], vec![]));
        nodes.remove(1);
        let left = packing(&nodes).unwrap();
        assert_eq!((ranks(&left, "node2", 1), ranks(&left, "node3", 1)), (vec![1, 2], vec![3]));
        nodes[0].datasets = [(CheckpointId(3), Dataset { output: true, ..Dataset::default() })].into();
        assert_eq!(packing(&nodes), None);
    }

    #[test]
    fn an_owner_of_copies_is_lost_if_no_node_reports_its_files() {
        let mut nodes = nodes(&[3], &[]);
        for rank in 0..4 {
            let mut copy = held(3, rank);
            copy.partner_of = Some(NodeName::new(format!("host{rank}")));
            nodes[(rank as usize + 1) % 4].holdings.push(copy);
        }
        let lost_owners = |nodes: &[Inventory]| plan(nodes, None, &BTreeMap::new()).candidates[0].lost_owners.clone();
        assert!(lost_owners(&nodes).is_empty());
        nodes.remove(1);
        assert_eq!(lost_owners(&nodes), [NodeName::from("host1")].into());
        // Damaged files of a node that answers are copied by its partner after the node itself has failed to.
        nodes[0].holdings[0].complete = false;
        assert_eq!(lost_owners(&nodes), [NodeName::from("host1")].into());
    }
}
