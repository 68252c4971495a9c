use std::time::Duration;

use holdfast_model::{CheckpointId, Failure, FailureKind, FlushMode, Level, Locations, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::{Call, Reply};

use super::world::{PLACES, World, disk_full};

#[test]
fn a_checkpoint_is_prepared_sealed_encoded_committed_and_noted_in_this_order() {
    let mut world = World::begun();
    world.orders.clear();
    assert_eq!(world.checkpoint(), CheckpointId(1));
    assert_eq!(world.orders_of("n1"), ["prepare", "seal", "encode", "commit", "note", "halt"]);
    assert_eq!(world.orders_of("n4"), ["halt"], "a spare has no part in it");
    let flush = world.nodes[&"n1".into()].flush[&CheckpointId(1)];
    assert_eq!(flush, Locations { cache: true, pfs: false, flushing: false });
    assert_eq!(
        world.reported()[1..],
        ["checkpoint_started", "checkpoint_complete", "encode_started", "checkpoint_protected"]
    );
    assert_eq!(world.blocked, [(CheckpointId(1), [0; 4])]);
    let complete = world.events.iter().find_map(|event| match event {
        AgentEvent::CheckpointComplete { bytes, .. } => Some(*bytes),
        _ => None,
    });
    assert_eq!(complete, Some(40), "the bytes of all ranks");
}

/// Carries the held orders out so many seconds later.
fn release_after(world: &mut World, seconds: u64) {
    world.now += Duration::from_secs(seconds);
    world.release();
}

#[test]
fn it_is_reported_for_what_the_ranks_were_blocked() {
    let mut world =
        World::begun_with(|plan| (plan.settings.flush.every, plan.settings.flush.mode) = (2, FlushMode::Sync));
    let is_encode = |_: &str, order: &Order| matches!(order, Order::Encode { .. });
    world.hold_orders(is_encode);
    world.call(Call::Start).unwrap();
    world.now += Duration::from_secs(1);
    world.begin(Call::Complete { valid: true });
    release_after(&mut world, 5);
    world.hold_orders(|_, order| matches!(order, Order::Flush { .. }));
    world.call(Call::Start).unwrap();
    world.begin(Call::Complete { valid: true });
    release_after(&mut world, 7);
    // Its redundancy is made behind the ranks, and the next one waits for it.
    world.plan.settings.levels = [(0, super::protection::limited())].into();
    world.next_init(PLACES);
    world.hold_orders(is_encode);
    world.checkpoint();
    world.begin(Call::Start);
    release_after(&mut world, 3);
    world.call(Call::Complete { valid: true }).unwrap();
    let of = |id, times: [u64; 4]| (CheckpointId(id), times.map(|seconds| seconds * 1000));
    assert_eq!(world.blocked, [of(1, [6, 5, 0, 0]), of(2, [7, 0, 0, 7]), of(3, [0; 4]), of(4, [3, 0, 3, 0])]);
}

#[test]
fn the_oldest_checkpoints_are_evicted_when_the_cache_is_full() {
    let mut world = World::begun();
    world.checkpoints(4);
    assert_eq!(world.held_by("n0"), [3, 4]);
    assert_eq!(world.held_by("n3"), [3, 4]);
}

#[test]
fn a_rank_that_could_not_write_its_files_drops_the_checkpoint_on_all_nodes() {
    let mut world = World::begun();
    world.call(Call::Start).unwrap();
    world.begin_each(|rank| Call::Complete { valid: rank != Rank(2) });
    let completed = world.outcome().unwrap();
    assert_eq!(completed, Ok(Reply::Completed { checkpoint: CheckpointId(1), kept: false, halt: None }));
    assert_eq!(world.held_by("n0"), [0u64; 0]);
    let AgentEvent::CheckpointFailed { reason, .. } = world.events.last().unwrap() else { panic!() };
    assert_eq!(world.blocked.len(), 1, "a dropped one has blocked the ranks too");
    assert!(reason.contains("rank 2 could not write"), "{reason}");
    assert_eq!(world.checkpoint(), CheckpointId(2), "its id is not given out again");
}

#[test]
fn a_checkpoint_whose_redundancy_cannot_be_made_is_not_kept_and_the_run_goes_on() {
    let mut world = World::begun();
    world.call(Call::Start).unwrap();
    world.fail_orders(|node, order| (node == "n2" && matches!(order, Order::Encode { .. })).then(disk_full));
    let completed = world.call(Call::Complete { valid: true });
    assert!(matches!(completed, Ok(Reply::Completed { kept: false, .. })), "{completed:?}");
    let AgentEvent::CheckpointFailed { reason, .. } = world.events.last().unwrap() else { panic!() };
    assert!(reason.contains("n2") && reason.contains("no space left"), "{reason}");
    world.fail_orders(|_, _| None);
    assert_eq!(world.checkpoint(), CheckpointId(2));
}

#[test]
fn a_file_of_two_ranks_is_refused_before_anything_is_encoded() {
    let mut world = World::begun();
    world.call(Call::Start).unwrap();
    // The node of rank 1 seals what rank 0 wrote.
    world.nodes.get_mut(&"n1".into()).unwrap().ranks = vec![Rank(1)];
    world.nodes.get_mut(&"n1".into()).unwrap().written = Some("ckpt.0".to_owned());
    world.orders.clear();
    let completed = world.call(Call::Complete { valid: true });
    assert!(matches!(completed, Ok(Reply::Completed { kept: false, .. })), "{completed:?}");
    assert!(!world.orders_of("n0").contains(&"encode"));
    let AgentEvent::CheckpointFailed { reason, .. } = world.events.last().unwrap() else { panic!() };
    assert!(reason.contains("ranks 0 and 1 both write a file ckpt.0"), "{reason}");
}

#[test]
fn complete_without_start_is_refused_and_the_missing_call_named() {
    let mut world = World::begun();
    let refused = world.call(Call::Complete { valid: true }).unwrap_err();
    assert_eq!(refused.kind, FailureKind::InvalidRequest);
    assert!(refused.message.contains("complete_checkpoint without start_checkpoint"), "{refused}");
}

#[test]
fn all_ranks_get_the_names_of_different_calls() {
    let mut world = World::begun();
    world.begin_each(|rank| if rank == Rank(3) { Call::Need } else { Call::Start });
    let refused: Failure = world.outcome().unwrap().unwrap_err();
    assert!(refused.message.contains("rank 0 called start_checkpoint while rank 3 called need"), "{refused}");
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(true)), "the next collective is not disturbed");
}

#[test]
fn every_rank_gets_the_data_of_every_rank() {
    let mut world = World::new();
    let data = |rank: Rank| holdfast_wire::payload::Payload::from(vec![rank.0 as u8]);
    world.begin_each(|rank| Call::Allgather { data: data(rank) });
    let gathered = Reply::Gathered((0..4).map(|rank| data(Rank(rank))).collect());
    assert_eq!(world.outcome().unwrap(), Ok(gathered));
    let answered: Vec<&str> = world.answers.iter().map(|(node, _, _)| node.as_str()).collect();
    assert_eq!(answered, ["n0", "n1", "n2", "n3"], "once a node, and not to the spare");
}

#[test]
fn checkpoints_of_variables_with_different_ids_or_levels_are_refused_on_all_ranks() {
    let mut world = World::begun();
    world.begin_each(|rank| Call::StartLevel { level: Level::Local, id: if rank == Rank(2) { 13 } else { 10 } });
    let refused: Failure = world.outcome().unwrap().unwrap_err();
    assert_eq!(refused.kind, FailureKind::InvalidRequest);
    assert!(refused.message.contains("rank 2 gave another checkpoint id"), "{refused}");
    world.begin_each(|rank| Call::StartLevel { level: if rank.0 < 2 { Level::Local } else { Level::Parity }, id: 10 });
    let refused: Failure = world.outcome().unwrap().unwrap_err();
    assert!(refused.message.contains("rank 2 gave another level"), "{refused}");
    assert_eq!(world.held_by("n0"), [0u64; 0]);
}
