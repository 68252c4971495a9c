use holdfast_model::{CheckpointId, Failure, FailureKind, FlushMode, Rank, RestartSource};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::{Call, Reply};

use super::super::LeaderWork;
use super::restart::notices;
use super::world::{PLACES, World, disk_full, from, held};

fn start(name: &str, checkpoint: bool, output: bool, bypass: bool) -> Call {
    Call::StartOutput { name: Some(name.to_owned()), checkpoint, output, bypass }
}

fn write(world: &mut World, start: Call) -> CheckpointId {
    let started = world.call(start);
    let Ok(Reply::Started { checkpoint, .. }) = started else { panic!("{started:?}") };
    world.complete();
    checkpoint
}

#[test]
fn the_name_of_a_checkpoint_survives_the_run_that_wrote_it() {
    let mut world = World::begun();
    write(&mut world, start("step 7", true, false, false));
    world.lose("n0");
    world.next_init(PLACES);
    assert_eq!(world.call(Call::RestartName), Ok(Reply::Name(Some("step 7".to_owned()))));
}

#[test]
fn output_is_flushed_at_once_and_leaves_the_cache() {
    let mut world = World::begun();
    let id = write(&mut world, start("plot", false, true, false));
    assert_eq!(world.prefix.complete(), [id.0]);
    assert_eq!(world.prefix.of(id.0).1.dataset.as_ref().unwrap().name.as_deref(), Some("plot"));
    assert_eq!(world.prefix.current, None, "no restart takes it");
    assert!(world.nodes.values().all(|node| node.held.is_empty() && node.datasets.is_empty()));
    assert_eq!(
        world.reported()[1..],
        ["checkpoint_started", "encode_started", "flushed"],
        "output does not count as a checkpoint"
    );
}

#[test]
fn output_stays_in_cache_until_the_results_of_its_collective_are_on_disk() {
    for mode in [FlushMode::Sync, FlushMode::Async] {
        let mut world = World::begun_with(|plan| plan.settings.flush.mode = mode);
        let id = CheckpointId(1);
        world.call(start("plot", false, true, false)).unwrap();
        // Killed before the results are on disk, and after the dataset is on the prefix directory.
        world.hold_work(|work| matches!(work, LeaderWork::SaveMemory(memory) if memory.open.is_none()));
        world.begin(Call::Complete { valid: true });
        assert_eq!((world.outcome(), world.prefix.complete()), (None, vec![1]));
        assert!(world.nodes[&"n1".into()].held.contains_key(&id), "a leader after this one finds it as it was");
        world.hold_work(|_| false);
        world.restart_leader(Some(Call::Complete { valid: true }));
        assert!(matches!(world.outcome(), Some(Ok(Reply::Completed { kept: true, .. }))));
        assert!(world.nodes.values().all(|node| node.held.is_empty()));
    }
}

#[test]
fn output_does_not_evict_checkpoints() {
    let mut world = World::begun_with(|plan| plan.settings.flush.mode = FlushMode::Async);
    world.checkpoint();
    world.checkpoint();
    write(&mut world, start("plot", false, true, false));
    assert_eq!(world.nodes[&"n1".into()].held.len(), 2);
}

#[test]
fn output_that_is_deleted_while_a_checkpoint_starts_does_not_evict_checkpoints() {
    let mut world = World::begun_with(|plan| plan.settings.flush.mode = FlushMode::Async);
    world.checkpoints(2);
    // The output is flushed in the background; the leader's own node is the last to delete it.
    world.hold_orders(|node, order| node == "n0" && matches!(order, Order::Delete { .. }));
    write(&mut world, start("plot", false, true, false));
    world.delay_work(|work| matches!(work, LeaderWork::DatasetsHere { .. }));
    world.begin(Call::Start);
    assert_eq!(world.outcome(), None);
    world.release();
    assert!(matches!(world.outcome(), Some(Ok(Reply::Started { checkpoint: CheckpointId(4), .. }))));
    assert_eq!(held(&world), [2, 4], "only the oldest one makes room");
}

#[test]
fn output_that_one_run_could_not_flush_is_flushed_by_the_next() {
    let mut world = World::begun();
    world.call(start("plot", false, true, false)).unwrap();
    world.fail_orders(|_, order| matches!(order, Order::Flush { .. }).then(disk_full));
    world.call(Call::Complete { valid: true }).unwrap();
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    world.fail_orders(|_, _| None);
    world.lose("n1");
    assert_eq!(
        from(&world.next_init(&[&[0], &[], &[2], &[3], &[1]])),
        (None, RestartSource::Fresh),
        "a run cannot restart from output"
    );
    assert_eq!(world.prefix.complete(), [1]);
}

#[test]
fn output_that_cannot_be_flushed_by_the_next_run_is_reported_and_the_run_starts() {
    let mut world = World::begun();
    world.call(start("plot", false, true, false)).unwrap();
    world.fail_orders(|_, order| matches!(order, Order::Flush { .. }).then(disk_full));
    world.call(Call::Complete { valid: true }).unwrap();
    world.fail_orders(|_, _| None);
    world.lose("n1");
    world.lose("n2");
    world.next_init(PLACES);
    assert!(notices(&world)[0].contains("the output plot is lost"), "{:?}", notices(&world));
}

#[test]
fn invalid_datasets_are_refused_with_the_reason() {
    let mut world = World::begun();
    let mut refused = |call| world.call(call).unwrap_err();
    assert!(refused(start("a\nb", true, false, false)).message.contains("control character"));
    assert!(refused(start("x", false, false, false)).message.contains("neither"));
    world.begin_each(|rank| start(if rank == Rank(2) { "y" } else { "x" }, true, false, false));
    let refused = world.outcome().unwrap().unwrap_err();
    assert_eq!((refused.subject.rank, refused.kind), (Some(Rank(2)), FailureKind::InvalidRequest));
}

#[test]
fn current_deletes_newer_datasets_and_ids_continue_from_it() {
    let mut world = World::begun_with(|plan| plan.settings.flush.every = 1);
    write(&mut world, start("one", true, false, false));
    write(&mut world, start("two", true, false, false));
    assert_eq!(world.call(Call::Current { name: "one".to_owned() }), Ok(Reply::Done));
    assert_eq!(world.prefix.current.as_ref(), Some(world.prefix.of(1).0));
    assert!(!world.nodes[&"n3".into()].held.contains_key(&CheckpointId(2)));
    assert_eq!(world.checkpoint(), CheckpointId(2));
}

#[test]
fn output_cannot_be_current_and_an_unknown_name_is_refused() {
    let mut world = World::begun();
    write(&mut world, start("plot", false, true, false));
    let mut refused = |name: &str| world.call(Call::Current { name: name.to_owned() }).unwrap_err();
    assert!(refused("plot").message.contains("is output"), "{}", refused("plot"));
    assert_eq!(refused("nothing").kind, FailureKind::NotFound);
}

#[test]
fn a_dataset_that_could_not_be_written_cannot_be_current() {
    let mut world = World::begun();
    world.call(start("shared", true, false, true)).unwrap();
    world.call(Call::Complete { valid: false }).unwrap();
    let refused = world.call(Call::Current { name: "shared".to_owned() }).unwrap_err();
    assert!(refused.message.contains("is not complete"), "{refused}");
    assert_eq!(world.prefix.current, None);
}

#[test]
fn drop_removes_a_dataset_from_the_index_and_keeps_its_files() {
    let mut world = World::begun_with(|plan| plan.settings.flush.every = 1);
    write(&mut world, start("one", true, false, false));
    world.call(Call::Drop { name: "one".to_owned() }).unwrap();
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    assert_eq!(world.prefix.directories.len(), 1);
}

#[test]
fn delete_removes_a_dataset_from_index_prefix_and_cache_in_this_order() {
    let mut world = World::begun_with(|plan| plan.settings.flush.every = 1);
    write(&mut world, start("one", true, false, false));
    world.works.clear();
    assert_eq!(world.call(Call::Delete { name: "one".to_owned() }), Ok(Reply::Done));
    let on_prefix: Vec<_> = world.works.iter().filter(|work| ["withdraw", "delete_directory"].contains(work)).collect();
    assert_eq!(on_prefix, [&"withdraw", &"delete_directory"]);
    assert!(world.prefix.directories.is_empty());
    assert!(world.nodes.values().all(|node| node.held.is_empty()));
}

#[test]
fn a_dataset_that_was_never_flushed_is_deleted_without_the_index() {
    let mut world = World::begun();
    write(&mut world, start("one", true, false, false));
    assert_eq!(world.call(Call::Delete { name: "one".to_owned() }), Ok(Reply::Done));
    assert!(world.nodes.values().all(|node| node.held.is_empty()));
}

#[test]
fn delete_load_and_current_are_refused_while_a_dataset_is_open() {
    let mut world = World::begun();
    world.call(Call::Start).unwrap();
    for call in [Call::Load, Call::Delete { name: "x".to_owned() }, Call::Current { name: "x".to_owned() }] {
        let refused = world.call(call).unwrap_err();
        assert!(refused.message.contains("dataset 1 is being written"), "{refused}");
    }
}

#[test]
fn a_bypass_dataset_is_in_the_index_before_it_is_written_and_complete_after() {
    let mut world = World::begun();
    world.call(start("shared", true, false, true)).unwrap();
    let entry = world.prefix.of(1).1;
    assert!(entry.indexed && !entry.complete);
    world.call(Call::Complete { valid: true }).unwrap();
    assert_eq!(world.prefix.complete(), [1]);
    assert!(world.nodes.values().all(|node| node.held.is_empty()), "nothing of it is in cache");
    assert_eq!(from(&world.next_init(PLACES)), (Some(1), RestartSource::Fetched));
    assert_eq!(world.nodes[&"n2".into()].direct, Some(CheckpointId(1)));
}

#[test]
fn a_bypass_dataset_is_kept_although_the_records_of_older_ones_cannot_be_deleted() {
    let mut world = World::begun();
    write(&mut world, start("one", true, false, true));
    write(&mut world, start("two", true, false, true));
    world.fail_orders(|node, order| (node == "n4" && matches!(order, Order::Delete { .. })).then(disk_full));
    assert_eq!(write(&mut world, start("three", true, false, true)), CheckpointId(3));
    assert_eq!(world.prefix.complete(), [1, 2, 3]);
    let AgentEvent::Notice { message } = world.events.last().unwrap() else { panic!("{:?}", world.events) };
    assert!(message.contains("the record of dataset 1 stays on the nodes"), "{message}");
}

#[test]
fn bypass_output_is_reported_as_output() {
    let mut world = World::begun();
    write(&mut world, start("shared", false, true, true));
    assert_eq!(world.reported()[1..], ["checkpoint_started", "flushed"]);
    assert_eq!(world.prefix.current, None);
}

#[test]
fn a_bypass_dataset_that_was_published_before_the_leader_died_is_kept() {
    let mut world = World::begun();
    world.call(start("shared", true, false, true)).unwrap();
    // The results of the collective never reach the disk.
    let before = (world.saved.clone(), world.saved_flushes.clone());
    world.hold_orders(|_, order| matches!(order, Order::CloseDirect { .. }));
    world.begin(Call::Complete { valid: true });
    assert_eq!(world.prefix.complete(), [1]);
    (world.saved, world.saved_flushes) = before;
    world.hold_orders(|_, _| false);
    world.fail_orders(|_, order| {
        let not_open = || Failure::new(FailureKind::InvalidRequest, "the dataset is not open");
        matches!(order, Order::SealDirect { .. }).then(not_open)
    });
    world.restart_leader(Some(Call::Complete { valid: true }));
    assert!(matches!(world.outcome(), Some(Ok(Reply::Completed { kept: true, .. }))));
    assert_eq!(world.prefix.complete(), [1]);
    assert_eq!(world.prefix.current.as_ref(), Some(world.prefix.of(1).0));
}

#[test]
fn a_failed_start_of_a_bypass_dataset_is_resumed_in_its_directory() {
    let mut world = World::begun();
    world.fail_orders(|node, order| (node == "n1" && matches!(order, Order::OpenDirect { .. })).then(disk_full));
    world.call(start("shared", true, false, true)).unwrap_err();
    world.fail_orders(|_, _| None);
    write(&mut world, start("shared", true, false, true));
    assert_eq!(world.prefix.directories.len(), 1);
}

#[test]
fn an_id_that_is_used_again_gets_a_new_directory() {
    let mut world = World::begun_with(|plan| plan.settings.flush.every = 1);
    write(&mut world, start("one", true, false, false));
    write(&mut world, start("shared", true, false, true));
    world.call(Call::Current { name: "one".to_owned() }).unwrap();
    assert!(
        world.nodes.values().all(|node| !node.datasets.contains_key(&CheckpointId(2))),
        "the next run cannot use it"
    );
    write(&mut world, start("again", true, false, true));
    assert_eq!(world.prefix.complete(), [1, 2, 2], "the files of the older one are as they were");
}

#[test]
fn each_node_gets_the_files_of_its_own_ranks_of_a_bypass_dataset() {
    let mut world = World::begun();
    write(&mut world, start("shared", true, false, true));
    world.next_run(PLACES);
    world.orders.clear();
    world.init();
    let read = world.orders.iter().filter_map(|(node, _, what)| match what {
        Order::ReadDirect { files, .. } => Some((node.to_string(), files.keys().map(|rank| rank.0).collect())),
        _ => None,
    });
    let expected: Vec<(String, Vec<u32>)> = (0..4).map(|at| (format!("n{at}"), vec![at])).collect();
    assert_eq!(read.collect::<Vec<_>>(), expected);
}

#[test]
fn a_bypass_dataset_that_could_not_be_written_stays_incomplete() {
    let mut world = World::begun();
    world.call(start("shared", true, false, true)).unwrap();
    let completed = world.call(Call::Complete { valid: false });
    assert!(matches!(completed, Ok(Reply::Completed { kept: false, .. })), "{completed:?}");
    assert_eq!(world.prefix.complete(), [0u64; 0]);
    assert!(world.prefix.of(1).1.indexed);
}

#[test]
fn a_checkpoint_in_cache_is_preferred_to_an_older_bypass_checkpoint() {
    let mut world = World::begun();
    write(&mut world, start("shared", true, false, true));
    world.checkpoint();
    assert_eq!(from(&world.next_init(PLACES)), (Some(2), RestartSource::Cache));
}

#[test]
fn a_bypass_checkpoint_is_preferred_to_an_older_one_in_cache_although_a_newer_one_is_incomplete() {
    let mut world = World::begun();
    world.checkpoint();
    write(&mut world, start("shared", true, false, true));
    world.call(Call::Start).unwrap();
    assert_eq!(from(&world.next_init(PLACES)), (Some(2), RestartSource::Fetched));
}

#[test]
fn a_bypass_checkpoint_that_was_marked_as_failed_is_not_read() {
    let mut world = World::begun();
    write(&mut world, start("shared", true, false, true));
    world.prefix.of_mut(1).failed = true;
    world.prefix.current = None;
    assert_eq!(from(&world.next_init(PLACES)), (None, RestartSource::Fresh));
    assert!(world.reported().contains(&"restart_attempt".to_owned()));
}

#[test]
fn a_record_that_cannot_be_read_does_not_hide_a_checkpoint() {
    let mut world = World::begun_with(|plan| plan.settings.flush.every = 1);
    world.checkpoint();
    (0..5).for_each(|at| world.lose(&format!("n{at}")));
    world.next_run(PLACES);
    // Once, while the candidates are judged.
    let mut failures = 1;
    world.fail_work(move |work| {
        let fails = matches!(work, LeaderWork::ReadDataset { .. }) && failures > 0;
        failures -= i32::from(fails);
        fails.then(disk_full)
    });
    assert_eq!(from(&world.init()), (Some(1), RestartSource::Fetched));
}
