//! Scenarios of whole jobs, from the first launch to the end.

use crate::allocation::AgentPresence;
use crate::events::{DownReason, DrainResult, EndCause, LogEvent, StopReason};
use holdfast_model::{CheckpointId, Generation, NodeName};

use super::world::{World, address, config, ms, name};
use crate::exit;
use crate::relaunch::explain::Activity;
use crate::relaunch::*;

#[test]
fn an_undisturbed_job_is_launched_once_drained_and_finished() {
    let mut world = World::running();
    assert_eq!(world.homes(), ["n0", "n1", "n2", "n3"]);
    world.joined(None);
    world.checkpoint(1);
    world.happens(Event::Finalized { generation: world.generation() });
    world.ranks_end_well();
    assert_eq!(world.launches().len(), 1);
    assert_eq!(world.causes(), [EndCause::Finalized]);
    assert!(world.drained());
    assert_eq!(world.outcome().exit_code(), exit::FINISHED);
    let agents_stopped =
        world.actions.iter().any(|action| matches!(action, Action::StopAgents { to } if to.len() == 6));
    assert!(agents_stopped, "spares have agents too");
}

#[test]
fn when_a_node_dies_the_first_spare_takes_its_rank_and_the_others_keep_theirs() {
    let mut world = World::running();
    world.joined(None);
    world.checkpoint(1);
    world.dies(2);
    assert_eq!(world.homes(), ["n0", "n1", "n4", "n3"]);
    assert_eq!(world.generation(), Generation(2));
    assert_eq!(world.causes(), [EndCause::NodeFailure { nodes: vec![name(2)] }]);
}

#[test]
fn two_nodes_lost_one_after_another_cost_two_relaunches() {
    let mut world = World::running();
    world.dies(0);
    world.checkpoint(1);
    world.dies_later(3);
    assert_eq!(world.homes(), ["n4", "n1", "n2", "n5"]);
    let leaders = found!(world.actions, Action::Launch { placement, .. } => placement.leader.clone());
    assert_eq!(leaders, [name(0), name(1), name(1)], "the leader is the run's first node");
}

#[test]
fn two_nodes_lost_at_once_cost_one_relaunch() {
    let mut world = World::running();
    world.only(Event::AgentLost { node: name(1), reason: "connection closed".into() });
    world.dead.extend([name(1), name(2)]);
    world.dies(2);
    assert_eq!(world.launches().len(), 1, "node 1 is not judged yet");
    world.happens(Event::AgentStartFailed { node: name(1), reason: "gone".into(), node_lost: true });
    assert_eq!(world.causes(), [EndCause::NodeFailure { nodes: vec![name(1), name(2)] }]);
    assert_eq!(world.homes(), ["n0", "n4", "n5", "n3"]);
}

#[test]
fn a_spare_that_dies_does_not_end_the_generation_and_is_never_used() {
    let mut world = World::running();
    world.dies(4);
    assert_eq!(world.generation(), Generation(1));
    world.dies(0);
    assert_eq!(world.homes(), ["n5", "n1", "n2", "n3"]);
}

#[test]
fn a_node_that_dies_while_the_generation_is_prepared_is_replaced_before_anything_is_launched() {
    let mut world = World::new(config(6, 4));
    world.silent.insert(name(1));
    world.begin();
    world.happens(Event::AgentReady { node: name(1), address: address(&name(1), 1), adopted: None });
    assert_eq!(world.machine.explain().phase, Activity::Preparing);
    world.dies(1);
    assert_eq!(world.launches().len(), 1);
    assert_eq!(world.homes(), ["n0", "n4", "n2", "n3"]);
    assert_eq!(world.generation(), Generation(2), "the number of the generation that was given up is not used again");
}

#[test]
fn an_agent_killed_alone_is_restarted_and_the_run_goes_on() {
    let mut world = World::running();
    world.happens(Event::AgentLost { node: name(1), reason: "killed".into() });
    assert_eq!(world.launches().len(), 1);
    assert!(world.causes().is_empty());
    let sent = world.actions.iter().any(|action| {
        let Action::UpdatePeers { addresses, to, .. } = action else { return false };
        addresses.contains_key(&name(1)) && *to == [name(0)]
    });
    assert!(sent, "the leader gets the new address");
    assert!(!world.actions.iter().any(|action| matches!(action, Action::KillRanks { .. })));
}

#[test]
fn a_restarted_agent_that_lost_its_state_gets_the_generation_again() {
    let mut world = World::running();
    world.only(Event::AgentLost { node: name(1), reason: "killed".into() });
    let actions = world.only(Event::AgentReady { node: name(1), address: address(&name(1), 7), adopted: None });
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Prepare { generation: Generation(1), to, .. } if *to == [name(1)]))
    );
}

#[test]
fn a_node_whose_agent_dies_repeatedly_is_down() {
    let mut world = World::running();
    for _ in 0..=world.machine.config().agent_restarts {
        world.happens(Event::AgentLost { node: name(1), reason: "killed".into() });
        // Longer than any pause before a restart.
        world.passes(ms(11_000));
    }
    assert_eq!(world.causes(), [EndCause::NodeFailure { nodes: vec![name(1)] }]);
    assert_eq!(world.homes(), ["n0", "n4", "n2", "n3"]);
}

#[test]
fn a_silent_node_is_down_when_its_agent_cannot_be_restarted_in_time() {
    let mut world = World::running();
    world.silent.insert(name(3));
    world.presence.insert(name(3), AgentPresence::NoAnswer);
    world.passes(ms(700));
    assert_eq!(world.launches().len(), 1);
    world.passes(ms(900));
    assert_eq!(world.homes(), ["n0", "n1", "n2", "n4"]);
}

/// Starts of agents since the actions were cleared, by node.
fn starts(world: &World) -> Vec<NodeName> {
    found!(world.actions, Action::StartAgent { node } => node.clone())
}

fn logged(world: &World, event: fn(&LogEvent) -> bool) -> usize {
    world.actions.iter().filter(|action| matches!(action, Action::Record(recorded) if event(recorded))).count()
}

#[test]
fn a_silent_agent_whose_process_exists_is_suspected_and_replaced_after_a_longer_time() {
    let mut world = World::running();
    world.actions.clear();
    world.silent.insert(name(3));
    world.passes(ms(9500));
    assert_eq!(starts(&world), []);
    assert_eq!(logged(&world, |event| matches!(event, LogEvent::AgentSilent { .. })), 1);
    let silent = |world: &World| world.machine.explain().nodes.iter().filter(|node| node.silent).count();
    assert_eq!(silent(&world), 1);
    let mut other = World::new(config(6, 4));
    (other.machine, other.now) = (world.machine.clone(), world.now);
    other.passes(ms(1000));
    assert_eq!((silent(&other), logged(&other, |event| matches!(event, LogEvent::AgentAnswers { .. }))), (0, 1));
    world.passes(ms(1000));
    assert_eq!(starts(&world), [name(3)]);
}

#[test]
fn a_stall_of_the_orchestrator_is_no_silence() {
    let mut world = World::running();
    world.actions.clear();
    for stall in [ms(3000), ms(20_000), ms(60_000)] {
        world.passes(ms(600));
        world.stalls(stall);
        // The poller reports the time before any answer.
        world.happens(Event::PollsRan { ran: world.now - world.stalled });
        world.passes(ms(100));
    }
    assert_eq!(starts(&world), []);
    assert_eq!(logged(&world, |event| matches!(event, LogEvent::OrchestratorStalled { .. })), 3);
    assert_eq!(logged(&world, |event| matches!(event, LogEvent::AgentSilent { .. })), 0);
    world.dead.insert(name(1));
    world.stalls(ms(5000));
    world.passes(ms(1000));
    assert_eq!(world.homes(), ["n0", "n4", "n2", "n3"], "a node that died meanwhile is replaced");
}

#[test]
fn while_most_agents_are_silent_only_lost_ones_are_restarted() {
    let mut world = World::running();
    world.actions.clear();
    world.silent.extend((0..5).map(name));
    world.presence.insert(name(2), AgentPresence::Ended);
    world.presence.insert(name(3), AgentPresence::NoAnswer);
    world.passes(ms(9500));
    assert_eq!(starts(&world), [name(2)]);
    assert_eq!(logged(&world, |event| matches!(event, LogEvent::MostAgentsSilent { .. })), 1);
    assert_eq!(logged(&world, |event| matches!(event, LogEvent::AgentSilent { .. })), 0);
    world.silent.clear();
    world.presence.clear();
    world.passes(ms(60_000));
    assert_eq!(starts(&world), [name(2)]);
}

#[test]
fn a_bounded_number_of_agents_is_restarted_at_a_time() {
    let mut world = World::running_with(config(40, 30));
    world.actions.clear();
    for node in 0..40 {
        world.only(Event::AgentLost { node: name(node), reason: "killed".into() });
    }
    let first = starts(&world);
    assert_eq!(first.len(), world.machine.config().restarts_at_once as usize);
    let ready = Event::AgentReady { node: name(0), address: address(&name(0), 2), adopted: None };
    world.only(ready);
    world.now += ms(10);
    world.only(Event::PollsRan { ran: world.now });
    assert_eq!(starts(&world).len(), first.len() + 1);
}

#[test]
fn an_agent_that_is_lost_again_and_again_is_restarted_less_and_less_often() {
    let mut world = World::running();
    world.actions.clear();
    let begun = world.now;
    while world.now < begun + ms(10_000) {
        world.happens(Event::AgentLost { node: name(1), reason: "killed".into() });
        world.passes(ms(50));
    }
    assert!(starts(&world).len() < 10, "{} restarts in ten seconds", starts(&world).len());
}

#[test]
fn a_node_that_fails_a_health_test_is_down_although_its_agent_answers() {
    let mut world = World::running();
    let full = Some("/tmp: no space".to_owned());
    world.happens(Event::PollAnswered { node: name(0), sent: ms(0), fault: full });
    assert_eq!(world.homes(), ["n4", "n1", "n2", "n3"]);
    let at = |sought: &dyn Fn(&Action) -> bool| world.actions.iter().position(sought).unwrap();
    let fence = Action::FenceNode { node: name(0), address: Some(super::world::address(&name(0), 1)) };
    let fenced = at(&|action| *action == fence);
    assert!(fenced < at(&|action| matches!(action, Action::KillRanks { .. })), "first its own ranks and its agent");
    world.happens(Event::Finalized { generation: world.generation() });
    world.ranks_end_well();
    assert_eq!(world.actions.iter().filter(|action| **action == fence).count(), 1);
    let stopped = world.actions.iter().any(|action| matches!(action, Action::StopAgents { to } if to.len() == 5));
    assert!(stopped, "nothing more is sent there");
}

#[test]
fn nodes_that_failed_a_test_of_the_site_are_drained_and_get_no_ranks() {
    let mut world = World::running();
    for node in 0..6 {
        world.happens(Event::HealthFault { node: name(node), fault: "exit code 3".to_owned() });
    }
    assert!(world.drained());
    let drains = found!(world.actions, Action::Drain { healthy, starting, down, .. } => {
        (healthy.len(), starting.len(), down.len())
    });
    // With three of them left, too few are left for a launch.
    assert_eq!(drains, [(3, 3, 0)]);
    // What is found later does not take a node from the drain.
    let later = Event::HealthFault { node: name(1), fault: "exit code 3".to_owned() };
    assert_eq!(world.only(later), []);
}

#[test]
fn a_node_that_the_resource_manager_reports_down_at_the_start_is_never_used() {
    let mut world = World::new(config(5, 4));
    let actions = world.machine.begin(ms(0));
    world.happens(Event::NodeDown { node: name(0), reason: DownReason::ResourceManager { state: "drained".into() } });
    world.perform(actions);
    assert_eq!(world.homes(), ["n1", "n2", "n3", "n4"]);
}

#[test]
fn with_too_few_nodes_left_the_loop_stops_and_drains_with_those_that_are_left() {
    let mut world = World::running_with(config(4, 4));
    world.checkpoint(3);
    world.dies(2);
    assert_eq!(*world.stop(), StopReason::TooFewNodes { healthy: 3, needed: 4 });
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
    let drains = found!(world.actions, Action::Drain { healthy, down, .. } => (healthy.len(), down.clone()));
    assert_eq!(drains, [(3, vec![name(2)])]);
}

#[test]
fn with_at_least_min_nodes_the_lost_ranks_are_spread() {
    let mut world = World::running_with(Config { min_nodes: 2, ..config(4, 4) });
    world.dies(3);
    assert_eq!(world.homes(), ["n0", "n1", "n2", "n0"]);
}

#[test]
fn a_dataset_that_cannot_be_completed_shows_in_the_exit_code_unless_an_older_one_can_be_used() {
    for (older, code) in [(None, exit::DAMAGED_DATA), (Some(CheckpointId(2)), exit::NOT_FINISHED)] {
        let mut world = World::running_with(config(4, 4));
        world.drain = DrainResult::Incomplete {
            checkpoint: CheckpointId(3),
            reason: "two members missing".into(),
            unwritable: false,
            older,
        };
        world.dies(2);
        assert_eq!(world.outcome().exit_code(), code);
        let text = world.outcome().to_string();
        assert!(text.contains("checkpoint 3 could not be completed"), "{text}");
        assert_eq!(text.contains("checkpoint 2 is complete there"), older.is_some(), "{text}");
    }
}

#[test]
fn the_loop_stops_and_drains_when_the_orchestrators_own_node_is_down() {
    let mut world = World::running_with(Config { own_node: Some(name(0)), ..config(6, 4) });
    world.happens(Event::HealthFault { node: name(0), fault: "/tmp is read-only".into() });
    assert_eq!(*world.stop(), StopReason::OwnNodeDown { node: name(0) });
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
    assert!(world.drained());
}

#[test]
fn without_any_agent_there_is_nothing_to_drain() {
    let mut world = World::new(config(3, 2));
    world.dead.extend((0..3).map(name));
    world.begin();
    assert_eq!(world.outcome().exit_code(), exit::UNAVAILABLE);
    assert!(!world.drained());
    assert!(world.outcome().to_string().contains("no such node"));
}

#[test]
fn a_start_that_fails_is_repeated() {
    let mut world = World::new(config(4, 4));
    world.silent.insert(name(2));
    world.begin();
    let failed = || Event::AgentStartFailed { node: name(2), reason: "connection refused".into(), node_lost: false };
    world.happens(failed());
    world.silent.clear();
    world.passes(ms(1000));
    assert_eq!(world.launches().len(), 1);
}

/// Four nodes, all needed, whose agents are up and are sent the first generation.
fn preparing() -> Machine {
    let mut machine = Machine::new(config(4, 4));
    machine.begin(ms(0));
    for node in 0..4 {
        machine.handle(ms(1), Event::AgentReady { node: name(node), address: address(&name(node), 1), adopted: None });
    }
    machine.handle(ms(2), Event::HaltAnswered { met: None, silent: Vec::new() });
    machine
}

/// The exit code and the message, after a drain that found nothing.
fn end_of(machine: &mut Machine) -> (u8, String) {
    let actions = machine.handle(ms(5), Event::Drained { result: DrainResult::Nothing, unplaced: Vec::new() });
    let outcome = found!(actions, Action::Finish(outcome) => outcome)[0];
    (outcome.exit_code(), outcome.to_string())
}

#[test]
fn a_first_generation_that_an_agent_refuses_is_not_retried_in_another_allocation() {
    let mut machine = preparing();
    let reason = "/home/heat does not exist on this node".to_owned();
    machine.handle(ms(3), Event::RunRefused { node: name(2), generation: Generation(1), reason });
    let (code, said) = end_of(&mut machine);
    assert_eq!(code, exit::UNAVAILABLE);
    assert!(said.contains("n2") && said.contains("/home/heat"), "{said}");
}

#[test]
fn a_job_whose_nodes_are_all_unfit_is_not_retried_in_another_allocation() {
    let mut machine = Machine::new(config(4, 4));
    machine.begin(ms(0));
    let (mut actions, mut fenced) = (Vec::new(), 0);
    for node in 0..4 {
        let (address, fault) = (address(&name(node), 1), "/ssd: cannot be reached".into());
        assert!(!machine.is_finished(), "the others may be fit");
        actions = machine.handle(ms(1), Event::AgentUnfit { node: name(node), address, fault });
        fenced += actions.iter().filter(|action| matches!(action, Action::FenceNode { address: Some(_), .. })).count();
    }
    let outcome = found!(actions, Action::Finish(outcome) => outcome)[0];
    assert_eq!(outcome.exit_code(), exit::UNAVAILABLE);
    assert!(outcome.to_string().contains("/ssd"));
    assert_eq!(fenced, 4, "their agents are up");
}

#[test]
fn a_job_with_one_unfit_node_may_be_retried_in_another_allocation() {
    let mut machine = preparing();
    machine.handle(ms(3), Event::HealthFault { node: name(2), fault: "/ssd: full".into() });
    assert_eq!(end_of(&mut machine).0, exit::NOT_FINISHED);
}

#[test]
fn a_halt_set_before_the_first_launch_launches_nothing() {
    let mut world = World::new(config(4, 4));
    world.halt = Some("JOB_HALTED".into());
    world.begin();
    assert!(world.launches().is_empty());
    assert_eq!(*world.stop(), StopReason::Halted { reason: "JOB_HALTED".into() });
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
}

#[test]
fn a_halt_set_during_a_generation_lets_the_ranks_end_by_themselves_and_prevents_a_relaunch() {
    let mut world = World::running();
    world.joined(None);
    world.happens(Event::HaltSet { reason: "JOB_HALTED".into(), immediate: false, ends: None });
    assert!(!world.actions.iter().any(|action| matches!(action, Action::KillRanks { .. })));
    world.happens(Event::Halting { generation: world.generation(), reason: "JOB_HALTED".into() });
    world.ranks_end_well();
    assert_eq!(world.causes(), [EndCause::Halted { reason: "JOB_HALTED".into() }]);
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
}

#[test]
fn a_halt_condition_that_was_unset_does_not_prevent_a_relaunch() {
    let mut world = World::running();
    world.joined(None);
    world.happens(Event::HaltSet { reason: "JOB_HALTED".into(), immediate: false, ends: None });
    world.happens(Event::HaltCleared);
    world.dies(1);
    assert_eq!(world.launches().len(), 2);
}

#[test]
fn the_halt_conditions_are_read_before_and_after_the_settle_delay() {
    for (before, launches) in [(true, 1), (false, 1)] {
        let mut world = World::running_with(Config { settle: ms(60_000), ..config(6, 4) });
        world.halt = before.then(|| "EXIT_AFTER_TIME".into());
        world.dies(1);
        if !before {
            assert_eq!(world.machine.explain().phase, Activity::Settling);
            world.passes(ms(59_900));
            assert_eq!(world.machine.explain().phase, Activity::Settling);
            world.halt = Some("EXIT_AFTER_TIME".into());
            world.passes(ms(200));
        }
        assert_eq!(world.launches().len(), launches);
        assert_eq!(*world.stop(), StopReason::Halted { reason: "EXIT_AFTER_TIME".into() });
    }
}

#[test]
fn near_the_end_of_the_allocation_the_ranks_are_killed_to_leave_time_for_the_drain() {
    let limits = |config| Config {
        started: 1_000_000,
        allocation_end: Some(1_000_100),
        before_end: ms(50_000),
        drain_reserve: Some(ms(20_000)),
        ..config
    };
    let mut world = World::running_with(limits(config(6, 4)));
    world.passes(ms(79_900));
    assert_eq!(world.machine.explain().phase, Activity::Running);
    world.passes(ms(200));
    assert_eq!(world.causes(), [EndCause::TimeLimit]);
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);

    let mut world = World::running_with(limits(config(6, 4)));
    world.passes(ms(60_000));
    world.dies(0);
    assert_eq!(world.launches().len(), 1, "nothing is launched with less than before_end left");
    assert_eq!(*world.stop(), StopReason::TimeLimit);
}

#[test]
fn agents_that_are_busy_during_the_drain_are_not_restarted() {
    let mut world = World::running_with(Config { halt_grace: ms(0), ..config(6, 4) });
    world.only(Event::Signal { name: "SIGTERM".into() });
    world.all_ranks_are_killed();
    world.actions.clear();
    world.silent.extend((0..6).map(name));
    world.passes(ms(30_000));
    assert_eq!(starts(&world), []);
}

#[test]
fn an_agent_whose_loss_and_return_are_received_together_is_not_started_again() {
    let mut world = World::running();
    let lost = Event::AgentLost { node: name(1), reason: "connection closed".into() };
    let ready = Event::AgentReady { node: name(1), address: address(&name(1), 9), adopted: Some(Generation(1)) };
    let actions = world.machine.handle_all(world.now, [lost, ready]);
    assert!(!actions.iter().any(|action| matches!(action, Action::StartAgent { .. })), "{actions:?}");
    assert!(world.machine.agents().any(|(node, at)| *node == name(1) && at == address(&name(1), 9)));
}

#[test]
fn the_drain_begins_when_the_directories_that_a_restart_supersedes_are_recorded() {
    let mut world = World::running();
    world.supersede = None;
    world.joined(Some(3));
    world.joined(Some(3));
    let from = Some(CheckpointId(3));
    world.ranks_end_well();
    world.happens(Event::StepEnded { generation: world.generation(), end: holdfast_model::RankEnd::SUCCESS });
    world.passes(ms(60_000));
    assert!(!world.drained(), "the action is under way");
    // An orchestrator that takes over does not know how far it came.
    assert!(world.twin().begin(world.now).contains(&Action::Supersede { from }));
    // The second report came during the action: its directories may be newer.
    world.happens(Event::Superseded { from, failure: None });
    assert!(!world.drained());
    world.happens(Event::Superseded { from, failure: None });
    assert!(matches!(
        world.actions.iter().rfind(|action| matches!(action, Action::Drain { .. })),
        Some(Action::Drain { continues: true, .. })
    ));
    let begun = world.actions.iter().filter(|action| matches!(action, Action::Supersede { .. }));
    assert_eq!(begun.count(), 2);
}

#[test]
fn a_drain_without_the_list_of_superseded_directories_continues_none() {
    let mut world = World::running();
    world.supersede = Some(Some("no space left".to_owned()));
    world.joined(Some(3));
    world.ranks_end_well();
    world.happens(Event::StepEnded { generation: world.generation(), end: holdfast_model::RankEnd::SUCCESS });
    let attempts = world.actions.iter().filter(|action| matches!(action, Action::Supersede { .. }));
    assert_eq!(attempts.count(), 2, "after the restart and before the drain");
    let drain = world.actions.iter().find(|action| matches!(action, Action::Drain { .. }));
    assert!(matches!(drain, Some(Action::Drain { continues: false, .. })), "{drain:?}");
    assert!(!world.machine.snapshot().knows_superseded());
}
