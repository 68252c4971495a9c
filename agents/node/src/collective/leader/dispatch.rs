//! Orders out, answers in, and members that come and go meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_model::{Failure, FailureKind, NodeName};
use holdfast_wire::peer::{Order, OrderResult, ToMember};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// How often an order is tried when a peer was lost on the way, and the first pause, which doubles: in all long enough
/// for an agent that died alone to be started again.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(50);

type Answer = Result<OrderResult, Failure>;

/// Who can be reached, and what has been ordered.
#[derive(Debug)]
pub(super) struct Dispatch {
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    links: HashMap<NodeName, (u64, mpsc::UnboundedSender<ToMember>)>,
    orders: BTreeMap<u64, HashMap<NodeName, Pending>>,
    /// Nodes that will not come back.
    gone: BTreeSet<NodeName>,
}

#[derive(Debug)]
struct Pending {
    what: Order,
    /// The member was told.
    sent: bool,
    answer: oneshot::Sender<Answer>,
}

impl Dispatch {
    /// Numbers begin at random, so that a leader that was restarted does not use those of its predecessor.
    pub(super) fn new(instance: u64) -> Self {
        Dispatch { next: AtomicU64::new(instance >> 1), state: Mutex::default() }
    }

    /// A member can be reached (again): it gets what it has not answered yet. What it was doing together with others is
    /// over for all of them, since its part cannot be repeated alone.
    pub(super) fn link_up(&self, node: &NodeName, link: mpsc::UnboundedSender<ToMember>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let mut broken = Vec::new();
        for (order, pending) in &mut state.orders {
            let Some(pending) = pending.get_mut(node) else { continue };
            if pending.sent && pending.what.is_joint() {
                let _ = link.send(ToMember::Cancel { order: *order });
                broken.push(*order);
            } else {
                let _ = link.send(ToMember::Order { order: *order, what: pending.what.clone() });
                pending.sent = true;
            }
        }
        state.links.insert(node.clone(), (number, link));
        drop(state);
        for order in broken {
            self.done(node, order, Err(lost("its agent was restarted")));
        }
        number
    }

    /// A member's link broke; a newer one stays.
    pub(super) fn link_down(&self, node: &NodeName, link: u64) {
        let mut state = self.state.lock();
        if state.links.get(node).is_some_and(|(number, _)| *number == link) {
            state.links.remove(node);
        }
    }

    /// A member will not come back. What it was to do is tried again without it.
    pub(super) fn give_up(&self, node: &NodeName) {
        let mut state = self.state.lock();
        state.gone.insert(node.clone());
        state.links.remove(node);
        let open: Vec<u64> =
            state.orders.iter().filter(|(_, pending)| pending.contains_key(node)).map(|(order, _)| *order).collect();
        drop(state);
        for order in open {
            self.done(node, order, Err(lost("it is down")));
        }
    }

    /// Sends to a member, if it can be reached now.
    pub(super) fn send(&self, node: &NodeName, message: ToMember) {
        if let Some((_, link)) = self.state.lock().links.get(node) {
            let _ = link.send(message);
        }
    }

    /// A member answers an order.
    pub(super) fn done(&self, node: &NodeName, order: u64, answer: Answer) {
        let mut state = self.state.lock();
        let Some(pending) = state.orders.get_mut(&order) else { return };
        let Some(of_node) = pending.remove(node) else { return };
        if answer.is_err() {
            // The others may be waiting for this one in a ring: let them go.
            let untold: Vec<NodeName> =
                pending.iter().filter(|(_, pending)| !pending.sent).map(|(node, _)| node.clone()).collect();
            for node in untold {
                // Nobody is left for it to do this with.
                if let Some(pending) = pending.remove(&node) {
                    let _ = pending.answer.send(Err(lost("it could not be reached")));
                }
            }
            let told: Vec<NodeName> = pending.keys().cloned().collect();
            for other in told {
                if let Some((_, link)) = state.links.get(&other) {
                    let _ = link.send(ToMember::Cancel { order });
                }
            }
        }
        let _ = of_node.answer.send(answer);
    }

    /// Has orders carried out, one by each node. If a peer was lost on the way, all of it is tried again: the agent that
    /// died alone is back soon, and a node that is lost ends the whole run. Otherwise the first real error is returned
    /// when all have answered.
    pub(super) async fn order(
        &self,
        orders: BTreeMap<NodeName, Order>,
    ) -> Result<BTreeMap<NodeName, OrderResult>, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.once(&orders).await {
                Err(error) if error.retryable && tries < TRIES => {
                    tracing::info!(%error, tries, "an order is tried again");
                    tokio::time::sleep(PAUSE * 2u32.pow(tries - 1)).await;
                }
                result => return result,
            }
        }
    }

    async fn once(&self, orders: &BTreeMap<NodeName, Order>) -> Result<BTreeMap<NodeName, OrderResult>, Failure> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut answers = Vec::with_capacity(orders.len());
        {
            let mut state = self.state.lock();
            let mut pending = HashMap::with_capacity(orders.len());
            let gone = state.gone.clone();
            let orders = || orders.iter().filter(|(node, _)| !gone.contains(*node));
            for (node, what) in orders() {
                let (answer, receiver) = oneshot::channel();
                answers.push((node.clone(), receiver));
                pending
                    .insert(node.clone(), Pending { what: what.clone(), sent: state.links.contains_key(node), answer });
            }
            state.orders.insert(number, pending);
            for (node, what) in orders() {
                if let Some((_, link)) = state.links.get(node) {
                    let _ = link.send(ToMember::Order { order: number, what: what.clone() });
                }
            }
        }
        let mut results = BTreeMap::new();
        let mut worst: Option<Failure> = None;
        for (node, answer) in answers {
            match answer.await {
                Ok(Ok(result)) => {
                    results.insert(node, result);
                }
                Ok(Err(error)) => {
                    // What went wrong on a disk explains more than who then lost whom.
                    if worst.as_ref().is_none_or(|known| known.retryable && !error.retryable) {
                        worst = Some(error.on_node(&node));
                    }
                }
                Err(_) => {
                    worst.get_or_insert_with(|| lost("it did not answer").on_node(&node));
                }
            }
        }
        self.state.lock().orders.remove(&number);
        worst.map_or(Ok(results), Err)
    }
}

fn lost(message: &str) -> Failure {
    Failure::new(FailureKind::LostPeer, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn names(nodes: &[&str]) -> BTreeMap<NodeName, Order> {
        nodes.iter().map(|node| (NodeName::from(*node), Order::Inventory)).collect()
    }

    async fn next_order(link: &mut mpsc::UnboundedReceiver<ToMember>) -> u64 {
        match link.recv().await.unwrap() {
            ToMember::Order { order, .. } => order,
            other => panic!("an order was expected, not {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_member_that_was_away_gets_its_order_when_it_is_back() {
        let dispatch = Arc::new(Dispatch::new(0));
        let ordering = tokio::spawn({
            let dispatch = dispatch.clone();
            async move { dispatch.order(names(&["a"])).await }
        });
        tokio::task::yield_now().await;
        let (link, mut member) = mpsc::unbounded_channel();
        dispatch.link_up(&"a".into(), link);
        let order = next_order(&mut member).await;
        dispatch.done(&"a".into(), order, Ok(OrderResult::Done));
        assert_eq!(ordering.await.unwrap().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_spare_that_will_not_come_back_is_not_waited_for_now_or_later() {
        let dispatch = Arc::new(Dispatch::new(0));
        let (link, mut a) = mpsc::unbounded_channel();
        dispatch.link_up(&"a".into(), link);
        let both = |dispatch: &Arc<Dispatch>| {
            let dispatch = dispatch.clone();
            tokio::spawn(async move { dispatch.order(names(&["a", "spare"])).await })
        };
        let ordering = both(&dispatch);
        let first = next_order(&mut a).await;
        dispatch.give_up(&"spare".into());
        assert!(matches!(a.recv().await, Some(ToMember::Cancel { order }) if order == first));
        dispatch.done(&"a".into(), first, Err(super::lost("cancelled")));
        let second = next_order(&mut a).await;
        dispatch.done(&"a".into(), second, Ok(OrderResult::Done));
        assert_eq!(ordering.await.unwrap().unwrap().len(), 1);
        let later = both(&dispatch);
        let third = next_order(&mut a).await;
        dispatch.done(&"a".into(), third, Ok(OrderResult::Done));
        assert_eq!(later.await.unwrap().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn when_one_fails_the_others_are_let_go_and_all_is_tried_again_under_a_new_number() {
        let dispatch = Arc::new(Dispatch::new(0));
        let (link_a, mut a) = mpsc::unbounded_channel();
        let (link_b, mut b) = mpsc::unbounded_channel();
        dispatch.link_up(&"a".into(), link_a);
        dispatch.link_up(&"b".into(), link_b);
        let ordering = tokio::spawn({
            let dispatch = dispatch.clone();
            async move { dispatch.order(names(&["a", "b"])).await }
        });
        let first = next_order(&mut a).await;
        assert_eq!(next_order(&mut b).await, first);
        let lost = super::lost("the ring broke");
        dispatch.done(&"a".into(), first, Err(lost.clone()));
        assert!(matches!(b.recv().await, Some(ToMember::Cancel { order }) if order == first));
        dispatch.done(&"b".into(), first, Err(lost));
        let second = next_order(&mut a).await;
        assert_ne!(first, second);
        dispatch.done(&"a".into(), second, Ok(OrderResult::Done));
        let second = next_order(&mut b).await;
        dispatch.done(&"b".into(), second, Ok(OrderResult::Done));
        assert!(ordering.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_full_disk_is_reported_and_not_tried_again() {
        let dispatch = Arc::new(Dispatch::new(0));
        let (link, mut member) = mpsc::unbounded_channel();
        dispatch.link_up(&"a".into(), link);
        let ordering = tokio::spawn({
            let dispatch = dispatch.clone();
            async move { dispatch.order(names(&["a"])).await }
        });
        let order = next_order(&mut member).await;
        dispatch.done(&"a".into(), order, Err(Failure::new(FailureKind::Io, "no space left")));
        let error = ordering.await.unwrap().unwrap_err();
        assert_eq!((error.subject.node, error.message.as_str()), (Some("a".into()), "no space left"));
    }
}
