//! The restart plan, in small cases by hand and in simulated runs of hundreds of ranks.

use proptest::prelude::*;

use super::super::groups::Groups;
use super::super::inventory::candidates;
use super::*;
use holdfast_model::NodeName;
use holdfast_testkit::Dice;

const ID: CheckpointId = CheckpointId(7);

fn groups(sites: &[Site], scheme: Scheme, set_size: u32) -> Groups {
    form(sites, Rules { scheme, hop_distance: 1, set_size }).unwrap()
}

fn descriptor(groups: &Groups, rank: Rank, set_size: u32) -> Descriptor {
    let place = groups.of(rank).unwrap();
    Descriptor {
        enabled: true,
        index: 0,
        interval: 1,
        base: "/tmp".into(),
        directory: "/tmp/u/scr.1/index.0".into(),
        scheme: groups.scheme,
        groups: place.total,
        group_id: place.group.id,
        group_size: place.group.members.len() as u32,
        group_rank: place.index,
        hop_distance: 1,
        set_size,
    }
}

/// What `nodes` nodes hold after a run at `sites` completed checkpoint `ID`.
fn after_run(sites: &[Site], nodes: u32, scheme: Scheme, set_size: u32) -> Vec<Inventory> {
    let groups = groups(sites, scheme, set_size);
    let mut inventories: Vec<Inventory> = (0..nodes)
        .map(|node| Inventory { node, name: NodeName::new(format!("n{node}")), healthy: true, holdings: Vec::new() })
        .collect();
    for (rank, site) in (0u32..).map(Rank).zip(sites) {
        let own = Holding {
            checkpoint: ID,
            rank,
            complete: true,
            files: 2,
            expected: Some(2),
            ranks: Some(sites.len() as u32),
            copy_of: None,
            descriptor: Some(descriptor(&groups, rank, set_size)),
        };
        let right = sites[groups.of(rank).unwrap().right.index()].node;
        let kept = match groups.scheme {
            Scheme::Local => None,
            Scheme::Partner => Some(Holding { copy_of: Some(NodeName::new(format!("n{}", site.node))), ..own.clone() }),
            Scheme::Xor => Some(Holding { complete: false, files: 0, expected: None, ranks: None, ..own.clone() }),
        };
        inventories[site.node as usize].holdings.push(own);
        inventories[right as usize].holdings.extend(kept);
    }
    inventories
}

fn one_a_node(nodes: &[u32]) -> Vec<Site> {
    nodes.iter().copied().map(Site::on_node).collect()
}

#[test]
fn a_restart_in_place_needs_nothing() {
    for scheme in [Scheme::Local, Scheme::Partner, Scheme::Xor] {
        let sites = one_a_node(&[0, 1, 2, 3]);
        assert!(plan(ID, &sites, &after_run(&sites, 4, scheme, 4)).unwrap().is_empty(), "{scheme}");
    }
}

#[test]
fn the_original_s_restart_with_a_replaced_node_is_planned_the_same_way() {
    // Node 2 is wiped; ranks 0-3 now run on nodes 0, 1, 3, 4: rank 3 moves, rank 2 is rebuilt.
    let mut held = after_run(&one_a_node(&[0, 1, 2, 3]), 5, Scheme::Xor, 4);
    held[2].holdings.clear();
    let plan = plan(ID, &one_a_node(&[0, 1, 3, 4]), &held).unwrap();
    assert_eq!(plan.moves, [Move { rank: Rank(3), from_node: 3, to_node: 4, keep_source: false }]);
    let members = vec![(Rank(0), 0), (Rank(1), 1), (Rank(2), 3), (Rank(3), 4)];
    assert_eq!(plan.rebuilds, [GroupRebuild { group_id: 0, members, missing: 2 }]);
    assert_eq!(plan.deletions, []);
    assert_eq!(plan.descriptors[2].group_rank, 2, "from the right neighbour's copy");
}

#[test]
fn two_lost_members_of_a_set_are_named() {
    let mut held = after_run(&one_a_node(&[0, 1, 2, 3]), 6, Scheme::Xor, 4);
    held[1].holdings.retain(|holding| holding.rank != Rank(1));
    held[2].holdings.retain(|holding| holding.rank != Rank(2));
    let reason = plan(ID, &one_a_node(&[0, 4, 5, 3]), &held).unwrap_err();
    assert_eq!(reason.to_string(), "XOR set 0 lost ranks 1 and 2");
    held[1].holdings.clear();
    held[2].holdings.clear();
    // Now rank 1's descriptor, which node 2 kept, is gone too.
    let reason = plan(ID, &one_a_node(&[0, 4, 5, 3]), &held).unwrap_err();
    assert_eq!(reason.to_string(), "XOR set 0 lost ranks 1 and 2");
}

#[test]
fn an_incomplete_rank_is_deleted_and_rebuilt_at_home() {
    let sites = one_a_node(&[0, 1, 2, 3]);
    let mut held = after_run(&sites, 4, Scheme::Xor, 4);
    held[1].holdings.iter_mut().find(|holding| holding.rank == Rank(1)).unwrap().complete = false;
    let plan = plan(ID, &sites, &held).unwrap();
    assert_eq!(plan.deletions, [Deletion { node: 1, rank: Rank(1) }]);
    assert_eq!((plan.rebuilds.len(), plan.rebuilds[0].missing), (1, 1));
    assert_eq!(plan.keepers, [Rank(1), Rank(2), Rank(3), Rank(0)]);
}

#[test]
fn a_partner_s_copy_replaces_the_files_of_a_lost_node() {
    let mut held = after_run(&one_a_node(&[0, 1, 2]), 4, Scheme::Partner, 8);
    held[1].healthy = false;
    let plan = plan(ID, &one_a_node(&[0, 3, 2]), &held).unwrap();
    assert_eq!(plan.moves, [Move { rank: Rank(1), from_node: 2, to_node: 3, keep_source: true }]);
    let copied: Vec<(u32, u32)> = plan.recopy.iter().map(|copy| (copy.rank.0, copy.to_node)).collect();
    assert_eq!(copied, [(0, 3)]);
}

#[test]
fn local_files_can_move_but_not_be_replaced() {
    let mut held = after_run(&one_a_node(&[0, 1]), 3, Scheme::Local, 8);
    let moved = plan(ID, &one_a_node(&[0, 2]), &held).unwrap();
    assert_eq!(moved.moves.len(), 1);
    held[1].healthy = false;
    // The descriptor went with the files: LOCAL leaves no trace.
    let reason = plan(ID, &one_a_node(&[0, 2]), &held).unwrap_err();
    assert_eq!(reason.to_string(), "rank 1 lost all files, and LOCAL keeps no second copy");
}

#[test]
fn a_run_of_another_size_cannot_use_it() {
    let held = after_run(&one_a_node(&[0, 1, 2, 3]), 4, Scheme::Xor, 4);
    for world in [3, 5] {
        let sites = one_a_node(&(0..world).collect::<Vec<u32>>());
        assert!(matches!(plan(ID, &sites, &held), Err(Unusable::OtherWorldSize { .. })));
    }
    assert_eq!(plan(CheckpointId(8), &one_a_node(&[0]), &held), Err(Unusable::NothingHeld));
}

#[test]
fn candidates_are_listed_newest_first_and_only_from_healthy_nodes() {
    let mut held = after_run(&one_a_node(&[0, 1]), 2, Scheme::Local, 4);
    held[1].holdings[0].checkpoint = CheckpointId(9);
    assert_eq!(candidates(&held), [CheckpointId(9), ID]);
    held[1].healthy = false;
    assert_eq!(candidates(&held), [ID]);
}

/// Performs a plan as the agents do, and checks every step against what is there.
fn perform(plan: &RestartPlan, sites: &[Site], held: &[Inventory]) {
    let mut complete: BTreeSet<(u32, Rank)> = BTreeSet::new();
    let mut present: BTreeSet<(u32, Rank)> = BTreeSet::new();
    for inventory in held.iter().filter(|inventory| inventory.healthy) {
        for holding in inventory.holdings.iter().filter(|holding| holding.has_files()) {
            present.insert((inventory.node, holding.rank));
            if holding.complete {
                complete.insert((inventory.node, holding.rank));
            }
        }
    }
    for deletion in &plan.deletions {
        assert!(present.remove(&(deletion.node, deletion.rank)), "deletes what is there");
        complete.remove(&(deletion.node, deletion.rank));
    }
    for step in &plan.moves {
        assert!(complete.contains(&(step.from_node, step.rank)), "moves only whole ranks");
        assert_eq!(step.to_node, sites[step.rank.index()].node);
        if !step.keep_source {
            complete.remove(&(step.from_node, step.rank));
            present.remove(&(step.from_node, step.rank));
        }
        assert!(present.insert((step.to_node, step.rank)), "arrives once");
        complete.insert((step.to_node, step.rank));
    }
    for rebuild in &plan.rebuilds {
        for (index, (rank, node)) in rebuild.members.iter().enumerate() {
            assert_eq!(*node, sites[rank.index()].node);
            assert_eq!(complete.contains(&(*node, *rank)), index as u32 != rebuild.missing);
        }
        let (rank, node) = rebuild.members[rebuild.missing as usize];
        assert!(present.insert((node, rank)), "nothing is in the way of a rebuilt rank");
        complete.insert((node, rank));
    }
    for copy in &plan.recopy {
        assert!(complete.contains(&(copy.from_node, copy.rank)));
        assert!(present.insert((copy.to_node, copy.rank)), "no copy is made twice");
        complete.insert((copy.to_node, copy.rank));
    }
    for (rank, site) in (0u32..).map(Rank).zip(sites) {
        assert!(complete.contains(&(site.node, rank)), "rank {rank} has its files at home");
    }
    assert_eq!(complete, present, "nothing incomplete is left");
    for (rank, keeper) in (0u32..).map(Rank).zip(&plan.keepers) {
        assert_ne!(sites[rank.index()].node, sites[keeper.index()].node, "a descriptor is kept on another node");
    }
    let copies = if plan.scheme == Scheme::Partner { 2 } else { 1 };
    let most = present.iter().fold(BTreeMap::new(), |mut count: BTreeMap<Rank, u32>, (_, rank)| {
        *count.entry(*rank).or_default() += 1;
        count
    });
    assert!(most.values().all(|count| *count <= copies), "nothing is left over");
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
        let scheme = if partner { Scheme::Partner } else { Scheme::Xor };
        let mut held = after_run(&sites, nodes + spares, scheme, set_size);
        let lost = lost.index(nodes as usize) as u32;
        held[lost as usize].healthy = false;
        // The lost node's ranks go to a spare; or everything is placed anew.
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
        if scheme == Scheme::Xor {
            prop_assert_eq!(plan.rebuilds.len(), ranks_per_node as usize);
        }
    }
}
