//! What must hold at any time.

use std::collections::BTreeMap;

use holdfast_failover::lease::Orders;
use holdfast_model::pair::{CopyState, Side};

use super::world::{Defect, Link, World};
use crate::queue::{MS, Time};

/// Lease, margin, waiting for a mirrored checkpoint, a renewal, a start that never ends, and the time of a fail-over.
const LONGEST_WITHOUT: Time = 7_000 * MS;

/// The time of a lease: a node that answered longer ago counts as lost.
const LEASE: Time = 2_000 * MS;

/// A replica has stored checkpoints after the time of a lease, and reported them.
const SHORTEST_WORK: Time = 2_500 * MS;
/// An answer on its way, a lease that is renewed after it, and its end.
const LATE_ANSWERS: Time = 8_500 * MS;

#[derive(Default)]
pub struct Oracle {
    /// Since when no copy of the pair works, and since when one could, by node.
    none: BTreeMap<u32, Time>,
    ready: BTreeMap<(u32, usize), Time>,
}

impl World {
    /// The processes of a pair that may change the world outside.
    pub fn working(&self, pair: u32) -> Vec<(usize, Side, u64)> {
        let mut working = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            for side in Side::BOTH {
                if let Some(process) = node.processes.get(&(pair, side)).filter(|process| process.works()) {
                    working.push((number, side, process.incarnation));
                }
            }
        }
        working
    }

    pub fn check(&mut self) {
        let now = self.now;
        for pair in 0..self.pairs.len() as u32 {
            let working = self.working(pair);
            assert!(working.len() <= 1, "two copies of pair {pair} are awake: {working:?}");
            if self.pairs[pair as usize].finished {
                continue;
            }
            let healthy =
                working.iter().any(|(node, side, _)| self.nodes[*node].processes[&(pair, *side)].is_healthy());
            if healthy {
                self.oracle.none.remove(&pair);
            } else {
                self.oracle.none.entry(pair).or_insert(now);
            }
            for number in 0..2 {
                let key = (pair, number);
                if !self.could_work(pair, number) {
                    self.oracle.ready.remove(&key);
                    continue;
                }
                let ready = *self.oracle.ready.entry(key).or_insert(now);
                let none = self.oracle.none.get(&pair).copied();
                let without = none.map_or(0, |none| now - none.max(ready));
                assert!(without <= LONGEST_WITHOUT, "pair {pair} has no awake copy, node {number} could have one");
            }
        }
    }

    /// A healthy copy sleeps on the node, and nothing is in the way of waking it.
    fn could_work(&self, pair: u32, number: usize) -> bool {
        let node = &self.nodes[number];
        let local = self.pairs[pair as usize].is_local();
        let newest = self.orchestrators.get(&self.epoch);
        let reached = newest.is_some_and(|newest| newest.is_well() && newest.links[number] == Link::Good);
        let granted = local || reached;
        let asleep = node.processes.iter().any(|((of, _), process)| {
            *of == pair && process.alive && process.state == CopyState::Asleep && !process.stopped
        });
        node.up && node.agent.is_some() && granted && asleep
    }

    /// A replica that has worked for a while ends only for a main that can go on from its checkpoints.
    pub fn check_hand_over(&self, number: usize, pair: u32, side: Side) {
        let spec = &self.pairs[pair as usize];
        let Some(process) = self.nodes[number].processes.get(&(pair, side)) else { return };
        if side == Side::Main || spec.is_local() || spec.finished || !process.is_healthy() {
            return;
        }
        let (now, main) = (self.now, &self.nodes[1 - number]);
        // The orchestrator may decide by answers from before, which came late.
        let is_recent = |at: Option<Time>, within: Time| at.is_some_and(|at| now - at < within);
        let is_new = is_recent(Some(process.woken), SHORTEST_WORK);
        if !main.up || is_new || is_recent(main.crashed, LATE_ANSWERS) || is_recent(self.paused, 2 * LATE_ANSWERS) {
            return;
        }
        let term = self.nodes[number].disk.get(&pair).map(|(_, term)| *term).unwrap_or_default();
        let of_main = main.checkpoints.get(&pair).copied().unwrap_or_default();
        assert!(of_main.term >= term, "pair {pair}: the main has {of_main:?}, and not what the replica has stored");
    }

    /// A node gets a lease, or its new agent does, only if the other node has no checkpoints of a later term, or none
    /// that it could go on from or send for so long. It counts what the nodes really had when they answered last.
    pub fn check_grants(&mut self, number: usize, epoch: u64, orders: &Orders) {
        // That defect is for the other check.
        if self.defect == Some(Defect::HandedOverWithout) {
            return;
        }
        let now = self.now;
        for grant in &orders.grants {
            let Some(orchestrator) = self.orchestrators.get_mut(&epoch) else { return };
            if !orchestrator.granted.insert((grant.pair, grant.term, orders.instance)) {
                continue;
            }
            let answers = [number, 1 - number].map(|number| orchestrator.answers[number].as_ref());
            let [Some(here), Some(there)] = answers else { continue };
            let newest = [here, there].map(|answer| answer.newest.get(&grant.pair).copied().unwrap_or_default());
            let lease = here.status(grant.pair).and_then(|status| status.lease.as_ref());
            let goes_on = lease.is_some_and(|lease| lease.held == Some(grant.term));
            let given_up = there.status(grant.pair).is_some_and(|status| {
                Side::BOTH.into_iter().filter_map(|side| status.copy(side)).any(|copy| copy.state == CopyState::GivenUp)
            });
            let waited = self.oracle.none.get(&grant.pair).map_or(0, |none| now - none);
            let within = self.pairs[grant.pair as usize].start_within();
            let excused = goes_on || given_up || waited >= within || now - there.at >= LEASE;
            let [has, other] = newest;
            assert!(
                excused || has.term >= other.term,
                "pair {}: node {number} has {has:?}, and gets the lease, although the other node has {other:?}, \
                 of which this node has none",
                grant.pair
            );
        }
    }

    /// After a time without faults.
    pub fn check_end(&mut self) {
        let left: Vec<_> = self.orchestrators.keys().collect();
        assert_eq!(left, [&self.epoch], "orchestrators that were replaced still run");
        for pair in 0..self.pairs.len() as u32 {
            let working = self.working(pair);
            let spec = &self.pairs[pair as usize];
            if spec.finished {
                assert!(working.is_empty(), "pair {pair} has finished, but {working:?} works");
                let left = self.nodes.iter().flat_map(|node| &node.processes).filter(|((of, _), _)| *of == pair);
                let left: Vec<_> = left.filter(|(_, process)| process.alive).collect();
                assert!(left.is_empty(), "pair {pair} has finished, but {left:?} exist");
                continue;
            }
            let sides: Vec<Side> = working.iter().map(|(_, side, _)| *side).collect();
            assert_eq!(sides, [Side::Main], "pair {pair}: the main does not work again");
            let replica = self.nodes[spec.nodes[1]].processes.get(&(pair, Side::Replica));
            let asleep = replica.is_some_and(|process| process.alive && process.state == CopyState::Asleep);
            assert!(asleep, "pair {pair}: the replica does not sleep: {replica:?}");
        }
    }
}
