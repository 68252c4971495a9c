//! Two nodes, orchestrators that replace each other, also while the earlier one runs, links between them, and faults.

mod agents;
mod faults;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_failover::lease::{Answer, Granter, Orders, SplitPair};
use holdfast_failover::{Event, LocalSides};
use holdfast_model::pair::{
    CopyState, LeaseStatus, MirroredCheckpoint, PairConfig, PairStatus, RestartBackOff, Side, Term,
};
use holdfast_model::rank_end::RankEnd;
use holdfast_testkit::Dice;

use super::node::{Node, Process};
use super::oracle::Oracle;
use crate::queue::{MS, Queue, Time};

const LEASE: Duration = Duration::from_secs(2);
/// A grant is of no use after the time of a lease, by clocks of different speed.
const LONGEST_ON_ITS_WAY: Time = 2_100 * MS;
/// Between two looks at which orchestrator is the newest one.
const CONFIRM_EVERY: Time = 250 * MS;
/// An agent delays an answer by this at most.
const LONGEST_WAIT: Time = 500 * MS;
/// Faults end here; then links heal, and what is dead returns.
const FAULTS_END: Time = 40_000 * MS;
const HEALED: Time = 50_000 * MS;
const END: Time = 80_000 * MS;

/// What a message may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Good,
    /// Messages are lost, or late by seconds, in any order.
    Bad,
    Cut,
}

/// A mistake that the invariants must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Copies do not end by themselves when their lease runs out under a dead agent.
    NotFenced,
    /// An agent counts a lease from the receipt of the message.
    ClockOfSending,
    /// A new orchestrator does not wait for the leases of its predecessor.
    NoWaitAfterRestart,
    /// A killed process works on for a while.
    KilledLate,
    /// The newest checkpoint is the one with the highest number.
    MirrorByNumber,
    /// Agents obey every orchestrator.
    EpochIgnored,
    /// An orchestrator that cannot read who is the newest one takes itself for it.
    ClaimNotRead,
    /// An orchestrator trusts agents that may have forgotten whom they obeyed.
    RestartsForgotten,
    /// An orchestrator that was replaced goes on.
    NotReplaced,
    /// The main starts again when it has finished.
    FinishedForgotten,
    /// The main takes over again without the replica's checkpoint.
    HandedOverWithout,
    /// Nodes do not say that they have checkpoints of each other.
    CheckpointsUnknown,
}

#[derive(Clone, Debug)]
pub struct PairSpec {
    pub nodes: [usize; 2],
    pub finished: bool,
    /// The orchestrator's journal has it.
    journalled: bool,
    /// When it was reported to an orchestrator.
    reported_at: Option<Time>,
    finished_on: Option<usize>,
    config: PairConfig,
    /// Where the replica's last work ended, while nothing disturbed it and its mirror.
    left: Option<MirroredCheckpoint>,
}

impl PairSpec {
    pub fn is_local(&self) -> bool {
        self.nodes[0] == self.nodes[1]
    }

    pub fn start_within(&self) -> Time {
        u64::try_from(self.config.start_within.as_micros()).unwrap()
    }

    fn sides(&self, node: usize) -> Option<LocalSides> {
        match Side::BOTH.map(|side| self.nodes[side.index()] == node) {
            [true, true] => Some(LocalSides::Both),
            [true, false] => Some(LocalSides::Only(Side::Main)),
            [false, true] => Some(LocalSides::Only(Side::Replica)),
            [false, false] => None,
        }
    }
}

pub struct Orchestrator {
    pub granter: Granter,
    /// To each node.
    pub links: [Link; 2],
    /// Good if the prefix directory answers.
    pub prefix: Link,
    /// What reaches it while it is stopped.
    paused: Option<Vec<Happening>>,
    /// The last answer of each node.
    pub answers: [Option<Answered>; 2],
    /// The leases that it has sent, with the agents that they went to.
    pub granted: BTreeSet<(u32, Term, u64)>,
}

/// What a node has reported to an orchestrator.
#[derive(Clone, Debug)]
pub struct Answered {
    pub at: Time,
    instance: u64,
    clock: Duration,
    statuses: Vec<PairStatus>,
    /// What it really had in its memory.
    pub newest: BTreeMap<u32, MirroredCheckpoint>,
}

impl Answered {
    pub fn status(&self, pair: u32) -> Option<&PairStatus> {
        self.statuses.iter().find(|status| status.pair == pair)
    }
}

impl Orchestrator {
    /// It runs, and the prefix directory answers.
    pub fn is_well(&self) -> bool {
        self.paused.is_none() && self.prefix == Link::Good
    }
}

#[derive(Debug)]
enum Happening {
    /// The machine of a pair has a deadline.
    Tick {
        node: usize,
        instance: u64,
        pair: u32,
    },
    Registers {
        node: usize,
        pair: u32,
        side: Side,
        pid: u32,
    },
    Ends {
        node: usize,
        pair: u32,
        side: Side,
        pid: u32,
        end: RankEnd,
    },
    /// The agent sees that the process is gone.
    Gone {
        node: usize,
        pair: u32,
        side: Side,
        pid: u32,
    },
    Missed {
        node: usize,
        pair: u32,
        side: Side,
        pid: u32,
    },
    /// A copy looks at the end of its lease.
    HoldEnds {
        node: usize,
        pair: u32,
    },
    Continues {
        node: usize,
        pair: u32,
        side: Side,
        pid: u32,
    },
    Mirror {
        node: usize,
        pair: u32,
    },
    Mirrored {
        node: usize,
        pair: u32,
        checkpoint: MirroredCheckpoint,
    },
    Sync {
        node: usize,
        epoch: u64,
    },
    Request {
        node: usize,
        epoch: u64,
        asked: Time,
        orders: Orders,
    },
    Answer {
        node: usize,
        epoch: u64,
        instance: u64,
        clock: Duration,
        asked: Time,
        statuses: Vec<PairStatus>,
        newest: BTreeMap<u32, MirroredCheckpoint>,
    },
    /// The agent obeys another orchestrator.
    Refused {
        epoch: u64,
    },
    /// Looks regularly which orchestrator is the newest one.
    Looks {
        epoch: u64,
    },
    /// Reads which orchestrator is the newest one.
    Reads {
        epoch: u64,
    },
    /// It was read.
    Read {
        epoch: u64,
        since: Time,
        newest: u64,
    },
    Resumes {
        epoch: u64,
    },
    GranterTick {
        epoch: u64,
    },
    Fault,
    /// Between the nodes.
    LinkHeals,
    /// Of the orchestrator.
    LinksHeal {
        epoch: u64,
    },
    AgentStarts {
        node: usize,
    },
    NodeBoots {
        node: usize,
    },
    OrchestratorStarts {
        /// It does not reach this node at first.
        cut_off: Option<usize>,
    },
    Heal,
    End,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub fail_overs: u64,
    pub fail_backs: u64,
    /// Fail-backs that went on from the replica's last checkpoint.
    pub handed_over: u64,
    pub fenced: u64,
    pub finished: u64,
    /// Orchestrators that ended because another one had replaced them.
    pub replaced: u64,
    /// Requests of a replaced orchestrator that an agent refused.
    pub refused: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.fail_overs += other.fail_overs;
        self.fail_backs += other.fail_backs;
        self.handed_over += other.handed_over;
        self.fenced += other.fenced;
        self.finished += other.finished;
        self.replaced += other.replaced;
        self.refused += other.refused;
    }
}

pub struct World {
    dice: Dice,
    queue: Queue<Happening>,
    pub now: Time,
    traced: bool,
    pub defect: Option<Defect>,
    pub nodes: [Node; 2],
    pub pairs: Vec<PairSpec>,
    /// Between the nodes.
    pub link: Link,
    /// By epoch.
    pub orchestrators: BTreeMap<u64, Orchestrator>,
    /// The newest epoch, in the prefix directory.
    pub epoch: u64,
    instances: u64,
    pids: u32,
    pub oracle: Oracle,
    tally: Tally,
    /// In the prefix directory.
    replica_preferred: BTreeSet<u32>,
    /// When an orchestrator was stopped last: it then believes old answers.
    pub paused: Option<Time>,
    /// Deadlines that are in the queue.
    ticks: BTreeSet<(usize, u32, Time)>,
    granter_ticks: BTreeSet<(u64, Time)>,
}

fn config() -> PairConfig {
    PairConfig {
        spec_index: 0,
        name: "pair".to_owned(),
        main: Vec::new(),
        replica: Vec::new(),
        period: Duration::from_millis(1),
        misses: 3,
        checkpoint_bytes: 8,
        checkpoint_period: Duration::from_millis(10),
        restart: RestartBackOff { first: Duration::from_millis(200), most: Duration::from_secs(2), attempts: None },
        stop_grace: Duration::from_millis(50),
        start_within: Duration::from_secs(2),
        suspends: None,
    }
}

impl World {
    pub fn new(seed: u64, traced: bool, defect: Option<Defect>) -> World {
        let mut dice = Dice(seed ^ 0x9a17);
        let count = 1 + dice.below(3_usize);
        let placed = |dice: &mut Dice| match dice.below(10) {
            0..5 => [0, 1],
            5..7 => [1, 0],
            _ => [0, 0],
        };
        let pairs = (0..count)
            .map(|_| PairSpec {
                nodes: placed(&mut dice),
                finished: false,
                journalled: false,
                reported_at: None,
                finished_on: None,
                config: config(),
                left: None,
            })
            .collect();
        let mut world = World {
            dice,
            queue: Queue::new(),
            now: 0,
            traced,
            defect,
            nodes: Default::default(),
            pairs,
            link: Link::Good,
            orchestrators: BTreeMap::new(),
            epoch: 0,
            instances: 0,
            pids: 100,
            oracle: Oracle::default(),
            tally: Tally::default(),
            replica_preferred: BTreeSet::new(),
            paused: None,
            ticks: BTreeSet::new(),
            granter_ticks: BTreeSet::new(),
        };
        world.queue.enter(0, Happening::OrchestratorStarts { cut_off: None });
        for node in 0..2 {
            let at = world.dice.below(1_000 * MS);
            world.queue.enter(at, Happening::NodeBoots { node });
        }
        world.queue.enter(1_500 * MS, Happening::Fault);
        world.queue.enter(HEALED, Happening::Heal);
        world.queue.enter(END, Happening::End);
        world
    }

    pub fn run(mut self) -> Tally {
        while let Some((at, happening)) = self.queue.take() {
            self.now = at;
            if self.traced {
                println!("{:>9.3} {happening:?}", at as f64 / 1e6 * 1e3 / 1e3);
            }
            if matches!(happening, Happening::End) {
                self.check_end();
                return self.tally;
            }
            self.happen(happening);
            self.check();
        }
        self.tally
    }

    fn after(&mut self, delay: Time, happening: Happening) {
        self.queue.enter(self.now + delay, happening);
    }

    /// A delay up to this many milliseconds.
    fn up_to(&mut self, millis: u64) -> Time {
        self.dice.below(millis * MS)
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    /// The process, if it is still this one.
    fn process(&mut self, node: usize, pair: u32, side: Side, pid: u32) -> Option<&mut Process> {
        self.nodes[node].processes.get_mut(&(pair, side)).filter(|process| process.pid == pid)
    }

    /// The orchestrator to which this happens.
    fn orchestrator_of(happening: &Happening) -> Option<u64> {
        match happening {
            Happening::Sync { epoch, .. }
            | Happening::Answer { epoch, .. }
            | Happening::Refused { epoch }
            | Happening::Looks { epoch }
            | Happening::Reads { epoch }
            | Happening::Read { epoch, .. }
            | Happening::GranterTick { epoch } => Some(*epoch),
            _ => None,
        }
    }

    fn happen(&mut self, happening: Happening) {
        if let Some(epoch) = World::orchestrator_of(&happening) {
            let Some(orchestrator) = self.orchestrators.get_mut(&epoch) else { return };
            if let Some(waiting) = &mut orchestrator.paused {
                waiting.push(happening);
                return;
            }
        }
        match happening {
            Happening::Tick { node, instance, pair } => {
                if self.ticks.remove(&(node, pair, self.now))
                    && self.nodes[node].agent.as_ref().is_some_and(|agent| agent.instance == instance)
                {
                    self.machine(node, pair, Event::Tick);
                }
            }
            Happening::Registers { node, pair, side, pid } => {
                let Some(process) = self.process(node, pair, side, pid) else { return };
                if process.alive && process.state == CopyState::Starting {
                    process.state = CopyState::Asleep;
                    let incarnation = process.incarnation;
                    self.machine(node, pair, Event::Registered { side, incarnation });
                }
            }
            Happening::Ends { node, pair, side, pid, end } => self.end(node, pair, side, pid, end),
            Happening::Gone { node, pair, side, pid } => {
                let Some(process) = self.process(node, pair, side, pid) else { return };
                let Process { incarnation, end, finished, .. } = *process;
                self.machine(node, pair, Event::Exited { side, incarnation, end, finished });
            }
            Happening::Missed { node, pair, side, pid } => {
                let Some(process) = self.process(node, pair, side, pid) else { return };
                if process.alive && (process.hung || process.stopped) {
                    let incarnation = process.incarnation;
                    self.machine(node, pair, Event::BeatsMissed { side, incarnation, misses: 3 });
                }
            }
            Happening::HoldEnds { node, pair } => self.end_hold(node, pair),
            Happening::Continues { node, pair, side, pid } => {
                if let Some(process) = self.process(node, pair, side, pid) {
                    process.stopped = false;
                    // The thread of its heartbeats looks at the lease before anything else counts.
                    self.end_hold(node, pair);
                }
            }
            Happening::Mirror { node, pair } => self.mirror(node, pair, true),
            Happening::Mirrored { node, pair, checkpoint } => self.mirrored(node, pair, checkpoint),
            Happening::Sync { node, epoch } => {
                self.send_orders(node, epoch);
                let renewal = u64::try_from(LEASE.as_micros()).unwrap() / 4;
                self.after(renewal, Happening::Sync { node, epoch });
            }
            Happening::Request { node, epoch, asked, orders } => self.request(node, epoch, asked, orders),
            Happening::Refused { epoch } => {
                self.tally.refused += 1;
                self.replaced(epoch);
            }
            Happening::Looks { epoch } => {
                self.after(0, Happening::Reads { epoch });
                self.after(CONFIRM_EVERY, Happening::Looks { epoch });
            }
            Happening::Reads { epoch } => {
                let Some(orchestrator) = self.orchestrators.get(&epoch) else { return };
                let delay = match orchestrator.prefix {
                    Link::Good => self.up_to(20),
                    Link::Bad => self.up_to(3_000),
                    Link::Cut if self.defect == Some(Defect::ClaimNotRead) => {
                        self.after(0, Happening::Read { epoch, since: self.now, newest: epoch });
                        return;
                    }
                    Link::Cut => {
                        self.after(100 * MS, Happening::Reads { epoch });
                        return;
                    }
                };
                let (since, newest) = (self.now, self.epoch);
                self.after(delay, Happening::Read { epoch, since, newest });
            }
            Happening::Read { epoch, since, newest } => {
                if newest != epoch {
                    self.replaced(epoch);
                    return;
                }
                let now = self.time();
                if let Some(orchestrator) = self.orchestrators.get_mut(&epoch) {
                    orchestrator.granter.confirmed(now, Duration::from_micros(since));
                    self.follow_granter(epoch);
                }
            }
            Happening::Resumes { epoch } => {
                let waiting = self.orchestrators.get_mut(&epoch).and_then(|orchestrator| orchestrator.paused.take());
                for happening in waiting.into_iter().flatten() {
                    self.queue.enter(self.now, happening);
                }
            }
            Happening::Answer { node, epoch, instance, clock, asked, statuses, newest } => {
                let (at, now) = (self.now, self.time());
                // Written by the newest orchestrator only.
                let is_newest = epoch == self.epoch;
                let Some(orchestrator) = self.orchestrators.get_mut(&epoch) else { return };
                let states = |status: &PairStatus| Side::BOTH.map(|side| status.copy(side).map(|copy| copy.state));
                for status in statuses.iter().filter(|status| states(status).contains(&Some(CopyState::Finished))) {
                    let spec = &mut self.pairs[status.pair as usize];
                    (spec.finished, spec.journalled) = (true, spec.journalled || is_newest);
                    spec.reported_at.get_or_insert(self.now);
                }
                let last = &mut orchestrator.answers[node];
                if last.as_ref().is_none_or(|last| last.instance != instance || last.clock <= clock) {
                    *last = Some(Answered { at, instance, clock, statuses: statuses.clone(), newest });
                }
                let mut statuses = statuses;
                if self.defect == Some(Defect::CheckpointsUnknown) {
                    let is_idle = |lease: &LeaseStatus| lease.held.is_none() && lease.own_newest == 0;
                    for status in statuses.iter_mut().filter(|status| status.lease.as_ref().is_some_and(is_idle)) {
                        status.checkpoint = 0;
                    }
                }
                if self.defect == Some(Defect::HandedOverWithout) {
                    // As if it had all that the other node has.
                    for status in &mut statuses {
                        let term = self.nodes[1 - node].disk.get(&status.pair).map(|(_, term)| *term);
                        if let (Some(lease), Some(term)) = (&mut status.lease, term) {
                            lease.mirrored.term = term;
                        }
                    }
                }
                let asked = Duration::from_micros(asked);
                let answer = Answer { instance, clock, asked, pairs: &statuses };
                if self.defect == Some(Defect::NoWaitAfterRestart) {
                    // As if it had been there for long.
                    let before = now.saturating_sub(2 * LEASE);
                    orchestrator.granter.answered(before, node as u32, Answer { pairs: &[], ..answer });
                }
                orchestrator.granter.answered(now, node as u32, answer);
                if orchestrator.granter.awaits_confirmation() {
                    if self.defect == Some(Defect::RestartsForgotten) {
                        orchestrator.granter.confirmed(now, now);
                    }
                    self.after(0, Happening::Reads { epoch });
                }
                self.follow_granter(epoch);
            }
            Happening::GranterTick { epoch } => {
                let now = self.time();
                if let Some(orchestrator) = self.orchestrators.get_mut(&epoch) {
                    orchestrator.granter.tick(now);
                    self.follow_granter(epoch);
                }
            }
            Happening::Fault => self.fault(),
            Happening::LinkHeals => self.link = Link::Good,
            Happening::LinksHeal { epoch } => {
                if let Some(orchestrator) = self.orchestrators.get_mut(&epoch) {
                    (orchestrator.links, orchestrator.prefix) = ([Link::Good; 2], Link::Good);
                }
            }
            Happening::AgentStarts { node } => self.start_agent(node),
            Happening::NodeBoots { node } => {
                if !self.nodes[node].up {
                    let (base, drift) = (self.dice.below(1 << 40), self.dice.below(20_000_u64) as i64 - 10_000);
                    self.nodes[node].boot(self.now, base, drift);
                    let delay = self.up_to(500);
                    self.after(delay, Happening::AgentStarts { node });
                }
            }
            // Those that were on their way when the faults ended.
            Happening::OrchestratorStarts { .. } if self.now > HEALED => {}
            Happening::OrchestratorStarts { cut_off } => {
                self.start_orchestrator();
                if let Some(orchestrator) = self.orchestrators.get_mut(&self.epoch)
                    && let Some(node) = cut_off
                {
                    orchestrator.links[node] = Link::Cut;
                    let back = self.up_to(8_000);
                    self.after(back, Happening::LinksHeal { epoch: self.epoch });
                }
            }
            Happening::Heal => self.heal(),
            Happening::End => {}
        }
    }

    /// Another orchestrator begins. Earlier ones may still run.
    fn start_orchestrator(&mut self) {
        self.epoch += 1;
        let epoch = self.epoch;
        let split = |(index, pair): (usize, &PairSpec)| {
            let nodes = pair.nodes.map(|node| node as u32);
            let start_within = pair.config.start_within;
            (!pair.is_local()).then_some((index as u32, SplitPair { nodes, start_within }))
        };
        let pairs: Vec<_> = self.pairs.iter().enumerate().filter_map(split).collect();
        let mut granter = Granter::new(epoch, LEASE, self.time(), pairs, &self.replica_preferred);
        if epoch > 1 {
            granter.takes_over();
        }
        for (index, _) in self.pairs.iter().enumerate().filter(|(_, pair)| pair.journalled) {
            granter.finished(index as u32);
        }
        let links = [Link::Good; 2];
        let (answers, granted) = ([None, None], BTreeSet::new());
        let orchestrator = Orchestrator { granter, links, prefix: Link::Good, paused: None, answers, granted };
        self.orchestrators.insert(epoch, orchestrator);
        for node in 0..2 {
            self.after(0, Happening::Sync { node, epoch });
        }
        self.after(0, Happening::Looks { epoch });
        self.follow_granter(epoch);
    }

    /// The orchestrator learns that another one has replaced it.
    fn replaced(&mut self, epoch: u64) {
        if self.defect == Some(Defect::NotReplaced) {
            return;
        }
        assert_ne!(epoch, self.epoch, "the newest orchestrator ends");
        self.orchestrators.remove(&epoch);
        self.tally.replaced += 1;
    }

    fn follow_granter(&mut self, epoch: u64) {
        let Some(orchestrator) = self.orchestrators.get(&epoch) else { return };
        if epoch == self.epoch {
            self.replica_preferred = orchestrator.granter.replica_preferred();
        }
        let urgent: Vec<_> = orchestrator.granter.urgent().collect();
        for node in urgent {
            self.send_orders(node as usize, epoch);
        }
        let deadline = self.orchestrators.get(&epoch).and_then(|orchestrator| orchestrator.granter.next_deadline());
        let at = deadline.and_then(|at| u64::try_from(at.as_micros()).ok()).filter(|at| *at > self.now);
        if let Some(at) = at
            && self.granter_ticks.insert((epoch, at))
        {
            self.queue.enter(at, Happening::GranterTick { epoch });
        }
    }

    /// The time that a message takes; `None`: it is lost.
    fn delay(&mut self, link: Link) -> Option<Time> {
        match link {
            Link::Good => Some(self.up_to(5)),
            Link::Bad if self.dice.percent(40) => None,
            Link::Bad => Some(self.up_to(4_000)),
            Link::Cut => None,
        }
    }

    fn send_orders(&mut self, node: usize, epoch: u64) {
        let now = self.time();
        let Some(orchestrator) = self.orchestrators.get_mut(&epoch) else { return };
        let orders = orchestrator.granter.orders(now, node as u32);
        let link = orchestrator.links[node];
        self.check_grants(node, epoch, &orders);
        if let Some(delay) = self.delay(link) {
            self.after(delay, Happening::Request { node, epoch, asked: self.now, orders });
        }
    }

    fn request(&mut self, node: usize, epoch: u64, asked: Time, orders: Orders) {
        let clock = self.nodes[node].clock(self.now);
        let late = self.defect == Some(Defect::ClockOfSending);
        let obeys_all = self.defect == Some(Defect::EpochIgnored);
        let now = self.now;
        let Some(agent) = self.nodes[node].agent.as_mut() else { return };
        if agent.epoch > epoch && !obeys_all {
            let link = self.orchestrators.get(&epoch).map_or(Link::Cut, |orchestrator| orchestrator.links[node]);
            if let Some(delay) = self.delay(link) {
                self.after(delay, Happening::Refused { epoch });
            }
            return;
        }
        agent.epoch = agent.epoch.max(epoch);
        let last = agent.requests.entry(epoch).or_default();
        *last = (last.0.max(asked), now);
        let current = agent.instance == orders.instance;
        for revocation in orders.revoked {
            self.machine(node, revocation.pair, Event::Revoke(revocation.term));
        }
        for mut grant in orders.grants.into_iter().filter(|_| current) {
            if late {
                grant.until = clock + LEASE;
            }
            self.machine(node, grant.pair, Event::Lease(grant));
        }
        for pair in orders.finished {
            self.machine(node, pair, Event::PeerFinished);
        }
        self.answer(node);
    }

    /// Answers the requests that wait, also that of an orchestrator that another one has replaced meanwhile.
    fn answer(&mut self, node: usize) {
        if !self.nodes[node].up {
            return;
        }
        let clock = Duration::from_millis(self.nodes[node].clock(self.now).as_millis() as u64);
        let statuses = self.nodes[node].statuses(self.now);
        let newest = self.nodes[node].checkpoints.clone();
        let Some(agent) = &self.nodes[node].agent else { return };
        let (obeyed, instance) = (agent.epoch, agent.instance);
        let waits =
            |(epoch, (_, received)): &(u64, (Time, Time))| *epoch == obeyed || self.now - received < LONGEST_WAIT;
        let requests: Vec<_> = agent.requests.iter().map(|(epoch, times)| (*epoch, *times)).filter(waits).collect();
        for (epoch, (asked, _)) in requests {
            let Some(orchestrator) = self.orchestrators.get(&epoch) else { continue };
            let (link, statuses, newest) = (orchestrator.links[node], statuses.clone(), newest.clone());
            if let Some(delay) = self.delay(link) {
                self.after(delay, Happening::Answer { node, epoch, instance, clock, asked, statuses, newest });
            }
        }
    }
}
