use std::time::Duration;

use holdfast_model::Rank;
use holdfast_wire::peer::{Order, ToLeader};
use holdfast_wire::rank::{Call, Reply};

use super::super::LeaderEvent;
use super::world::{World, is_encode, lost_peer};

fn in_checkpoint() -> World {
    let mut world = World::begun();
    world.call(Call::Start).unwrap();
    world.orders.clear();
    world
}

#[test]
fn a_joint_order_is_repeated_by_all_members_when_one_restarts() {
    let mut world = in_checkpoint();
    world.hold_orders(|_, order| is_encode(order));
    world.begin(Call::Complete { valid: true });
    assert_eq!(world.held.len(), 4);
    let first = world.held[0].1;
    world.unlink("n1");
    world.run();
    assert_eq!((world.outcome(), world.cancelled.len()), (None, 0), "it may reconnect soon");
    world.hold_orders(|_, _| false);
    world.link("n1");
    world.run();
    let cancelled: Vec<&str> = world.cancelled.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(cancelled, ["n1", "n0", "n2", "n3"], "its own part is not repeated alone");
    assert!(matches!(world.outcome(), Some(Ok(Reply::Completed { kept: true, .. }))));
    let second = world.orders.iter().rfind(|(_, _, what)| is_encode(what)).unwrap().1;
    assert_ne!(first, second);
    assert_eq!(world.orders_of("n2"), ["seal", "encode", "encode", "commit", "note", "halt"]);
}

#[test]
fn an_order_that_is_not_joint_is_repeated_only_by_the_member_that_restarts() {
    let mut world = in_checkpoint();
    world.hold_orders(|node, order| node == "n1" && matches!(order, Order::Seal { .. }));
    world.begin(Call::Complete { valid: true });
    world.unlink("n1");
    world.hold_orders(|_, _| false);
    world.link("n1");
    world.run();
    assert!(matches!(world.outcome(), Some(Ok(Reply::Completed { kept: true, .. }))));
    assert_eq!(world.orders_of("n1")[..2], ["seal", "seal"]);
    assert_eq!(world.orders_of("n2")[..2], ["seal", "encode"]);
}

#[test]
fn a_lost_peer_is_waited_for_as_long_as_a_restart_of_an_agent_takes() {
    let mut world = in_checkpoint();
    let mut failures = 6;
    world.fail_orders(move |node, order| {
        let fails = node == "n0" && is_encode(order) && failures > 0;
        failures -= i32::from(fails);
        fails.then(lost_peer)
    });
    world.complete();
    assert!(world.now >= Duration::from_secs(3), "{:?}", world.now);
}

#[test]
fn lost_results_are_sent_again_to_the_node_that_repeats_its_calls() {
    let mut world = World::begun();
    let before = world.answers.len();
    let calls = vec![(Rank(2), Call::Init)];
    world.handle(LeaderEvent::Received { node: "n2".into(), message: ToLeader::Calls { seq: 1, calls } });
    let (node, seq, outcome) = world.answers.last().unwrap();
    assert_eq!((world.answers.len(), node.as_str(), *seq), (before + 1, "n2", 1));
    assert!(matches!(**outcome, Ok(Reply::Restart(_))));
}

#[test]
fn a_spare_that_is_down_is_not_waited_for() {
    let mut world = World::new();
    world.hold_orders(|node, _| node == "n4");
    world.begin(Call::Init);
    assert_eq!(world.outcome(), None);
    world.hold_orders(|_, _| false);
    world.held.clear();
    world.handle(LeaderEvent::NodeDown { node: "n4".into() });
    world.run();
    assert!(matches!(world.outcome(), Some(Ok(Reply::Restart(_)))));
    world.orders.clear();
    world.checkpoint();
    assert_eq!(world.orders_of("n4"), [""; 0]);
}

#[test]
fn the_same_events_lead_to_the_same_actions() {
    let history = || {
        let mut world = in_checkpoint();
        world.fail_orders(|node, order| (node == "n3" && is_encode(order)).then(lost_peer));
        world.begin(Call::Complete { valid: true });
        (format!("{:?}", world.orders), world.reported(), world.now)
    };
    assert_eq!(history(), history());
}
