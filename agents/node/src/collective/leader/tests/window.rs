//! The window of the job on the prefix directory.

use holdfast_model::{CheckpointId, FlushMode, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::Call;

use super::super::LeaderWork;
use super::world::{PLACES, World, disk_full};

fn world(mode: FlushMode, keep: u32) -> World {
    World::begun_with(|plan| {
        plan.settings.flush.every = 1;
        plan.settings.flush.mode = mode;
        plan.settings.flush.keep = keep;
    })
}

fn deleted(world: &World) -> Vec<u64> {
    let of = |event: &AgentEvent| match event {
        AgentEvent::PrefixDeleted { checkpoint, .. } => Some(checkpoint.0),
        _ => None,
    };
    world.events.iter().filter_map(of).collect()
}

#[test]
fn older_checkpoints_are_deleted_after_enough_newer_ones_were_verified() {
    for mode in [FlushMode::Sync, FlushMode::Async] {
        let mut world = world(mode, 2);
        world.checkpoints(4);
        world.call(Call::Finalize).unwrap();
        assert_eq!((world.prefix.complete(), deleted(&world)), (vec![3, 4], vec![1, 2]));
    }
    let mut all = world(FlushMode::Sync, 0);
    all.checkpoints(4);
    assert_eq!((all.prefix.complete(), deleted(&all)), (vec![1, 2, 3, 4], vec![]));
}

#[test]
fn ranks_do_not_wait_for_the_verification_and_the_end_of_the_run_does() {
    let mut world = world(FlushMode::Sync, 1);
    world.checkpoint();
    world.hold_orders(|_, order| matches!(order, Order::VerifyStored { .. }));
    world.checkpoint();
    assert_eq!(world.prefix.complete(), [1, 2], "2 is not verified");
    let limits = |order: &Order| matches!(order, Order::VerifyStored { limits, .. } if limits.bandwidth == 2);
    assert!(world.held.iter().all(|(_, _, order)| limits(order)), "a quarter of 7 for each node");
    world.begin(Call::Finalize);
    assert_eq!((world.outcome(), world.lifted.len()), (None, 4));
    world.release();
    assert!(world.outcome().is_some());
    assert_eq!(world.prefix.complete(), [2]);
}

#[test]
fn each_node_reads_the_files_of_another_one() {
    let mut world = world(FlushMode::Sync, 1);
    world.hold_orders(|_, order| matches!(order, Order::VerifyStored { .. }));
    world.checkpoint();
    let mut read = Vec::new();
    for (node, _, order) in &world.held {
        let Order::VerifyStored { files, .. } = order else { panic!() };
        let own = &world.nodes[node].ranks;
        assert!(files.keys().all(|rank| !own.contains(rank)), "{node} reads {:?}", files.keys());
        read.extend(files.keys().copied());
    }
    read.sort_unstable();
    assert_eq!(read.iter().map(|rank| rank.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn nothing_is_deleted_for_a_checkpoint_that_is_damaged_or_cannot_be_read() {
    let mut world = world(FlushMode::Sync, 1);
    world.checkpoint();
    world.nodes.get_mut(&"n1".into()).unwrap().damaged.extend((0..4).map(|rank| (CheckpointId(2), Rank(rank))));
    world.checkpoint();
    let damaged = |event: &AgentEvent| match event {
        AgentEvent::FlushDamaged { checkpoint, reason, .. } => {
            *checkpoint == CheckpointId(2) && reason.contains("rank")
        }
        _ => false,
    };
    assert!(world.events.iter().any(damaged));
    world.fail_orders(|_, order| matches!(order, Order::VerifyStored { .. }).then(disk_full));
    world.checkpoint();
    let notice =
        |event: &AgentEvent| matches!(event, AgentEvent::Notice { message } if message.contains("not verified"));
    assert!(world.events.iter().any(notice));
    assert_eq!((world.prefix.complete(), deleted(&world)), (vec![1, 2, 3], vec![]));
    world.fail_orders(|_, _| None);
    world.checkpoint();
    assert_eq!((world.prefix.complete(), deleted(&world)), (vec![2, 3, 4], vec![1]), "2 and 3 were never verified");
}

#[test]
fn what_the_run_restarted_from_stays() {
    let mut world = world(FlushMode::Sync, 1);
    world.checkpoint();
    world.next_init(PLACES);
    assert!(world.prefix.of(1).1.restarted);
    world.checkpoints(3);
    assert_eq!(world.prefix.complete(), [1, 4]);
    world.fail_work(|work| matches!(work, LeaderWork::MarkRestarted { .. }).then(disk_full));
    world.next_init(PLACES);
    assert!(
        world
            .events
            .iter()
            .any(|event| matches!(event, AgentEvent::Notice { message } if message.contains("not marked")))
    );
}
