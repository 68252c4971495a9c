//! Take-over of a job whose orchestrator was killed.

use crate::events::{DownReason, EndCause, StopReason};
use holdfast_model::{CheckpointId, Generation, Rank, RankEnd};

use super::world::{World, address, config, ms, name};
use crate::relaunch::explain::{Activity, NodeCondition};
use crate::relaunch::snapshot::RestoreError;
use crate::relaunch::*;

/// Kills the orchestrator and starts another one from the state on disk.
fn taken_over(world: &mut World) -> Vec<Action> {
    world.machine = world.twin();
    let actions = world.machine.begin(world.now);
    world.actions.extend(actions.clone());
    actions
}

#[test]
fn a_generation_under_way_is_followed_to_its_end() {
    let mut world = World::running();
    let actions = taken_over(&mut world);
    assert!(actions.iter().any(|action| matches!(action, Action::FollowStep { generation: Generation(1), .. })));
    assert_eq!(world.machine.agents().count(), 6, "the agents to poll");
    world.happens(Event::Finalized { generation: Generation(1) });
    (0..4).for_each(|rank| world.rank_ends(rank, RankEnd::Unknown));
    assert_eq!(*world.stop(), StopReason::Finished);
}

#[test]
fn agents_get_all_addresses_again_after_a_take_over() {
    let mut world = World::running();
    world.only(Event::AgentLost { node: name(0), reason: "killed".into() });
    // The new address is in the journal, and the messages to the others are lost.
    world.only(Event::AgentReady { node: name(0), address: address(&name(0), 2), adopted: Some(Generation(1)) });
    let actions = taken_over(&mut world);
    let updates = found!(actions, Action::UpdatePeers { addresses, to, .. } => (addresses, to.clone()));
    assert!(updates.iter().all(|(addresses, _)| addresses[&name(0)] == address(&name(0), 2)));
    assert_eq!(updates.iter().map(|(addresses, _)| addresses.len()).collect::<Vec<_>>(), [6, 1]);
    assert_eq!(
        (updates[0].1.as_slice(), updates[1].1.len()),
        (&[name(0)][..], 5),
        "all to the leader, its own to the others"
    );
}

#[test]
fn a_step_that_cannot_be_followed_is_ended_and_launched_again() {
    let mut world = World::running();
    taken_over(&mut world);
    world.happens(Event::StepLost { generation: Generation(1), reason: "its launcher died".into() });
    assert!(world.actions.iter().any(|action| matches!(action, Action::KillRanks { generation: Generation(1), .. })));
    assert_eq!(world.launches().len(), 2);
}

#[test]
fn a_launch_that_was_not_recorded_as_begun_is_followed_and_if_it_did_not_begin_repeated() {
    let mut world = World::new(config(4, 4));
    let actions = world.machine.begin(ms(0));
    for action in actions {
        if let Action::StartAgent { node } = action {
            world.only(Event::AgentReady { address: super::world::address(&node, 1), node, adopted: None });
        }
    }
    world.only(Event::HaltAnswered { met: None, silent: Vec::new() });
    (0..4).for_each(|node| drop(world.only(Event::RunPrepared { node: name(node), generation: Generation(1) })));
    assert_eq!(world.launches().len(), 1);
    let actions = taken_over(&mut world);
    let follow = |action: &Action| matches!(action, Action::FollowStep { generation: Generation(1), .. });
    assert!(actions.iter().any(follow), "its ranks may be running");
    world.perform(actions);
    assert_eq!((world.generation(), world.launches().len()), (Generation(1), 1));
    world.happens(Event::StepLost { generation: Generation(1), reason: "its supervisor wrote nothing".into() });
    assert_eq!(world.generation(), Generation(2));
    assert_eq!(world.launches().len(), 2);
}

#[test]
fn the_leader_decides_about_a_rank_whose_exit_status_is_unknown() {
    let mut world = World::running();
    taken_over(&mut world);
    world.only(Event::RankExited { generation: Generation(1), rank: Rank(1), end: RankEnd::Unknown });
    world.only(Event::Finalized { generation: Generation(1) });
    world.happens(Event::PollAnswered { node: name(0), sent: world.now, fault: None });
    assert_eq!(world.machine.explain().phase, Activity::Running, "the others end by themselves");

    let mut world = World::running();
    taken_over(&mut world);
    world.rank_ends(1, RankEnd::Unknown);
    assert_eq!(world.causes(), [EndCause::Application { rank: Some(Rank(1)), end: RankEnd::Unknown }]);
}

#[test]
fn a_drain_under_way_is_begun_again() {
    let mut world = World::running_with(Config { halt_grace: ms(0), ..config(6, 4) });
    world.only(Event::Signal { name: "SIGTERM".into() });
    world.all_ranks_are_killed();
    let actions = taken_over(&mut world);
    assert!(actions.iter().any(|action| matches!(action, Action::Drain { .. })));
    world.perform(actions);
    assert!(world.machine.is_finished());
}

#[test]
fn without_a_snapshot_generation_numbers_continue_from_those_of_the_agents() {
    let mut world = World::new(config(4, 4));
    let actions = world.machine.begin(ms(0));
    let ready = super::world::address(&name(2), 3);
    world.happens(Event::AgentReady { node: name(2), address: ready, adopted: Some(Generation(41)) });
    world.perform(actions);
    assert_eq!(world.generation(), Generation(42));
}

#[test]
fn the_next_step_continues_generation_numbers_and_uses_no_node_that_is_down() {
    let mut world = World::running();
    world.happens(Event::NodeDown { node: name(1), reason: DownReason::ResourceManager { state: "gone".to_owned() } });
    let former = world.machine.snapshot();
    assert_eq!(world.generation(), Generation(2));
    world.machine = Machine::restore(config(6, 4), former.next_step()).unwrap();
    assert_eq!(world.machine.finished_steps(), Generation(2));
    world.actions.clear();
    world.begin();
    let started = world.actions.iter().filter(|action| matches!(action, Action::StartAgent { .. })).count();
    assert_eq!((started, world.generation()), (5, Generation(3)));
    assert!(world.actions.iter().any(|action| matches!(action, Action::FenceNode { node, .. } if *node == name(1))));
    let nodes = world.machine.explain().nodes;
    assert!(matches!(&nodes[1].condition, NodeCondition::Down(verdict) if verdict.reason.to_string().contains("gone")));
    assert!(world.machine.explain().generations.iter().all(|past| past.generation == Generation(3)));
}

#[test]
fn a_signal_during_the_drain_of_a_step_ends_the_job_before_the_next() {
    let mut world = World::running();
    world.happens(Event::Finalized { generation: Generation(1) });
    world.only(Event::Signal { name: "SIGINT".to_owned() });
    let former = world.machine.snapshot();
    world.machine = Machine::restore(config(6, 4), former.next_step()).unwrap();
    world.actions.clear();
    world.begin();
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Launch { .. })));
    assert_eq!(*world.stop(), StopReason::Signal { name: "SIGINT".to_owned() });
}

#[test]
fn a_snapshot_of_another_job_or_a_damaged_one_is_refused() {
    let snapshot = World::running().machine.snapshot();
    let refused = |config: Config, snapshot: Snapshot| Machine::restore(config, snapshot).unwrap_err();
    assert!(matches!(refused(config(5, 4), snapshot.clone()), RestoreError::Mismatch { .. }));
    assert!(matches!(refused(config(6, 3), snapshot.clone()), RestoreError::Mismatch { .. }));
    let mut value = serde_json::to_value(&snapshot).unwrap();
    value["homes"] = serde_json::json!([0, 1, 2, 4_000_000_000u32]);
    assert!(matches!(refused(config(6, 4), serde_json::from_value(value).unwrap()), RestoreError::Mismatch { .. }));
    let mut value = serde_json::to_value(&snapshot).unwrap();
    value["version"] = 1.into();
    assert_eq!(
        refused(config(6, 4), serde_json::from_value(value).unwrap()),
        RestoreError::Version { found: 1, known: 5 }
    );
}

#[test]
fn every_down_node_is_fenced_again_at_once() {
    let mut world = World::running();
    world.dies(2);
    let fence = Action::FenceNode { node: name(2), address: Some(super::world::address(&name(2), 1)) };
    let actions = taken_over(&mut world);
    assert_eq!(
        actions.iter().filter(|action| matches!(action, Action::FenceNode { .. })).collect::<Vec<_>>(),
        [&fence]
    );
    let at = |sought: &dyn Fn(&Action) -> bool| actions.iter().position(sought).unwrap();
    assert!(at(&|action| *action == fence) < at(&|action| matches!(action, Action::FollowStep { .. })));
}

#[test]
fn whether_the_newest_checkpoint_is_protected_survives_a_take_over() {
    let mut world = World::running();
    world.checkpoint(4);
    taken_over(&mut world);
    let explanation = world.machine.explain();
    assert_eq!((explanation.newest, explanation.protected), (Some(CheckpointId(4)), Some(CheckpointId(4))));
}
