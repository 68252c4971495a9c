use holdfast_model::{CheckpointId, Location, RestartSource};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::Call;
use holdfast_wire::run::RunPlan;

use super::super::LeaderWork;
use super::world::{PLACES, World, damaged, disk_full, from, lost_peer, prevented, restart};

/// A job whose checkpoints 1 to 3 were flushed; then all nodes were lost.
fn flushed() -> World {
    flushed_with(|_| {})
}

fn flushed_with(change: impl FnOnce(&mut RunPlan)) -> World {
    let mut world = World::begun_with(|plan| {
        plan.settings.flush.every = 1;
        change(plan);
    });
    world.checkpoints(3);
    (0..5).for_each(|at| world.lose(&format!("n{at}")));
    world.next_run(PLACES);
    world.events.clear();
    world
}

fn attempts(world: &World) -> Vec<(u64, Location)> {
    let attempts = world.events.iter().filter_map(|event| match event {
        AgentEvent::RestartAttempt { checkpoint, from, .. } => Some((checkpoint.0, *from)),
        _ => None,
    });
    attempts.collect()
}

#[test]
fn the_checkpoint_of_the_current_link_is_fetched_and_protected() {
    let mut world = flushed();
    assert_eq!(from(&world.init()), (Some(3), RestartSource::Fetched));
    let orders = world.orders_of("n2");
    let fetch = orders.iter().rposition(|order| *order == "fetch").unwrap();
    assert_eq!(orders[fetch..], ["fetch", "seal", "encode", "commit", "note"]);
    assert!(world.prefix.of(3).1.fetched);
    assert!(!world.prefix.of(3).1.failed);
}

#[test]
fn as_many_ranks_fetch_at_a_time_as_the_width() {
    let mut world = flushed_with(|plan| plan.settings.restart.fetch_width = 2);
    world.hold_orders(|_, order| matches!(order, Order::Fetch { width: 1, .. }));
    world.begin(Call::Init);
    assert_eq!(world.held.iter().map(|(node, ..)| node.to_string()).collect::<Vec<_>>(), ["n0", "n1"]);
    world.release();
    assert_eq!(from(&restart(world.outcome().unwrap())), (Some(3), RestartSource::Fetched));
}

#[test]
fn a_directory_with_a_damaged_file_is_marked_and_the_next_older_one_fetched() {
    let mut world = flushed();
    world.fail_orders(|node, order| {
        (node == "n1" && matches!(order, Order::Fetch { checkpoint: CheckpointId(3), .. })).then(damaged)
    });
    assert_eq!(from(&world.init()), (Some(2), RestartSource::Fetched));
    assert_eq!(attempts(&world), [(3, Location::ParallelFileSystem)]);
    assert!(world.prefix.of(3).1.failed);
    assert_eq!(world.prefix.current.as_ref(), Some(world.prefix.of(2).0), "the link follows");
}

#[test]
fn a_directory_without_summary_is_marked_with_the_reason() {
    let mut world = flushed();
    world.prefix.of_mut(3).summary = None;
    assert_eq!(from(&world.init()), (Some(2), RestartSource::Fetched));
    assert_eq!(attempts(&world).len(), 1);
    assert!(world.prefix.of(3).1.failed);
}

#[test]
fn a_checkpoint_of_another_number_of_ranks_ends_the_restart_and_nothing_is_marked() {
    let mut world = flushed();
    world.prefix.of_mut(3).summary.as_mut().unwrap().ranks = 8;
    assert!(world.call(Call::Init).is_err());
    let reason = "d3.3 has the files of 8 ranks, and this run has 4: it is kept as it is; run with as many ranks, \
                  with `checkpoint: {restart: {ranks: any}}` if the program can read it, \
                  or with `--from-beginning` or `--checkpoint NAME`";
    assert_eq!(prevented(&world), [(None, reason)]);
    assert_eq!(attempts(&world), []);
    assert!((1..=3).all(|id| !world.prefix.of(id).1.failed && !world.prefix.of(id).1.fetched));
    assert_eq!(world.prefix.current.as_ref(), Some(world.prefix.of(3).0));
}

#[test]
fn a_run_from_the_beginning_fetches_only_what_it_has_written() {
    let mut world = flushed();
    let ignored = [2, 3].map(|id| world.prefix.of(id).0.to_string());
    world.plan.settings.ignored = ignored.into();
    assert_eq!(from(&world.next_init(PLACES)), (Some(1), RestartSource::Fetched));
    assert!((2..=3).all(|id| !world.prefix.of(id).1.failed && !world.prefix.of(id).1.fetched));
}

#[test]
fn each_directory_is_tried_once_before_the_run_starts_without_a_checkpoint() {
    let mut world = flushed();
    world.fail_orders(|_, order| matches!(order, Order::Fetch { .. }).then(damaged));
    assert_eq!(from(&world.init()), (None, RestartSource::Fresh));
    let of = |id| (id, Location::ParallelFileSystem);
    assert_eq!(attempts(&world), [of(3), of(2), of(1)]);
    assert_eq!(world.prefix.current, None);
}

#[test]
fn a_node_that_cannot_write_fails_the_restart_and_no_checkpoint_is_marked() {
    let mut world = flushed();
    world.fail_orders(|node, order| (node == "n1" && matches!(order, Order::Fetch { .. })).then(disk_full));
    let failure = world.call(Call::Init).unwrap_err();
    assert!(failure.to_string().starts_with("n1: no space left"), "{failure}");
    assert_eq!(prevented(&world), [(Some("n1"), "n1: no space left")]);
    assert_eq!(attempts(&world), []);
    assert!((1..=3).all(|id| !world.prefix.of(id).1.failed));
    assert_eq!(world.prefix.current.as_ref(), Some(world.prefix.of(3).0));
    assert!(world.nodes.values().all(|node| node.held.is_empty()), "what was copied makes room again");
    // On other nodes.
    world.fail_orders(|_, _| None);
    assert_eq!(from(&world.next_init(&[&[0], &[], &[2], &[3], &[1]])), (Some(3), RestartSource::Fetched));
}

#[test]
fn a_file_that_is_missing_in_the_prefix_directory_marks_the_checkpoint() {
    let mut world = flushed();
    let missing = world.plan.settings.prefix.join("ckpt.3/rank_1.ckpt");
    world.fail_orders(move |_, order| {
        matches!(order, Order::Fetch { checkpoint: CheckpointId(3), .. }).then(|| disk_full().at(missing.clone()))
    });
    assert_eq!(from(&world.init()), (Some(2), RestartSource::Fetched));
    assert!(world.prefix.of(3).1.failed);
    assert_eq!(prevented(&world), []);
}

#[test]
fn a_lost_peer_fails_the_restart_and_no_checkpoint_is_marked() {
    let mut world = flushed();
    world.fail_orders(|node, order| (node == "n1" && matches!(order, Order::Fetch { .. })).then(lost_peer));
    assert!(world.call(Call::Init).is_err());
    assert_eq!((attempts(&world), prevented(&world)), (vec![], vec![]));
    assert!((1..=3).all(|id| !world.prefix.of(id).1.failed));
}

#[test]
fn an_index_that_cannot_be_written_or_read_is_reported_as_a_fault_of_the_prefix_directory() {
    let mut world = flushed();
    world.fail_work(|work| matches!(work, LeaderWork::MarkFetch { .. }).then(disk_full));
    assert!(world.call(Call::Init).is_err());
    let reason = "the prefix directory cannot be used for a restart: no space left";
    assert_eq!(prevented(&world), [(None, reason)]);
    assert_eq!(attempts(&world), []);
    // Nor one that cannot be read.
    let mut world = flushed();
    world.fail_work(|work| matches!(work, LeaderWork::Candidates).then(disk_full));
    assert!(world.call(Call::Init).is_err());
    assert_eq!(prevented(&world), [(None, reason)]);
}

#[test]
fn a_fetched_checkpoint_that_the_application_cannot_read_is_marked_and_the_next_older_one_fetched() {
    let mut world = flushed();
    world.init();
    let fallen_back = restart(world.call(Call::CompleteRestart { valid: false }));
    assert_eq!(from(&fallen_back), (Some(2), RestartSource::Fetched));
    assert!(world.prefix.of(3).1.failed);
}

#[test]
fn without_fetch_the_prefix_directory_is_not_read() {
    let mut world = flushed();
    world.plan.settings.restart.fetch = false;
    assert_eq!(from(&world.next_init(PLACES)), (None, RestartSource::Fresh));
    assert!(!world.prefix.of(3).1.fetched);
}

#[test]
fn load_fetches_the_current_checkpoint_instead_of_the_one_in_cache() {
    let mut world = flushed();
    world.init();
    world.call(Call::CompleteRestart { valid: true }).unwrap();
    world.prefix.current = Some(world.prefix.of(1).0.clone());
    let loaded = restart(world.call(Call::Load));
    assert_eq!(from(&loaded), (Some(1), RestartSource::Fetched));
    assert_eq!(world.checkpoint(), CheckpointId(2));
}
