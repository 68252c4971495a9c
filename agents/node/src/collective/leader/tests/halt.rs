use holdfast_model::{FailureKind, Rank, RestartSource};
use holdfast_wire::peer::ToLeader;
use holdfast_wire::rank::{Call, Reply};

use super::super::LeaderWork;
use super::super::{HaltWork, LeaderEvent};
use super::world::{PLACES, World, disk_full, from};

#[test]
fn a_run_that_must_halt_restarts_from_nothing_and_every_node_has_the_reason() {
    let mut world = World::new();
    world.halt.met = Some("JOB_HALTED".to_owned());
    world.orders.clear();
    world.next_run(PLACES);
    let restart = world.init();
    assert_eq!(restart.halt.as_deref(), Some("JOB_HALTED"));
    assert_eq!(from(&restart), (None, RestartSource::Fresh));
    assert!(world.nodes.values().all(|node| node.halt.met == restart.halt), "spares too");
    assert_eq!(world.orders_of("n0"), ["halt"]);
    assert_eq!(world.reported(), ["halting"]);
}

#[test]
fn the_last_requested_checkpoint_ends_the_run_and_is_flushed() {
    let mut world = World::with(|plan| plan.settings.flush.every = 10);
    world.checkpoints_left = Some(2);
    world.init();
    world.checkpoint();
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    world.call(Call::Start).unwrap();
    let Ok(Reply::Completed { halt, .. }) = world.call(Call::Complete { valid: true }) else { panic!() };
    assert_eq!(halt.as_deref(), Some("the requested number of checkpoints is reached"));
    assert_eq!(world.prefix.complete(), [2]);
}

#[test]
fn a_halt_condition_makes_a_checkpoint_due_and_the_application_stop() {
    let mut world = World::begun_with(|plan| plan.settings.need.interval = 1000);
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(false)));
    assert_eq!(world.call(Call::ShouldExit), Ok(Reply::Flag(false)));
    world.halt.met = Some("ExitBefore".to_owned());
    assert_eq!(world.call(Call::Need), Ok(Reply::Flag(true)));
    assert_eq!(world.call(Call::ShouldExit), Ok(Reply::Flag(true)));
}

#[test]
fn finalize_records_the_reason_everywhere_before_it_flushes_the_newest_checkpoint() {
    let mut world = World::begun_with(|plan| plan.settings.flush.every = 10);
    world.checkpoint();
    assert_eq!(world.call(Call::Finalize), Ok(Reply::Done));
    assert!(world.nodes.values().all(|node| node.halt.reason.as_deref() == Some("SCR_FINALIZE_CALLED")));
    assert_eq!(world.prefix.complete(), [1]);
    let position = |name| world.works.iter().position(|work| *work == name);
    assert!(position("publish") > world.works.iter().rposition(|work| *work == "halt"));
    assert_eq!(world.reported().last().unwrap(), "finalized");
}

#[test]
fn a_halt_file_that_cannot_be_changed_fails_the_call_and_not_the_run() {
    let mut world = World::begun();
    world.fail_work(|work| matches!(work, LeaderWork::Halt(HaltWork::SetReason(_))).then(disk_full));
    assert_eq!(world.call(Call::Finalize), Err(disk_full()));
    world.fail_work(|_| None);
    assert_eq!(world.call(Call::Finalize), Ok(Reply::Done));
}

#[test]
fn a_process_that_joins_when_the_ranks_have_gone_on_gets_an_error() {
    let mut world = World::begun();
    world.checkpoint();
    let late = |world: &mut World| {
        let calls = vec![(Rank(1), Call::Init)];
        world.handle(LeaderEvent::Received { node: "n1".into(), message: ToLeader::Calls { seq: 1, calls } });
        let (node, seq, outcome) = world.answers.last().unwrap();
        assert_eq!((node.as_str(), *seq), ("n1", 1));
        outcome.as_ref().clone().unwrap_err()
    };
    let failure = late(&mut world);
    assert_eq!((failure.kind, failure.subject.rank), (FailureKind::InvalidRequest, Some(Rank(1))), "{failure}");
    world.call(Call::Finalize).unwrap();
    assert_eq!(late(&mut world).kind, FailureKind::Duplicate);
}
