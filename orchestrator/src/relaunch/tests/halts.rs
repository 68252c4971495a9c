//! The ranks are halted: by conditions, signals and the end of the allocation; and the silence of agents that are asked
//! for conditions.

use crate::events::{DrainResult, EndCause, LogEvent, StopReason};
use holdfast_model::{Generation, NodeName, Rank, RankEnd};
use std::time::Duration;

use super::world::{World, address, config, ms, name};
use crate::exit;
use crate::relaunch::explain::Activity;
use crate::relaunch::*;

const FIRST: Generation = Generation(1);
/// How a rank ends that does not handle SIGTERM.
const TERMINATED: RankEnd = RankEnd::Signal(15);

fn joined() -> World {
    joined_with(config(6, 4))
}

fn joined_with(config: Config) -> World {
    let mut world = World::running_with(config);
    world.joined(None);
    world.checkpoint(1);
    world
}

fn signal(world: &mut World) {
    world.happens(Event::Signal { name: "SIGTERM".into() });
}

fn set(reason: &str) -> Event {
    Event::HaltSet { reason: reason.into(), immediate: false, ends: None }
}

/// The reasons of all requests to halt, in order.
fn requests(world: &World) -> Vec<(NodeName, Option<String>)> {
    found!(world.actions, Action::RequestHalt { to, reason, .. } => (to.clone(), reason.clone()))
}

fn terminated(world: &World) -> usize {
    world.actions.iter().filter(|action| matches!(action, Action::TerminateRanks { .. })).count()
}

/// They are sent SIGTERM after this time, and not before.
fn terminates_after(world: &mut World, time: Duration) {
    world.passes(time - ms(100));
    assert_eq!(terminated(world), 0);
    world.passes(ms(200));
    assert_eq!(terminated(world), 1);
}

fn killed(world: &World) -> bool {
    world.actions.iter().any(|action| matches!(action, Action::KillRanks { to, .. } if !to.is_empty()))
}

#[test]
fn a_launch_that_waits_for_the_journal_when_a_signal_is_received_is_not_made() {
    let mut world = World::running();
    let waiting = world.actions.iter().rfind(|action| matches!(action, Action::Launch { .. })).unwrap().clone();
    assert!(world.machine.refreshed(waiting.clone()).is_some());
    world.only(Event::Signal { name: "SIGTERM".into() });
    assert_eq!(world.machine.refreshed(waiting), None);
}

#[test]
fn the_first_signal_halts_the_ranks_at_their_next_checkpoint() {
    let mut world = joined();
    signal(&mut world);
    assert_eq!(requests(&world), [(name(0), Some("SIGTERM".to_owned()))]);
    assert!(!killed(&world) && terminated(&world) == 0);
    world.checkpoint(2);
    world.happens(Event::Halting { generation: FIRST, reason: "SIGTERM".into() });
    world.ranks_end_well();
    assert_eq!(world.causes(), [EndCause::Halted { reason: "SIGTERM".into() }]);
    assert!(world.drained());
    assert_eq!(*world.stop(), StopReason::Signal { name: "SIGTERM".into() });
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
}

#[test]
fn a_launcher_that_reports_halted_ranks_as_failed_does_not_make_the_halt_a_failure() {
    let mut world = joined();
    world.happens(Event::Halting { generation: FIRST, reason: "NO_CHECKPOINTS_LEFT".into() });
    assert!(!world.machine.is_failure(FIRST, RankEnd::Unknown) && world.machine.is_failure(FIRST, RankEnd::Code(1)));
    for rank in 0..4 {
        world.rank_ends(rank, if rank == 0 { RankEnd::Unknown } else { RankEnd::SUCCESS });
    }
    world.happens(Event::StepEnded { generation: FIRST, end: RankEnd::Code(1) });
    assert_eq!(world.causes(), [EndCause::Halted { reason: "NO_CHECKPOINTS_LEFT".into() }]);
    // The launcher's report can be the first.
    let mut world = joined();
    world.happens(Event::Halting { generation: FIRST, reason: "NO_CHECKPOINTS_LEFT".into() });
    world.happens(Event::StepEnded { generation: FIRST, end: RankEnd::Code(1) });
    assert_eq!(world.causes(), [EndCause::Halted { reason: "NO_CHECKPOINTS_LEFT".into() }]);
}

#[test]
fn ranks_that_reach_no_checkpoint_are_terminated_after_the_grace_and_killed_after_as_long_again() {
    let mut world = joined();
    signal(&mut world);
    terminates_after(&mut world, ms(60_000));
    world.passes(ms(59_800));
    assert!(!killed(&world));
    world.passes(ms(200));
    assert!(killed(&world));
    assert_eq!(world.causes(), [EndCause::Halted { reason: "SIGTERM".into() }]);
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
}

#[test]
fn ranks_that_do_not_use_the_api_are_terminated_at_once_and_are_not_finished_when_they_end_with_0() {
    let mut world = World::running();
    world.happens(set("JOB_HALTED"));
    assert_eq!(terminated(&world), 1);
    world.ranks_end_well();
    assert_eq!(world.causes(), [EndCause::Halted { reason: "JOB_HALTED".into() }]);
    assert_eq!(*world.stop(), StopReason::Halted { reason: "JOB_HALTED".into() });
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
}

#[test]
fn a_rank_that_ends_after_sigterm_does_not_end_the_others() {
    let mut world = World::running();
    signal(&mut world);
    world.rank_ends(0, TERMINATED);
    world.rank_ends(1, RankEnd::Code(3));
    world.rank_ends(2, RankEnd::Unknown);
    assert!(!killed(&world));
    assert_eq!(world.machine.explain().phase, Activity::Running);
    world.rank_ends(3, TERMINATED);
    assert_eq!(world.causes(), [EndCause::Halted { reason: "SIGTERM".into() }]);
}

#[test]
fn a_rank_that_received_the_signal_too_does_not_end_the_others() {
    // As with `scancel`, which signals all processes of the job.
    let mut world = joined();
    signal(&mut world);
    world.rank_ends(0, TERMINATED);
    assert!(!killed(&world));
    assert_eq!(terminated(&world), 1);
    world.rank_ends(1, TERMINATED);
    world.rank_ends(2, TERMINATED);
    world.rank_ends(3, TERMINATED);
    assert_eq!(*world.stop(), StopReason::Signal { name: "SIGTERM".into() });
}

#[test]
fn the_second_signal_kills_the_ranks_and_drains() {
    for api in [false, true] {
        let mut world = if api { joined() } else { World::running() };
        signal(&mut world);
        assert!(!killed(&world));
        signal(&mut world);
        assert!(killed(&world));
        assert!(world.actions.contains(&Action::CancelStep { generation: FIRST }));
        assert!(world.drained());
        assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
    }
}

#[test]
fn the_third_signal_ends_everything_at_once() {
    let mut world = joined();
    for _ in 0..3 {
        world.only(Event::Signal { name: "SIGINT".into() });
    }
    assert!(!world.drained());
    assert_eq!(world.outcome().drain, None);
    assert!(world.actions.iter().any(|action| matches!(action, Action::StopAgents { to } if to.len() == 6)));
    assert_eq!(world.only(Event::Tick), []);
}

#[test]
fn only_the_third_signal_cancels_the_drain() {
    let mut world = World::running_with(Config { halt_grace: ms(0), ..config(6, 4) });
    world.only(Event::Signal { name: "SIGINT".into() });
    world.all_ranks_are_killed();
    assert_eq!(world.machine.explain().phase, Activity::Draining);
    world.only(Event::Signal { name: "SIGINT".into() });
    assert_eq!(world.machine.explain().phase, Activity::Draining);
    world.only(Event::Signal { name: "SIGINT".into() });
    assert!(world.machine.is_finished());
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
}

#[test]
fn an_immediate_halt_kills_the_ranks_without_a_checkpoint() {
    let mut world = joined();
    world.happens(Event::HaltSet { reason: "JOB_HALTED".into(), immediate: true, ends: None });
    assert!(killed(&world) && terminated(&world) == 0);
    assert_eq!(*world.stop(), StopReason::Halted { reason: "JOB_HALTED".into() });
}

#[test]
fn a_halt_that_is_cleared_before_the_ranks_are_terminated_is_withdrawn() {
    let mut world = joined();
    world.happens(set("JOB_HALTED"));
    world.passes(ms(30_000));
    world.happens(Event::HaltCleared);
    assert_eq!(requests(&world), [(name(0), Some("JOB_HALTED".to_owned())), (name(0), None)]);
    world.passes(ms(300_000));
    assert_eq!(terminated(&world), 0);
    world.dies(0);
    assert_eq!(world.launches().len(), 2);
}

#[test]
fn a_halt_that_is_cleared_does_not_withdraw_a_signal() {
    let mut world = joined();
    signal(&mut world);
    world.happens(set("JOB_HALTED"));
    world.happens(Event::HaltCleared);
    world.passes(ms(60_100));
    assert_eq!(terminated(&world), 1);
}

#[test]
fn a_condition_that_is_cleared_does_not_withdraw_the_signal_that_followed_it() {
    let mut world = joined();
    world.happens(set("JOB_HALTED"));
    signal(&mut world);
    world.happens(Event::HaltCleared);
    assert!(requests(&world).iter().all(|(_, reason)| reason.is_some()));
    world.passes(ms(60_100));
    assert_eq!(terminated(&world), 1);
}

#[test]
fn conditions_are_ignored_once_the_application_has_called_finalize() {
    let mut world = joined();
    world.happens(Event::Finalized { generation: FIRST });
    world.happens(set("no more checkpoints"));
    world.passes(ms(300_000));
    assert_eq!((terminated(&world), requests(&world).len()), (0, 0));
    world.ranks_end_well();
    assert_eq!(*world.stop(), StopReason::Finished);
}

#[test]
fn a_condition_about_a_later_time_leaves_the_ranks_that_time_for_a_checkpoint() {
    let mut world = joined_with(Config { halt_grace: ms(10_000), ..config(6, 4) });
    world.happens(Event::HaltSet { reason: "before".into(), immediate: false, ends: Some(300) });
    terminates_after(&mut world, ms(290_000));
}

fn limited() -> Config {
    Config { allocation_end: Some(1000), drain_reserve: Some(ms(100_000)), halt_grace: ms(20_000), ..config(6, 4) }
}

#[test]
fn before_the_end_of_the_allocation_the_ranks_are_halted_then_terminated_then_killed() {
    let mut world = joined_with(limited());
    world.passes(ms(859_900));
    assert_eq!(requests(&world), []);
    world.passes(ms(200));
    assert_eq!(requests(&world).len(), 1);
    terminates_after(&mut world, ms(19_900));
    world.passes(ms(19_800));
    assert!(!killed(&world));
    world.passes(ms(200));
    assert!(killed(&world));
    assert_eq!(world.causes(), [EndCause::TimeLimit]);
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
}

#[test]
fn ranks_that_end_at_their_last_checkpoint_before_the_end_of_the_allocation_stop_the_loop_for_the_time_limit() {
    let mut world = joined_with(limited());
    world.passes(ms(861_000));
    world.checkpoint(2);
    world.happens(Event::Halting { generation: FIRST, reason: "the allocation ends".into() });
    world.ranks_end_well();
    assert_eq!(world.causes(), [EndCause::TimeLimit]);
    assert_eq!(*world.stop(), StopReason::TimeLimit);
}

#[test]
fn a_later_end_of_the_allocation_withdraws_the_halt() {
    let mut world = joined_with(limited());
    world.passes(ms(861_000));
    world.happens(Event::AllocationEnd { end: Some(5000) });
    assert_eq!(requests(&world).last(), Some(&(name(0), None)));
    world.passes(ms(300_000));
    assert_eq!(terminated(&world), 0);
    world.happens(Event::AllocationEnd { end: Some(1200) });
    assert!(killed(&world), "no time is left");
}

#[test]
fn a_signal_leaves_no_more_time_than_there_is() {
    let mut world = joined_with(limited());
    world.passes(ms(850_000));
    signal(&mut world);
    // 50 s until the ranks must have ended: 30 s for a checkpoint would be more than `halt_grace`.
    world.passes(ms(20_100));
    assert_eq!(terminated(&world), 1);
    let mut world = joined_with(Config { halt_grace: ms(600_000), ..limited() });
    world.passes(ms(700_000));
    signal(&mut world);
    // Half of the time is kept for SIGTERM.
    terminates_after(&mut world, ms(100_000));
    world.passes(ms(100_000));
    assert!(killed(&world));
}

#[test]
fn the_reserve_grows_with_the_size_of_the_checkpoint_and_the_time_of_a_flush() {
    let mut world = joined_with(Config { allocation_end: Some(1000), halt_grace: ms(10_000), ..config(6, 4) });
    world.happens(Event::Flushed { generation: FIRST, took: ms(100_000) });
    // 30 s and twice 100 s for the drain, 20 s for the ranks.
    world.passes(ms(749_900));
    assert_eq!(requests(&world), []);
    world.passes(ms(200));
    assert_eq!(requests(&world).len(), 1);
}

#[test]
fn a_new_leader_s_agent_and_a_new_orchestrator_request_the_halt_again() {
    let mut world = joined();
    signal(&mut world);
    world.happens(Event::AgentLost { node: name(0), reason: "connection closed".into() });
    assert_eq!(requests(&world).len(), 2);
    for stage in ["requested", "terminated"] {
        let mut twin = Machine::restore(config(6, 4), world.machine.snapshot()).unwrap();
        let actions = twin.begin(world.now);
        let repeated = |action: &Action| match stage {
            "requested" => matches!(action, Action::RequestHalt { reason: Some(_), .. }),
            _ => matches!(action, Action::TerminateRanks { .. }),
        };
        assert!(actions.iter().any(repeated), "{stage}");
        world.passes(ms(60_100));
    }
}

#[test]
fn the_event_log_has_each_stage_of_a_halt() {
    let mut world = joined();
    signal(&mut world);
    world.passes(ms(120_200));
    let stages = found!(world.actions,
        Action::Record(LogEvent::HaltRequested { within_ms, .. }) => ("requested", *within_ms),
        Action::Record(LogEvent::RanksTerminated { within_ms, .. }) => ("terminated", *within_ms),
        Action::Record(LogEvent::GenerationEnding { .. }) => ("killed", 0)
    );
    assert_eq!(stages, [("requested", 60_000), ("terminated", 60_000), ("killed", 0)]);
}

#[test]
fn agents_that_do_not_report_their_halt_conditions_are_asked_again() {
    let mut machine = Machine::new(config(4, 4));
    machine.begin(ms(0));
    for node in 0..4 {
        machine.handle(ms(1), Event::AgentReady { node: name(node), address: address(&name(node), 1), adopted: None });
    }
    let silent = Event::HaltAnswered { met: None, silent: vec![name(2)] };
    assert_eq!(machine.handle(ms(2), silent.clone()), [Action::AskHalt { except: vec![] }]);
    assert_eq!(machine.handle(ms(3), silent.clone()), [Action::AskHalt { except: vec![] }]);
    // A condition of another node counts without it.
    let met = Event::HaltAnswered { met: Some("JOB_HALTED".into()), silent: vec![name(2)] };
    let stopped = machine.clone().handle(ms(4), met);
    assert!(stopped.iter().any(|action| matches!(action, Action::Drain { .. })));
    // The agent is lost: it is started again, and then asked.
    machine.handle(ms(4), Event::AgentLost { node: name(2), reason: "silent".into() });
    machine.handle(ms(5), silent);
    assert_eq!(machine.explain().phase, Activity::Gathering);
    let back = Event::AgentReady { node: name(2), address: address(&name(2), 2), adopted: None };
    assert!(machine.handle(ms(6), back).contains(&Action::AskHalt { except: vec![] }));
    let actions = machine.handle(ms(7), Event::HaltAnswered { met: None, silent: Vec::new() });
    assert!(actions.iter().any(|action| matches!(action, Action::Prepare { .. })));
    machine.handle(ms(8), Event::Drained { result: DrainResult::Nothing, unplaced: Vec::new() });
}

/// The nodes that are not asked for the halt conditions after a rank has failed; their agents answer `after` that, the
/// second one that a condition may hold.
fn not_asked(after: Duration) -> Vec<NodeName> {
    let mut world = World::running();
    let generation = world.generation();
    world.only(Event::RankExited { generation, rank: Rank(1), end: RankEnd::Signal(11) });
    world.now += after;
    let mut asked = Vec::new();
    for node in 0..4 {
        let killed = Event::RanksKilled { node: name(node), generation, may_halt: node == 1 };
        for event in [killed, Event::PollAnswered { node: name(node), sent: world.now, fault: None }] {
            asked.extend(found!(world.only(event), Action::AskHalt { except } => except.clone()));
        }
    }
    assert_eq!(asked.len(), 1, "asked once");
    asked.remove(0)
}

#[test]
fn agents_that_reported_no_halt_condition_when_the_ranks_had_ended_are_not_asked_before_the_next_launch() {
    assert_eq!(not_asked(ms(500)), [name(0), name(2), name(3)]);
    assert_eq!(not_asked(ms(10_500)), [], "the reports are old");
}

#[test]
fn the_end_of_the_application_removes_no_halt() {
    for finalized in [true, false] {
        let mut world = World::running();
        world.happens(set("JOB_HALTED"));
        if finalized {
            world.happens(Event::Finalized { generation: FIRST });
        }
        // The file has the reason of the end in its place.
        world.happens(Event::HaltCleared);
        assert_eq!(world.machine.is_halted(), finalized);
    }
}
