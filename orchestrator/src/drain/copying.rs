//! The copies of one dataset: [`Rounds`], with agents that are lost and restarted.
//!
//! An agent that is lost in round 1 copies again after its restart. Round 2, in which others copy for its node, begins
//! when no such agent is waited for. Answers are recorded and logged together: those to the first requests of a round,
//! then those to repeated ones, each in the order of the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::agent::CopyReply;

use super::awaited::Awaited;
use super::error::RequestFailure;
use super::plan::Candidate;
use super::reachable::ReachableAgents;
use super::rounds::{Copied, CopyOrder, Rounds};
use crate::events::LogEvent;

type CopyResult = (CopyOrder, Result<CopyReply, RequestFailure>);

#[derive(Clone, Debug)]
pub(super) struct Copying {
    rounds: Rounds,
    round: Round,
    /// Nodes that hold files of the dataset.
    holders: BTreeSet<NodeName>,
    pub(super) awaited: Awaited,
}

#[derive(Clone, Debug)]
enum Round {
    First {
        /// Nodes whose first answer has not arrived.
        open: BTreeSet<NodeName>,
        first: BTreeMap<NodeName, CopyResult>,
        repeated: BTreeMap<NodeName, CopyResult>,
    },
    Second(BTreeMap<NodeName, CopyResult>),
}

/// What follows when no copy is under way.
pub(super) enum NextCopies {
    /// Lost agents may be restarted.
    Wait,
    /// The orders of the next round.
    Orders(Vec<CopyOrder>),
    Done,
}

impl Copying {
    /// The copies of a dataset, and the orders of round 1.
    pub(super) fn new(candidate: &Candidate, agents: &ReachableAgents, patience: Duration) -> (Self, Vec<CopyOrder>) {
        let may_return = |node: &NodeName| !agents.is_down(node) && candidate.holders.contains(node);
        let (returning, down): (Vec<&NodeName>, Vec<&NodeName>) = agents.not_up().partition(|node| may_return(node));
        let healthy = agents.up().chain(returning).cloned();
        // Without a list of the nodes, a lost one is known from the copies of its files only.
        let unlisted = candidate.lost_owners.iter().filter(|node| !agents.is_known(node));
        let rounds = Rounds::new(healthy, down.into_iter().chain(unlisted).cloned(), candidate.partner_copies);
        let orders = rounds.first();
        let open = orders.iter().map(|order| order.node.clone()).collect();
        let round = Round::First { open, first: BTreeMap::new(), repeated: BTreeMap::new() };
        let holders = candidate.holders.clone();
        (Copying { rounds, round, holders, awaited: Awaited::new(patience) }, orders)
    }

    /// An agent came up. Returns its order if it is to copy again.
    pub(super) fn came_up(&mut self, node: &NodeName) -> Option<CopyOrder> {
        let again = matches!(self.round, Round::First { .. }) && self.awaited.remove(node);
        again.then(|| self.rounds.first_of(node))
    }

    /// A copy ended. Returns events for the log.
    pub(super) fn ended(
        &mut self,
        now: Duration,
        order: CopyOrder,
        outcome: Result<CopyReply, RequestFailure>,
        is_down: bool,
    ) -> Vec<LogEvent> {
        let node = order.node.clone();
        match &mut self.round {
            Round::First { open, first, repeated } => {
                if !open.remove(&node) {
                    repeated.insert(node, (order, outcome));
                    return Vec::new();
                }
                if outcome.is_err() && !is_down && self.holders.contains(&node) {
                    self.awaited.add(node.clone());
                }
                first.insert(node, (order, outcome));
                if open.is_empty() {
                    self.awaited.begin(now);
                    let first = mem::take(first);
                    return self.record(first);
                }
            }
            Round::Second(outcomes) => drop(outcomes.insert(node, (order, outcome))),
        }
        Vec::new()
    }

    /// No copy is under way. Returns what follows, and events that are to be logged before.
    pub(super) fn proceed(&mut self) -> (NextCopies, Vec<LogEvent>) {
        match &mut self.round {
            Round::First { .. } if !self.awaited.is_over() => (NextCopies::Wait, Vec::new()),
            Round::First { repeated, .. } => {
                let repeated = mem::take(repeated);
                let events = self.record(repeated);
                self.round = Round::Second(BTreeMap::new());
                (NextCopies::Orders(self.rounds.second()), events)
            }
            Round::Second(outcomes) => {
                let outcomes = mem::take(outcomes);
                (NextCopies::Done, self.record(outcomes))
            }
        }
    }

    pub(super) fn finish(self) -> Copied {
        self.rounds.finish()
    }

    fn record(&mut self, outcomes: BTreeMap<NodeName, CopyResult>) -> Vec<LogEvent> {
        let mut events = Vec::new();
        for (node, (order, outcome)) in outcomes {
            let round = order.round;
            match outcome {
                Ok(reply) => {
                    if !reply.copied.is_empty() || !reply.failed.is_empty() {
                        let ranks = reply.copied.keys().copied().collect();
                        let (bytes, failure) = (reply.copied.values().sum(), failure_of(&reply));
                        events.push(LogEvent::Copied { round, node, ranks, bytes, failure });
                    }
                    self.rounds.answered(&order, reply);
                }
                Err(refusal) => {
                    let failure = Some(refusal.reason.clone());
                    events.push(LogEvent::Copied { round, node, ranks: Vec::new(), bytes: 0, failure });
                    self.rounds.unanswered(&order, refusal);
                }
            }
        }
        events
    }
}

fn failure_of(reply: &CopyReply) -> Option<String> {
    let (rank, reason) = reply.failed.first_key_value()?;
    Some(match reply.failed.len() {
        1 => format!("rank {rank}: {reason}"),
        failed => format!("rank {rank}: {reason} (and {} more ranks)", failed - 1),
    })
}
