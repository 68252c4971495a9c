//! The cause of the end of a generation, and what follows.

use crate::events::{EndCause, LogEvent, StopReason};
use holdfast_model::{CheckpointId, Generation, Rank, RankEnd};
use std::collections::BTreeMap;

use holdfast_wire::agent::{QuietRank, WaitingRanks};

use super::world::{World, config, ms, name};
use crate::exit;
use crate::launch::Obstacle;
use crate::relaunch::explain::Activity;
use crate::relaunch::*;
use crate::spec::ExitAction;

#[test]
fn a_rank_that_fails_because_another_node_died_is_no_application_error() {
    let mut world = World::running();
    world.dead.insert(name(2));
    world.rank_ends(1, RankEnd::Code(1));
    assert!(world.causes().is_empty(), "node 2 has not answered since");
    world.happens(Event::AgentLost { node: name(2), reason: "connection closed".into() });
    assert_eq!(world.causes(), [EndCause::NodeFailure { nodes: vec![name(2)] }]);
    assert_eq!(world.homes(), ["n0", "n1", "n4", "n3"]);
}

#[test]
fn a_poll_that_was_sent_before_the_exit_does_not_count() {
    let mut world = World::running();
    world.now = ms(500);
    let generation = world.generation();
    world.only(Event::RankExited { generation, rank: Rank(1), end: RankEnd::Signal(11) });
    for node in 0..4 {
        world.only(Event::RanksKilled { node: name(node), generation, may_halt: false });
        world.only(Event::PollAnswered { node: name(node), sent: ms(499), fault: None });
    }
    assert!(world.causes().is_empty());
    for node in 0..4 {
        world.happens(Event::PollAnswered { node: name(node), sent: ms(500), fault: None });
    }
    assert_eq!(world.causes(), [EndCause::Application { rank: Some(Rank(1)), end: RankEnd::Signal(11) }]);
}

#[test]
fn the_next_generation_waits_until_every_node_has_killed_its_ranks() {
    let mut world = World::running();
    world.only(Event::RankExited { generation: Generation(1), rank: Rank(1), end: RankEnd::Code(1) });
    for node in 0..4 {
        world.only(Event::PollAnswered { node: name(node), sent: world.now, fault: None });
    }
    for node in 0..3 {
        world.only(Event::RanksKilled { node: name(node), generation: Generation(1), may_halt: false });
    }
    assert!(world.causes().is_empty());
    world.happens(Event::RanksKilled { node: name(3), generation: Generation(1), may_halt: false });
    assert_eq!(world.causes().len(), 1);
}

#[test]
fn a_crash_in_the_start_of_mpi_is_no_attempt_three_times() {
    let crash = |world: &mut World| world.rank_ends(2, RankEnd::Signal(11));
    let launched = |world: &World| world.generation().0;
    for (mpi_start, launches) in [(true, 4), (false, 1)] {
        let config = Config { mpi_start, attempts: 0, ..config(6, 4) };
        let mut world = World::running_with(config);
        for _ in 0..launches {
            assert_eq!(world.machine.explain().phase, Activity::Running);
            crash(&mut world);
        }
        assert_eq!(launched(&world), launches);
        assert_eq!(world.outcome().exit_code(), exit::APPLICATION_ERROR);
    }
    // An exit code, another time and ranks that had joined are the application's.
    let config = || Config { mpi_start: true, attempts: 0, ..config(6, 4) };
    let mut world = World::running_with(config());
    world.rank_ends(2, RankEnd::Code(1));
    assert_eq!(launched(&world), 1);
    let mut world = World::running_with(config());
    world.now = ms(61_000);
    crash(&mut world);
    assert_eq!(launched(&world), 1);
    let mut world = World::running_with(config());
    world.joined(None);
    crash(&mut world);
    assert_eq!(launched(&world), 1);
}

#[test]
fn an_application_that_fails_every_time_is_given_up_after_no_progress_limit_generations() {
    let mut world = World::running();
    for _ in 0..3 {
        world.joined(Some(4));
        world.rank_ends(0, RankEnd::Code(1));
    }
    assert_eq!(world.launches().len(), 3);
    let last = EndCause::Application { rank: Some(Rank(0)), end: RankEnd::Code(1) };
    assert_eq!(
        *world.stop(),
        StopReason::NoProgress { generations: 3, checkpoint: Some(CheckpointId(4)), other_sources: false, last }
    );
    assert_eq!(world.outcome().exit_code(), exit::NO_PROGRESS);
    assert!(world.outcome().to_string().contains("newer than 4"));
    assert!(world.drained());
}

#[test]
fn a_newer_checkpoint_starts_the_count_of_generations_without_progress_again() {
    let mut world = World::running();
    world.rank_ends(0, RankEnd::Code(1));
    world.rank_ends(0, RankEnd::Code(1));
    world.checkpoint(1);
    world.rank_ends(0, RankEnd::Code(1));
    world.rank_ends(0, RankEnd::Code(1));
    world.rank_ends(0, RankEnd::Code(1));
    assert_eq!(world.machine.explain().phase, Activity::Running);
    assert_eq!(world.launches().len(), 6);
    world.rank_ends(0, RankEnd::Code(1));
    assert!(matches!(world.stop(), StopReason::NoProgress { generations: 3, .. }));
}

#[test]
fn writing_a_checkpoint_again_is_no_progress() {
    let mut world = World::running_with(Config { no_progress_limit: 2, ..config(6, 4) });
    world.checkpoint(10);
    world.rank_ends(0, RankEnd::Code(1));
    for _ in 0..2 {
        world.joined(Some(5));
        world.checkpoint(6);
        world.rank_ends(0, RankEnd::Code(1));
    }
    assert!(matches!(world.stop(), StopReason::NoProgress { checkpoint: Some(CheckpointId(10)), .. }));
}

#[test]
fn when_all_relaunches_ended_with_node_failures_another_allocation_can_go_on() {
    let mut world = World::running_with(Config { attempts: 1, ..config(6, 4) });
    world.checkpoint(1);
    world.dies(0);
    world.checkpoint(2);
    world.dies_later(1);
    assert_eq!(world.launches().len(), 2);
    assert!(matches!(world.stop(), StopReason::AttemptsUsed { attempts: 1, .. }));
    assert_eq!(world.outcome().exit_code(), exit::NOT_FINISHED);
}

#[test]
fn an_application_that_fails_in_all_relaunches_is_an_application_error() {
    let mut world = World::running_with(Config { attempts: 0, ..config(6, 4) });
    world.rank_ends(2, RankEnd::Code(3));
    assert_eq!(world.outcome().exit_code(), exit::APPLICATION_ERROR);
}

#[test]
fn an_exit_code_with_action_stop_is_not_retried() {
    let mut world =
        World::running_with(Config { exit_codes: BTreeMap::from([(17, ExitAction::Stop)]), ..config(6, 4) });
    world.rank_ends(2, RankEnd::Code(17));
    assert_eq!(*world.stop(), StopReason::ApplicationError { rank: Some(Rank(2)), end: RankEnd::Code(17) });
    assert_eq!(world.outcome().exit_code(), exit::APPLICATION_ERROR);
    assert!(world.drained());
}

#[test]
fn ranks_that_succeed_without_using_the_api_are_finished() {
    let mut world = World::running();
    world.ranks_end_well();
    assert_eq!(world.causes(), [EndCause::ExitedWell]);
    assert_eq!(world.outcome().exit_code(), exit::FINISHED);
}

#[test]
fn ranks_that_used_the_api_and_end_without_finalize_are_relaunched() {
    let mut world = World::running();
    world.joined(None);
    world.ranks_end_well();
    assert_eq!(world.causes(), [EndCause::WithoutFinalize]);
    assert_eq!(world.launches().len(), 2);
}

#[test]
fn ranks_whose_last_process_only_read_files_are_finished() {
    for (connects_again, cause) in [(false, EndCause::ExitedWell), (true, EndCause::WithoutFinalize)] {
        let mut world = World::running();
        world.joined(Some(4));
        let generation = world.generation();
        for rank in 0..world.machine.config().ranks {
            world.happens(Event::RankLeft { generation, rank: Rank(rank) });
        }
        if connects_again {
            world.happens(Event::RankConnected { generation, rank: Rank(1) });
        }
        world.ranks_end_well();
        assert_eq!(world.causes(), [cause]);
    }
}

#[test]
fn a_report_of_the_leader_after_the_end_of_the_ranks_counts() {
    let mut world = World::running();
    world.joined(None);
    let generation = world.generation();
    world.only(Event::StepEnded { generation, end: RankEnd::SUCCESS });
    world.only(Event::Finalized { generation });
    for node in 0..4 {
        world.happens(Event::RanksKilled { node: name(node), generation, may_halt: false });
        world.happens(Event::PollAnswered { node: name(node), sent: world.now, fault: None });
    }
    assert_eq!(world.causes(), [EndCause::Finalized]);
}

#[test]
fn a_node_that_dies_after_finalize_causes_no_relaunch() {
    let mut world = World::running();
    world.happens(Event::Finalized { generation: Generation(1) });
    world.dies(2);
    assert_eq!(*world.stop(), StopReason::Finished);
}

#[test]
fn a_rank_that_fails_after_finalize_is_reported_and_not_relaunched() {
    let mut world = World::running();
    world.happens(Event::Finalized { generation: Generation(1) });
    world.rank_ends(3, RankEnd::Signal(6));
    assert_eq!(*world.stop(), StopReason::FailedAfterFinalize { rank: Some(Rank(3)), end: RankEnd::Signal(6) });
    assert_eq!(world.outcome().exit_code(), exit::APPLICATION_ERROR);
}

#[test]
fn a_launcher_that_fails_without_a_rank_is_an_application_error() {
    let mut world = World::running_with(Config { attempts: 0, ..config(6, 4) });
    world.happens(Event::StepEnded { generation: Generation(1), end: RankEnd::Code(2) });
    assert_eq!(world.causes(), [EndCause::Application { rank: None, end: RankEnd::Code(2) }]);
}

/// The reports of quiet ranks: the rank of `node` does nothing, all others wait.
fn hangs_on(world: &World, node: usize) -> Vec<Event> {
    let quiet = |at: usize| QuietRank {
        rank: Rank(at as u32),
        waiting_in: (at != node).then(|| "need_checkpoint".to_owned()),
        quiet_for: ms(60_000),
        idle_for: ms(60_000),
    };
    let generation = world.generation();
    (0..4).map(|at| Event::RanksQuiet { node: name(at), generation, ranks: vec![quiet(at)] }).collect()
}

fn watched() -> World {
    let mut world =
        World::running_with(Config { hang_after: Some(ms(60_000)), down_after: ms(600_000), ..config(6, 4) });
    world.now = ms(60_000);
    world
}

#[test]
fn a_generation_that_hangs_is_ended_after_the_stacks_are_saved_and_relaunched() {
    let mut world = watched();
    for event in hangs_on(&world, 2) {
        world.happens(event);
    }
    let saved = Action::SaveStacks { generation: Generation(1), ranks: [(name(2), vec![Rank(2)])].into() };
    let at = |wanted: &dyn Fn(&Action) -> bool| world.actions.iter().position(wanted).unwrap();
    assert!(at(&|action| *action == saved) < at(&|action| matches!(action, Action::KillRanks { .. })));
    let what =
        "rank 2 made no call, printed nothing and used no processor for 1min; waiting in need_checkpoint: ranks 0-1,3";
    assert_eq!(world.causes(), [EndCause::Hang { what: what.into() }]);
    let logged = |wanted: &LogEvent| world.actions.iter().any(|action| *action == Action::Record(wanted.clone()));
    let (generation, ranks) = (Generation(1), vec![Rank(2)]);
    assert!(logged(&LogEvent::HangSuspected { generation, ranks: ranks.clone(), reason: what.into() }));
    assert!(logged(&LogEvent::Hang { generation, ranks, reason: what.into() }));
    assert_eq!(world.launches().len(), 2);
    assert_eq!(world.homes(), ["n0", "n1", "n2", "n3"]);
}

#[test]
fn a_rank_that_moves_while_its_stack_is_saved_does_not_hang() {
    let mut world = watched();
    for event in hangs_on(&world, 2) {
        world.only(event);
    }
    assert!(world.actions.iter().any(|action| matches!(action, Action::SaveStacks { .. })));
    let generation = Generation(1);
    world.happens(Event::RanksQuiet { node: name(2), generation, ranks: vec![] });
    world.happens(Event::StacksSaved { generation });
    assert!(world.actions.contains(&Action::Record(LogEvent::HangDismissed { generation })));
    assert_eq!((world.causes().len(), world.machine.explain().phase), (0, Activity::Running));
    // It may hang later.
    for event in hangs_on(&world, 2) {
        world.happens(event);
    }
    assert_eq!(world.causes().len(), 1);
}

#[test]
fn ranks_that_wait_for_others_are_reported_once_and_nothing_is_ended() {
    let generation = Generation(1);
    let wait = |at: usize, millis: u64| {
        let (call, ranks) = ("init".to_owned(), vec![Rank(at as u32)]);
        let waiting = Some(WaitingRanks { call, ranks, waits_for: ms(millis) });
        Event::RanksWait { node: name(at), generation, waiting }
    };
    let reported =
        |world: &World| found!(world.actions, Action::Record(LogEvent::RanksWait { wait, .. }) => wait.to_string());
    // `health.waiting_after: none`.
    let mut world = World::running_with(Config { waiting_after: None, ..config(6, 4) });
    world.happens(wait(0, 2000));
    world.passes(ms(120_000));
    assert_eq!(reported(&world), Vec::<String>::new());
    let mut world = World::running_with(Config { waiting_after: Some(ms(60_000)), ..config(6, 4) });
    world.happens(wait(0, 2000));
    world.happens(wait(3, 1000));
    world.passes(ms(57_000));
    assert_eq!(reported(&world), Vec::<String>::new());
    world.passes(ms(3_000));
    let text = "rank 0 and 1 other rank wait in init for ranks 1-2, for 1min so far";
    assert_eq!(reported(&world), [text]);
    world.passes(ms(60_000));
    assert_eq!(reported(&world).len(), 1);
    // An agent of an earlier generation reports late.
    world.happens(Event::RanksWait { node: name(1), generation: Generation(0), waiting: None });
    assert_eq!((world.causes().len(), world.machine.explain().phase), (0, Activity::Running));
}

#[test]
fn a_job_that_hangs_after_finalize_is_finished() {
    let mut world = watched();
    world.happens(Event::Finalized { generation: Generation(1) });
    for event in hangs_on(&world, 2) {
        world.happens(event);
    }
    assert_eq!(world.causes(), [EndCause::Finalized]);
    assert_eq!(*world.stop(), StopReason::Finished);
}

#[test]
fn a_launcher_that_cannot_be_started_ends_the_job_as_unavailable() {
    let mut world = World::running();
    for generation in 1..=3 {
        let (generation, reason) = (Generation(generation), "srun: not found".to_owned());
        world.happens(Event::LaunchFailed { generation, reason, obstacle: Obstacle::Job });
    }
    assert_eq!(world.outcome().exit_code(), exit::UNAVAILABLE);
    assert!(world.outcome().to_string().contains("srun: not found"));
}

#[test]
fn events_of_an_older_generation_are_ignored() {
    let mut world = World::running();
    world.rank_ends(0, RankEnd::Code(1));
    let old = Generation(1);
    world.happens(Event::RankExited { generation: old, rank: Rank(1), end: RankEnd::Signal(9) });
    world.happens(Event::StepEnded { generation: old, end: RankEnd::Signal(9) });
    world.happens(Event::Finalized { generation: old });
    world.happens(Event::CheckpointComplete {
        generation: old,
        checkpoint: CheckpointId(9),
        protected: true,
        bytes: 1,
    });
    assert_eq!(world.causes().len(), 1);
    assert_eq!(world.generation(), Generation(2));
    assert_eq!(world.machine.explain().newest, None);
}

#[test]
fn a_down_node_whose_agent_reports_is_fenced_again_and_not_used() {
    let mut world = World::running();
    world.dies(2);
    let address = super::world::address(&name(2), 9);
    let back = Event::AgentReady { node: name(2), address, adopted: Some(Generation(1)) };
    assert_eq!(world.only(back), [Action::FenceNode { node: name(2), address: Some(address) }]);
    let unfit = Event::AgentUnfit { node: name(2), address, fault: "no space".into() };
    assert_eq!(world.only(unfit), [Action::FenceNode { node: name(2), address: Some(address) }]);
    assert_eq!(world.homes(), ["n0", "n1", "n4", "n3"]);
}

#[test]
fn every_decision_is_kept_with_its_reason_and_time() {
    let mut world = World::running();
    world.now = ms(1234);
    world.dies(2);
    let explanation = world.machine.explain();
    let node = serde_json::to_value(&explanation.nodes[2]).unwrap();
    assert_eq!(node["condition"], "down");
    assert_eq!(node["reason"]["why"], "agent_silent");
    assert_eq!(explanation.generations[0].ended.as_ref().unwrap().at, ms(1234));
}

#[test]
fn event_names_are_stable() {
    let mut world = World::running();
    world.joined(None);
    world.dies(2);
    world.happens(Event::Signal { name: "SIGTERM".into() });
    world.ranks_end_well();
    let mut names: Vec<String> = Vec::new();
    for action in &world.actions {
        if let Action::Record(event) = action {
            let line = serde_json::to_value(event).unwrap();
            assert_eq!(&serde_json::from_value::<LogEvent>(line.clone()).unwrap(), event);
            names.push(line["event"].as_str().unwrap().to_owned());
        }
    }
    names.retain(|name| name != "agent_ready");
    let expected = "generation_placed generation_launched agent_lost node_down generation_ending generation_ended \
        generation_placed generation_launched signal halt_requested ranks_terminated \
        generation_ending generation_ended stopping drained finished";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn a_finished_job_of_which_every_dataset_was_dropped_ends_with_a_warning_and_a_code_unless_one_was_kept() {
    let generation = Generation(1);
    let checkpoint = CheckpointId(2);
    let complete = Event::CheckpointComplete { generation, checkpoint, protected: false, bytes: 9 };
    let flushed = Event::Flushed { generation, took: ms(1) };
    for (kept, code) in [(None, exit::DAMAGED_DATA), (Some(complete), 0), (Some(flushed), 0)] {
        let mut world = World::running();
        world.joined(None);
        for checkpoint in [CheckpointId(1), checkpoint] {
            world.happens(Event::DatasetDropped { generation, checkpoint, reason: "no space".to_owned() });
        }
        if let Some(kept) = kept {
            world.happens(kept);
        }
        world.happens(Event::Finalized { generation });
        world.ranks_end_well();
        assert_eq!(*world.stop(), StopReason::Finished);
        assert_eq!(world.outcome().exit_code(), code);
        let warned = world.outcome().to_string().contains("(2) were dropped, 2 because no space");
        assert_eq!(warned, code != 0, "{}", world.outcome());
    }
}
