//! Leases of pairs whose copies are on two nodes, as the orchestrator grants them.
//!
//! A lease says until when a node may have its copy awake, by the clock of the node's agent: the clock value that the
//! orchestrator has received last, plus the time of a lease. The node's permission therefore ends before that time has
//! passed for the orchestrator, however long messages were under way. The other node gets the next term when this one
//! has said that its term is over, or when the time has passed with a margin for clocks of different speed.
//!
//! An orchestrator may go on although another one has replaced it: it was stopped, or cut off, and the lock of the job
//! was lost. Agents obey only the one with the highest epoch that they know, but each of the two may reach another
//! node. Two rules exclude that both grant the lease of a pair:
//!
//! * A lease ends at the latest its time after the orchestrator was last known to be the newest one. It knows that from
//!   the job's record of the newest epoch, or from the answers of both nodes: none of their agents has obeyed another
//!   one. An agent that was started since the record was read may have forgotten whom it obeyed.
//! * A new orchestrator grants a lease only when it has the answers of both nodes, which obey it from then on, or when
//!   that time has passed since the answer of one of them.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_model::pair::{
    CopyState, FailureCause, Grant, LeaseStatus, MirroredCheckpoint, PairCommand, PairStatus, Revocation, Side, Term,
};

use crate::CommandRefused;

/// What goes to a node with its next synchronisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// The agent to whose clock the times belong; 0: it is not known, and there are no grants.
    pub instance: u64,
    pub grants: Vec<Grant>,
    pub revoked: Vec<Revocation>,
    pub finished: Vec<u32>,
}

/// A pair whose copies are on two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitPair {
    /// The node of the main and that of the replica.
    pub nodes: [u32; 2],
    /// How long the main may take to register at the start of the job, while the replica waits. Later, a copy whose
    /// node lacks the checkpoints of the other node waits as long for them, or for the other copy to be started again.
    pub start_within: Duration,
}

/// An answer of a node's agent to a synchronisation.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub instance: u64,
    /// The agent's clock when it answered.
    pub clock: Duration,
    /// When it was asked, by the orchestrator's clock.
    pub asked: Duration,
    pub pairs: &'a [PairStatus],
}

/// The last answer of a node's agent.
#[derive(Clone, Copy, Debug)]
struct NodeView {
    instance: u64,
    clock: Duration,
    asked: Duration,
    received: Duration,
    /// When the first answer of this instance was received.
    since: Duration,
}

#[derive(Clone, Debug)]
struct Holder {
    side: Side,
    term: Term,
    /// By the orchestrator's clock; later than the end by the node's clock.
    expires: Duration,
    revoked: bool,
    after: Option<MirroredCheckpoint>,
    cause: Option<FailureCause>,
    /// Its node was not sent the lease: this orchestrator may have been replaced.
    unsent: bool,
    /// The agent to which it was granted, or which holds it.
    instance: Option<u64>,
    /// Another agent answers on its node, and does not know the term: the node may have lost its memory.
    forgotten: bool,
}

#[derive(Clone, Debug)]
struct CopyView {
    state: CopyState,
    failures: u32,
    lease: LeaseStatus,
    checkpoint: u64,
}

/// The side that was awake last, and what is known of its end.
#[derive(Clone, Debug)]
struct Predecessor {
    side: Side,
    cause: FailureCause,
    checkpoint: Option<MirroredCheckpoint>,
}

#[derive(Clone, Debug)]
struct Pair {
    split: SplitPair,
    views: [Option<CopyView>; 2],
    holder: Option<Holder>,
    predecessor: Option<Predecessor>,
    /// Since when there has been no lease, and the node of one side has checkpoints that the other one lacks.
    uneven: Option<Duration>,
    preferred: Side,
    finished: bool,
}

impl Pair {
    fn node(&self, side: Side) -> u32 {
        self.split.nodes[side.index()]
    }

    fn state(&self, side: Side) -> Option<CopyState> {
        self.views[side.index()].as_ref().map(|view| view.state)
    }
}

/// Grants the leases of a job's pairs. The epoch must be higher than that of every earlier orchestrator of the job, and
/// on disk before the first message.
#[derive(Clone, Debug)]
pub struct Granter {
    epoch: u64,
    ttl: Duration,
    began: Duration,
    number: u64,
    pairs: BTreeMap<u32, Pair>,
    nodes: BTreeMap<u32, NodeView>,
    /// When each node answered for the first time: from then on, it obeys no earlier orchestrator.
    first_answers: BTreeMap<u32, Duration>,
    /// When the job's record last had this orchestrator's epoch.
    confirmed: Option<Duration>,
    /// Nodes with orders that they have not been sent.
    urgent: BTreeSet<u32>,
    /// The job ran under an earlier orchestrator: a node that has not answered yet may have checkpoints.
    took_over: bool,
}

impl Granter {
    /// `replica_preferred`: the pairs for which an earlier orchestrator had obeyed [`PairCommand::FailOver`].
    pub fn new(
        epoch: u64,
        ttl: Duration,
        now: Duration,
        pairs: impl IntoIterator<Item = (u32, SplitPair)>,
        replica_preferred: &BTreeSet<u32>,
    ) -> Granter {
        let pair = |index: u32, split| Pair {
            split,
            views: [None, None],
            holder: None,
            predecessor: None,
            uneven: None,
            preferred: if replica_preferred.contains(&index) { Side::Replica } else { Side::Main },
            finished: false,
        };
        Granter {
            epoch,
            ttl,
            began: now,
            number: 0,
            pairs: pairs.into_iter().map(|(index, split)| (index, pair(index, split))).collect(),
            nodes: BTreeMap::new(),
            first_answers: BTreeMap::new(),
            confirmed: None,
            urgent: BTreeSet::new(),
            took_over: false,
        }
    }

    /// The job ran under an earlier orchestrator.
    pub fn takes_over(&mut self) {
        self.took_over = true;
    }

    /// The job's record has this orchestrator's epoch, as was found by reading it at this time or later.
    pub fn confirmed(&mut self, now: Duration, since: Duration) {
        self.confirmed = self.confirmed.max(Some(since));
        self.tick(now);
    }

    /// True if leases wait until the job's record has been read again: an agent has answered for the first time.
    pub fn awaits_confirmation(&self) -> bool {
        self.nodes.values().any(|view| !self.is_confirmed_since(view.since))
    }

    /// An agent answered. Answers that are older than one already received are ignored.
    pub fn answered(&mut self, now: Duration, node: u32, answer: Answer<'_>) {
        let Answer { instance, clock, asked, pairs } = answer;
        let before = self.nodes.get(&node).filter(|view| view.instance == instance);
        if before.is_some_and(|view| clock < view.clock) {
            return;
        }
        let since = before.map_or(now, |view| view.since);
        self.nodes.insert(node, NodeView { instance, clock, asked, received: now, since });
        self.first_answers.entry(node).or_insert(now);
        for status in pairs {
            let Some(pair) = self.pairs.get_mut(&status.pair) else { continue };
            let side = Side::BOTH.into_iter().find(|side| pair.node(*side) == node);
            let Some((side, copy)) = side.and_then(|side| Some((side, status.copy(side)?))) else { continue };
            let lease = status.lease.clone().unwrap_or_default();
            if let Some(term) = lease.held
                && pair.holder.as_ref().is_none_or(|holder| holder.term < term)
            {
                // Granted by an earlier orchestrator. The other node's term, if it is older, was over then.
                pair.holder = Some(Holder {
                    side,
                    term,
                    expires: now + self.ttl,
                    revoked: false,
                    after: None,
                    cause: None,
                    unsent: true,
                    instance: Some(instance),
                    forgotten: false,
                });
            }
            if let Some(holder) = pair.holder.as_mut().filter(|holder| holder.side == side)
                && holder.instance != Some(instance)
            {
                if lease.held == Some(holder.term) {
                    holder.instance = Some(instance);
                } else if lease.released < holder.term {
                    // It is not renewed, and over by time. Who gets the next one depends on what the node still has.
                    (holder.forgotten, holder.revoked) = (true, true);
                    self.urgent.insert(node);
                }
            }
            if copy.state == CopyState::Finished && !pair.finished {
                pair.finished = true;
                self.urgent.extend(pair.split.nodes);
            }
            let view = CopyView { state: copy.state, failures: copy.failures, lease, checkpoint: status.checkpoint };
            pair.views[side.index()] = Some(view);
        }
        self.tick(now);
    }

    /// The pair finished before this orchestrator began, as its journal says.
    pub fn finished(&mut self, pair: u32) {
        if let Some(pair) = self.pairs.get_mut(&pair) {
            pair.finished = true;
            self.urgent.extend(pair.split.nodes);
        }
    }

    /// Decides again. Due at [`Granter::next_deadline`].
    pub fn tick(&mut self, now: Duration) {
        let indices: Vec<u32> = self.pairs.keys().copied().collect();
        for index in indices {
            self.decide(now, index);
        }
        let waits = |pair: &Pair| {
            let holder = pair.holder.as_ref().filter(|holder| holder.unsent)?;
            self.lease_end(now, pair, holder.side).map(|_| pair.node(holder.side))
        };
        self.urgent.extend(self.pairs.values().filter_map(waits).collect::<Vec<_>>());
    }

    /// The nodes to which something new is to be sent at once.
    pub fn urgent(&self) -> impl Iterator<Item = u32> + '_ {
        self.urgent.iter().copied()
    }

    /// What goes to the node now. It counts as sent.
    pub fn orders(&mut self, now: Duration, node: u32) -> Orders {
        self.tick(now);
        self.urgent.remove(&node);
        let view = self.nodes.get(&node).copied();
        let end = |pair: &Pair| self.lease_end(now, pair, pair.holder.as_ref()?.side);
        let ends: BTreeMap<u32, Duration> =
            self.pairs.iter().filter_map(|(index, pair)| Some((*index, end(pair)?))).collect();
        let mut orders = Orders { instance: view.map_or(0, |view| view.instance), ..Orders::default() };
        for (index, pair) in &mut self.pairs {
            if !pair.split.nodes.contains(&node) {
                continue;
            }
            if pair.finished {
                orders.finished.push(*index);
            }
            let Some(holder) = pair.holder.as_mut().filter(|holder| pair.split.nodes[holder.side.index()] == node)
            else {
                continue;
            };
            if holder.revoked || pair.finished {
                orders.revoked.push(Revocation { pair: *index, term: holder.term });
                continue;
            }
            let (Some(view), Some(end)) = (view, ends.get(index)) else {
                holder.unsent = true;
                continue;
            };
            holder.unsent = false;
            holder.expires = holder.expires.max(*end);
            orders.grants.push(Grant {
                pair: *index,
                term: holder.term,
                // The agent's clock showed its value not later than when it was received.
                until: (view.clock + *end).saturating_sub(view.received),
                after: holder.after,
                cause: holder.cause.clone(),
            });
        }
        orders
    }

    /// When a lease ends that is given to this side now, by the orchestrator's clock. `None`: another orchestrator may
    /// have granted it, or it would be over.
    fn lease_end(&self, now: Duration, pair: &Pair, side: Side) -> Option<Duration> {
        let view = self.nodes.get(&pair.node(side)).filter(|view| self.is_confirmed_since(view.since))?;
        let end = self.newest_at(pair)?.min(view.received) + self.ttl;
        (end > now && self.knows_earlier_grants(now, pair)).then_some(end)
    }

    fn is_confirmed_since(&self, time: Duration) -> bool {
        self.confirmed.is_some_and(|confirmed| confirmed >= time)
    }

    /// The last time at which this orchestrator was known to be the newest one that can have granted the pair's lease.
    fn newest_at(&self, pair: &Pair) -> Option<Duration> {
        let obeyed = |node: &u32| {
            let view = self.nodes.get(node).filter(|view| self.is_confirmed_since(view.since))?;
            Some(view.asked)
        };
        let both = pair.split.nodes.iter().map(obeyed).collect::<Option<Vec<_>>>();
        self.confirmed.max(both.and_then(|asked| asked.into_iter().min()))
    }

    /// Both nodes obey this orchestrator and have reported what they hold, or what earlier ones have granted is over.
    fn knows_earlier_grants(&self, now: Duration, pair: &Pair) -> bool {
        pair.views.iter().all(Option::is_some) || self.earlier_grants_end(pair).is_some_and(|end| end <= now)
    }

    /// An earlier orchestrator could grant the lease until this one's epoch was on disk, or, while both nodes answered
    /// it, until one of them obeyed this one, which is later.
    fn earlier_grants_end(&self, pair: &Pair) -> Option<Duration> {
        let first = pair.split.nodes.iter().filter_map(|node| self.first_answers.get(node)).min()?;
        Some(*first + self.ttl + self.margin())
    }

    /// When [`Granter::tick`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        let margin = self.margin();
        let of = |pair: &Pair| match &pair.holder {
            _ if pair.finished => None,
            Some(holder) => Some(holder.expires + margin),
            None => self.earlier_grants_end(pair).into_iter().chain([self.began + pair.split.start_within]).min(),
        };
        self.pairs.values().filter_map(of).min()
    }

    /// Whether a user's request can be obeyed.
    pub fn check(&self, pair: u32, command: PairCommand) -> Result<(), CommandRefused> {
        let Some(pair) = self.pairs.get(&pair) else { return Ok(()) };
        CommandRefused::check(command, pair.finished, |side| pair.state(side))
    }

    /// A user's request. Restarts go to the copy's node.
    pub fn command(&mut self, now: Duration, pair: u32, command: PairCommand) {
        if let Some(pair) = self.pairs.get_mut(&pair) {
            match command {
                PairCommand::FailOver => pair.preferred = Side::Replica,
                PairCommand::FailBack => pair.preferred = Side::Main,
                PairCommand::Restart(_) => {}
            }
        }
        self.tick(now);
    }

    /// The pairs whose replica is preferred, after [`PairCommand::FailOver`]; for the orchestrator's journal.
    pub fn replica_preferred(&self) -> BTreeSet<u32> {
        let preferred = self.pairs.iter().filter(|(_, pair)| pair.preferred == Side::Replica);
        preferred.map(|(index, _)| *index).collect()
    }

    fn margin(&self) -> Duration {
        self.ttl / 10
    }

    fn answers(&self, now: Duration, node: u32) -> bool {
        self.nodes.get(&node).is_some_and(|view| now.saturating_sub(view.received) < self.ttl)
    }

    fn decide(&mut self, now: Duration, index: u32) {
        let margin = self.margin();
        let Some(pair) = self.pairs.get_mut(&index) else { return };
        pair.end_term(now, margin);
        if pair.finished {
            return;
        }
        if pair.holder.is_some() || !Side::BOTH.into_iter().any(|side| pair.lacks(side)) {
            pair.uneven = None;
        } else {
            pair.uneven.get_or_insert(now);
        }
        let Some(pair) = self.pairs.get(&index) else { return };
        let asleep = |side| pair.state(side) == Some(CopyState::Asleep) && self.answers(now, pair.node(side));
        match &pair.holder {
            Some(holder) => {
                if holder.side != pair.preferred
                    && !holder.revoked
                    && asleep(pair.preferred)
                    && pair.can_hand_over(holder)
                {
                    self.revoke(index);
                }
            }
            None => {
                let order = [pair.preferred, pair.preferred.other()];
                let side = order.into_iter().find(|side| asleep(*side) && !self.awaits_checkpoint(now, pair, *side));
                if let Some(side) = side
                    && self.lease_end(now, pair, side).is_some()
                    && (side == pair.preferred || !self.is_patient(now, pair))
                {
                    self.grant(now, index, side);
                }
            }
        }
    }

    /// The other node answers, and has checkpoints that this one lacks. They are still being sent, or the other copy
    /// goes on from them when it was started again.
    fn awaits_checkpoint(&self, now: Duration, pair: &Pair, side: Side) -> bool {
        let other = side.other();
        if self.took_over && pair.views[other.index()].is_none() {
            let has_none = pair.views[side.index()].as_ref().is_none_or(|view| view.newest().sequence == 0);
            return has_none && now < self.began + pair.split.start_within;
        }
        pair.lacks(side)
            && pair.uneven.is_none_or(|since| now < since + pair.split.start_within)
            && self.answers(now, pair.node(other))
            && pair.state(other) != Some(CopyState::GivenUp)
    }

    /// The preferred copy, which is about to register for the first time, is waited for.
    fn is_patient(&self, now: Duration, pair: &Pair) -> bool {
        let has_begun = pair.predecessor.is_some() || pair.lacks(pair.preferred);
        if has_begun || now >= self.began + pair.split.start_within {
            return false;
        }
        match &pair.views[pair.preferred.index()] {
            None => now < self.began + self.ttl + self.margin(),
            Some(view) => {
                let begins = matches!(view.state, CopyState::Absent | CopyState::Starting) && view.failures == 0;
                begins && self.answers(now, pair.node(pair.preferred))
            }
        }
    }

    fn revoke(&mut self, index: u32) {
        let Some(pair) = self.pairs.get_mut(&index) else { return };
        if let Some(holder) = &mut pair.holder {
            holder.revoked = true;
            self.urgent.insert(pair.split.nodes[holder.side.index()]);
        }
    }

    fn grant(&mut self, now: Duration, index: u32, side: Side) {
        let instance = self.pairs.get(&index).and_then(|pair| self.nodes.get(&pair.node(side)));
        let instance = instance.map(|view| view.instance);
        let Some(pair) = self.pairs.get_mut(&index) else { return };
        self.number += 1;
        let before = pair.predecessor.clone().or_else(|| pair.reported_predecessor());
        let before = before.filter(|before| before.side != side);
        pair.holder = Some(Holder {
            side,
            term: Term { epoch: self.epoch, number: self.number },
            expires: now + self.ttl,
            revoked: false,
            after: before.as_ref().and_then(|before| before.checkpoint),
            cause: before.map(|before| before.cause),
            unsent: true,
            instance,
            forgotten: false,
        });
        let node = pair.node(side);
        self.urgent.insert(node);
    }
}

impl CopyView {
    /// The last checkpoint that the node sends to the other one, if it has any of its own.
    fn sent(&self) -> Option<MirroredCheckpoint> {
        let LeaseStatus { own_newest: sequence, own_term: term, .. } = self.lease;
        (sequence > 0).then_some(MirroredCheckpoint { term, sequence })
    }

    /// The newest checkpoint in the node's memory, of whichever node. Without one, the least of all.
    fn newest(&self) -> MirroredCheckpoint {
        let from_other = || match self.checkpoint {
            0 => MirroredCheckpoint::default(),
            sequence => MirroredCheckpoint { term: self.lease.mirrored.term, sequence },
        };
        self.sent().unwrap_or_else(from_other)
    }
}

impl Pair {
    /// The node of the other side has checkpoints, and this one has none, or of earlier terms only. Within a term, what
    /// this node has not is on its way: the copy waits for it when it has the lease.
    fn lacks(&self, side: Side) -> bool {
        let [here, there] = [side, side.other()].map(|side| self.views[side.index()].as_ref().map(CopyView::newest));
        there.is_some_and(|there| {
            there.sequence > 0 && here.is_some_and(|here| here.sequence == 0 || here.term < there.term)
        })
    }

    /// The node of the side has a checkpoint of the term.
    fn has_mirrored(&self, side: Side, term: Term) -> bool {
        self.views[side.index()].as_ref().is_some_and(|view| view.lease.mirrored.term == term)
    }

    /// The other copy can go on where the holder is: it has a checkpoint of the holder's term, or the holder has
    /// stored none in it, and has none from before that is newer. Nothing is handed over before the holder's node has
    /// reported its term.
    fn can_hand_over(&self, holder: &Holder) -> bool {
        let other = holder.side.other();
        let [of_holder, of_other] = [holder.side, other].map(|side| self.views[side.index()].as_ref());
        let (Some(of_holder), Some(of_other)) = (of_holder, of_other) else { return false };
        let has_none_newer = of_holder.lease.own_newest == 0 && of_holder.checkpoint <= of_other.checkpoint;
        of_holder.lease.held == Some(holder.term) && (has_none_newer || self.has_mirrored(other, holder.term))
    }

    /// The side that was awake last under an earlier orchestrator, as the nodes report it.
    fn reported_predecessor(&self) -> Option<Predecessor> {
        let released =
            |side: &Side| self.views[side.index()].as_ref().map_or(Term::default(), |view| view.lease.released);
        let side = Side::BOTH.into_iter().max_by_key(released).filter(|side| released(side) > Term::default())?;
        let view = self.views[side.index()].as_ref()?;
        let cause = view.lease.cause.clone().unwrap_or(FailureCause::Lease);
        Some(Predecessor { side, cause, checkpoint: view.sent() })
    }

    /// The term is over if its node says so, or by time.
    fn end_term(&mut self, now: Duration, margin: Duration) {
        let Some(holder) = &self.holder else { return };
        let side = holder.side;
        let view = self.views[side.index()].as_ref();
        // An agent that does not know the term does not know either whether a copy of an earlier one still works by it.
        let knows = |view: &&CopyView| view.lease.released >= holder.term && view.lease.held.is_none();
        let released = view.filter(|_| !holder.forgotten).filter(knows);
        let (cause, checkpoint) = match released {
            Some(view) => {
                let cause = view.lease.cause.clone().unwrap_or(FailureCause::Lease);
                let cause = match cause {
                    FailureCause::Lease if self.preferred != side => FailureCause::Command,
                    cause => cause,
                };
                (cause, view.sent())
            }
            None if now >= holder.expires + margin => (FailureCause::NodeLost, None),
            None => return,
        };
        // A replica that was preferred by request and failed: the main is as good again.
        if side == Side::Replica && (!holder.revoked || holder.forgotten) {
            self.preferred = Side::Main;
        }
        self.predecessor = Some(Predecessor { side, cause, checkpoint });
        self.holder = None;
    }
}
