//! Disturbances, and the loss of the allocation itself.

use std::time::Duration;

use holdfast_model::{Generation, RankEnd};

use super::world::{World, config, name};
use crate::events::{DrainResult, EndCause, LogEvent, StopReason};
use crate::exit;
use crate::launch::Obstacle;
use crate::relaunch::explain::Activity;
use crate::relaunch::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The launch under way is refused.
fn refused(world: &mut World, obstacle: Obstacle) {
    let (generation, reason) = (world.generation(), "Unable to create step for job 7".to_owned());
    world.happens(Event::LaunchFailed { generation, reason, obstacle });
}

/// How long the launches of a series wait, and whether the generation before counts.
fn spaced(world: &World) -> Vec<(u64, bool)> {
    found!(world.actions, Action::Record(LogEvent::LaunchSpaced { millis, counts, .. }) => (*millis / 1000, *counts))
}

fn times_asked(world: &World) -> usize {
    world.actions.iter().filter(|action| matches!(action, Action::CheckAllocation)).count()
}

#[test]
fn a_series_of_node_losses_and_refused_launches_is_spaced_and_counts_once() {
    let mut world = World::running_with(Config { no_progress_limit: 2, attempts: 2, ..config(9, 4) });
    world.dies(0);
    assert_eq!(world.launches().len(), 2, "the first relaunch is not delayed");
    refused(&mut world, Obstacle::Manager);
    assert_eq!((world.machine.explain().phase, world.launches().len()), (Activity::Settling, 2));
    world.passes(seconds(1));
    assert_eq!(world.launches().len(), 3);
    world.dies(1);
    world.passes(seconds(4));
    assert_eq!(world.launches().len(), 3);
    world.passes(seconds(1));
    assert_eq!(world.launches().len(), 4);
    world.dies(2);
    world.passes(seconds(15));
    assert_eq!(world.launches().len(), 5);
    assert_eq!(spaced(&world), [(1, false), (5, false), (15, false)]);
    assert_eq!(world.machine.explain().without_progress, 1);
    // An exit code counts, and the next launch does not wait.
    world.rank_ends(0, RankEnd::Code(1));
    assert!(matches!(world.stop(), StopReason::NoProgress { generations: 2, .. }));
}

#[test]
fn a_manager_that_refuses_every_launch_ends_the_job_after_a_bounded_time() {
    let mut world = World::running();
    while !world.machine.is_finished() && world.now < seconds(120) {
        match world.machine.explain().phase {
            Activity::Running => refused(&mut world, Obstacle::Manager),
            _ => world.passes(seconds(1)),
        }
    }
    assert_eq!(world.launches().len(), 6);
    assert!(world.now < seconds(45), "{:?}", world.now);
    assert_eq!(world.outcome().exit_code(), exit::UNAVAILABLE);
}

#[test]
fn ends_of_the_application_itself_are_neither_spaced_nor_left_out() {
    let mut world = World::running_with(Config { no_progress_limit: 4, ..config(6, 4) });
    world.dies(0);
    for end in [RankEnd::Signal(9), RankEnd::Code(3)] {
        world.rank_ends(1, end);
        assert_eq!(world.machine.explain().phase, Activity::Running);
    }
    assert_eq!((world.machine.explain().without_progress, spaced(&world)), (3, Vec::new()));
}

#[test]
fn ranks_killed_together_with_the_agent_of_their_node_are_a_disturbance() {
    let mut world = World::running();
    for _ in 0..2 {
        world.happens(Event::AgentLost { node: name(1), reason: "killed".into() });
        world.rank_ends(1, RankEnd::Signal(9));
        // The restart of the agent may be delayed.
        world.passes(seconds(1));
    }
    assert_eq!(spaced(&world), [(1, false)]);
    assert!(matches!(world.causes()[..], [EndCause::Application { .. }, EndCause::Application { .. }]));
}

#[test]
fn nothing_is_waited_for_when_too_few_nodes_are_left() {
    let mut world = World::running_with(config(5, 4));
    world.dies(0);
    world.dies(1);
    assert_eq!(*world.stop(), StopReason::TooFewNodes { healthy: 3, needed: 4 });
}

#[test]
fn a_launch_refused_for_an_unknown_allocation_ends_the_job_when_the_manager_says_so_again() {
    let mut world = World::running_with(Config { no_progress_limit: 1, ..config(6, 4) });
    world.denial = None;
    refused(&mut world, Obstacle::UnknownAllocation);
    assert_eq!((world.machine.explain().phase, times_asked(&world)), (Activity::CheckingAllocation, 1));
    world.happens(Event::AllocationChecked { denial: Some("Invalid job id specified".into()) });
    assert_eq!(world.launches().len(), 1);
    assert!(world.drained(), "the agents that answer are drained");
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
    assert!(world.outcome().to_string().contains("the allocation is lost"), "{}", world.outcome());
}

#[test]
fn a_lost_allocation_whose_newest_checkpoint_could_not_be_saved_ends_with_damaged_data() {
    let mut world = World::running();
    world.drain = DrainResult::Failed { reason: "no agent".into(), unwritable: false };
    world.denial = Some(Some("Invalid job id specified".into()));
    refused(&mut world, Obstacle::UnknownAllocation);
    assert_eq!(world.outcome().exit_code(), exit::DAMAGED_DATA);
}

#[test]
fn a_manager_that_knows_the_allocation_after_all_makes_it_a_refused_launch() {
    let mut world = World::running();
    refused(&mut world, Obstacle::UnknownAllocation);
    assert_eq!((world.generation(), world.machine.explain().phase), (Generation(2), Activity::Running));
    for _ in 0..7 {
        refused(&mut world, Obstacle::UnknownAllocation);
        world.passes(seconds(16));
    }
    assert!(matches!(world.stop(), StopReason::NoProgress { generations: 3, .. }), "{:?}", world.stop());
}

#[test]
fn the_manager_is_asked_when_no_agent_is_left() {
    for (denial, lost) in [(None, false), (Some("Invalid job id specified".to_owned()), true)] {
        let mut world = World::running();
        world.denial = Some(denial);
        for node in 0..6 {
            world.only(Event::AgentLost { node: name(node), reason: "killed".into() });
        }
        for node in 0..6 {
            let (node, reason) = (name(node), "Invalid job id specified".to_owned());
            world.happens(Event::AgentStartFailed { node, reason, node_lost: true });
        }
        assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
        assert_eq!(matches!(world.stop(), StopReason::AllocationLost { .. }), lost, "{:?}", world.stop());
    }
}

#[test]
fn a_machine_that_takes_over_asks_the_manager_again() {
    let mut world = World::running();
    world.denial = None;
    refused(&mut world, Obstacle::UnknownAllocation);
    world.machine = world.twin();
    world.begin();
    assert_eq!(times_asked(&world), 2);
}
