//! Redundancy that is made behind the application (`async: true`).

use std::cell::Cell;

use holdfast_model::{AsyncRedundancy, CheckpointId, FlushMode, Level, LevelPolicy, RestartSource, Scheme};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{CopyLimits, Order};
use holdfast_wire::rank::{Call, Reply};

use super::world::{PLACES, World, disk_full, held, is_encode};

/// Redundancy is made behind the application, and with this only if nothing waits for it.
pub(super) fn limited() -> LevelPolicy {
    LevelPolicy { behind: Some(AsyncRedundancy { bandwidth: 7, percent: 5.0 }), keep: None }
}

fn world() -> World {
    World::begun_with(|plan| {
        plan.settings.levels = [(0, limited())].into();
    })
}

/// With two checkpoints: 1 is protected; the redundancy of 2 is not made.
fn second_unprotected() -> World {
    let mut world = world();
    world.checkpoint();
    world.hold_orders(|_, order| is_encode(order));
    world.checkpoint();
    world
}

fn protected(world: &World) -> Vec<u64> {
    let of = |event: &AgentEvent| match event {
        AgentEvent::CheckpointProtected { checkpoint, .. } => Some(checkpoint.0),
        _ => None,
    };
    world.events.iter().filter_map(of).collect()
}

/// What the next run restarts from, and whether that was protected.
fn restarted(world: &World) -> (Option<u64>, RestartSource, Option<bool>) {
    let of = |event: &AgentEvent| match event {
        AgentEvent::Restarted { checkpoint, source, protected, .. } => {
            Some((checkpoint.map(|id| id.0), *source, *protected))
        }
        _ => None,
    };
    world.events.iter().rev().find_map(of).unwrap()
}

#[test]
fn the_ranks_go_on_when_their_files_are_complete_and_the_redundancy_follows_within_its_limits() {
    let mut world = world();
    world.hold_orders(|_, order| is_encode(order));
    world.orders.clear();
    world.checkpoint();
    assert_eq!(world.reported()[1..], ["checkpoint_started", "checkpoint_complete", "encode_started"]);
    let limits: Vec<CopyLimits> = world.held.iter_mut().map(|(_, _, order)| *order.limits_mut().unwrap()).collect();
    assert_eq!(limits, [CopyLimits { bandwidth: 7, percent: 5.0, ..CopyLimits::NONE }; 4]);
    world.release();
    assert_eq!(
        world.orders_of("n1"),
        ["prepare", "seal", "commit", "note", "halt", "inventory", "encode", "commit", "inventory"]
    );
    assert_eq!(protected(&world), [1]);
}

#[test]
fn the_next_checkpoint_waits_for_the_redundancy_which_then_has_no_limits() {
    let mut world = second_unprotected();
    world.begin(Call::Start);
    assert_eq!((world.outcome(), held(&world)), (None, vec![1, 2]), "1 is the only protected one");
    assert_eq!(world.lifted.len(), 4);
    world.release();
    assert!(matches!(world.outcome(), Some(Ok(Reply::Started { checkpoint: CheckpointId(3), .. }))));
    assert_eq!((protected(&world), held(&world)), (vec![1, 2], vec![2, 3]));
}

#[test]
fn the_loss_of_a_node_meanwhile_costs_the_newest_checkpoint_and_says_why() {
    let mut world = second_unprotected();
    world.lose("n2");
    world.hold_orders(|_, _| false);
    world.next_init(&[&[0], &[1], &[], &[3], &[2]]);
    assert_eq!(restarted(&world), (Some(1), RestartSource::Rebuilt, Some(true)));
    let reason = world.events.iter().find_map(|event| match event {
        AgentEvent::RestartAttempt { checkpoint: CheckpointId(2), reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let reason = reason.unwrap();
    assert!(reason.contains("rank 2") && reason.contains("was not made"), "{reason}");
}

#[test]
fn a_restart_takes_the_newest_checkpoint_without_redundancy_if_no_file_is_lost_and_keeps_the_protected_one() {
    let mut world = second_unprotected();
    world.next_init(PLACES);
    assert_eq!(restarted(&world), (Some(2), RestartSource::Cache, Some(false)));
    assert_eq!((held(&world), protected(&world)), (vec![1, 2], vec![1]));
    // It is made then; meanwhile another node may be lost.
    world.release();
    assert_eq!(protected(&world), [1, 2]);
    assert_eq!(world.checkpoint(), CheckpointId(3));
    assert_eq!(held(&world), [2, 3]);
    // With 2 protected, nothing but the newest stays after a restart.
    world.next_init(PLACES);
    assert_eq!((restarted(&world).0, held(&world)), (Some(3), vec![3]));
}

#[test]
fn a_restarted_leader_makes_the_redundancy_that_is_missing() {
    let mut world = second_unprotected();
    world.hold_orders(|_, _| false);
    world.restart_leader(None);
    world.run();
    assert_eq!(protected(&world), [1, 2]);
    // Nothing is left of it.
    world.restart_leader(None);
    world.run();
    assert_eq!(world.call(Call::Finalize), Ok(Reply::Done));
    assert!(protected(&world).starts_with(&[1, 2]), "{:?}", protected(&world));
}

#[test]
fn redundancy_that_cannot_be_made_is_reported_and_the_protected_checkpoint_stays() {
    let mut world = world();
    world.checkpoint();
    world.fail_orders(|node, order| (node == "n2" && is_encode(order)).then(disk_full));
    world.checkpoint();
    let Some(AgentEvent::ProtectionFailed { checkpoint, reason, .. }) = world.events.last() else {
        panic!("{:?}", world.events)
    };
    assert!(*checkpoint == CheckpointId(2) && reason.contains("n2"), "{reason}");
    world.fail_orders(|_, _| None);
    world.checkpoint();
    // Of 1, which is protected, 2, and one more, 2 was evicted.
    assert_eq!((held(&world), protected(&world)), (vec![1, 3], vec![1, 3]));
}

#[test]
fn a_checkpoint_that_lost_files_meanwhile_is_not_reported_as_protected() {
    let mut world = world();
    let commits = Cell::new(0);
    world.hold_orders(move |node, order| {
        let counted = node == "n2" && matches!(order, Order::Commit { checkpoint: CheckpointId(2) });
        commits.set(commits.get() + u32::from(counted));
        // Of its files, then of its redundancy; what the nodes hold then is found out once more.
        matches!(order, Order::Inventory) && commits.get() == 2
    });
    world.checkpoints(2);
    assert_eq!(protected(&world), [1]);
    for holding in world.nodes.get_mut(&"n2".into()).unwrap().held.get_mut(&CheckpointId(2)).unwrap().values_mut() {
        holding.complete = false;
    }
    world.release();
    let Some(AgentEvent::ProtectionFailed { checkpoint, reason, .. }) = world.events.last() else {
        panic!("{:?}", world.events)
    };
    assert!(*checkpoint == CheckpointId(2) && reason.contains("rank 2 are not complete"), "{reason}");
    assert_eq!(protected(&world), [1]);
}

#[test]
fn a_checkpoint_that_is_deleted_needs_no_redundancy() {
    let mut world = second_unprotected();
    let name = holdfast_model::dataset::default_name(CheckpointId(2));
    assert_eq!(world.call(Call::Delete { name }), Ok(Reply::Done));
    let cancelled: std::collections::BTreeSet<_> = world.cancelled.iter().collect();
    assert_eq!((cancelled.len(), held(&world)), (4, vec![1]));
    assert!(!world.reported().iter().any(|name| name == "protection_failed"));
    world.release();
    assert_eq!(protected(&world), [1]);
}

#[test]
fn finalize_waits_for_the_redundancy_and_a_flush_does_not() {
    let mut world = World::begun_with(|plan| {
        plan.settings.levels = [(0, limited())].into();
        (plan.settings.flush.every, plan.settings.flush.mode) = (1, FlushMode::Async);
    });
    world.hold_orders(|_, order| is_encode(order));
    world.checkpoint();
    assert_eq!(world.prefix.complete(), [1]);
    world.begin(Call::Finalize);
    assert_eq!(world.outcome(), None);
    world.release();
    assert_eq!((world.outcome(), protected(&world)), (Some(Ok(Reply::Done)), vec![1]));
}

#[test]
fn copies_on_another_node_are_made_behind_the_application_too() {
    let mut world = World::begun_with(|plan| {
        plan.settings.levels = [(0, limited())].into();
        plan.settings.descriptors[0].scheme = Scheme::new("PARTNER");
    });
    world.hold_orders(|_, order| is_encode(order));
    world.checkpoint();
    assert_eq!(protected(&world), [0u64; 0]);
    world.release();
    assert_eq!(protected(&world), [1]);
    world.lose("n2");
    world.next_init(&[&[0], &[1], &[], &[3], &[2]]);
    assert_eq!(restarted(&world), (Some(1), RestartSource::Rebuilt, Some(true)));
}

#[test]
fn a_level_whose_redundancy_is_not_made_does_not_supersede_a_protected_one() {
    let mut world = World::begun_with(|plan| {
        plan.settings.levels = [(0, limited())].into();
        plan.settings.caches[0].keep = 1;
    });
    let level = |world: &mut World| {
        world.call(Call::StartLevel { level: Level::Parity, id: 1 }).unwrap();
        world.call(Call::Complete { valid: true }).unwrap();
    };
    level(&mut world);
    world.hold_orders(|_, order| is_encode(order));
    level(&mut world);
    world.next_init(PLACES);
    assert_eq!((restarted(&world).0, held(&world)), (Some(2), vec![1, 2]));
    world.call(Call::CompleteRestart { valid: true }).unwrap();
    assert_eq!(held(&world), [1, 2]);
}
