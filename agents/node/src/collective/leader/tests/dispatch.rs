use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_model::{Failure, FailureKind, NodeName, Rank};
use holdfast_wire::peer::{CopyLimits, Order, OrderResult, ToMember};

use super::super::LeaderAction;
use super::super::dispatch::Dispatch;

const T0: Duration = Duration::ZERO;

fn orders(nodes: &[&str], order: &Order) -> BTreeMap<NodeName, Order> {
    nodes.iter().map(|node| (NodeName::from(*node), order.clone())).collect()
}

fn joint() -> Order {
    Order::Encode {
        checkpoint: holdfast_model::CheckpointId(1),
        groups: Vec::new(),
        crc: false,
        only: None,
        limits: CopyLimits::NONE,
    }
}

fn lost() -> Result<OrderResult, Failure> {
    Err(Failure::new(FailureKind::LostPeer, "the ring broke"))
}

/// What was sent, in short: the node, and the order's number, negative for a cancellation.
fn sent(actions: &mut Vec<LeaderAction>) -> Vec<(String, i128)> {
    let short = |action| match action {
        LeaderAction::Send { node, message: ToMember::Order { order, .. } } => (node.to_string(), i128::from(order)),
        LeaderAction::Send { node, message: ToMember::Cancel { order } } => (node.to_string(), -i128::from(order)),
        other => panic!("only orders are sent: {other:?}"),
    };
    std::mem::take(actions).into_iter().map(short).collect()
}

fn linked(nodes: &[&str]) -> Dispatch {
    // Halved, so that the first order is 8.
    let mut dispatch = Dispatch::new(16);
    for (link, node) in (1u64..).zip(nodes) {
        dispatch.link_up(&(*node).into(), link, T0, &mut Vec::new());
    }
    dispatch
}

fn is_finished(dispatch: &mut Dispatch, batch: u64) -> bool {
    dispatch.take(batch).is_some()
}

#[test]
fn a_member_without_a_link_gets_its_order_when_it_connects() {
    let (mut dispatch, mut out) = (linked(&[]), Vec::new());
    let batch = dispatch.begin(orders(&["a"], &Order::Inventory), None, T0, &mut out);
    assert_eq!(sent(&mut out), []);
    dispatch.link_up(&"a".into(), 1, T0, &mut out);
    assert_eq!(sent(&mut out), [("a".into(), 8)]);
    dispatch.done(&"a".into(), 8, Ok(OrderResult::Done), T0, &mut out);
    assert_eq!(dispatch.take(batch).unwrap().unwrap().len(), 1);
}

#[test]
fn a_spare_that_is_down_is_not_waited_for_in_this_batch_or_later_ones() {
    let (mut dispatch, mut out) = (linked(&["a"]), Vec::new());
    let batch = dispatch.begin(orders(&["a", "spare"], &Order::Inventory), None, T0, &mut out);
    assert_eq!(sent(&mut out), [("a".into(), 8)]);
    dispatch.node_down(&"spare".into(), T0, &mut out);
    assert_eq!(sent(&mut out), [("a".into(), -8)]);
    dispatch.done(&"a".into(), 8, lost(), T0, &mut out);
    let retry = dispatch.deadline().unwrap();
    dispatch.tick(retry, &mut out);
    assert_eq!(sent(&mut out), [("a".into(), 9)]);
    dispatch.done(&"a".into(), 9, Ok(OrderResult::Done), retry, &mut out);
    assert_eq!(dispatch.take(batch).unwrap().unwrap().len(), 1);
    let later = dispatch.begin(orders(&["spare"], &Order::Inventory), None, retry, &mut out);
    assert!(is_finished(&mut dispatch, later), "nothing is left to order");
}

#[test]
fn a_failure_cancels_the_order_once_on_the_others_and_the_batch_is_tried_again_under_a_new_number() {
    let (mut dispatch, mut out) = (linked(&["a", "b", "c"]), Vec::new());
    let batch = dispatch.begin(orders(&["a", "b", "c"], &joint()), None, T0, &mut out);
    assert_eq!(sent(&mut out), [("a".into(), 8), ("b".into(), 8), ("c".into(), 8)]);
    dispatch.done(&"a".into(), 8, lost(), T0, &mut out);
    assert_eq!(sent(&mut out), [("b".into(), -8), ("c".into(), -8)]);
    dispatch.done(&"b".into(), 8, lost(), T0, &mut out);
    assert_eq!(sent(&mut out), [], "cancelled already");
    assert_eq!(dispatch.deadline(), None, "one member still works");
    dispatch.done(&"c".into(), 8, Ok(OrderResult::Done), T0, &mut out);
    let retry = dispatch.deadline().unwrap();
    dispatch.tick(retry - Duration::from_millis(1), &mut out);
    assert_eq!(sent(&mut out), [], "too early");
    dispatch.tick(retry, &mut out);
    assert_eq!(sent(&mut out), [("a".into(), 9), ("b".into(), 9), ("c".into(), 9)]);
    dispatch.done(&"a".into(), 8, Ok(OrderResult::Done), retry, &mut out);
    for node in ["a", "b", "c"] {
        assert!(!is_finished(&mut dispatch, batch), "a late result of the first try is ignored");
        dispatch.done(&node.into(), 9, Ok(OrderResult::Done), retry, &mut out);
    }
    assert_eq!(dispatch.take(batch).unwrap().unwrap().len(), 3);
}

#[test]
fn pauses_double_and_tries_are_limited() {
    let (mut dispatch, mut out) = (linked(&["a"]), Vec::new());
    let batch = dispatch.begin(orders(&["a"], &Order::Inventory), None, T0, &mut out);
    let (mut now, mut pauses) = (T0, Vec::new());
    for order in 8.. {
        dispatch.done(&"a".into(), order, lost(), now, &mut out);
        let Some(deadline) = dispatch.deadline() else { break };
        pauses.push((deadline - now).as_millis());
        now = deadline;
        dispatch.tick(now, &mut out);
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200]);
    let failure = dispatch.take(batch).unwrap().unwrap_err();
    assert_eq!((failure.subject.node, failure.kind), (Some("a".into()), FailureKind::LostPeer));
}

#[test]
fn a_full_disk_is_reported_before_lost_peers_and_not_tried_again() {
    let (mut dispatch, mut out) = (linked(&["a", "b"]), Vec::new());
    let batch = dispatch.begin(orders(&["a", "b"], &joint()), None, T0, &mut out);
    dispatch.done(&"a".into(), 8, lost(), T0, &mut out);
    dispatch.done(&"b".into(), 8, Err(Failure::new(FailureKind::Io, "no space left")), T0, &mut out);
    let failure = dispatch.take(batch).unwrap().unwrap_err();
    assert_eq!((failure.subject.node, failure.message.as_str()), (Some("b".into()), "no space left"));
    assert_eq!(dispatch.deadline(), None);
}

#[test]
fn a_damaged_file_of_a_rank_is_reported_before_the_wrong_result_that_came_of_it() {
    let (mut dispatch, mut out) = (linked(&["a", "b"]), Vec::new());
    let batch = dispatch.begin(orders(&["a", "b"], &joint()), None, T0, &mut out);
    dispatch.done(&"a".into(), 8, Err(Failure::new(FailureKind::Damaged, "wrong data")), T0, &mut out);
    let damaged = Failure::new(FailureKind::Damaged, "rank_2.ckpt is damaged").of_rank(Rank(2));
    dispatch.done(&"b".into(), 8, Err(damaged), T0, &mut out);
    let failure = dispatch.take(batch).unwrap().unwrap_err();
    assert_eq!((failure.subject.node, failure.subject.rank), (Some("b".into()), Some(Rank(2))));
}

#[test]
fn a_new_link_repeats_an_order_that_is_not_joint_and_ends_a_joint_one() {
    let (mut dispatch, mut out) = (linked(&["a", "b"]), Vec::new());
    let alone = dispatch.begin(orders(&["a", "b"], &Order::Inventory), None, T0, &mut out);
    let together = dispatch.begin(orders(&["a", "b"], &joint()), None, T0, &mut out);
    sent(&mut out);
    dispatch.link_down(&"a".into(), 1);
    dispatch.link_up(&"a".into(), 7, T0, &mut out);
    assert_eq!(sent(&mut out), [("a".into(), 8), ("a".into(), -9), ("b".into(), -9)]);
    dispatch.done(&"b".into(), 9, lost(), T0, &mut out);
    assert!(dispatch.deadline().is_some(), "the joint order is tried again");
    dispatch.done(&"a".into(), 8, Ok(OrderResult::Done), T0, &mut out);
    dispatch.done(&"b".into(), 8, Ok(OrderResult::Done), T0, &mut out);
    assert!(is_finished(&mut dispatch, alone));
    assert!(!is_finished(&mut dispatch, together));
}

#[test]
fn the_end_of_an_old_link_does_not_end_the_new_one() {
    let mut dispatch = linked(&["a"]);
    dispatch.link_up(&"a".into(), 2, T0, &mut Vec::new());
    dispatch.link_down(&"a".into(), 1);
    assert!(dispatch.can_reach(&"a".into()));
    dispatch.link_down(&"a".into(), 2);
    assert!(!dispatch.can_reach(&"a".into()));
}

#[test]
fn results_of_nodes_without_an_open_order_are_ignored() {
    let (mut dispatch, mut out) = (linked(&["a", "b"]), Vec::new());
    let batch = dispatch.begin(orders(&["a", "b"], &Order::Inventory), None, T0, &mut out);
    let files = |rank| OrderResult::Files(BTreeMap::from([(Rank(rank), Vec::new())]));
    dispatch.done(&"x".into(), 8, Ok(OrderResult::Done), T0, &mut out);
    dispatch.done(&"a".into(), 8, Ok(files(1)), T0, &mut out);
    dispatch.done(&"a".into(), 8, lost(), T0, &mut out);
    dispatch.done(&"b".into(), 8, Ok(files(2)), T0, &mut out);
    let results = dispatch.take(batch).unwrap().unwrap();
    assert_eq!(results, BTreeMap::from([("a".into(), files(1)), ("b".into(), files(2))]));
}
