use holdfast_model::{CheckpointId, FlushMode};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::{Call, Reply};

use super::super::{HaltWork, LeaderWork};
use super::world::{PLACES, World, disk_full};

#[test]
fn results_are_on_disk_before_they_are_sent() {
    let mut world = World::begun();
    world.fail_work(|work| {
        if let LeaderWork::SaveMemory(memory) = work {
            assert_eq!(memory.seq, 2);
            assert_eq!(*memory.outcome, Ok(Reply::Flag(false)));
        }
        None
    });
    world.begin(Call::ShouldExit);
    assert_eq!(world.works.last(), Some(&"save_memory"));
    assert_eq!(world.outcome(), Some(Ok(Reply::Flag(false))));
}

#[test]
fn results_that_cannot_be_saved_are_sent_nevertheless() {
    let mut world = World::new();
    world.fail_work(|work| matches!(work, LeaderWork::SaveMemory(_)).then(disk_full));
    world.init();
}

#[test]
fn ranks_get_an_error_if_their_last_results_were_not_saved_before_the_leader_was_restarted() {
    let mut world = World::begun();
    world.fail_work(|work| matches!(work, LeaderWork::SaveMemory(memory) if memory.seq == 2).then(disk_full));
    assert_eq!(world.call(Call::ShouldExit), Ok(Reply::Flag(false)));
    world.restart_leader(None);
    let failure = world.call(Call::Need).unwrap_err();
    assert!(failure.message.contains("could not be saved"), "{failure}");
}

#[test]
fn a_restarted_leader_answers_the_last_collective_again_without_repeating_it() {
    let mut world = World::begun();
    let id = world.checkpoint();
    world.answers.clear();
    world.orders.clear();
    world.restart_leader(Some(Call::Complete { valid: true }));
    assert_eq!(world.outcome(), Some(Ok(Reply::Completed { checkpoint: id, kept: true, halt: None })));
    assert_eq!(world.orders.len(), 0);
    assert_eq!(world.checkpoint(), CheckpointId(2));
}

#[test]
fn a_restarted_leader_repeats_an_unfinished_collective_under_the_same_id() {
    let mut world = World::begun();
    world.hold_orders(|_, order| matches!(order, Order::Prepare { .. }));
    world.begin(Call::Start);
    world.hold_orders(|_, _| false);
    world.restart_leader(Some(Call::Start));
    assert!(matches!(world.outcome(), Some(Ok(Reply::Started { checkpoint: CheckpointId(1), .. }))));
    world.hold_orders(|_, order| matches!(order, Order::Encode { .. }));
    world.begin(Call::Complete { valid: true });
    let before = world.held[0].1;
    world.hold_orders(|_, _| false);
    world.restart_leader(Some(Call::Complete { valid: true }));
    let completed = Reply::Completed { checkpoint: CheckpointId(1), kept: true, halt: None };
    assert_eq!(world.outcome(), Some(Ok(completed)));
    let after = world.orders.iter().rfind(|(_, _, what)| matches!(what, Order::Encode { .. })).unwrap().1;
    assert_ne!(before, after, "numbers of the leader before are not used again");
}

/// The events of complete checkpoints.
fn completed(world: &World) -> Vec<&AgentEvent> {
    world.events.iter().filter(|event| matches!(event, AgentEvent::CheckpointComplete { .. })).collect()
}

#[test]
fn a_repeated_complete_reports_the_same_although_files_were_lost_since() {
    let bypass = Call::StartOutput { name: None, checkpoint: true, output: false, bypass: true };
    for start in [Call::Start, bypass] {
        let mut world = World::begun();
        world.call(start).unwrap();
        // The leader dies between the report and the end of the call.
        world.hold_work(|work| matches!(work, LeaderWork::Halt(HaltWork::CountCheckpoint)));
        world.begin(Call::Complete { valid: true });
        assert_eq!((world.outcome(), completed(&world).len()), (None, 1));
        world.hold_work(|_| false);
        world.fail_orders(|_, order| matches!(order, Order::Seal { .. } | Order::SealDirect { .. }).then(disk_full));
        world.fail_work(|work| matches!(work, LeaderWork::ReadSummary { .. }).then(disk_full));
        world.restart_leader(Some(Call::Complete { valid: true }));
        let kept = Reply::Completed { checkpoint: CheckpointId(1), kept: true, halt: None };
        assert_eq!(world.outcome(), Some(Ok(kept)));
        let [first, second] = completed(&world)[..] else { panic!("{:?}", world.events) };
        assert_eq!(first, second);
        assert!(!world.reported().contains(&"checkpoint_failed".to_owned()));
    }
}

#[test]
fn a_repeated_complete_does_not_flush_again_what_is_flushed() {
    for mode in [FlushMode::Sync, FlushMode::Async] {
        let mut world = World::flushing(mode, 1, 2);
        world.call(Call::Start).unwrap();
        // The results of the call do not reach the disk; a flush in the background ends nevertheless.
        world.hold_work(|work| matches!(work, LeaderWork::SaveMemory(memory) if memory.open.is_none()));
        world.begin(Call::Complete { valid: true });
        assert_eq!((world.outcome(), world.prefix.complete()), (None, vec![1]), "{mode:?}");
        world.hold_work(|_| false);
        world.restart_leader(Some(Call::Complete { valid: true }));
        assert!(world.outcome().is_some());
        assert_eq!(world.prefix.directories.len(), 1, "{mode:?}");
    }
}

#[test]
fn the_next_dataset_of_an_id_does_not_count_as_completed() {
    let mut world = World::begun_with(|plan| plan.settings.flush.every = 1);
    world.checkpoints(2);
    let first = world.prefix.of(1).0.to_string();
    world.call(Call::Current { name: first }).unwrap();
    let started = world.call(Call::Start);
    assert!(matches!(started, Ok(Reply::Started { checkpoint: CheckpointId(2), .. })));
    world.fail_orders(|_, order| matches!(order, Order::Seal { .. }).then(disk_full));
    let failed = world.call(Call::Complete { valid: true });
    assert_eq!(failed, Ok(Reply::Completed { checkpoint: CheckpointId(2), kept: false, halt: None }));
}

#[test]
fn a_flush_interrupted_by_a_restart_of_the_leader_is_resumed_in_its_directory() {
    let mut world = World::flushing(FlushMode::Async, 1, 2);
    world.hold_orders(|_, order| matches!(order, Order::Flush { .. }));
    world.checkpoint();
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    world.hold_orders(|_, _| false);
    world.restart_leader(None);
    world.call(Call::Finalize).unwrap();
    assert_eq!(world.prefix.complete(), [1]);
    assert_eq!(world.prefix.directories.len(), 1);
    assert!(world.saved_flushes.directories.is_empty());
}

#[test]
fn a_restarted_leader_completes_a_bypass_dataset_in_its_directory() {
    let mut world = World::begun();
    let start = Call::StartOutput { name: None, checkpoint: true, output: false, bypass: true };
    world.call(start).unwrap();
    world.restart_leader(None);
    world.complete();
    assert_eq!(world.prefix.complete(), [1]);
    assert_eq!(world.prefix.directories.len(), 1);
}

#[test]
fn no_work_is_done_for_a_run_that_is_over() {
    let mut world = World::flushing(FlushMode::Async, 1, 2);
    world.hold_orders(|_, order| matches!(order, Order::Flush { .. }));
    world.checkpoint();
    // The machine of the run before is dropped in the middle of the flush.
    world.next_run(PLACES);
    world.run();
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    assert!(world.prefix.of(1).1.indexed, "what is left is an entry without COMPLETE");
}

#[test]
fn an_eviction_interrupted_by_the_death_of_the_leader_is_completed_by_the_next_one() {
    let mut world = World::begun_with(|plan| plan.settings.caches[0].keep = 1);
    world.checkpoint();
    world.hold_orders(|node, order| node == "n3" && matches!(order, Order::Prepare { .. }));
    world.begin(Call::Start);
    let holds = |world: &World, node: &str| world.nodes[&node.into()].held.contains_key(&CheckpointId(1));
    assert_eq!((holds(&world, "n0"), holds(&world, "n3")), (false, true));
    world.hold_orders(|_, _| false);
    world.restart_leader(Some(Call::Start));
    assert!(matches!(world.outcome(), Some(Ok(Reply::Started { checkpoint: CheckpointId(2), .. }))));
    assert!(!holds(&world, "n3"));
}
