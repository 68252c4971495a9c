//! The restart plan, in small cases and in simulated runs of hundreds of ranks.

use holdfast_model::{Descriptor, HeldFile, NodeName, Protection, SchemeNumbers};
use holdfast_testkit::Dice;
use proptest::prelude::*;

use super::*;
use crate::redundancy::groups::GroupRules;
use crate::redundancy::inventory::candidates;
use crate::redundancy::numbers::SET_SIZE;
use crate::redundancy::registry::form;
use crate::redundancy::{local, partner, xor};

const ID: CheckpointId = CheckpointId(7);

fn numbers(set_size: u32) -> SchemeNumbers {
    [(SET_SIZE.name, set_size)].into_iter().collect()
}

fn groups(sites: &[Site], scheme: Scheme, set_size: u32) -> Groups {
    form(sites, GroupRules { scheme, numbers: &numbers(set_size) }).unwrap()
}

fn descriptor(groups: &Groups, rank: Rank, set_size: u32) -> RankDescriptor {
    let place = groups.of(rank).unwrap();
    let descriptor = Descriptor { numbers: numbers(set_size), ..Descriptor::new(0, groups.scheme, "/tmp") };
    RankDescriptor {
        groups: place.total,
        group_id: place.group.id,
        group_size: place.group.size(),
        group_rank: place.index,
        ..RankDescriptor::unplaced(descriptor, "/tmp/u/scr.1/index.0")
    }
}

/// The inventories of `nodes` nodes after a run at `sites` completed checkpoint `ID`.
fn after_run(sites: &[Site], nodes: u32, scheme: Scheme, set_size: u32) -> Vec<(u32, Inventory)> {
    let groups = groups(sites, scheme, set_size);
    let mut inventories: Vec<(u32, Inventory)> = (0..nodes).map(|node| (node, Inventory::default())).collect();
    let copied = !registry::get(groups.scheme).unwrap().copies(&groups, sites).is_empty();
    for (rank, site) in (0u32..).map(Rank).zip(sites) {
        let own = Holding {
            checkpoint: ID,
            rank,
            complete: true,
            files: ["a", "b"].map(|name| HeldFile { name: name.to_owned(), size: 1 }).to_vec(),
            expected: Some(2),
            ranks: Some(sites.len() as u32),
            fault: None,
            protection: Protection::Scheme(groups.scheme),
            partner_of: None,
            descriptor: Some(descriptor(&groups, rank, set_size)),
        };
        let place = groups.of(rank).unwrap();
        let kept = if place.right == rank {
            None
        } else if copied {
            Some(Holding { partner_of: Some(NodeName::new(format!("n{}", site.node))), ..own.clone() })
        } else {
            Some(Holding { complete: false, files: Vec::new(), expected: None, ranks: None, ..own.clone() })
        };
        inventories[site.node as usize].1.holdings.push(own);
        inventories[sites[place.right.index()].node as usize].1.holdings.extend(kept);
    }
    inventories
}

fn one_a_node(nodes: &[u32]) -> Vec<Site> {
    nodes.iter().copied().map(Site::on_node).collect()
}

#[test]
fn files_that_are_neither_moved_nor_survivors_of_a_rebuild_are_read_by_no_step() {
    // Ranks 0 and 1 exchange their nodes, and the node of rank 3 is lost.
    let sites = one_a_node(&[0, 1, 2, 3, 4, 5]);
    let mut held = after_run(&sites, 7, xor::NAME, 2);
    held[3].1 = Inventory::default();
    let plan = plan(ID, &one_a_node(&[1, 0, 2, 6, 4, 5]), &held).unwrap();
    assert_eq!(plan.rebuilds[0].ranks, [Rank(3)]);
    assert_eq!(plan.unread(), [Rank(4), Rank(5)]);
}

#[test]
fn a_restart_in_place_needs_nothing() {
    for scheme in [local::NAME, partner::NAME, xor::NAME] {
        let sites = one_a_node(&[0, 1, 2, 3]);
        assert!(plan(ID, &sites, &after_run(&sites, 4, scheme, 4)).unwrap().is_empty(), "{scheme}");
    }
}

#[test]
fn a_restart_with_a_replaced_node_is_planned_as_by_scr() {
    // Node 2 is wiped; ranks 0-3 now run on nodes 0, 1, 3, 4: rank 3 moves, rank 2 is rebuilt.
    let mut held = after_run(&one_a_node(&[0, 1, 2, 3]), 5, xor::NAME, 4);
    held[2].1.holdings.clear();
    let plan = plan(ID, &one_a_node(&[0, 1, 3, 4]), &held).unwrap();
    assert_eq!(plan.moves, [Move { rank: Rank(3), from_node: 3, to_node: 4 }]);
    assert_eq!(plan.groups.groups[0].members, [Rank(0), Rank(1), Rank(2), Rank(3)]);
    assert_eq!(plan.rebuilds, [Rebuild { group_id: 0, missing: vec![2], ranks: vec![Rank(2)] }]);
    assert_eq!(plan.deletions, []);
    assert_eq!(plan.descriptors[2].group_rank, 2, "from the right neighbour's copy");
}

#[test]
fn two_lost_members_of_a_set_are_named() {
    let mut held = after_run(&one_a_node(&[0, 1, 2, 3]), 6, xor::NAME, 4);
    held[1].1.holdings.retain(|holding| holding.rank != Rank(1));
    held[2].1.holdings.retain(|holding| holding.rank != Rank(2));
    let reason = plan(ID, &one_a_node(&[0, 4, 5, 3]), &held).unwrap_err();
    let expected = "two members of the XOR set of ranks 0-3 were lost (1 and 2), and it survives one; see `scheme: rs`";
    assert_eq!(reason.to_string(), expected);
    held[1].1.holdings.clear();
    held[2].1.holdings.clear();
    // Now rank 1's descriptor on node 2 is lost, too.
    let reason = plan(ID, &one_a_node(&[0, 4, 5, 3]), &held).unwrap_err();
    assert_eq!(reason.to_string(), expected);
}

#[test]
fn a_surplus_copy_is_kept_until_the_new_copies_are_made() {
    // Every rank moves by one node; the old copies are on nodes that need none of them.
    let held = after_run(&one_a_node(&[0, 1, 2, 3]), 5, partner::NAME, 4);
    let plan = plan(ID, &one_a_node(&[0, 1, 3, 4]), &held).unwrap();
    assert_eq!(plan.deletions, [], "no complete copy is deleted first");
    assert!(!plan.recopy.is_empty() && !plan.surplus.is_empty(), "{plan:?}");
    perform(&plan, &one_a_node(&[0, 1, 3, 4]), &held);
}

#[test]
fn the_source_of_a_move_stays_until_the_end_and_is_then_surplus_unless_it_is_a_copy() {
    for scheme in [partner::NAME, xor::NAME] {
        // Rank 3 moves to a node that was spare; its node stays in use as a spare.
        let held = after_run(&one_a_node(&[0, 1, 2, 3]), 5, scheme, 4);
        let sites = one_a_node(&[0, 1, 2, 4]);
        let plan = plan(ID, &sites, &held).unwrap();
        assert_eq!(plan.moves, [Move { rank: Rank(3), from_node: 3, to_node: 4 }]);
        assert_eq!(plan.deletions, []);
        assert!(plan.surplus.contains(&Deletion { node: 3, rank: Rank(3) }), "{scheme}: {plan:?}");
        perform(&plan, &sites, &held);
    }
    // An incomplete copy elsewhere does not cause the deletion of the source before the move.
    let mut held = after_run(&one_a_node(&[0, 1]), 3, local::NAME, 4);
    let incomplete = Holding { complete: false, ..held[1].1.holdings[0].clone() };
    held[1].1.holdings.push(incomplete);
    let plan = plan(ID, &one_a_node(&[0, 2]), &held).unwrap();
    assert_eq!((plan.moves.len(), &plan.deletions[..]), (1, &[][..]));
    assert_eq!(plan.surplus, [Deletion { node: 1, rank: Rank(1) }]);
}

#[test]
fn an_incomplete_rank_is_deleted_and_rebuilt_at_home() {
    let sites = one_a_node(&[0, 1, 2, 3]);
    let mut held = after_run(&sites, 4, xor::NAME, 4);
    held[1].1.holdings.iter_mut().find(|holding| holding.rank == Rank(1)).unwrap().complete = false;
    let plan = plan(ID, &sites, &held).unwrap();
    assert_eq!(plan.deletions, [Deletion { node: 1, rank: Rank(1) }]);
    assert_eq!((plan.rebuilds.len(), plan.rebuilds[0].missing.as_slice()), (1, &[1][..]));
    let right: Vec<Rank> = (0..4).map(|rank| plan.groups.of(Rank(rank)).unwrap().right).collect();
    assert_eq!(right, [Rank(1), Rank(2), Rank(3), Rank(0)]);
}

#[test]
fn a_partner_s_copy_replaces_the_files_of_a_lost_node() {
    let mut held = after_run(&one_a_node(&[0, 1, 2]), 4, partner::NAME, 8);
    held[1].1.holdings.clear();
    let plan = plan(ID, &one_a_node(&[0, 3, 2]), &held).unwrap();
    assert_eq!(plan.moves, [Move { rank: Rank(1), from_node: 2, to_node: 3 }]);
    let copied: Vec<(u32, u32)> = plan.recopy.iter().map(|copy| (copy.rank.0, copy.to_node)).collect();
    assert_eq!(copied, [(0, 3)]);
}

#[test]
fn local_files_can_move_but_not_be_replaced() {
    let mut held = after_run(&one_a_node(&[0, 1]), 3, local::NAME, 8);
    let moved = plan(ID, &one_a_node(&[0, 2]), &held).unwrap();
    assert_eq!(moved.moves.len(), 1);
    held[1].1.holdings.clear();
    // The descriptor is lost with the files: LOCAL stores it nowhere else.
    let reason = plan(ID, &one_a_node(&[0, 2]), &held).unwrap_err();
    assert_eq!(reason.to_string(), "rank 1 lost all files, and LOCAL keeps no second copy");
}

#[test]
fn a_run_of_another_size_cannot_use_it() {
    let held = after_run(&one_a_node(&[0, 1, 2, 3]), 4, xor::NAME, 4);
    for world in [3, 5] {
        let sites = one_a_node(&(0..world).collect::<Vec<u32>>());
        assert!(matches!(plan(ID, &sites, &held), Err(UnusableCheckpoint::OtherWorldSize { .. })));
    }
    assert_eq!(plan(CheckpointId(8), &one_a_node(&[0]), &held), Err(UnusableCheckpoint::NothingHeld));
}

#[test]
fn candidates_are_listed_newest_first_and_only_from_healthy_nodes() {
    let mut held = after_run(&one_a_node(&[0, 1]), 2, local::NAME, 4);
    held[1].1.holdings[0].checkpoint = CheckpointId(9);
    assert_eq!(candidates(held.iter().map(|(_, held)| held)), [CheckpointId(9), ID]);
    held[1].1.holdings.clear();
    assert_eq!(candidates(held.iter().map(|(_, held)| held)), [ID]);
}

/// Performs a plan as the agents do, and checks that every step is possible.
fn perform(plan: &RestartPlan, sites: &[Site], held: &[(u32, Inventory)]) {
    let mut complete: BTreeSet<(u32, Rank)> = BTreeSet::new();
    let mut present: BTreeSet<(u32, Rank)> = BTreeSet::new();
    for (node, inventory) in held {
        for holding in inventory.holdings.iter().filter(|holding| holding.has_files()) {
            present.insert((*node, holding.rank));
            if holding.complete {
                complete.insert((*node, holding.rank));
            }
        }
    }
    for deletion in &plan.deletions {
        assert!(present.remove(&(deletion.node, deletion.rank)), "only existing files are deleted");
        complete.remove(&(deletion.node, deletion.rank));
    }
    for step in &plan.moves {
        assert!(complete.contains(&(step.from_node, step.rank)), "only complete ranks are moved");
        assert_eq!(step.to_node, sites[step.rank.index()].node);
        assert!(present.insert((step.to_node, step.rank)), "a rank is moved once");
        complete.insert((step.to_node, step.rank));
    }
    for rebuild in &plan.rebuilds {
        let group = plan.groups.groups.iter().find(|group| group.id == rebuild.group_id).unwrap();
        for (index, rank) in (0..).zip(&group.members) {
            let home = (sites[rank.index()].node, *rank);
            assert_eq!(complete.contains(&home), !rebuild.missing.contains(&index));
        }
        for (index, rank) in rebuild.missing.iter().zip(&rebuild.ranks) {
            assert_eq!(group.members[*index as usize], *rank);
            let home = (sites[rank.index()].node, *rank);
            assert!(present.insert(home), "a rebuilt rank has no files yet");
            complete.insert(home);
        }
    }
    for copy in &plan.recopy {
        assert!(complete.contains(&(copy.from_node, copy.rank)));
        assert!(present.insert((copy.to_node, copy.rank)), "no copy is made twice");
        complete.insert((copy.to_node, copy.rank));
    }
    for surplus in &plan.surplus {
        assert!(complete.remove(&(surplus.node, surplus.rank)), "only complete files are surplus");
        present.remove(&(surplus.node, surplus.rank));
    }
    for (rank, site) in (0u32..).map(Rank).zip(sites) {
        assert!(complete.contains(&(site.node, rank)), "rank {rank} has its files at home");
    }
    assert_eq!(complete, present, "nothing incomplete is left");
    for rank in (0..sites.len() as u32).map(Rank) {
        let keeper = plan.groups.of(rank).unwrap().right;
        assert_ne!(sites[rank.index()].node, sites[keeper.index()].node, "a descriptor is kept on another node");
    }
    let copies = if plan.groups.scheme == partner::NAME { 2 } else { 1 };
    let most = present.iter().fold(BTreeMap::new(), |mut count: BTreeMap<Rank, u32>, (_, rank)| {
        *count.entry(*rank).or_default() += 1;
        count
    });
    assert!(most.values().all(|count| *count <= copies), "no surplus copy is left");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn any_single_lost_node_leaves_a_plan_that_brings_every_rank_home(
        nodes in 2u32..120,
        ranks_per_node in 1u32..5,
        spares in 1u32..4,
        set_size in 2u32..9,
        partner: bool,
        lost in any::<prop::sample::Index>(),
        shuffle in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let sites: Vec<Site> = (0..nodes * ranks_per_node).map(|rank| Site::on_node(rank / ranks_per_node)).collect();
        let scheme = if partner { partner::NAME } else { xor::NAME };
        let mut held = after_run(&sites, nodes + spares, scheme, set_size);
        let lost = lost.index(nodes as usize) as u32;
        held[lost as usize].1.holdings.clear();
        // The lost node's ranks are placed on a spare, or all ranks are placed again.
        let mut order: Vec<u32> = (0..nodes).map(|node| if node == lost { nodes } else { node }).collect();
        if shuffle {
            let mut dice = Dice(seed);
            for at in (1..order.len()).rev() {
                order.swap(at, dice.below(at + 1));
            }
        }
        let placed: Vec<Site> = sites.iter().map(|site| Site::on_node(order[site.node as usize])).collect();
        let plan = plan(ID, &placed, &held).unwrap();
        perform(&plan, &placed, &held);
        if scheme == xor::NAME {
            prop_assert_eq!(plan.rebuilds.len(), ranks_per_node as usize);
        }
    }
}

#[test]
fn a_lost_rank_is_rebuilt_only_if_the_redundancy_of_its_group_was_made() {
    let sites = one_a_node(&[0, 1, 2, 3]);
    let mut held = after_run(&sites, 4, xor::NAME, 4);
    let complete = held.clone();
    // Beside its own files each node keeps the descriptor of its left neighbour.
    held[2].1.holdings.iter_mut().for_each(|holding| holding.protection = Protection::Nothing);
    let usable = plan(ID, &sites, &held).unwrap();
    assert_eq!((usable.is_empty(), usable.protected), (true, false), "nothing is lost yet");
    assert!(plan(ID, &sites, &complete).unwrap().protected);
    held[0].1 = Inventory::default();
    let lost = plan(ID, &sites, &held).unwrap_err();
    let (ranks, unprotected) = (vec![Rank(0)], vec![Rank(2)]);
    assert_eq!(lost, UnusableCheckpoint::Unprotected { group_id: 0, ranks, unprotected });
    assert_eq!(lost.to_string(), "group 0 lost rank 0, and the redundancy of rank 2 was not made");
}

#[test]
fn set_with_two_members_on_a_node_in_the_new_placement_is_unprotected() {
    let apart: Vec<Site> = (0..4).map(|node| Site { node, domain: node }).collect();
    let inventories = after_run(&apart, 4, xor::NAME, 4);
    let together: Vec<Site> = (0..4).map(|rank| Site { node: rank / 2, domain: rank / 2 }).collect();
    let plan = |sites: &[Site]| plan(ID, sites, &inventories).unwrap();
    assert!(plan(&apart).protected);
    assert!(!plan(&together).protected, "the loss of a node costs two members of the set");
    // Copies are made again for any placement.
    let copied = after_run(&apart, 4, partner::NAME, 4);
    assert!(super::plan(ID, &together, &copied).unwrap().protected);
}
