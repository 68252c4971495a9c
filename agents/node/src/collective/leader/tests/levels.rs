//! Several levels at once: XOR in memory, and a stronger scheme on disk less often.

use holdfast_core::redundancy::numbers::SET_SIZE;
use holdfast_core::redundancy::rs;
use holdfast_model::{CheckpointId, Descriptor, LevelPolicy, RestartSource};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::run::Cache;

use super::world::{PLACES, World, disk_full};

const DISK: &str = "/disk";

/// XOR for each checkpoint, which keeps two; each third is of a scheme that survives two losses, in another cache,
/// which keeps `of_strong`.
fn world(of_strong: u32) -> World {
    World::begun_with(|plan| {
        let settings = &mut plan.settings;
        let strong = Descriptor {
            index: 1,
            base: DISK.to_owned(),
            scheme: rs::NAME,
            interval: 3,
            numbers: [(SET_SIZE.name, 4), (rs::FAILURES.name, 2)].into_iter().collect(),
            ..settings.descriptors[0].clone()
        };
        settings.descriptors.push(strong);
        settings.caches.push(Cache { base: DISK.to_owned(), keep: of_strong });
    })
}

/// As before, but both descriptors have the first cache.
fn in_one_cache(world: &mut World) {
    let base = world.plan.settings.descriptors[0].base.clone();
    world.plan.settings.descriptors[1].base = base;
}

fn restarted(world: &World) -> (Option<CheckpointId>, RestartSource) {
    let of = |event: &AgentEvent| match event {
        AgentEvent::Restarted { checkpoint, source, .. } => Some((*checkpoint, *source)),
        _ => None,
    };
    world.events.iter().rev().find_map(of).unwrap()
}

#[test]
fn events_name_the_level_of_a_checkpoint_and_what_it_survives() {
    let mut world = world(1);
    world.checkpoints(3);
    let complete = world.events.iter().filter_map(|event| match event {
        AgentEvent::CheckpointComplete { checkpoint, descriptor, .. } => Some((checkpoint.0, *descriptor)),
        _ => None,
    });
    assert_eq!(complete.collect::<Vec<_>>(), [(1, Some(0)), (2, Some(0)), (3, Some(1))]);
    let protected = world.events.iter().filter_map(|event| match event {
        AgentEvent::CheckpointProtected { descriptor, survives, .. } => Some((*descriptor, *survives)),
        _ => None,
    });
    assert_eq!(protected.collect::<Vec<_>>(), [(Some(0), Some(1)), (Some(0), Some(1)), (Some(1), Some(2))]);
    // With one level there is nothing to name.
    let mut world = World::begun();
    world.checkpoint();
    let named = |event: &AgentEvent| matches!(event, AgentEvent::CheckpointComplete { descriptor: Some(_), .. });
    assert!(!world.events.iter().any(named));
}

#[test]
fn the_strongest_stays_until_a_newer_one_survives_as_much_and_is_then_evicted() {
    let mut world = world(1);
    world.checkpoints(5);
    assert_eq!(world.held_by("n0"), [3, 4, 5]);
    world.call(holdfast_wire::rank::Call::Start).unwrap();
    assert_eq!(world.held_by("n0"), [3, 4, 5, 6], "6 is not complete: 3 stays, one more than is kept");
    world.call(holdfast_wire::rank::Call::Complete { valid: true }).unwrap();
    world.checkpoints(2);
    assert_eq!(world.held_by("n0"), [3, 6, 7, 8]);
    world.checkpoint();
    assert_eq!(world.held_by("n0"), [6, 7, 8, 9]);
}

#[test]
fn one_whose_redundancy_failed_does_not_replace_the_strongest() {
    let mut world = world(1);
    world.plan.settings.levels = [(1, super::protection::limited())].into();
    world.next_init(PLACES);
    world.checkpoints(5);
    world.fail_orders(|node, order| (node == "n2" && matches!(order, Order::Encode { .. })).then(disk_full));
    world.checkpoint();
    world.fail_orders(|_, _| None);
    world.checkpoints(3);
    assert_eq!(world.held_by("n0"), [3, 7, 8, 9]);
    world.checkpoints(3);
    assert_eq!(world.held_by("n0"), [9, 10, 11, 12]);
}

#[test]
fn a_descriptor_with_its_own_number_counts_its_own_checkpoints_in_a_common_cache() {
    let mut world = world(1);
    in_one_cache(&mut world);
    world.plan.settings.levels = [(1, LevelPolicy { behind: None, keep: Some(2) })].into();
    world.next_init(PLACES);
    world.checkpoints(11);
    assert_eq!(world.held_by("n0"), [6, 9, 10, 11]);
}

#[test]
fn with_one_number_for_a_common_cache_the_strongest_and_the_newest_stay() {
    let mut world = world(1);
    in_one_cache(&mut world);
    world.next_init(PLACES);
    world.checkpoints(5);
    assert_eq!(world.held_by("n0"), [3, 4, 5], "one more than is kept: 4 is the newest until 5 is complete");
    world.checkpoint();
    assert_eq!(world.held_by("n0"), [3, 5, 6]);
    world.checkpoint();
    assert_eq!(world.held_by("n0"), [6, 7]);
}

#[test]
fn a_restart_takes_the_newest_and_the_strongest_stays_with_its_lost_files_rebuilt() {
    let mut world = world(1);
    world.checkpoints(5);
    world.lose("n1");
    world.next_init(&[&[0], &[], &[2], &[3], &[1]]);
    assert_eq!(restarted(&world), (Some(CheckpointId(5)), RestartSource::Rebuilt));
    assert_eq!(world.held_by("n0"), [3, 5]);
    assert_eq!(world.nodes[&"n4".into()].held.keys().map(|id| id.0).collect::<Vec<_>>(), [3, 5]);
    // Two more: the XOR checkpoint is lost, and the strongest still survives that many.
    world.lose("n4");
    world.lose("n3");
    world.next_init(PLACES);
    assert_eq!(restarted(&world), (Some(CheckpointId(3)), RestartSource::Rebuilt));
}

#[test]
fn the_loss_of_two_members_leads_back_to_the_strongest() {
    let mut world = world(1);
    world.checkpoints(5);
    world.lose("n1");
    world.lose("n3");
    world.next_init(PLACES);
    assert_eq!((restarted(&world), world.held_by("n0")), ((Some(CheckpointId(3)), RestartSource::Rebuilt), vec![3]));
}
