//! Nodes that the user excludes.

use std::collections::BTreeMap;

use holdfast_model::{Generation, NodeName};

use super::world::{World, config, ms, name};
use crate::events::{DownReason, EndCause, LogEvent, StopReason};
use crate::relaunch::explain::Activity;
use crate::relaunch::*;

fn excluded(nodes: &[usize], now: bool) -> BTreeMap<NodeName, Exclusion> {
    let exclusion = Exclusion { reason: "GPU errors".into(), now };
    nodes.iter().map(|node| (name(*node), exclusion.clone())).collect()
}

fn event(nodes: &[usize], now: bool) -> Event {
    Event::ExclusionsChanged { excluded: excluded(nodes, now) }
}

fn starts(world: &World, node: usize) -> usize {
    let is_start = |action: &&Action| matches!(action, Action::StartAgent { node: of } if *of == name(node));
    world.actions.iter().filter(is_start).count()
}

#[test]
fn a_node_that_is_excluded_from_the_beginning_gets_no_agent_and_no_ranks() {
    let mut world = World::running_with(Config { excluded: excluded(&[1], false), ..config(6, 4) });
    assert_eq!(world.homes(), ["n0", "n2", "n3", "n4"]);
    assert_eq!(starts(&world, 1), 0);
    world.dies(0);
    world.dies(2);
    assert_eq!(world.stop(), &StopReason::TooFewNodes { healthy: 3, needed: 4 });
}

#[test]
fn the_own_node_can_be_excluded() {
    let world =
        World::running_with(Config { excluded: excluded(&[0], false), own_node: Some(name(0)), ..config(6, 4) });
    assert_eq!(world.homes(), ["n1", "n2", "n3", "n4"]);
}

#[test]
fn ranks_stay_on_an_excluded_node_until_their_generation_ends_and_its_agent_stays_up() {
    let mut world = World::running();
    world.joined(None);
    world.happens(event(&[1], false));
    assert_eq!(world.machine.explain().phase, Activity::Running);
    assert_eq!(world.machine.explain().nodes[1].excluded.as_ref().unwrap().reason, "GPU errors");
    assert_eq!(world.generation(), Generation(1));
    world.dies(3);
    assert_eq!(world.homes(), ["n0", "n4", "n2", "n5"]);
    assert!(world.is_in_last_placement(1), "its cache can be used");
}

#[test]
fn ranks_on_a_node_that_is_excluded_now_are_relaunched_at_once_which_is_no_attempt_and_no_lack_of_progress() {
    let mut world = World::running_with(Config { attempts: 0, no_progress_limit: 1, ..config(6, 4) });
    world.joined(None);
    world.happens(event(&[1], true));
    assert_eq!(world.causes(), [EndCause::Excluded { nodes: vec![name(1)] }]);
    assert_eq!(world.homes(), ["n0", "n4", "n2", "n3"]);
    // The same list again, as after a takeover, changes nothing.
    world.happens(event(&[1], true));
    assert_eq!(world.launches().len(), 2);
    world.checkpoint(1);
    world.dies(0);
    assert!(matches!(world.stop(), StopReason::AttemptsUsed { attempts: 0, .. }), "{:?}", world.stop());
}

#[test]
fn an_exclusion_that_leaves_too_few_nodes_does_not_end_the_generation() {
    let mut world = World::running_with(config(4, 4));
    world.happens(event(&[1], true));
    assert_eq!(world.machine.explain().phase, Activity::Running);
    let delayed =
        |action: &Action| matches!(action, Action::Record(LogEvent::ExclusionDelayed { left: 3, needed: 4, .. }));
    assert!(world.actions.iter().any(delayed));
    let not_now = |action: &Action| matches!(action, Action::Record(LogEvent::NodeExcluded { now: false, .. }));
    assert!(world.actions.iter().any(not_now));
    assert!(world.machine.explain().nodes[1].keeps_ranks);
    world.happens(event(&[], false));
    assert!(!world.machine.explain().nodes[1].keeps_ranks);
    world.dies(2);
    assert_eq!(world.stop(), &StopReason::TooFewNodes { healthy: 3, needed: 4 });
}

#[test]
fn ranks_that_stayed_for_lack_of_nodes_are_moved_when_another_node_is_included() {
    let mut world = World::running_with(config(5, 4));
    world.joined(None);
    world.happens(event(&[4], false));
    world.happens(event(&[1, 4], true));
    assert!(world.machine.explain().nodes[1].keeps_ranks);
    assert_eq!(world.generation(), Generation(1));
    world.happens(event(&[1], true));
    assert_eq!(world.causes(), [EndCause::Excluded { nodes: vec![name(1)] }]);
    assert_eq!(world.homes(), ["n0", "n4", "n2", "n3"]);
    assert!(!world.machine.explain().nodes[1].keeps_ranks);
}

#[test]
fn ranks_that_stayed_for_lack_of_nodes_are_moved_when_the_job_lends_another_node() {
    let lent = [name(0), name(1)].into();
    let mut world = World::running_with(Config { lent: Some(lent), ..config(6, 2) });
    world.joined(None);
    world.pool.0 = vec![name(5)];
    world.happens(event(&[1], true));
    assert_eq!(world.causes(), [EndCause::Excluded { nodes: vec![name(1)] }]);
    assert_eq!(world.homes(), ["n0", "n5"]);
}

#[test]
fn a_node_that_is_included_again_is_a_spare_whether_its_agent_was_up_or_not() {
    let mut world = World::running_with(Config { excluded: excluded(&[4], false), ..config(6, 4) });
    world.happens(event(&[4, 5], false));
    assert_eq!(world.machine.summary().spare, 0);
    world.happens(event(&[], false));
    assert_eq!(starts(&world, 4), 1);
    assert_eq!(world.machine.summary().spare, 2);
    world.dies(0);
    world.dies_later(1);
    assert_eq!(world.homes(), ["n4", "n5", "n2", "n3"]);
}

#[test]
fn a_node_that_is_excluded_while_its_agent_starts_is_not_waited_for() {
    let mut world = World::new(config(6, 4));
    world.silent.insert(name(2));
    world.begin();
    assert_eq!(world.machine.explain().phase, Activity::Gathering);
    world.happens(event(&[2], false));
    assert_eq!(world.homes(), ["n0", "n1", "n3", "n4"]);
    let down = |action: &Action| matches!(action, Action::Record(LogEvent::NodeDown { .. }));
    assert!(!world.actions.iter().any(down));
}

#[test]
fn an_orchestrator_that_takes_over_finds_the_exclusions_and_applies_those_made_meanwhile() {
    let mut world = World::running();
    world.happens(event(&[4], false));
    let config = Config { excluded: excluded(&[2, 4], true), ..config(6, 4) };
    world.machine = world.twin_with(config);
    world.now += ms(1000);
    world.begin();
    assert_eq!(world.causes(), [EndCause::Excluded { nodes: vec![name(2)] }]);
    assert_eq!(world.homes(), ["n0", "n1", "n5", "n3"]);
}

#[test]
fn the_next_step_begins_with_the_exclusions_that_are_in_force() {
    let mut world = World::running_with(Config { excluded: excluded(&[0], false), ..config(6, 4) });
    world.happens(event(&[0, 1], false));
    let next = world.machine.snapshot().next_step();
    let begun = |excluded| {
        let mut world = World::new(Config { excluded, ..config(6, 4) });
        world.machine = Machine::restore(world.machine.config().clone(), next.clone()).unwrap();
        world.begin();
        world.homes()
    };
    assert_eq!(begun(excluded(&[1, 0], false)), ["n2", "n3", "n4", "n5"]);
    assert_eq!(begun(excluded(&[], false)), ["n0", "n1", "n2", "n3"]);
}

#[test]
fn ranks_move_to_fewer_nodes_down_to_the_least_number_and_within_the_limit_of_ranks() {
    let fewer = Config { min_nodes: 2, max_ranks_per_node: Some(2), ..config(4, 4) };
    let mut world = World::running_with(Config { attempts: 9, ..fewer });
    world.checkpoint(1);
    world.dies(3);
    assert_eq!(world.homes(), ["n0", "n1", "n2", "n0"]);
    world.checkpoint(2);
    world.dies_later(1);
    assert_eq!(world.homes(), ["n0", "n2", "n2", "n0"]);
    world.checkpoint(3);
    world.dies_later(0);
    assert_eq!(world.stop(), &StopReason::TooFewNodes { healthy: 1, needed: 2 });
    let limited = Config { min_nodes: 1, max_ranks_per_node: Some(2), ..config(4, 4) };
    assert_eq!(limited.needed(), 2);
}

#[test]
fn the_reason_of_a_node_without_agent_is_its_exclusion() {
    let world = World::running_with(Config { excluded: excluded(&[5], false), ..config(6, 4) });
    let explained = world.machine.explain();
    let explain::NodeCondition::Down(cause) = &explained.nodes[5].condition else { panic!("{explained:?}") };
    assert_eq!(cause.reason, DownReason::Excluded { reason: "GPU errors".into() });
    assert_eq!((world.machine.summary().excluded, world.machine.summary().down), (1, 0));
}
