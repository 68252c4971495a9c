//! Restarts that fail although the checkpoints are good.

use holdfast_model::{CheckpointId, NodeName, Rank, RankEnd};

use super::world::{World, address, config, ms, name};
use crate::events::{EndCause, LogEvent, StopReason};
use crate::relaunch::*;

fn prevented(world: &World, faulty: Option<usize>) -> Event {
    let generation = world.generation();
    Event::RestartPrevented { generation, faulty: faulty.map(name), reason: "no space left".into() }
}

fn cause(nodes: &[usize]) -> EndCause {
    let nodes: Vec<NodeName> = nodes.iter().map(|node| name(*node)).collect();
    EndCause::RestartPrevented { nodes, reason: "no space left".into() }
}

fn is_down(world: &World, node: usize) -> bool {
    let down =
        |action: &Action| matches!(action, Action::Record(LogEvent::NodeDown { node: of, .. }) if *of == name(node));
    world.actions.iter().any(down)
}

#[test]
fn a_spare_takes_the_ranks_of_a_node_that_cannot_write_and_the_agent_of_that_node_stays_up() {
    // No limit counts such a generation: the ranks could do nothing.
    let mut world = World::running_with(Config { attempts: 0, no_progress_limit: 1, ..config(6, 4) });
    world.happens(prevented(&world, Some(1)));
    assert_eq!(world.causes(), [cause(&[1])]);
    assert_eq!(world.homes(), ["n0", "n4", "n2", "n3"]);
    assert!(!is_down(&world, 1));
    assert!(world.is_in_last_placement(1), "its cache can be used");
    // The user's list of excluded nodes does not bring it back.
    world.happens(Event::ExclusionsChanged { excluded: Default::default() });
    assert_eq!(world.machine.explain().nodes[1].excluded.as_ref().unwrap().reason, "no space left");
    assert_eq!(world.machine.summary().spare, 1);
}

#[test]
fn the_cause_is_the_node_although_the_ranks_fail_first() {
    let mut world = World::running();
    let generation = world.generation();
    let report = prevented(&world, Some(2));
    world.silent.insert(name(0));
    world.only(Event::RankExited { generation, rank: Rank(3), end: RankEnd::Code(1) });
    world.only(report);
    world.silent.clear();
    for node in 0..4 {
        world.happens(Event::RanksKilled { node: name(node), generation, may_halt: false });
        world.happens(Event::PollAnswered { node: name(node), sent: world.now + ms(1), fault: None });
    }
    assert_eq!(world.causes(), [cause(&[2])]);
    assert_eq!(world.homes(), ["n0", "n1", "n4", "n3"]);
}

#[test]
fn a_node_that_is_faulty_without_ranks_is_down_and_a_repeated_report_changes_nothing() {
    let mut world = World::running();
    let report = prevented(&world, Some(1));
    world.happens(report.clone());
    world.happens(report);
    assert!(!is_down(&world, 1));
    world.happens(prevented(&world, Some(1)));
    assert!(is_down(&world, 1));
    assert_eq!(world.causes().len(), 2);
    assert_eq!(world.homes(), ["n0", "n4", "n2", "n3"]);
}

#[test]
fn without_another_node_the_job_ends_and_another_allocation_continues() {
    let mut world = World::running_with(config(4, 4));
    world.happens(prevented(&world, Some(3)));
    assert_eq!(world.stop(), &StopReason::TooFewNodes { healthy: 3, needed: 4 });
}

#[test]
fn a_prefix_directory_that_cannot_be_used_ends_the_job_without_a_relaunch() {
    let mut world = World::running();
    world.happens(prevented(&world, None));
    assert_eq!(world.causes(), [cause(&[])]);
    assert_eq!(world.launches().len(), 1);
    assert_eq!(world.stop(), &StopReason::CannotRestart { reason: "no space left".into() });
}

#[test]
fn a_checkpoint_that_is_refused_before_the_launch_is_the_reason_for_the_beginning() {
    let mut world = World::new(config(6, 4));
    world.silent.insert(name(1));
    world.begin();
    world.happens(Event::AgentReady { node: name(1), address: address(&name(1), 1), adopted: None });
    let generation = world.generation();
    world.happens(Event::CheckpointUnusable {
        generation,
        checkpoint: CheckpointId(5),
        reason: "too much lost".into(),
    });
    assert_eq!(world.launches(), [], "one node has not answered yet");
    world.silent.clear();
    world.happens(Event::RunPrepared { node: name(1), generation });
    world.joined(None);
    let reason = "checkpoint 5 cannot be used: too much lost".to_owned();
    assert!(world.actions.contains(&Action::Record(LogEvent::FromBeginning { generation, reason })));
}
