use holdfast_model::{CheckpointId, Generation, Level, Location, Rank, RestartRanks, RestartSource, Scheme};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::{Call, Reply};
use holdfast_wire::run::SourceName;

use super::world::{PLACES, World, damaged, disk_full, from, held, of_level, prevented, restart, sets_of};

/// A run that took `checkpoints` checkpoints, all of which fit into the cache.
fn ran(checkpoints: u32) -> World {
    let mut world = World::begun_with(|plan| plan.settings.caches[0].keep = 10);
    world.checkpoints(checkpoints);
    world.events.clear();
    world.orders.clear();
    world
}

fn attempts(world: &World) -> Vec<(u64, Location, &str)> {
    let attempts = world.events.iter().filter_map(|event| match event {
        AgentEvent::RestartAttempt { checkpoint, from, reason, .. } => Some((checkpoint.0, *from, reason.as_str())),
        _ => None,
    });
    attempts.collect()
}

/// The ranks of which a node has files.
fn holds(world: &World, node: &str, id: u64) -> Vec<Rank> {
    let held = world.nodes[&node.into()].held.get(&CheckpointId(id)).into_iter().flat_map(|held| held.values());
    held.filter(|holding| holding.has_files()).map(|holding| holding.rank).collect()
}

#[test]
fn the_first_run_of_a_job_starts_without_a_checkpoint() {
    let mut world = World::new();
    assert_eq!(from(&world.init()), (None, RestartSource::Fresh));
    assert_eq!(world.reported(), ["restarted"]);
}

#[test]
fn the_newest_checkpoint_in_cache_is_taken_and_older_ones_are_deleted() {
    let mut world = ran(3);
    assert_eq!(from(&world.next_init(PLACES)), (Some(3), RestartSource::Cache));
    assert_eq!(world.nodes[&"n2".into()].held.len(), 1);
    assert_eq!(world.call(Call::CompleteRestart { valid: true }), Ok(Reply::Done));
    assert_eq!(world.checkpoint(), CheckpointId(4), "ids continue from the restart checkpoint");
}

#[test]
fn the_flush_files_list_the_restart_checkpoint_before_older_ones_are_deleted() {
    let mut world = ran(3);
    world.next_init(PLACES);
    let orders = world.orders_of("n2");
    let position = |name| orders.iter().position(|order| *order == name);
    assert!(position("note").is_some() && position("note") < position("delete"), "{orders:?}");
}

#[test]
fn a_spare_replaces_a_lost_node_and_only_the_lost_rank_is_rebuilt() {
    let mut world = ran(2);
    world.lose("n1");
    world.next_run(&[&[0], &[], &[2], &[3], &[1]]);
    world.plan.nodes.retain(|node| node.name.as_str() != "n1");
    assert_eq!(from(&world.init()), (Some(2), RestartSource::Rebuilt));
    assert_eq!(holds(&world, "n4", 2), [Rank(1)]);
    assert_eq!(world.reported(), ["rebuild_started", "restarted"]);
    let AgentEvent::Restarted { rebuilt, moved, .. } = world.events.last().unwrap() else { panic!() };
    assert_eq!((&rebuilt[..], &moved[..]), (&[Rank(1)][..], &[][..]));
}

#[test]
fn files_of_ranks_on_other_nodes_are_moved() {
    let mut world = ran(1);
    assert_eq!(from(&world.next_init(&[&[1], &[0], &[2], &[3], &[]])), (Some(1), RestartSource::Rebuilt));
    assert_eq!((holds(&world, "n0", 1), holds(&world, "n1", 1)), (vec![Rank(1)], vec![Rank(0)]));
    assert!(!world.orders_of("n0").contains(&"rebuild"));
}

#[test]
fn only_missing_partner_copies_are_made_again_and_only_their_nodes_get_orders() {
    let mut world = World::begun_with(|plan| {
        plan.settings.descriptors[0].scheme = Scheme::new("PARTNER");
        plan.nodes = super::world::plan(&[&[0], &[1], &[2], &[3], &[4], &[5], &[]]).nodes;
    });
    world.checkpoint();
    world.lose("n1");
    world.next_run(&[&[0], &[], &[2], &[3], &[4], &[5], &[1]]);
    world.orders.clear();
    assert_eq!(from(&world.init()), (Some(1), RestartSource::Rebuilt));
    let copies = world.orders.iter().filter_map(|(node, _, what)| match what {
        Order::Encode { only: Some(only), groups, .. } => Some((node.as_str(), only.clone(), groups.len())),
        _ => None,
    });
    // n2 keeps the copy of rank 1 from which n6 got its files; the copy of rank 0, which n1 had, is made on n6.
    let copies: Vec<_> = copies.collect();
    let expected = ["n0", "n6"].map(|node| (node, vec![Rank(0)], 1));
    assert_eq!(copies, expected);
}

#[test]
fn an_unrecoverable_checkpoint_is_deleted_and_the_run_starts_without_one() {
    let mut world = ran(1);
    world.lose("n1");
    world.lose("n2");
    assert_eq!(from(&world.next_init(PLACES)), (None, RestartSource::Fresh));
    let [(1, Location::Cache, reason)] = attempts(&world)[..] else { panic!("{:?}", attempts(&world)) };
    assert!(reason.contains("rank"), "{reason}");
    assert!(world.nodes.values().all(|node| node.held.is_empty()));
}

#[test]
fn when_a_rebuild_fails_the_next_older_checkpoint_is_tried() {
    let mut world = ran(2);
    world.next_run(&[&[1], &[0], &[2], &[3], &[]]);
    let of_two = |order: &Order| matches!(order, Order::Transfer { checkpoint: CheckpointId(2), .. });
    world.fail_orders(move |node, order| (node == "n0" && of_two(order)).then(damaged));
    assert_eq!(from(&world.init()), (Some(1), RestartSource::Rebuilt));
    let [(2, Location::Cache, reason)] = attempts(&world)[..] else { panic!("{:?}", attempts(&world)) };
    assert!(reason.contains("wrong content"), "{reason}");
}

#[test]
fn files_are_rebuilt_while_the_ranks_are_started() {
    let mut world = ran(1);
    world.lose("n1");
    world.next_run(&[&[0], &[], &[2], &[3], &[1]]);
    world.run();
    assert_eq!(holds(&world, "n4", 1), [Rank(1)]);
    let [AgentEvent::RebuildStarted { .. }] = world.events[..] else { panic!("{:?}", world.events) };
    let before = world.orders.len();
    assert_eq!(from(&world.init()), (Some(1), RestartSource::Rebuilt));
    let AgentEvent::Restarted { rebuilt, .. } = world.events.last().unwrap() else { panic!("{:?}", world.events) };
    assert_eq!(rebuilt[..], [Rank(1)]);
    let again = |(_, _, order): &&(_, _, Order)| matches!(order, Order::Inventory | Order::Rebuild { .. });
    assert_eq!(world.orders[before..].iter().filter(again).count(), 0);
}

#[test]
fn what_prevents_a_rebuild_before_init_is_reported_by_init() {
    let mut world = ran(1);
    world.lose("n1");
    world.fail_orders(|node, order| (node == "n4" && matches!(order, Order::Rebuild { .. })).then(disk_full));
    world.next_run(&[&[0], &[], &[2], &[3], &[1]]);
    world.run();
    assert_eq!(prevented(&world), [], "the ranks may be halted before they need it");
    let failure = world.call(Call::Init).unwrap_err();
    assert!(failure.to_string().starts_with("n4: no space left"), "{failure}");
    assert_eq!(prevented(&world), [(Some("n4"), "n4: no space left")]);
    assert_eq!(attempts(&world), []);
}

#[test]
fn the_first_generation_prepares_nothing() {
    let mut world = World::with(|plan| plan.generation = Generation(1));
    world.run();
    assert!(world.orders.is_empty());
}

#[test]
fn without_ranks_that_restart_from_it_nothing_in_cache_is_touched() {
    for source in ["scr-files", "none"] {
        let mut world = ran(1);
        world.lose("n1");
        world.plan.settings.source = SourceName(source.into());
        world.next_run(&[&[0], &[], &[2], &[3], &[1]]);
        let before = world.orders.len();
        world.run();
        assert_eq!(world.orders.len(), before, "{source}");
    }
}

#[test]
fn a_node_that_cannot_write_fails_the_restart_from_cache_and_nothing_is_deleted() {
    let mut world = ran(2);
    world.lose("n1");
    world.next_run(&[&[0], &[], &[2], &[3], &[1]]);
    world.fail_orders(|node, order| (node == "n4" && matches!(order, Order::Rebuild { .. })).then(disk_full));
    let failure = world.call(Call::Init).unwrap_err();
    assert!(failure.to_string().starts_with("n4: no space left"), "{failure}");
    assert_eq!(prevented(&world), [(Some("n4"), "n4: no space left")]);
    assert_eq!(attempts(&world), []);
    assert_eq!(holds(&world, "n2", 2), [Rank(2)]);
    // With another spare.
    world.fail_orders(|_, _| None);
    assert_eq!(from(&world.next_init(&[&[0], &[], &[2], &[3], &[], &[1]])), (Some(2), RestartSource::Rebuilt));
    assert_eq!(holds(&world, "n5", 2), [Rank(1)]);
}

#[test]
fn a_control_directory_that_is_full_is_reported_as_a_fault_of_its_node() {
    let mut world = ran(1);
    world.next_run(PLACES);
    world.fail_orders(|node, order| (node == "n2" && matches!(order, Order::Halt { .. })).then(disk_full));
    assert!(world.call(Call::Init).is_err());
    assert_eq!(prevented(&world), [(Some("n2"), "n2: no space left")]);
    assert_eq!(holds(&world, "n2", 1), [Rank(2)]);
}

/// Another byte in the files of a rank on a node.
fn damage(world: &mut World, node: &str, id: u64, rank: u32) {
    world.nodes.get_mut(&node.into()).unwrap().damaged.insert((CheckpointId(id), Rank(rank)));
}

pub(super) fn notices(world: &World) -> Vec<&str> {
    let notices = world.events.iter().filter_map(|event| match event {
        AgentEvent::Notice { message } => Some(message.as_str()),
        _ => None,
    });
    notices.collect()
}

#[test]
fn a_damaged_file_that_would_stay_where_it_is_counts_as_lost_and_is_rebuilt() {
    let mut world = ran(2);
    damage(&mut world, "n1", 2, 1);
    assert_eq!(from(&world.next_init(PLACES)), (Some(2), RestartSource::Rebuilt));
    let AgentEvent::Restarted { rebuilt, .. } = world.events.last().unwrap() else { panic!() };
    assert_eq!(rebuilt[..], [Rank(1)]);
    let [notice] = notices(&world)[..] else { panic!("{:?}", notices(&world)) };
    assert!(notice.contains("checkpoint 2, node n1: ckpt.1 is damaged"), "{notice}");
    assert!(world.nodes[&"n1".into()].damaged.is_empty(), "the damaged files were deleted first");
}

#[test]
fn without_verification_at_restart_only_files_that_a_step_reads_are_compared() {
    let mut world = ran(1);
    world.plan.settings.crc.on_restart = false;
    damage(&mut world, "n1", 1, 1);
    assert_eq!(from(&world.next_init(PLACES)), (Some(1), RestartSource::Cache));
    assert!(!world.orders_of("n1").contains(&"verify"));
}

#[test]
fn a_damaged_survivor_is_not_used_and_the_older_checkpoint_is_loaded() {
    let mut world = ran(2);
    world.lose("n1");
    damage(&mut world, "n3", 2, 3);
    world.next_run(&[&[0], &[], &[2], &[3], &[1]]);
    world.plan.nodes.retain(|node| node.name.as_str() != "n1");
    assert_eq!(from(&world.init()), (Some(1), RestartSource::Rebuilt));
    let [(2, Location::Cache, reason)] = attempts(&world)[..] else { panic!("{:?}", attempts(&world)) };
    assert!(reason.contains("were lost (1 and 3)") && reason.contains("ckpt.3 is damaged"), "{reason}");
    let verified = |node: &str| world.orders_of(node).contains(&"verify");
    assert!(!verified("n0"), "the survivors are compared while the rebuild reads them");
}

#[test]
fn damaged_files_in_two_groups_are_both_rebuilt() {
    let mut world = World::begun_with(|plan| {
        plan.settings.descriptors[0].numbers = sets_of(2);
        plan.settings.caches[0].keep = 10;
    });
    world.checkpoints(1);
    world.lose("n1");
    damage(&mut world, "n2", 1, 2);
    world.events.clear();
    world.next_run(&[&[0], &[], &[2], &[3], &[1]]);
    world.plan.nodes.retain(|node| node.name.as_str() != "n1");
    assert_eq!(from(&world.init()), (Some(1), RestartSource::Rebuilt));
    let AgentEvent::Restarted { rebuilt, .. } = world.events.last().unwrap() else { panic!() };
    assert_eq!(rebuilt[..], [Rank(1), Rank(2)]);
}

#[test]
fn the_partner_s_copy_replaces_a_damaged_file_and_a_damaged_copy_is_not_sent() {
    let partners = |plan: &mut holdfast_wire::run::RunPlan| {
        plan.settings.descriptors[0].scheme = Scheme::new("PARTNER");
        plan.settings.caches[0].keep = 10;
    };
    let mut world = World::with(partners);
    world.init();
    world.checkpoints(2);
    world.events.clear();
    damage(&mut world, "n1", 2, 1);
    assert_eq!(from(&world.next_init(PLACES)), (Some(2), RestartSource::Rebuilt));
    let AgentEvent::Restarted { moved, .. } = world.events.last().unwrap() else { panic!() };
    assert_eq!(moved[..], [Rank(1)]);

    let mut world = World::with(partners);
    world.init();
    world.checkpoints(2);
    world.events.clear();
    world.lose("n1");
    damage(&mut world, "n2", 2, 1);
    world.next_run(&[&[0], &[], &[2], &[3], &[1]]);
    world.plan.nodes.retain(|node| node.name.as_str() != "n1");
    assert_eq!(from(&world.init()), (Some(1), RestartSource::Rebuilt));
    let [(2, Location::Cache, reason)] = attempts(&world)[..] else { panic!("{:?}", attempts(&world)) };
    assert!(reason.contains("ckpt.1 is damaged"), "{reason}");
}

#[test]
fn damage_that_a_new_plan_cannot_avoid_ends_the_attempts() {
    let mut world = ran(2);
    world.next_run(&[&[1], &[0], &[2], &[3], &[]]);
    let of_two = |order: &Order| matches!(order, Order::Transfer { checkpoint: CheckpointId(2), .. });
    // A node that reports damage of files that it does not have.
    world.fail_orders(move |node, order| {
        let failure = holdfast_model::Failure::new(holdfast_model::FailureKind::Damaged, "unreadable");
        (of_two(order) && node == "n0").then(|| failure.on_node(&"n4".into()).of_rank(Rank(3)))
    });
    assert_eq!(from(&world.init()).0, Some(1));
    let [(2, Location::Cache, reason)] = attempts(&world)[..] else { panic!("{:?}", attempts(&world)) };
    assert!(reason.contains("unreadable"), "{reason}");
}

#[test]
fn a_checkpoint_that_the_application_cannot_read_is_deleted_and_the_older_one_loaded() {
    let mut world = ran(2);
    // Both checkpoints are still there when the ranks read the newer one only if it was found by `ran` itself.
    world.fail_orders(|_, _| None);
    world.next_run(PLACES);
    let kept = world.nodes.values().map(|node| (node.name.clone(), node.held.clone())).collect::<Vec<_>>();
    assert_eq!(from(&world.init()), (Some(2), RestartSource::Cache));
    for (name, held) in kept {
        world.nodes.get_mut(&name).unwrap().held.extend(held);
    }
    world.begin_each(|rank| Call::CompleteRestart { valid: rank != Rank(1) });
    assert_eq!(from(&restart(world.outcome().unwrap())), (Some(1), RestartSource::Cache));
    let [(2, Location::Cache, reason)] = attempts(&world)[..] else { panic!("{:?}", attempts(&world)) };
    assert!(reason.contains("could not read it on rank 1"), "{reason}");
    assert!(world.nodes.values().all(|node| !node.held.contains_key(&CheckpointId(2))));
    assert_eq!(world.checkpoint(), CheckpointId(2), "its id is free again");
}

#[test]
fn the_reason_why_a_program_could_not_continue_from_its_files_is_reported() {
    let mut world = ran(1);
    assert_eq!(from(&world.next_init(PLACES)), (Some(1), RestartSource::Cache));
    world.begin_each(|rank| match rank {
        Rank(2) => Call::NotRead { reason: "user data is broken".to_owned() },
        _ => Call::CompleteRestart { valid: true },
    });
    assert_eq!(from(&restart(world.outcome().unwrap())), (None, RestartSource::Fresh));
    assert_eq!(attempts(&world), [(1, Location::Cache, "rank 2: user data is broken")]);
}

#[test]
fn an_accepted_checkpoint_of_a_low_level_leaves_the_newest_of_a_higher_one_until_that_is_superseded() {
    let mut world = World::begun_with(|plan| {
        plan.settings.source = SourceName("variables".to_owned());
        plan.settings.caches[0].keep = 10;
    });
    for level in [Level::Parity, Level::Parity, Level::Local, Level::Local] {
        of_level(&mut world, level).unwrap();
    }
    world.plan.settings.caches[0].keep = 1;
    assert_eq!(from(&world.next_init(PLACES)), (Some(4), RestartSource::Cache));
    assert_eq!(world.call(Call::CompleteRestart { valid: true }), Ok(Reply::Done));
    assert_eq!(held(&world), [2, 4]);
    of_level(&mut world, Level::Local).unwrap();
    assert_eq!(held(&world), [2, 4, 5]);
    of_level(&mut world, Level::Partner).unwrap();
    assert_eq!(held(&world), [2, 5, 6]);
    of_level(&mut world, Level::Parity).unwrap();
    of_level(&mut world, Level::Local).unwrap();
    assert_eq!(held(&world), [7, 8]);
}

#[test]
fn complete_restart_without_a_restart_is_refused() {
    let mut world = World::begun();
    let refused = world.call(Call::CompleteRestart { valid: true }).unwrap_err();
    assert!(refused.message.contains("complete_restart without"), "{refused}");
}

#[test]
fn without_distribute_the_cache_is_cleared_and_not_used() {
    let mut world = ran(1);
    world.plan.settings.restart.distribute = false;
    assert_eq!(from(&world.next_init(PLACES)), (None, RestartSource::Fresh));
    assert!(world.nodes.values().all(|node| node.held.is_empty()));
}

/// A run whose ranks read from the prefix directory, after one that took three checkpoints and flushed the second.
fn from_prefix() -> World {
    let mut world = World::begun_with(|plan| {
        plan.settings.caches[0].keep = 10;
        plan.settings.flush.every = 2;
        plan.settings.restart.from_prefix = true;
    });
    world.checkpoints(3);
    world.events.clear();
    world.orders.clear();
    world.next_run(PLACES);
    world
}

#[test]
fn a_checkpoint_in_cache_is_flushed_and_read_from_the_prefix_directory_by_ranks_that_read_there() {
    let mut world = from_prefix();
    assert_eq!(from(&world.init()), (Some(3), RestartSource::Fetched));
    assert_eq!(world.prefix.complete(), [2, 3]);
    assert_eq!(world.nodes[&"n2".into()].direct, Some(CheckpointId(3)));
    assert!(holds(&world, "n2", 3).is_empty(), "the caches are empty");
    assert_eq!(world.call(Call::CompleteRestart { valid: true }), Ok(Reply::Done));
    assert_eq!(world.checkpoint(), CheckpointId(4), "the next one is written to the caches");
    assert!(!holds(&world, "n2", 4).is_empty());
    // It is read there again if nothing newer is found.
    assert_eq!(from(&world.next_init(PLACES)), (Some(4), RestartSource::Fetched));
    assert_eq!(world.prefix.complete(), [2, 3, 4]);
}

#[test]
fn a_checkpoint_that_cannot_be_flushed_stays_in_cache_although_the_ranks_read_from_the_prefix_directory() {
    let mut world = from_prefix();
    world.fail_orders(|_, order| matches!(order, Order::Flush { .. }).then(disk_full));
    assert!(world.call(Call::Init).is_err());
    assert!(!holds(&world, "n1", 3).is_empty(), "it is in cache still");
    assert_eq!(world.prefix.complete(), [2]);
}

#[test]
fn a_checkpoint_that_is_flushed_already_is_not_flushed_again_for_ranks_that_read_there() {
    let mut world = from_prefix();
    world.init();
    world.call(Call::CompleteRestart { valid: true }).unwrap();
    world.checkpoints(1);
    assert_eq!(world.prefix.complete(), [2, 3, 4]);
    world.orders.clear();
    assert_eq!(from(&world.next_init(PLACES)), (Some(4), RestartSource::Fetched));
    assert!(!world.orders_of("n1").contains(&"flush"), "{:?}", world.orders_of("n1"));
}

#[test]
fn ranks_that_read_from_the_prefix_directory_have_nothing_fetched() {
    let mut world = from_prefix();
    world.nodes.values_mut().for_each(|node| node.held.clear());
    assert_eq!(from(&world.init()), (Some(2), RestartSource::Fetched));
    assert!(!world.orders_of("n1").contains(&"fetch"), "{:?}", world.orders_of("n1"));
    assert_eq!(world.nodes[&"n1".into()].direct, Some(CheckpointId(2)));
}

/// Four ranks flushed checkpoint 2; three ranks restart, with these numbers of ranks allowed.
fn of_four_for_three(ranks: RestartRanks) -> World {
    let mut world = from_prefix();
    world.plan.settings.restart.from_prefix = false;
    world.plan.settings.restart.ranks = ranks;
    world.next_run(&[&[0, 1], &[2], &[], &[], &[]]);
    world
}

#[test]
fn files_of_another_number_of_ranks_are_read_in_place_and_their_presence_is_verified_by_all_nodes() {
    let mut world = of_four_for_three(RestartRanks::Any);
    world.nodes.values_mut().for_each(|node| node.held.clear());
    assert_eq!(from(&world.init()), (Some(2), RestartSource::Fetched));
    let read = world.orders.iter().filter_map(|(node, _, what)| match what {
        Order::ReadDirect { files, written_by, .. } => {
            Some((node.to_string(), files.keys().map(|rank| rank.0).collect::<Vec<_>>(), *written_by))
        }
        _ => None,
    });
    assert_eq!(read.collect::<Vec<_>>(), [("n0".into(), vec![0, 1, 3], Some(4)), ("n1".into(), vec![2], Some(4))]);
    assert_eq!(world.call(Call::CompleteRestart { valid: true }), Ok(Reply::Done));
    // The next generation reads it again; the checkpoints of the three ranks have higher ids.
    assert_eq!(from(&world.next_init(&[&[0, 1], &[2], &[], &[], &[]])), (Some(2), RestartSource::Fetched));
    world.call(Call::CompleteRestart { valid: true }).unwrap();
    assert_eq!(world.checkpoint(), CheckpointId(3));
    assert_eq!(from(&world.next_init(&[&[0, 1], &[2], &[], &[], &[]])), (Some(3), RestartSource::Cache));
}

#[test]
fn files_of_another_number_of_ranks_are_refused_and_unmarked_if_as_many_are_required() {
    let mut world = of_four_for_three(RestartRanks::Same);
    world.nodes.values_mut().for_each(|node| node.held.clear());
    let refused = world.call(Call::Init).unwrap_err();
    assert!(refused.message.contains("has the files of 4 ranks"), "{refused}");
    assert!(refused.message.contains("ranks: any"), "{refused}");
    assert_eq!(world.prefix.complete(), [2]);
}

#[test]
fn a_checkpoint_of_another_number_of_ranks_in_cache_is_kept_for_the_drain() {
    let mut world = of_four_for_three(RestartRanks::Any);
    let refused = world.call(Call::Init).unwrap_err();
    assert!(refused.message.contains("`holdfast drain`"), "{refused}");
    assert!(!holds(&world, "n2", 3).is_empty());
}
