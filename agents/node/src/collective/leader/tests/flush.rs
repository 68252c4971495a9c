use holdfast_model::{CheckpointId, FlushMode, Level, Locations, RestartSource};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{CopyLimits, Order};
use holdfast_wire::rank::{Call, Reply};
use holdfast_wire::run::SourceName;

use super::super::LeaderWork;
use super::world::{PLACES, World, disk_full, from, held, is_flush, of_level};

fn noted(world: &World, id: u64) -> Locations {
    world.nodes[&"n2".into()].flush[&CheckpointId(id)]
}

#[test]
fn every_second_checkpoint_is_flushed_published_and_made_current() {
    let mut world = World::flushing(FlushMode::Sync, 2, 2);
    world.checkpoints(4);
    assert_eq!(world.prefix.complete(), [2, 4]);
    assert_eq!(world.prefix.current.as_ref(), Some(world.prefix.of(4).0));
    assert_eq!(noted(&world, 4), Locations { cache: true, pfs: true, flushing: false });
    assert_eq!(world.prefix.of(4).1.summary.as_ref().unwrap().by_rank.len(), 4);
    assert!(world.saved_flushes.directories.is_empty(), "nothing is left to resume");
}

#[test]
fn the_directory_is_recorded_and_in_the_index_before_the_first_file_is_copied() {
    let mut world = World::flushing(FlushMode::Sync, 1, 2);
    world.hold_orders(|_, order| is_flush(order));
    world.call(Call::Start).unwrap();
    world.begin(Call::Complete { valid: true });
    assert_eq!(world.outcome(), None, "the ranks wait");
    let (directory, entry) = world.prefix.of(1);
    assert!(entry.indexed && !entry.complete);
    assert_eq!(world.saved_flushes.directories[&CheckpointId(1)], directory.as_str());
    world.release();
    assert!(matches!(world.outcome(), Some(Ok(Reply::Completed { kept: true, .. }))));
}

#[test]
fn a_flush_that_fails_is_reported_leaves_the_checkpoint_in_cache_and_is_resumed_in_its_directory() {
    let mut world = World::flushing(FlushMode::Sync, 1, 2);
    world.fail_orders(|node, order| (node == "n3" && is_flush(order)).then(disk_full));
    world.checkpoint();
    let AgentEvent::FlushFailed { reason, .. } = world.events.last().unwrap() else { panic!() };
    assert!(reason.contains("n3") && reason.contains("no space left"), "{reason}");
    assert_eq!(noted(&world, 1), Locations { cache: true, pfs: false, flushing: false });
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    world.fail_orders(|_, _| None);
    world.call(Call::Finalize).unwrap();
    assert_eq!(world.prefix.complete(), [1]);
    assert_eq!(world.prefix.directories.len(), 1, "in the directory of the first attempt");
}

#[test]
fn a_flush_that_a_node_cannot_record_has_succeeded() {
    let mut world = World::begun_with(|plan| plan.settings.flush.every = 0);
    world.fail_orders(|node, order| {
        let is_record = matches!(order, Order::Note { locations: Locations { pfs: true, .. }, .. });
        (node == "n3" && is_record).then(disk_full)
    });
    let completed = of_level(&mut world, Level::Prefix);
    assert!(matches!(completed, Ok(Reply::Completed { kept: true, .. })), "{completed:?}");
    assert_eq!(world.prefix.complete(), [1]);
    assert!(!world.reported().iter().any(|name| name == "flush_failed"), "{:?}", world.events);
    let is_notice = |event: &AgentEvent| {
        matches!(event, AgentEvent::Notice { message }
            if message.starts_with("checkpoint 1 is flushed, but") && message.contains("n3"))
    };
    assert!(world.events.iter().any(is_notice), "{:?}", world.events);
}

#[test]
fn ranks_continue_while_a_checkpoint_is_flushed_in_the_background() {
    let mut world = World::flushing(FlushMode::Async, 1, 2);
    world.hold_orders(|_, order| is_flush(order));
    world.checkpoint();
    assert_eq!(noted(&world, 1), Locations { cache: true, pfs: false, flushing: true });
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(true)));
    let started = world.call(Call::Start);
    assert!(matches!(started, Ok(Reply::Started { checkpoint: CheckpointId(2), .. })), "{started:?}");
    assert_eq!(world.held.len(), 4, "the flush is still under way");
    let Order::Flush { limits, .. } = world.held[0].2 else { panic!() };
    assert_eq!(limits.bandwidth, 2, "four nodes share 7 bytes per second");
    world.release();
    assert_eq!(world.prefix.complete(), [1]);
    assert_eq!(noted(&world, 1), Locations { cache: true, pfs: true, flushing: false });
    world.complete();
    assert_eq!(world.prefix.complete(), [1, 2]);
}

#[test]
fn the_next_flush_waits_for_the_one_that_is_under_way_and_the_ranks_for_all_at_the_end() {
    let mut world = World::flushing(FlushMode::Async, 1, 2);
    world.hold_orders(|_, order| matches!(order, Order::Flush { checkpoint: CheckpointId(1), .. }));
    world.checkpoint();
    world.checkpoint();
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    world.release();
    assert_eq!(world.prefix.complete(), [1, 2]);
    world.hold_orders(|_, order| is_flush(order));
    world.checkpoint();
    world.begin(Call::Finalize);
    assert_eq!(world.outcome(), None);
    world.release();
    assert_eq!(world.outcome(), Some(Ok(Reply::Done)));
    assert_eq!(world.prefix.complete(), [1, 2, 3]);
}

#[test]
fn a_checkpoint_that_is_being_flushed_is_not_evicted() {
    let mut world = World::flushing(FlushMode::Async, 2, 1);
    world.checkpoint();
    world.hold_orders(|_, order| is_flush(order));
    world.checkpoint();
    world.begin(Call::Start);
    assert_eq!(world.outcome(), None, "there is no room before checkpoint 2 is on the prefix directory");
    assert!(world.nodes[&"n1".into()].held.contains_key(&CheckpointId(2)));
    world.release();
    assert!(matches!(world.outcome(), Some(Ok(Reply::Started { checkpoint: CheckpointId(3), .. }))));
    assert_eq!(world.prefix.complete(), [2]);
}

#[test]
fn a_flushed_checkpoint_is_not_flushed_again() {
    let mut world = World::flushing(FlushMode::Sync, 1, 2);
    world.checkpoint();
    world.orders.clear();
    world.call(Call::Finalize).unwrap();
    assert_eq!(world.orders_of("n1"), ["halt"]);
}

#[test]
fn a_flush_whose_directory_cannot_be_made_is_reported_and_copies_nothing() {
    let mut world = World::flushing(FlushMode::Sync, 1, 2);
    world.fail_work(|work| matches!(work, LeaderWork::MakeDirectory { .. }).then(disk_full));
    world.checkpoint();
    assert!(matches!(world.events.last(), Some(AgentEvent::FlushFailed { .. })));
    assert!(!world.orders_of("n1").contains(&"flush"));
}

#[test]
fn a_restart_is_flushed_where_the_settings_ask_for_it() {
    let mut world = World::begun();
    world.checkpoint();
    world.plan.settings.flush.on_restart = true;
    world.plan.settings.flush.every = 100;
    world.next_init(PLACES);
    assert_eq!(world.prefix.complete(), [1]);
}

#[test]
fn a_checkpoint_that_was_evicted_for_one_that_failed_is_not_flushed_at_the_end() {
    let mut world = World::flushing(FlushMode::Sync, 10, 1);
    world.checkpoint();
    world.call(Call::Start).unwrap();
    let completed = world.call(Call::Complete { valid: false });
    assert!(matches!(completed, Ok(Reply::Completed { kept: false, .. })), "{completed:?}");
    world.call(Call::Finalize).unwrap();
    assert!(world.prefix.directories.is_empty(), "no empty dataset is published");
}

#[test]
fn a_flush_of_which_a_node_lists_no_rank_is_not_published() {
    let mut world = World::flushing(FlushMode::Sync, 1, 2);
    world.nodes.get_mut(&"n2".into()).unwrap().ranks.clear();
    world.checkpoint();
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    let AgentEvent::FlushFailed { reason, .. } = world.events.last().unwrap() else { panic!() };
    assert!(reason.contains("there are no files of rank 2"), "{reason}");
}

/// Checkpoints up to 3, of which 2 is being flushed in the background, in a cache that keeps so many. These orders are
/// not carried out.
fn flushing_2(keep: u32, hold: fn(&Order) -> bool) -> World {
    let mut world = World::flushing(FlushMode::Async, 2, keep);
    world.hold_orders(move |_, order| hold(order));
    world.checkpoints(3);
    world
}

fn is_limited_flush(order: &Order) -> bool {
    matches!(order, Order::Flush { limits: CopyLimits { bandwidth: 1.., .. }, .. })
}

#[test]
fn an_older_checkpoint_is_evicted_and_not_the_one_that_is_being_flushed() {
    let world = flushing_2(2, is_flush);
    assert_eq!(held(&world), [2, 3]);
    let mut world = flushing_2(3, is_flush);
    let started = world.call(Call::Start);
    assert!(matches!(started, Ok(Reply::Started { checkpoint: CheckpointId(4), .. })), "{started:?}");
    world.call(Call::Complete { valid: false }).unwrap();
    let started = world.call(Call::Start);
    assert!(started.is_ok(), "{started:?}");
    assert_eq!(held(&world), [2, 3, 5], "2 is still being flushed");
    world.release();
    assert_eq!(world.prefix.complete(), [2]);
}

#[test]
fn the_newest_checkpoint_is_not_evicted_while_an_older_one_is_being_flushed() {
    let mut world = flushing_2(2, is_flush);
    world.begin(Call::Start);
    assert_eq!((world.outcome(), held(&world)), (None, vec![2, 3]), "the ranks wait for the flush of 2");
    world.release();
    assert!(matches!(world.outcome(), Some(Ok(Reply::Started { checkpoint: CheckpointId(4), .. }))));
    assert_eq!((held(&world), world.prefix.complete()), (vec![3, 4], vec![2]));
}

#[test]
fn a_flush_that_ranks_wait_for_has_no_bandwidth_limit() {
    // For room in the cache.
    let mut world = flushing_2(2, is_limited_flush);
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    let started = world.call(Call::Start);
    assert!(matches!(started, Ok(Reply::Started { checkpoint: CheckpointId(4), .. })), "{started:?}");
    assert_eq!((held(&world), world.prefix.complete()), (vec![3, 4], vec![2]));
    assert_eq!(world.prefix.directories.len(), 1, "the flush continued in its directory");
    // The next one has the limit again.
    world.call(Call::Complete { valid: true }).unwrap();
    assert_eq!((world.prefix.complete(), world.held.len()), (vec![2], 4));
    // For the end of the run.
    assert_eq!(world.call(Call::Finalize), Ok(Reply::Done));
    assert_eq!(world.prefix.complete(), [2, 4]);
}

#[test]
fn a_restarted_leader_continues_a_flush_in_the_background_by_itself() {
    let mut world = World::flushing(FlushMode::Async, 1, 2);
    world.hold_orders(|_, order| is_flush(order));
    world.checkpoint();
    world.restart_leader(None);
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    world.hold_orders(|_, _| false);
    world.restart_leader(None);
    world.run();
    assert_eq!(world.prefix.complete(), [1]);
    assert_eq!(world.prefix.directories.len(), 1, "in the directory of the first attempt");
}

#[test]
fn a_generation_continues_the_flush_of_the_one_before_in_its_directory() {
    let mut world = World::flushing(FlushMode::Async, 1, 2);
    world.hold_orders(|_, order| is_flush(order));
    world.checkpoint();
    world.lose("n2");
    world.hold_orders(|_, _| false);
    assert_eq!(from(&world.next_init(&[&[0], &[1], &[], &[3], &[2]])).0, Some(1));
    assert_eq!(world.prefix.complete(), [1]);
    assert_eq!(world.prefix.directories.len(), 1, "{:?}", world.prefix.directories);
}

#[test]
fn a_generation_removes_the_flush_of_a_checkpoint_that_it_cannot_restart_from() {
    let mut world = World::flushing(FlushMode::Async, 2, 2);
    world.checkpoints(3);
    world.hold_orders(|_, order| is_flush(order));
    world.checkpoint();
    assert_eq!(world.prefix.directories.len(), 2);
    world.lose("n1");
    world.lose("n2");
    world.hold_orders(|_, _| false);
    assert_eq!(from(&world.next_init(PLACES)), (Some(2), RestartSource::Fetched));
    assert_eq!(world.prefix.directories.len(), 1, "{:?}", world.prefix.directories);
    assert_eq!(world.prefix.complete(), [2]);
    assert!(world.saved_flushes.directories.is_empty());
}

#[test]
fn the_unfinished_flush_of_an_evicted_checkpoint_is_removed() {
    let mut world = World::flushing(FlushMode::Sync, 2, 1);
    world.checkpoint();
    world.fail_orders(|node, order| (node == "n3" && is_flush(order)).then(disk_full));
    world.checkpoint();
    assert_eq!(world.prefix.directories.len(), 1);
    world.fail_orders(|_, _| None);
    world.checkpoint();
    assert!(world.prefix.directories.is_empty(), "{:?}", world.prefix.directories);
    world.checkpoint();
    assert_eq!(world.prefix.complete(), [4]);
}

#[test]
fn ranks_that_wait_flush_as_many_at_a_time_as_the_width() {
    let nodes = |world: &World| world.held.iter().map(|(node, ..)| node.to_string()).collect::<Vec<_>>();
    let mut world = World::begun_with(|plan| {
        plan.settings.flush.every = 1;
        plan.settings.flush.width = 3;
    });
    world.hold_orders(|_, order| is_flush(order));
    world.call(Call::Start).unwrap();
    world.begin(Call::Complete { valid: true });
    assert_eq!(nodes(&world), ["n0", "n1", "n2"]);
    let Order::Flush { limits, .. } = world.held[0].2 else { panic!() };
    assert_eq!((limits.width, limits.bandwidth), (1, 0));
    world.release();
    assert_eq!(world.prefix.complete(), [1]);
    let flushed = world.orders.iter().filter(|(_, _, order)| is_flush(order)).map(|(node, ..)| node.to_string());
    assert_eq!(flushed.collect::<Vec<_>>(), ["n0", "n1", "n2", "n3"]);
}

#[test]
fn a_level_4_that_cannot_be_flushed_is_not_kept_and_evicts_no_checkpoint_that_is_protected() {
    let mut world = World::begun_with(|plan| {
        plan.settings.source = SourceName("variables".to_owned());
        plan.settings.flush.every = 0;
    });
    for level in [Level::Parity, Level::Local] {
        assert!(matches!(of_level(&mut world, level), Ok(Reply::Completed { kept: true, .. })));
    }
    world.fail_orders(|node, order| (node == "n3" && is_flush(order)).then(disk_full));
    for id in [3, 4] {
        let completed = of_level(&mut world, Level::Prefix);
        let not_kept = Reply::Completed { checkpoint: CheckpointId(id), kept: false, halt: None };
        assert_eq!(completed, Ok(not_kept));
        assert!(world.events.iter().any(|event| matches!(event, AgentEvent::FlushFailed { .. })));
    }
    let Some(AgentEvent::Notice { message }) = world.events.last() else { panic!("{:?}", world.events.last()) };
    assert!(message.contains("checkpoint 4 is of level 1 instead of 4"), "{message}");
    assert_eq!(held(&world), [1, 3, 4], "the parity stays, and the newest is in cache as one of level 1");
    world.fail_orders(|_, _| None);
    assert!(matches!(of_level(&mut world, Level::Prefix), Ok(Reply::Completed { kept: true, .. })));
    assert_eq!(world.prefix.complete(), [5]);
    assert!(matches!(of_level(&mut world, Level::Local), Ok(Reply::Completed { kept: true, .. })));
    assert_eq!(held(&world), [5, 6], "a flushed one supersedes the parity");
}

#[test]
fn a_level_4_at_a_halt_condition_is_flushed_although_flushes_are_switched_off() {
    let mut world = World::begun_with(|plan| {
        plan.settings.source = SourceName("variables".to_owned());
        plan.settings.flush.every = 0;
    });
    world.halt.met = Some("enough".to_owned());
    let completed = of_level(&mut world, Level::Prefix);
    assert!(matches!(completed, Ok(Reply::Completed { kept: true, halt: Some(_), .. })), "{completed:?}");
    assert_eq!(world.prefix.complete(), [1]);
}
