//! The procedures beside the collectives: which run at once, in which order, and how one is cancelled.

use std::collections::BTreeSet;

use holdfast_model::dataset::default_name;
use holdfast_model::{CheckpointId, FlushMode};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::{Call, Reply};

use super::world::{World, held, is_flush};

fn output(name: &str) -> Call {
    Call::StartOutput { name: Some(name.to_owned()), checkpoint: false, output: true, bypass: false }
}

fn is_delete(order: &Order) -> bool {
    matches!(order, Order::Delete { .. })
}

/// Flushes of checkpoints in the background; these orders are held.
fn world(hold: fn(&Order) -> bool) -> World {
    let mut world = World::flushing(FlushMode::Async, 1, 9);
    world.hold_orders(move |_, order| hold(order));
    world
}

fn write(world: &mut World, start: Call) {
    world.call(start).unwrap();
    world.complete();
}

#[test]
fn output_is_deleted_while_the_next_dataset_is_flushed() {
    let mut world = world(is_delete);
    write(&mut world, output("plot"));
    assert_eq!(world.prefix.complete(), [1]);
    assert!(world.held.iter().all(|(_, _, order)| is_delete(order)) && world.held.len() == 5, "on every node");
    // The ranks go on, and the next flush begins.
    world.checkpoint();
    assert_eq!((world.prefix.complete(), held(&world)), (vec![1, 2], vec![1, 2]));
    world.release();
    assert_eq!(held(&world), [2]);
}

#[test]
fn what_a_flush_leaves_is_deleted_before_the_next_flush_begins() {
    let mut world = world(is_flush);
    write(&mut world, output("plot"));
    world.call(Call::Start).unwrap();
    world.call(Call::Complete { valid: true }).unwrap();
    let is_first = |order: &Order| matches!(order, Order::Flush { checkpoint: CheckpointId(1), .. });
    assert!(world.held.iter().all(|(_, _, order)| is_first(order)), "one flush at a time");
    world.hold_orders(|_, _| false);
    world.orders.clear();
    world.release();
    let names = world.orders_of("n1");
    let place = |name: &str| names.iter().position(|order| *order == name);
    assert!(place("delete").is_some() && place("delete") < place("flush"), "{names:?}");
    assert_eq!((world.prefix.complete(), held(&world)), (vec![1, 2], vec![2]));
}

#[test]
fn the_flush_of_a_dataset_that_the_application_deletes_is_cancelled() {
    let mut world = world(is_flush);
    world.checkpoint();
    let name = default_name(CheckpointId(1));
    assert_eq!(world.held.len(), 4);
    assert_eq!(world.call(Call::Delete { name }), Ok(Reply::Done));
    let cancelled: BTreeSet<_> = world.cancelled.iter().collect();
    assert_eq!(cancelled.len(), 4, "nothing is copied for nothing");
    assert!(held(&world).is_empty() && world.prefix.directories.is_empty());
    let failed = world.events.iter().find_map(|event| match event {
        AgentEvent::FlushFailed { checkpoint: CheckpointId(1), reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(failed.as_deref(), Some("cancelled: the dataset is deleted"));
    // Not the next one.
    world.hold_orders(|_, _| false);
    world.checkpoint();
    assert_eq!(world.prefix.complete(), [2]);
}
