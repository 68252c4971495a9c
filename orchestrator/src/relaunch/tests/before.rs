//! The commands of `before:`: run once, on healthy nodes, before the first launch.

use super::world::{World, config, ms, name};
use crate::events::StopReason;
use crate::exit;
use crate::relaunch::explain::Activity;
use crate::relaunch::*;

fn with_before(nodes: usize, needed: u32) -> World {
    World::new(Config { before: true, ..config(nodes, needed) })
}

/// The nodes of each request to run the commands.
fn runs(world: &World) -> Vec<usize> {
    found!(world.actions, Action::RunBefore { on } => on.len())
}

fn failed_on(nodes: &[usize]) -> Option<BeforeFailure> {
    let nodes = nodes.iter().map(|node| name(*node)).collect();
    Some(BeforeFailure { nodes, reason: "the command failed".to_owned() })
}

fn cancelled(world: &World) -> bool {
    world.actions.contains(&Action::CancelBefore)
}

#[test]
fn commands_run_once_on_all_healthy_nodes_and_not_before_a_relaunch() {
    let mut world = with_before(6, 4);
    world.dead.insert(name(5));
    world.begin();
    assert_eq!(world.machine.explain().phase, Activity::Running);
    world.dies(0);
    assert_eq!(world.launches().len(), 2);
    assert_eq!(runs(&world), [5]);
    let next = world.machine.snapshot().next_step();
    let mut step = World::new(world.machine.config().clone());
    step.dead.clone_from(&world.dead);
    step.machine = Machine::restore(world.machine.config().clone(), next).unwrap();
    step.begin();
    assert_eq!((step.launches().len(), runs(&step).len()), (1, 0), "the next step of a job does not repeat them");
}

#[test]
fn failure_on_a_node_that_answers_launches_nothing() {
    let mut world = with_before(6, 4);
    world.before = Some(failed_on(&[2]));
    world.begin();
    assert_eq!(world.stop(), &StopReason::BeforeFailed { reason: "the command failed".to_owned() });
    assert_eq!((world.launches().len(), world.outcome().exit_code()), (0, exit::UNAVAILABLE));
    assert!(!cancelled(&world), "the commands have ended by themselves");
}

#[test]
fn failure_on_a_node_that_is_lost_runs_the_commands_again_on_the_others() {
    let mut world = with_before(6, 4);
    world.before = None;
    world.begin();
    world.silent.insert(name(2));
    world.before = Some(None);
    world.happens(Event::BeforeEnded { failure: failed_on(&[2]) });
    assert_eq!(world.machine.explain().phase, Activity::RunningBefore);
    world.dead.insert(name(2));
    world.passes(ms(5000));
    assert_eq!(runs(&world), [6, 5]);
    assert_eq!(world.homes(), ["n0", "n1", "n3", "n4"]);
}

#[test]
fn failure_that_follows_the_loss_of_the_node_runs_the_commands_again() {
    let mut world = with_before(5, 4);
    world.before = None;
    world.begin();
    world.dies(4);
    world.before = Some(None);
    world.happens(Event::BeforeEnded { failure: failed_on(&[4]) });
    assert_eq!((runs(&world), world.launches().len()), (vec![5, 4], 1));
}

#[test]
fn failure_without_a_node_launches_nothing() {
    let mut world = with_before(4, 4);
    world.before = Some(failed_on(&[]));
    world.begin();
    assert!(matches!(world.stop(), StopReason::BeforeFailed { .. }));
}

#[test]
fn signal_halt_and_lack_of_nodes_cancel_the_commands_and_launch_nothing() {
    let ends: [fn(&mut World); 3] = [
        |world| world.happens(Event::Signal { name: "SIGTERM".to_owned() }),
        |world| world.happens(Event::HaltSet { reason: "requested".to_owned(), immediate: false, ends: None }),
        |world| world.dies(1),
    ];
    for end in ends {
        let mut world = with_before(4, 4);
        world.before = None;
        world.begin();
        end(&mut world);
        assert_eq!((world.outcome().exit_code(), world.launches().len()), (exit::NOT_FINISHED, 0));
        assert!(cancelled(&world));
        world.happens(Event::BeforeEnded { failure: None });
        assert_eq!(world.launches().len(), 0);
    }
}

#[test]
fn successor_runs_commands_that_did_not_end() {
    let mut world = with_before(4, 4);
    world.before = None;
    world.begin();
    let mut successor = with_before(4, 4);
    successor.machine = Machine::restore(world.machine.config().clone(), world.machine.snapshot()).unwrap();
    successor.begin();
    assert_eq!((runs(&successor), successor.launches().len()), (vec![4], 1));
}
