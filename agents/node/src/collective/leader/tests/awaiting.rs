use std::time::Duration;

use holdfast_model::Rank;
use holdfast_wire::peer::{Order, ToLeader};
use holdfast_wire::rank::{Awaited, Call, ProgramState, Reply};
use holdfast_wire::run::{CheckpointSchedule, SourceName};

use super::super::LeaderEvent;
use super::world::{World, disk_full};

const AT: fn(u64) -> Duration = Duration::from_secs;

/// A run of programs that do not use the API, which has begun.
fn world(schedule: CheckpointSchedule) -> World {
    World::begun_with(|plan| {
        plan.settings.source = SourceName("command".to_owned());
        plan.settings.schedule = Some(schedule);
    })
}

fn awaits(state: ProgramState) -> Call {
    Call::Await { state }
}

fn awaited(awaited: Awaited) -> Option<Result<Reply, holdfast_model::Failure>> {
    Some(Ok(Reply::Awaited(awaited)))
}

#[test]
fn the_ranks_are_released_together_when_the_interval_has_passed() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    world.queue_each(|_| awaits(ProgramState::Running));
    world.run_until(world.now + AT(599));
    assert_eq!(world.outcome(), None);
    world.run_until(world.now + AT(1));
    assert_eq!(world.outcome(), awaited(Awaited::Checkpoint));
    world.checkpoint();
    let begun = world.now;
    assert_eq!(world.call(awaits(ProgramState::Running)), Ok(Reply::Awaited(Awaited::Checkpoint)));
    assert_eq!(world.now - begun, AT(600), "from the end of the last one on");
}

#[test]
fn a_halt_condition_releases_the_ranks_at_once_and_again_after_a_pause_if_the_checkpoint_is_dropped() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    world.queue_each(|_| awaits(ProgramState::Running));
    world.run_until(AT(100));
    assert_eq!(world.outcome(), None);
    world.halt.met = Some("JOB_HALTED".to_owned());
    world.handle(LeaderEvent::HaltChanged);
    world.run_until(world.now);
    assert_eq!(world.outcome(), awaited(Awaited::Checkpoint));
    world.call(Call::Start).unwrap();
    let reason = "./save.sh ended with exit code 3".to_owned();
    let dropped = world.call(Call::NotWritten { reason });
    assert!(matches!(dropped, Ok(Reply::Completed { kept: false, halt: None, .. })), "{dropped:?}");
    let event = serde_json::to_value(world.events.last()).unwrap();
    assert_eq!(event["event"], "checkpoint_failed");
    assert_eq!(event["reason"], "rank 0: ./save.sh ended with exit code 3");
    let begun = world.now;
    assert_eq!(world.call(awaits(ProgramState::Running)), Ok(Reply::Awaited(Awaited::Checkpoint)));
    assert_eq!(world.now - begun, AT(5));
}

#[test]
fn a_checkpoint_during_which_all_programs_ended_is_not_kept_and_not_lost_unless_a_rank_failed() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    let last = |world: &World| serde_json::to_value(world.events.last()).unwrap();
    world.call(Call::Start).unwrap();
    let ended = world.call(Call::ProgramsEnded);
    assert!(matches!(ended, Ok(Reply::Completed { kept: false, halt: None, .. })), "{ended:?}");
    let event = last(&world);
    assert_eq!((&event["event"], &event["ended"]), (&"checkpoint_failed".into(), &true.into()), "{event}");
    assert_eq!(event["reason"], "the programs of all ranks have ended");
    world.call(Call::Start).unwrap();
    let failed = || Call::NotWritten { reason: "no space".to_owned() };
    world.begin_each(|rank| if rank.0 == 1 { failed() } else { Call::ProgramsEnded });
    let event = last(&world);
    assert_eq!((&event["reason"], &event["ended"]), (&"rank 1: no space".into(), &false.into()), "{event}");
}

#[test]
fn a_halt_condition_that_holds_from_a_certain_time_on_is_found_without_an_event() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    world.queue_each(|_| awaits(ProgramState::Running));
    world.run_until(AT(100));
    world.halt.met = Some("ExitAfter".to_owned());
    world.run_until(AT(102));
    assert_eq!(world.outcome(), awaited(Awaited::Checkpoint));
}

#[test]
fn the_ranks_are_released_when_the_last_program_has_ended() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    let ended_up_to = |last: u32| {
        move |rank: Rank| match rank.0 <= last {
            true => awaits(ProgramState::Ended),
            false => awaits(ProgramState::Running),
        }
    };
    world.queue_each(ended_up_to(0));
    world.run_until(AT(10));
    world.repeat_each(ended_up_to(2));
    world.run_until(AT(20));
    assert_eq!(world.outcome(), None);
    world.repeat_each(ended_up_to(3));
    world.run_until(world.now);
    assert_eq!(world.outcome(), awaited(Awaited::Ended));
    assert_eq!(world.call(Call::Finalize), Ok(Reply::Done));
}

#[test]
fn files_that_programs_write_by_themselves_are_taken_when_all_that_run_have_written_them() {
    let mut world = world(CheckpointSchedule::WhenReady);
    world.queue_each(|rank| match rank.0 {
        0 => awaits(ProgramState::Ended),
        1 => awaits(ProgramState::Running),
        _ => awaits(ProgramState::Ready),
    });
    world.run_until(AT(1000));
    assert_eq!(world.outcome(), None);
    world.repeat_each(|rank| awaits(if rank.0 == 0 { ProgramState::Ended } else { ProgramState::Ready }));
    world.run_until(world.now);
    assert_eq!(world.outcome(), awaited(Awaited::Checkpoint));
}

#[test]
fn a_restarted_leader_waits_again() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    world.queue_each(|_| awaits(ProgramState::Running));
    world.run_until(AT(100));
    world.restart_leader(Some(awaits(ProgramState::Running)));
    assert_eq!(world.outcome(), awaited(Awaited::Checkpoint));
    world.checkpoint();
}

#[test]
fn a_checkpoint_that_could_not_be_begun_is_not_due_at_once_again() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    world.call(awaits(ProgramState::Running)).unwrap();
    world.fail_orders(|_, order| matches!(order, Order::Prepare { .. }).then(disk_full));
    assert!(world.call(Call::Start).is_err());
    world.fail_orders(|_, _| None);
    let begun = world.now;
    world.call(awaits(ProgramState::Running)).unwrap();
    assert!(world.now - begun >= AT(600));
}

/// The agent of a node is about to send SIGTERM to its ranks.
fn terminate(world: &mut World, node: &str) {
    world.handle(LeaderEvent::Received { node: node.into(), message: ToLeader::Terminated });
}

/// Calls finalize; true if the job is finished by it.
fn finalize(world: &mut World) -> bool {
    assert_eq!(world.call(Call::Finalize), Ok(Reply::Done));
    let finalized = world.reported().last().is_some_and(|event| event == "finalized");
    let recorded = world.nodes.values().all(|node| node.halt.reason.as_deref() == Some("SCR_FINALIZE_CALLED"));
    assert_eq!(finalized, recorded);
    finalized
}

#[test]
fn programs_that_end_after_sigterm_are_not_finished() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    world.queue_each(|_| awaits(ProgramState::Running));
    world.run_until(AT(10));
    terminate(&mut world, "n1");
    world.repeat_each(|_| awaits(ProgramState::Ended));
    world.run_until(world.now);
    assert_eq!(world.outcome(), awaited(Awaited::Ended));
    assert!(!finalize(&mut world));
}

#[test]
fn programs_that_had_ended_before_sigterm_are_finished() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    world.queue_each(|rank| awaits(if rank.0 == 0 { ProgramState::Running } else { ProgramState::Ended }));
    world.run_until(AT(10));
    // Its last program had ended.
    terminate(&mut world, "n1");
    world.repeat_each(|_| awaits(ProgramState::Ended));
    world.run_until(world.now);
    assert_eq!(world.outcome(), awaited(Awaited::Ended));
    terminate(&mut world, "n0");
    assert!(finalize(&mut world));
}

#[test]
fn ranks_that_call_finalize_after_sigterm_are_not_finished() {
    for (terminated, finished) in [(false, true), (true, false)] {
        let mut world = World::begun();
        if terminated {
            terminate(&mut world, "n2");
        }
        assert_eq!(finalize(&mut world), finished);
    }
}

#[test]
fn no_checkpoint_records_a_program_as_finished_that_ended_after_sigterm() {
    let mut world = world(CheckpointSchedule::Every(AT(600)));
    world.queue_each(|rank| awaits(if rank.0 == 0 { ProgramState::Ended } else { ProgramState::Running }));
    world.run_until(AT(600));
    assert_eq!(world.outcome(), awaited(Awaited::Checkpoint));
    let complete = |world: &mut World, ended: u32| {
        world.call(Call::Start).unwrap();
        world.begin_each(|rank| if rank.0 <= ended { Call::CompleteEnded } else { Call::Complete { valid: true } });
        matches!(world.outcome(), Some(Ok(Reply::Completed { kept: true, .. })))
    };
    terminate(&mut world, "n1");
    assert!(complete(&mut world, 0), "it had ended before");
    assert!(!complete(&mut world, 1));
    let reason = serde_json::to_value(world.events.last()).unwrap()["reason"].to_string();
    assert!(reason.contains("the program of rank 1 ended with exit code 0 after SIGTERM"), "{reason}");
    // None is begun either.
    world.queue_each(|rank| awaits(if rank.0 <= 1 { ProgramState::Ended } else { ProgramState::Running }));
    world.run_until(world.now + AT(6000));
    assert_eq!(world.outcome(), None);
}
