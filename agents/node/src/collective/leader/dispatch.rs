//! Orders and their results, and members whose links go down and up meanwhile.
//!
//! A *batch* is a set of orders that belong together, one a node at the most; a procedure begins it and takes its
//! result. If a peer is lost meanwhile, the entire batch is tried again after a pause, under a new number: an agent
//! that died alone is restarted soon, and the loss of a node ends the run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_model::{Failure, FailureKind, NodeName};
use holdfast_wire::peer::{CopyLimits, Order, OrderResult, ToMember};

use super::action::LeaderAction;
use super::background::Background;

/// How often a batch is tried when a peer was lost on the way, and the first pause, which doubles: in all long enough
/// for an agent that died alone to be started again.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(50);

pub(super) type BatchResult = Result<BTreeMap<NodeName, OrderResult>, Failure>;

/// Members that can be reached, and what has been ordered.
#[derive(Debug)]
pub(super) struct Dispatch {
    next_order: u64,
    next_batch: u64,
    /// The number of each member's newest link.
    links: BTreeMap<NodeName, u64>,
    /// Nodes that are down for the rest of the run.
    down: BTreeSet<NodeName>,
    /// Batches whose result was not taken: at most one for each procedure.
    batches: BTreeMap<u64, Batch>,
}

#[derive(Debug)]
struct Batch {
    orders: BTreeMap<NodeName, Order>,
    /// The procedure in the background that it belongs to.
    of: Option<Background>,
    /// Why it is not tried again.
    cancelled: Option<Failure>,
    tries: u32,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Open(Attempt),
    Paused { until: Duration },
    Finished(BatchResult),
}

/// One try of a batch.
#[derive(Debug)]
struct Attempt {
    /// The number that all its orders have.
    order: u64,
    /// The nodes that have not returned a result, and whether the order was sent to them.
    open: BTreeMap<NodeName, bool>,
    results: BTreeMap<NodeName, OrderResult>,
    failures: BTreeMap<NodeName, Failure>,
}

impl Dispatch {
    /// Numbers begin at random, so that a leader that was restarted does not use those of its predecessor.
    pub(super) fn new(instance: u64) -> Self {
        Dispatch {
            next_order: instance >> 1,
            next_batch: 0,
            links: BTreeMap::new(),
            down: BTreeSet::new(),
            batches: BTreeMap::new(),
        }
    }

    /// Sends orders, one to each node; nodes that are down are left out. Returns the batch's number.
    pub(super) fn begin(
        &mut self,
        orders: BTreeMap<NodeName, Order>,
        of: Option<Background>,
        now: Duration,
        out: &mut Vec<LeaderAction>,
    ) -> u64 {
        let number = self.next_batch;
        self.next_batch += 1;
        let mut batch = Batch { orders, of, cancelled: None, tries: 0, stage: Stage::Paused { until: now } };
        self.attempt(&mut batch, out);
        batch.settle(now);
        self.batches.insert(number, batch);
        number
    }

    /// Takes the result of a batch.
    pub(super) fn take(&mut self, batch: u64) -> Option<BatchResult> {
        match self.batches.remove(&batch)? {
            Batch { stage: Stage::Finished(result), .. } => Some(result),
            unfinished => {
                self.batches.insert(batch, unfinished);
                None
            }
        }
    }

    /// When [`Dispatch::tick`] is due.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let pauses = self.batches.values().filter_map(|batch| match batch.stage {
            Stage::Paused { until } => Some(until),
            _ => None,
        });
        pauses.min()
    }

    /// Tries batches again whose pause is over.
    pub(super) fn tick(&mut self, now: Duration, out: &mut Vec<LeaderAction>) {
        let mut batches = std::mem::take(&mut self.batches);
        for batch in batches.values_mut() {
            if matches!(batch.stage, Stage::Paused { until } if until <= now) {
                self.attempt(batch, out);
                batch.settle(now);
            }
        }
        self.batches = batches;
    }

    /// True if something can be sent to each of these members, apart from those that are down.
    pub(super) fn can_reach_all<'a>(&self, mut nodes: impl Iterator<Item = &'a NodeName>) -> bool {
        nodes.all(|node| self.can_reach(node) || self.down.contains(node))
    }

    /// True if something can be sent to this member.
    pub(super) fn can_reach(&self, node: &NodeName) -> bool {
        self.links.contains_key(node)
    }

    /// A member can be reached (again): orders that it has not answered are sent again. A joint order that was sent to
    /// it before fails for all members, since one member cannot repeat its part alone; so does one that is cancelled
    /// already.
    pub(super) fn link_up(&mut self, node: &NodeName, link: u64, now: Duration, out: &mut Vec<LeaderAction>) {
        self.links.insert(node.clone(), link);
        for batch in self.batches.values_mut() {
            let (Stage::Open(attempt), Some(what)) = (&mut batch.stage, batch.orders.get(node)) else { continue };
            let Some(sent) = attempt.open.get_mut(node) else { continue };
            let order = attempt.order;
            if *sent && (what.is_joint() || !attempt.failures.is_empty()) {
                out.push(send(node, ToMember::Cancel { order }));
                attempt.end_for(node, Err(lost("its agent was restarted")), &self.links, out);
                batch.settle(now);
            } else {
                *sent = true;
                out.push(send(node, ToMember::Order { order, what: what.clone() }));
            }
        }
    }

    /// A member's link broke; a newer one stays.
    pub(super) fn link_down(&mut self, node: &NodeName, link: u64) {
        if self.links.get(node) == Some(&link) {
            self.links.remove(node);
        }
    }

    /// A member is down for the rest of the run. Its batches are tried again without it.
    pub(super) fn node_down(&mut self, node: &NodeName, now: Duration, out: &mut Vec<LeaderAction>) {
        self.down.insert(node.clone());
        self.links.remove(node);
        for batch in self.batches.values_mut() {
            if let Stage::Open(attempt) = &mut batch.stage {
                attempt.end_for(node, Err(lost("it is down")), &self.links, out);
                batch.settle(now);
            }
        }
    }

    /// A member returned the result of an order.
    pub(super) fn done(
        &mut self,
        node: &NodeName,
        order: u64,
        result: Result<OrderResult, Failure>,
        now: Duration,
        out: &mut Vec<LeaderAction>,
    ) {
        for batch in self.batches.values_mut() {
            if let Stage::Open(attempt) = &mut batch.stage
                && attempt.order == order
            {
                attempt.end_for(node, result, &self.links, out);
                return batch.settle(now);
            }
        }
    }

    /// The orders of a procedure are carried out without their limits from now on.
    pub(super) fn lift_limits(&mut self, of: Background, out: &mut Vec<LeaderAction>) {
        let batches = self.batches.values_mut();
        for batch in batches.filter(|batch| batch.of == Some(of) && batch.cancelled.is_none()) {
            for (node, order) in &mut batch.orders {
                let lifted = order.limits_mut().is_some_and(CopyLimits::lift);
                if let Stage::Open(attempt) = &batch.stage
                    && lifted
                    && attempt.open.get(node) == Some(&true)
                    && self.links.contains_key(node)
                {
                    out.push(send(node, ToMember::LiftLimits { order: attempt.order }));
                }
            }
        }
    }

    /// The orders of a procedure are cancelled, and fail for this reason.
    pub(super) fn cancel(&mut self, of: Background, why: &Failure, now: Duration, out: &mut Vec<LeaderAction>) {
        for batch in self.batches.values_mut().filter(|batch| batch.of == Some(of)) {
            batch.cancelled = Some(why.clone());
            match &mut batch.stage {
                Stage::Open(attempt) => attempt.cancel(&self.links, out),
                Stage::Paused { .. } => batch.stage = Stage::Finished(Err(why.clone())),
                Stage::Finished(_) => {}
            }
            batch.settle(now);
        }
    }

    fn attempt(&mut self, batch: &mut Batch, out: &mut Vec<LeaderAction>) {
        let order = self.next_order;
        self.next_order = self.next_order.wrapping_add(1);
        let mut open = BTreeMap::new();
        for (node, what) in batch.orders.iter().filter(|(node, _)| !self.down.contains(*node)) {
            let reachable = self.links.contains_key(node);
            if reachable {
                out.push(send(node, ToMember::Order { order, what: what.clone() }));
            }
            open.insert(node.clone(), reachable);
        }
        batch.tries += 1;
        batch.stage = Stage::Open(Attempt { order, open, results: BTreeMap::new(), failures: BTreeMap::new() });
    }
}

impl Batch {
    /// Ends an attempt that has no open results: pauses before the next one, or finishes with the first real error.
    fn settle(&mut self, now: Duration) {
        let Stage::Open(attempt) = &mut self.stage else { return };
        if !attempt.open.is_empty() {
            return;
        }
        let failures = std::mem::take(&mut attempt.failures);
        if let Some(why) = self.cancelled.as_ref().filter(|_| !failures.is_empty()) {
            self.stage = Stage::Finished(Err(why.clone()));
            return;
        }
        // A disk error explains more than the connections that were lost because of it, and a rank's damaged file more
        // than the wrong result that was computed from it.
        let names_a_damaged_file =
            |failure: &Failure| failure.kind == FailureKind::Damaged && failure.subject.rank.is_some();
        let worst = failures.iter().min_by_key(|(_, failure)| (failure.retryable, !names_a_damaged_file(failure)));
        let worst = worst.map(|(node, failure)| failure.clone().on_node(node));
        self.stage = match worst {
            Some(failure) if failure.retryable && self.tries < TRIES => {
                // All of them: a lost connection is often the consequence of another node's failure.
                for (node, failure) in &failures {
                    let error = failure.clone().on_node(node);
                    tracing::info!(%error, tries = self.tries, "order_tried_again");
                }
                Stage::Paused { until: now + PAUSE * 2u32.pow(self.tries - 1) }
            }
            Some(failure) => Stage::Finished(Err(failure)),
            None => Stage::Finished(Ok(std::mem::take(&mut attempt.results))),
        };
    }
}

impl Attempt {
    /// Stores a node's result; the first failure cancels the order on the other nodes, which may wait for it in a ring.
    fn end_for(
        &mut self,
        node: &NodeName,
        result: Result<OrderResult, Failure>,
        links: &BTreeMap<NodeName, u64>,
        out: &mut Vec<LeaderAction>,
    ) {
        if self.open.remove(node).is_none() {
            return;
        }
        let failure = match result {
            Ok(result) => {
                self.results.insert(node.clone(), result);
                return;
            }
            Err(failure) => failure,
        };
        if self.failures.is_empty() {
            self.cancel(links, out);
        }
        self.failures.insert(node.clone(), failure);
    }

    /// Cancels the order on the nodes that have not returned a result. Each of them still returns one.
    fn cancel(&mut self, links: &BTreeMap<NodeName, u64>, out: &mut Vec<LeaderAction>) {
        for (node, _) in self.open.iter().filter(|(node, sent)| **sent && links.contains_key(*node)) {
            out.push(send(node, ToMember::Cancel { order: self.order }));
        }
        // A node that receives the order only now would find no peers.
        let unreached = self.open.extract_if(.., |_, sent| !*sent);
        self.failures.extend(unreached.map(|(node, _)| (node, lost("it could not be reached"))));
    }
}

fn send(node: &NodeName, message: ToMember) -> LeaderAction {
    LeaderAction::Send { node: node.clone(), message }
}

fn lost(message: &str) -> Failure {
    Failure::new(FailureKind::LostPeer, message)
}
