//! A node: its clock, the processes of its copies, its shared memory and disk, and its agent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_failover::{Found, HeldLease, LocalSides, PairMachine, Snapshot};
use holdfast_model::pair::{CopyState, MirroredCheckpoint, PairStatus, Side, Term};
use holdfast_model::rank_end::RankEnd;

use crate::queue::{MS, Time};

/// A process of a copy, also after its end.
#[derive(Clone, Debug)]
pub struct Process {
    pub incarnation: u64,
    pub pid: u32,
    pub state: CopyState,
    pub alive: bool,
    /// SIGSTOP.
    pub stopped: bool,
    /// It works, or does not, but has no heartbeats.
    pub hung: bool,
    pub finished: bool,
    pub end: RankEnd,
    /// When it was woken, and the checkpoint from which it went on.
    pub woken: Time,
    pub from: MirroredCheckpoint,
}

impl Process {
    /// It may change the world outside.
    pub fn works(&self) -> bool {
        self.alive && self.state == CopyState::Awake && !self.stopped
    }

    /// It does what the pair is for.
    pub fn is_healthy(&self) -> bool {
        self.works() && !self.hung
    }
}

pub type CopyKey = (u32, Side);

pub struct Agent {
    pub instance: u64,
    pub machines: BTreeMap<u32, PairMachine>,
    /// Of the newest orchestrator that this process has obeyed.
    pub epoch: u64,
    /// The last requests of orchestrators, by epoch: when they were sent and received.
    pub requests: BTreeMap<u64, (Time, Time)>,
}

/// What survives a restart of the agent; shared memory only until the node goes down.
#[derive(Default)]
pub struct Node {
    pub up: bool,
    booted: Time,
    base: u64,
    /// Parts per million by which the clock is fast.
    drift: i64,
    pub agent: Option<Agent>,
    pub processes: BTreeMap<CopyKey, Process>,
    pub checkpoints: BTreeMap<u32, MirroredCheckpoint>,
    /// Pairs whose newest checkpoint a copy of this node has stored.
    pub own: BTreeSet<u32>,
    /// When it went down last.
    pub crashed: Option<Time>,
    /// The word of shared memory that says until when a copy may work, by the node's clock.
    pub hold: BTreeMap<u32, Duration>,
    pub disk: BTreeMap<u32, (Snapshot, Term)>,
}

impl Node {
    pub fn boot(&mut self, now: Time, base: u64, drift: i64) {
        self.up = true;
        (self.booted, self.base, self.drift) = (now, base, drift);
    }

    pub fn clock(&self, now: Time) -> Duration {
        let passed = i128::from(now - self.booted) * i128::from(1_000_000 + self.drift) / 1_000_000;
        Duration::from_micros(self.base + u64::try_from(passed).unwrap())
    }

    /// The time at which the clock shows this, or later.
    pub fn time_of(&self, clock: Duration) -> Time {
        let passed = clock.as_micros().saturating_sub(u128::from(self.base));
        let passed = passed * 1_000_000 / u128::try_from(1_000_000 + self.drift).unwrap();
        self.booted + u64::try_from(passed).unwrap() + 2
    }

    /// Checkpoints that an awake copy has made since it was woken: one each 10 ms.
    pub fn checkpoint(&mut self, now: Time, pair: u32) -> MirroredCheckpoint {
        let term = self.disk.get(&pair).map(|(_, term)| *term).unwrap_or_default();
        let awake = Side::BOTH.iter().filter_map(|side| self.processes.get(&(pair, *side)));
        let made = awake.filter(|process| process.is_healthy()).map(|process| {
            let count = (now - process.woken) / (10 * MS);
            (count > 0).then_some(MirroredCheckpoint { term, sequence: process.from.sequence + count })
        });
        let made = made.flatten().max();
        let kept = self.checkpoints.entry(pair).or_default();
        if made.is_some_and(|made| made > *kept) {
            *kept = made.unwrap_or_default();
            self.own.insert(pair);
        }
        *kept
    }

    pub fn statuses(&mut self, now: Time) -> Vec<PairStatus> {
        let Some(agent) = &self.agent else { return Vec::new() };
        let mut statuses: Vec<_> = agent.machines.iter().map(|(pair, machine)| machine.status(*pair)).collect();
        for status in &mut statuses {
            let newest = self.checkpoint(now, status.pair);
            status.checkpoint = newest.sequence;
            if let Some(lease) = status.lease.as_mut().filter(|_| self.own.contains(&status.pair)) {
                (lease.own_newest, lease.own_term) = (newest.sequence, newest.term);
            }
        }
        statuses
    }

    /// What a new agent finds of a pair.
    pub fn found(&self, pair: u32, sides: LocalSides) -> (Snapshot, Vec<Found>, Option<HeldLease>) {
        let found = |side| {
            let process = self.processes.get(&(pair, side))?;
            let (incarnation, finished) = (process.incarnation, process.finished);
            let pid = process.alive.then_some(process.pid);
            sides.contains(side).then_some(Found { side, incarnation, pid, state: process.state, finished })
        };
        let (mut snapshot, term) = self.disk.get(&pair).cloned().unwrap_or_default();
        let kept = self.checkpoints.get(&pair).copied().unwrap_or_default();
        let is_here = kept.term == snapshot.mirrored.term && !self.own.contains(&pair);
        snapshot.mirrored = if is_here { kept } else { MirroredCheckpoint::default() };
        let held = self.hold.get(&pair).map(|until| HeldLease { term, until: *until });
        (snapshot, Side::BOTH.into_iter().filter_map(found).collect(), held)
    }
}
