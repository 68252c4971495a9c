use std::time::Duration;

use holdfast_model::{CheckpointId, Level};
use holdfast_wire::agent::{AgentEvent, RequestState};
use holdfast_wire::peer::Order;
use holdfast_wire::rank::{Awaited, Call, ProgramState, Reply};
use holdfast_wire::run::{CheckpointSchedule, SourceName};

use super::super::LeaderEvent;
use super::world::{World, disk_full};

fn world(source: &str) -> World {
    World::begun_with(|plan| {
        plan.settings.source = SourceName(source.to_owned());
        plan.settings.need.time = Duration::from_secs(1000);
        plan.settings.schedule = Some(CheckpointSchedule::Every(Duration::from_secs(600)));
    })
}

/// Requests a checkpoint that has not begun; returns the id after which it is.
fn request(world: &mut World) -> CheckpointId {
    let after = world.machine.new_request();
    assert_eq!(world.machine.state_of_request(after), RequestState::Waiting);
    world.handle(LeaderEvent::CheckpointRequested { after });
    after
}

#[test]
fn a_request_makes_one_checkpoint_due() {
    let mut world = world("scr");
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(false)));
    let after = request(&mut world);
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(true)));
    world.call(Call::Start).unwrap();
    let checkpoint = CheckpointId(after.0 + 1);
    assert_eq!(world.machine.state_of_request(after), RequestState::Begun { checkpoint });
    world.call(Call::Complete { valid: true }).unwrap();
    assert_eq!(world.machine.state_of_request(after), RequestState::Complete { checkpoint });
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(false)));
    // Repeated by somebody who has not read the answer.
    world.handle(LeaderEvent::CheckpointRequested { after });
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(false)));
}

#[test]
fn a_checkpoint_that_has_begun_before_the_request_is_not_the_requested_one() {
    let mut world = world("scr");
    world.call(Call::Start).unwrap();
    let after = request(&mut world);
    world.call(Call::Complete { valid: true }).unwrap();
    assert_eq!(world.machine.state_of_request(after), RequestState::Waiting);
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(true)));
}

#[test]
fn output_is_not_the_requested_checkpoint() {
    let mut world = world("scr");
    let after = request(&mut world);
    let output = Call::StartOutput { name: None, checkpoint: false, output: true, bypass: false };
    world.call(output).unwrap();
    assert_eq!(world.machine.state_of_request(after), RequestState::Waiting);
    world.call(Call::Complete { valid: true }).unwrap();
    assert_eq!(world.machine.state_of_request(after), RequestState::Waiting);
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(true)));
}

#[test]
fn a_dropped_checkpoint_ends_the_request() {
    let mut world = world("scr");
    let after = request(&mut world);
    world.call(Call::Start).unwrap();
    world.call(Call::Complete { valid: false }).unwrap();
    assert_dropped(&world, after, "could not write their files");
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(false)));
}

#[track_caller]
fn assert_dropped(world: &World, after: CheckpointId, why: &str) {
    let RequestState::Dropped { checkpoint, reason } = world.machine.state_of_request(after) else { panic!() };
    assert_eq!(checkpoint, after.next());
    assert!(reason.contains(why), "{reason}");
}

#[test]
fn a_checkpoint_that_could_not_be_begun_ends_the_request_and_the_next_one_serves_another() {
    for (source, start) in [("scr", Call::Start), ("variables", Call::StartLevel { level: Level::Parity, id: 1 })] {
        let mut world = world(source);
        let after = request(&mut world);
        world.fail_orders(|_, order| matches!(order, Order::Prepare { .. }).then(disk_full));
        assert!(world.call(start.clone()).is_err());
        assert_dropped(&world, after, "no space left");
        let last = world.events.last().unwrap();
        assert!(matches!(last, AgentEvent::CheckpointFailed { reason, .. } if reason.contains("no space")), "{last:?}");
        assert_eq!(world.call(Call::Need), Ok(Reply::Flag(false)), "the program is not asked again at once");
        world.fail_orders(|_, _| None);
        // The next one has the same id.
        let again = request(&mut world);
        assert_eq!(again, after);
        let Ok(Reply::Started { checkpoint, .. }) = world.call(start) else { panic!() };
        assert_eq!(world.machine.state_of_request(again), RequestState::Begun { checkpoint });
        world.call(Call::Complete { valid: true }).unwrap();
        assert_eq!(world.machine.state_of_request(again), RequestState::Complete { checkpoint });
    }
}

#[test]
fn output_that_could_not_be_begun_is_not_the_requested_checkpoint() {
    let mut world = world("scr");
    let after = request(&mut world);
    world.fail_orders(|_, order| matches!(order, Order::Prepare { .. }).then(disk_full));
    let output = Call::StartOutput { name: None, checkpoint: false, output: true, bypass: false };
    assert!(world.call(output).is_err());
    assert_eq!(world.machine.state_of_request(after), RequestState::Waiting);
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(true)));
}

#[test]
fn a_checkpoint_that_bypasses_the_cache_serves_the_request() {
    let mut world = world("scr");
    let after = request(&mut world);
    world.call(Call::StartOutput { name: None, checkpoint: true, output: false, bypass: true }).unwrap();
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(false)));
    world.call(Call::Complete { valid: true }).unwrap();
    assert_eq!(world.machine.state_of_request(after), RequestState::Complete { checkpoint: after.next() });
}

#[test]
fn ranks_that_wait_are_released_by_a_request() {
    let mut world = world("command");
    world.queue_each(|_| Call::Await { state: ProgramState::Running });
    world.run_until(world.now + Duration::from_secs(100));
    assert_eq!(world.outcome(), None);
    request(&mut world);
    world.run_until(world.now);
    assert_eq!(world.outcome(), Some(Ok(Reply::Awaited(Awaited::Checkpoint))));
}

#[test]
fn a_requested_snapshot_is_at_the_level_that_survives_lost_nodes() {
    let mut world = world("variables");
    assert_eq!(world.call(Call::Snapshot { intervals: None }), Ok(Reply::Level(None)));
    request(&mut world);
    assert_eq!(world.call(Call::Snapshot { intervals: None }), Ok(Reply::Level(Some(Level::Parity))));
}

#[test]
fn sources_whose_programs_decide_refuse_requests() {
    for source in ["none", "scr-files"] {
        let mut world = world(source);
        let after = world.machine.new_request();
        world.handle(LeaderEvent::CheckpointRequested { after });
        assert!(matches!(world.machine.state_of_request(after), RequestState::Refused { .. }), "{source}");
    }
}
