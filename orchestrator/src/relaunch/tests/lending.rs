//! Nodes that a step borrows from its job.

use std::collections::BTreeSet;

use super::world::{World, config, name};
use crate::events::{LogEvent, StopReason};
use crate::relaunch::explain::{Activity, NodeCondition};
use crate::relaunch::*;

/// A step of two ranks on these of six nodes.
fn lent(nodes: &[usize]) -> Config {
    let lent: BTreeSet<_> = nodes.iter().map(|node| name(*node)).collect();
    Config { lent: Some(lent), ..config(6, 2) }
}

fn borrowed(world: &World) -> Vec<(u32, bool)> {
    let asked = world.actions.iter().filter_map(|action| match action {
        Action::BorrowNodes { wanted, waits } => Some((*wanted, *waits)),
        _ => None,
    });
    asked.collect()
}

#[test]
fn a_step_uses_starts_and_fences_only_the_nodes_that_it_was_lent() {
    let mut world = World::running_with(lent(&[2, 4]));
    assert_eq!(world.homes(), ["n2", "n4"]);
    let others = |action: &Action| match action {
        Action::StartAgent { node } | Action::FenceNode { node, .. } => ![name(2), name(4)].contains(node),
        _ => false,
    };
    let explained = world.machine.explain().nodes;
    assert!(explained.iter().map(|node| &node.node).eq([&name(2), &name(4)]));
    let snapshot = world.machine.snapshot();
    assert!(snapshot.has_some_nodes() && snapshot.lent().eq([&name(2), &name(4)]));
    // Also when another orchestrator takes over.
    let config = world.machine.config().clone();
    world.machine = Machine::restore(config, snapshot).unwrap();
    world.begin();
    assert!(!world.actions.iter().any(others), "{:?}", world.actions);
}

#[test]
fn a_lost_node_is_replaced_by_one_of_the_job_as_soon_as_it_is_lost() {
    let mut world = World::running_with(lent(&[2, 4]));
    world.joined(None);
    world.pool.0 = vec![name(5)];
    world.dies(2);
    assert_eq!(borrowed(&world), [(1, false)], "nothing waits for it");
    assert_eq!(world.homes(), ["n5", "n4"]);
    assert_eq!(world.machine.explain().phase, Activity::Running);
    let given = world.machine.snapshot().given_back(&[name(4), name(5)].into());
    assert_eq!(given, [name(4), name(5)].into(), "the lost one is not given back");
}

#[test]
fn without_a_node_of_the_job_a_step_waits_while_others_may_give_one_back() {
    let mut world = World::running_with(lent(&[2, 4]));
    world.joined(None);
    world.pool.1 = true;
    world.dies(2);
    assert_eq!(world.machine.explain().phase, Activity::AwaitingNodes);
    assert_eq!(borrowed(&world), [(1, false), (1, true)]);
    assert!(
        world
            .actions
            .iter()
            .any(|action| matches!(action, Action::Record(LogEvent::NodesAwaited { left: 1, needed: 2 })))
    );
    world.happens(Event::NodesLent { nodes: vec![name(0)], more_later: false });
    assert_eq!(world.homes(), ["n0", "n4"]);
    assert_eq!(world.machine.explain().phase, Activity::Running);
}

#[test]
fn a_step_ends_when_no_other_can_give_a_node_back() {
    let mut world = World::running_with(lent(&[2, 4]));
    world.joined(None);
    world.pool.1 = true;
    world.dies(2);
    world.happens(Event::NodesLent { nodes: vec![], more_later: false });
    assert_eq!(world.stop(), &StopReason::TooFewNodes { healthy: 1, needed: 2 });
}

#[test]
fn a_step_that_waits_for_nodes_can_be_ended() {
    let mut world = World::running_with(lent(&[2, 4]));
    world.joined(None);
    world.pool.1 = true;
    world.dies(2);
    world.happens(Event::Signal { name: "SIGTERM".into() });
    assert_eq!(world.stop(), &StopReason::Signal { name: "SIGTERM".into() });
}

#[test]
fn a_node_whose_agent_does_not_start_is_replaced() {
    let mut world = World::new(lent(&[0, 1]));
    world.pool.0 = vec![name(3)];
    world.dead.insert(name(1));
    world.begin();
    assert_eq!(world.homes(), ["n0", "n3"]);
    let down =
        world.machine.explain().nodes.into_iter().filter(|node| matches!(node.condition, NodeCondition::Down(_)));
    assert!(down.map(|node| node.node).eq([name(1)]));
}
