//! Two nodes, an orchestrator that dies and returns, links between the three, and faults.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_failover::lease::{Granter, Orders, SplitPair};
use holdfast_failover::{Action, Event, LocalSides, PairMachine};
use holdfast_model::pair::{
    CopyState, MirroredCheckpoint, PairChange, PairCommand, PairConfig, PairStatus, RestartBackOff, Side,
};
use holdfast_model::rank_end::RankEnd;
use holdfast_testkit::Dice;

use super::node::{Agent, Node, Process};
use super::oracle::Oracle;
use crate::queue::{MS, Queue, Time};

const LEASE: Duration = Duration::from_secs(2);
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
}

#[derive(Clone, Debug)]
pub struct PairSpec {
    pub nodes: [usize; 2],
    pub finished: bool,
    /// The orchestrator's journal has it.
    told: bool,
    finished_on: Option<usize>,
    config: PairConfig,
    /// Where the replica's last work ended, while nothing disturbed it and its mirror.
    left: Option<MirroredCheckpoint>,
}

impl PairSpec {
    pub fn is_local(&self) -> bool {
        self.nodes[0] == self.nodes[1]
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
    epoch: u64,
    granter: Granter,
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
        orders: Orders,
    },
    Answer {
        node: usize,
        epoch: u64,
        instance: u64,
        clock: Duration,
        statuses: Vec<PairStatus>,
    },
    GranterTick {
        epoch: u64,
    },
    Fault,
    LinkHeals {
        link: usize,
    },
    AgentStarts {
        node: usize,
    },
    NodeBoots {
        node: usize,
    },
    OrchestratorStarts,
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
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.fail_overs += other.fail_overs;
        self.fail_backs += other.fail_backs;
        self.handed_over += other.handed_over;
        self.fenced += other.fenced;
        self.finished += other.finished;
    }
}

pub struct World {
    dice: Dice,
    queue: Queue<Happening>,
    pub now: Time,
    traced: bool,
    defect: Option<Defect>,
    pub nodes: [Node; 2],
    pub pairs: Vec<PairSpec>,
    /// Between the orchestrator and each node, and between the nodes.
    pub links: [Link; 3],
    pub orchestrator: Option<Orchestrator>,
    epoch: u64,
    instances: u64,
    pids: u32,
    pub oracle: Oracle,
    tally: Tally,
    /// Deadlines that are in the queue.
    ticks: BTreeSet<(usize, u32, Time)>,
    granter_ticks: BTreeSet<Time>,
}

fn config() -> PairConfig {
    PairConfig {
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
                told: false,
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
            links: [Link::Good; 3],
            orchestrator: None,
            epoch: 0,
            instances: 0,
            pids: 100,
            oracle: Oracle::default(),
            tally: Tally::default(),
            ticks: BTreeSet::new(),
            granter_ticks: BTreeSet::new(),
        };
        world.queue.enter(0, Happening::OrchestratorStarts);
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

    fn happen(&mut self, happening: Happening) {
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
                if self.orchestrator.as_ref().is_some_and(|orchestrator| orchestrator.epoch == epoch) {
                    self.send_orders(node);
                    let renewal = u64::try_from(LEASE.as_micros()).unwrap() / 4;
                    self.after(renewal, Happening::Sync { node, epoch });
                }
            }
            Happening::Request { node, epoch, orders } => self.request(node, epoch, orders),
            Happening::Answer { node, epoch, instance, clock, statuses } => {
                let now = self.time();
                let Some(orchestrator) = self.orchestrator.as_mut().filter(|one| one.epoch == epoch) else { return };
                let states = |status: &PairStatus| Side::BOTH.map(|side| status.copy(side).map(|copy| copy.state));
                for status in statuses.iter().filter(|status| states(status).contains(&Some(CopyState::Finished))) {
                    let spec = &mut self.pairs[status.pair as usize];
                    (spec.finished, spec.told) = (true, true);
                }
                orchestrator.granter.answered(now, node as u32, instance, clock, &statuses);
                self.follow_granter();
            }
            Happening::GranterTick { epoch } => {
                let now = self.time();
                self.granter_ticks.remove(&self.now);
                if let Some(orchestrator) = self.orchestrator.as_mut().filter(|one| one.epoch == epoch) {
                    orchestrator.granter.tick(now);
                    self.follow_granter();
                }
            }
            Happening::Fault => self.fault(),
            Happening::LinkHeals { link } => self.links[link] = Link::Good,
            Happening::AgentStarts { node } => self.start_agent(node),
            Happening::NodeBoots { node } => {
                if !self.nodes[node].up {
                    let (base, drift) = (self.dice.below(1 << 40), self.dice.below(20_000_u64) as i64 - 10_000);
                    self.nodes[node].boot(self.now, base, drift);
                    let delay = self.up_to(500);
                    self.after(delay, Happening::AgentStarts { node });
                }
            }
            Happening::OrchestratorStarts => self.start_orchestrator(),
            Happening::Heal => self.heal(),
            Happening::End => {}
        }
    }

    fn start_orchestrator(&mut self) {
        if self.orchestrator.is_some() {
            return;
        }
        self.epoch += 1;
        let epoch = self.epoch;
        let split = |(index, pair): (usize, &PairSpec)| {
            let nodes = pair.nodes.map(|node| node as u32);
            let start_within = pair.config.start_within;
            (!pair.is_local()).then_some((index as u32, SplitPair { nodes, start_within }))
        };
        let pairs: Vec<_> = self.pairs.iter().enumerate().filter_map(split).collect();
        let mut began = self.time();
        if self.defect == Some(Defect::NoWaitAfterRestart) {
            began = began.saturating_sub(2 * LEASE);
        }
        let mut granter = Granter::new(epoch, LEASE, began, pairs);
        for (index, _) in self.pairs.iter().enumerate().filter(|(_, pair)| pair.told) {
            granter.finished(index as u32);
        }
        self.orchestrator = Some(Orchestrator { epoch, granter });
        for node in 0..2 {
            self.after(0, Happening::Sync { node, epoch });
        }
        self.follow_granter();
    }

    fn follow_granter(&mut self) {
        let Some(orchestrator) = &self.orchestrator else { return };
        let epoch = orchestrator.epoch;
        let urgent: Vec<_> = orchestrator.granter.urgent().collect();
        for node in urgent {
            self.send_orders(node as usize);
        }
        let deadline = self.orchestrator.as_ref().and_then(|orchestrator| orchestrator.granter.next_deadline());
        let at = deadline.and_then(|at| u64::try_from(at.as_micros()).ok()).filter(|at| *at > self.now);
        if let Some(at) = at
            && self.granter_ticks.insert(at)
        {
            self.queue.enter(at, Happening::GranterTick { epoch });
        }
    }

    /// The time that a message takes; `None`: it is lost.
    fn delay(&mut self, link: usize) -> Option<Time> {
        match self.links[link] {
            Link::Good => Some(self.up_to(5)),
            Link::Bad if self.dice.percent(40) => None,
            Link::Bad => Some(self.up_to(4_000)),
            Link::Cut => None,
        }
    }

    fn send_orders(&mut self, node: usize) {
        let now = self.time();
        let Some(orchestrator) = &mut self.orchestrator else { return };
        let epoch = orchestrator.epoch;
        let orders = orchestrator.granter.orders(now, node as u32);
        if let Some(delay) = self.delay(node) {
            self.after(delay, Happening::Request { node, epoch, orders });
        }
    }

    fn request(&mut self, node: usize, epoch: u64, orders: Orders) {
        let clock = self.nodes[node].clock(self.now);
        let late = self.defect == Some(Defect::ClockOfSending);
        let Some(agent) = self.nodes[node].agent.as_mut().filter(|agent| agent.epoch <= epoch) else { return };
        agent.epoch = epoch;
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

    fn answer(&mut self, node: usize) {
        if !self.nodes[node].up {
            return;
        }
        let clock = Duration::from_millis(self.nodes[node].clock(self.now).as_millis() as u64);
        let statuses = self.nodes[node].statuses(self.now);
        let Some((epoch, instance)) = self.nodes[node].agent.as_ref().map(|agent| (agent.epoch, agent.instance)) else {
            return;
        };
        if let Some(delay) = self.delay(node) {
            self.after(delay, Happening::Answer { node, epoch, instance, clock, statuses });
        }
    }

    fn start_agent(&mut self, number: usize) {
        if !self.nodes[number].up || self.nodes[number].agent.is_some() {
            return;
        }
        self.instances += 1;
        let instance = self.instances;
        let now = self.nodes[number].clock(self.now);
        self.nodes[number].agent = Some(Agent { instance, machines: Default::default(), epoch: 0 });
        for index in 0..self.pairs.len() {
            let pair = index as u32;
            let Some(sides) = self.pairs[index].sides(number) else { continue };
            // A new plan does not have it.
            if self.pairs[index].told && !self.nodes[number].disk.contains_key(&pair) {
                continue;
            }
            let (snapshot, found, held) = self.nodes[number].found(pair, sides);
            let config = self.pairs[index].config.clone();
            let (machine, actions) = PairMachine::restore(&config, sides, &snapshot, &found, held, now);
            if let Some(agent) = &mut self.nodes[number].agent {
                agent.machines.insert(pair, machine);
            }
            self.perform(number, pair, actions);
        }
    }

    fn machine(&mut self, node: usize, pair: u32, event: Event) {
        let now = self.nodes[node].clock(self.now);
        let Some(machine) = self.nodes[node].agent.as_mut().and_then(|agent| agent.machines.get_mut(&pair)) else {
            return;
        };
        if self.traced && event != Event::Tick {
            println!("          node {node} pair {pair}: {event:?}");
        }
        let actions = machine.on(now, event);
        self.perform(node, pair, actions);
    }

    fn perform(&mut self, number: usize, pair: u32, actions: Vec<Action>) {
        let any = !actions.is_empty();
        let machine = self.nodes[number].agent.as_ref().and_then(|agent| agent.machines.get(&pair));
        let Some((snapshot, held)) =
            machine.map(|machine| (machine.snapshot(), machine.status(pair).lease.and_then(|lease| lease.held)))
        else {
            return;
        };
        let before = self.nodes[number].disk.get(&pair).map(|(_, term)| *term).unwrap_or_default();
        // A copy that ended before the next term began has made its checkpoints in the term before.
        self.nodes[number].checkpoint(self.now, pair);
        self.nodes[number].disk.insert(pair, (snapshot, held.unwrap_or(before)));
        for action in actions {
            if self.traced {
                println!("          node {number} pair {pair}:   {action:?}");
            }
            self.act(number, pair, action);
        }
        let node = &self.nodes[number];
        let Some(agent) = &node.agent else { return };
        let instance = agent.instance;
        if let Some(at) = agent.machines.get(&pair).and_then(PairMachine::next_deadline) {
            let at = node.time_of(at).max(self.now + 1);
            if self.ticks.insert((number, pair, at)) {
                self.queue.enter(at, Happening::Tick { node: number, instance, pair });
            }
        }
        if any {
            self.answer(number);
        }
    }

    fn act(&mut self, node: usize, pair: u32, action: Action) {
        match action {
            Action::Start { side, incarnation } => self.spawn(node, pair, side, incarnation),
            Action::Wake { side, incarnation } => self.wake(node, pair, side, incarnation),
            Action::Stop { side, incarnation } => {
                let ignores = self.dice.percent(20);
                let delay = self.up_to(40);
                let Some(process) = self.nodes[node].processes.get(&(pair, side)) else { return };
                if process.incarnation == incarnation && !process.stopped && !ignores {
                    let (pid, end) = (process.pid, RankEnd::Signal(15));
                    self.after(delay, Happening::Ends { node, pair, side, pid, end });
                }
            }
            Action::Kill { side, incarnation } => {
                let Some(process) = self.nodes[node].processes.get(&(pair, side)) else { return };
                if process.incarnation == incarnation {
                    let (pid, end) = (process.pid, RankEnd::Signal(9));
                    if self.defect == Some(Defect::KilledLate) {
                        self.after(300 * MS, Happening::Ends { node, pair, side, pid, end });
                    } else {
                        self.end(node, pair, side, pid, end);
                    }
                }
            }
            Action::Watch { side, .. } => {
                if let Some(process) = self.nodes[node].processes.get(&(pair, side))
                    && (process.hung || process.stopped)
                {
                    let pid = process.pid;
                    self.after(3 * MS, Happening::Missed { node, pair, side, pid });
                }
            }
            Action::HoldUntil { until, .. } => match until {
                Some(until) => {
                    self.nodes[node].hold.insert(pair, until);
                    let at = self.nodes[node].time_of(until) + MS;
                    self.queue.enter(at.max(self.now), Happening::HoldEnds { node, pair });
                }
                None => {
                    self.nodes[node].hold.remove(&pair);
                }
            },
            Action::FlushMirror => self.mirror(node, pair, false),
            Action::Report(change) => self.reported(&change),
            Action::Unwatch { .. } | Action::SuspendJobs | Action::ResumeJobs => {}
        }
    }

    fn reported(&mut self, change: &PairChange) {
        match change {
            PairChange::FailOver { .. } => self.tally.fail_overs += 1,
            PairChange::FailBack { .. } => self.tally.fail_backs += 1,
            PairChange::LeaseExpired { .. } => self.tally.fenced += 1,
            PairChange::Finished { .. } => self.tally.finished += 1,
            _ => {}
        }
    }

    fn spawn(&mut self, node: usize, pair: u32, side: Side, incarnation: u64) {
        let old = self.nodes[node].processes.get(&(pair, side));
        assert!(old.is_none_or(|old| !old.alive), "pair {pair}: the {side} is started while {old:?} exists");
        self.pids += 1;
        let pid = self.pids;
        let process = Process {
            incarnation,
            pid,
            state: CopyState::Starting,
            alive: true,
            stopped: false,
            hung: false,
            finished: false,
            end: RankEnd::Unknown,
            woken: 0,
            from: MirroredCheckpoint::default(),
        };
        self.nodes[node].processes.insert((pair, side), process);
        let faulty = self.now < FAULTS_END;
        let delay = 5 * MS + self.up_to(300);
        match self.dice.below(100) {
            0..3 if faulty => {}
            3..6 if faulty => {
                self.after(delay, Happening::Ends { node, pair, side, pid, end: RankEnd::Code(1) });
            }
            _ => self.after(delay, Happening::Registers { node, pair, side, pid }),
        }
        self.machine(node, pair, Event::Started { side, incarnation, pid });
    }

    fn wake(&mut self, number: usize, pair: u32, side: Side, incarnation: u64) {
        let now = self.now;
        let from = self.nodes[number].checkpoint(now, pair);
        let spec = &mut self.pairs[pair as usize];
        let left = spec.left.take().filter(|_| side == Side::Main && !spec.is_local());
        let Some(process) = self.nodes[number].processes.get_mut(&(pair, side)) else { return };
        if process.incarnation != incarnation || !process.alive {
            return;
        }
        assert_eq!(process.state, CopyState::Asleep, "pair {pair}: a copy is woken");
        process.state = CopyState::Awake;
        process.woken = now;
        process.from = from;
        if let Some(left) = left {
            self.tally.handed_over += 1;
            assert!(from >= left, "pair {pair}: the main goes on from {from:?}, not from the replica's {left:?}");
        }
        self.after(0, Happening::Mirror { node: number, pair });
    }

    /// The process ends.
    fn end(&mut self, node: usize, pair: u32, side: Side, pid: u32, end: RankEnd) {
        let newest = self.nodes[node].checkpoint(self.now, pair);
        let Some(process) = self.process(node, pair, side, pid).filter(|process| process.alive) else { return };
        process.alive = false;
        process.end = end;
        process.finished = end == RankEnd::SUCCESS;
        let (asked, was_awake) = (end == RankEnd::Signal(15), process.state == CopyState::Awake);
        let undisturbed = self.links == [Link::Good; 3] && self.nodes.iter().all(|node| node.agent.is_some());
        if was_awake {
            let term = self.nodes[node].disk.get(&pair).map(|(_, term)| *term).unwrap_or_default();
            let newest = MirroredCheckpoint { term, sequence: newest.sequence };
            let spec = &mut self.pairs[pair as usize];
            spec.left = (asked && undisturbed && side == Side::Replica && newest.sequence > 0).then_some(newest);
            if end == RankEnd::SUCCESS {
                spec.finished = true;
                spec.finished_on = Some(node);
            }
        }
        let delay = if self.dice.percent(5) { self.up_to(700) } else { self.up_to(4) };
        self.after(delay, Happening::Gone { node, pair, side, pid });
    }

    /// A copy whose lease is over ends itself, also without an agent.
    fn end_hold(&mut self, number: usize, pair: u32) {
        let node = &self.nodes[number];
        let over = node.hold.get(&pair).is_some_and(|until| *until <= node.clock(self.now));
        if !node.up || !over || self.defect == Some(Defect::NotFenced) {
            return;
        }
        for side in Side::BOTH {
            if let Some(process) = self.nodes[number].processes.get(&(pair, side))
                && process.works()
            {
                let pid = process.pid;
                self.tally.fenced += 1;
                self.end(number, pair, side, pid, RankEnd::Signal(9));
            }
        }
    }

    /// Sends the newest checkpoint to the other node; again after a while, as long as a copy is awake.
    fn mirror(&mut self, number: usize, pair: u32, repeated: bool) {
        let works = self.working(pair).iter().any(|(node, ..)| *node == number);
        if self.pairs[pair as usize].is_local() || repeated && !works {
            return;
        }
        let newest = self.nodes[number].checkpoint(self.now, pair);
        let term = self.nodes[number].disk.get(&pair).map(|(_, term)| *term).unwrap_or_default();
        if self.nodes[number].agent.is_some() && newest.sequence > 0 {
            let checkpoint = MirroredCheckpoint { term, sequence: newest.sequence };
            if let Some(delay) = self.delay(2) {
                self.after(delay, Happening::Mirrored { node: 1 - number, pair, checkpoint });
            }
        }
        if repeated {
            self.after(300 * MS, Happening::Mirror { node: number, pair });
        }
    }

    fn mirrored(&mut self, number: usize, pair: u32, checkpoint: MirroredCheckpoint) {
        let by_number = self.defect == Some(Defect::MirrorByNumber);
        if self.nodes[number].agent.is_none() || !self.nodes[number].up {
            return;
        }
        let kept = self.nodes[number].checkpoint(self.now, pair);
        // A copy that is awake here has a later term.
        let working = self.working(pair).iter().any(|(node, ..)| *node == number);
        let newer = if by_number { checkpoint.sequence > kept.sequence } else { checkpoint > kept };
        if newer && !working {
            self.nodes[number].checkpoints.insert(pair, checkpoint);
        }
        self.machine(number, pair, Event::Mirrored(checkpoint));
    }

    fn fault(&mut self) {
        if self.now >= FAULTS_END {
            return;
        }
        let delay = 100 * MS + self.up_to(3_000);
        self.after(delay, Happening::Fault);
        // A fault may disturb what is being handed over.
        self.pairs.iter_mut().for_each(|spec| spec.left = None);
        let pair = self.dice.below(self.pairs.len() as u32);
        let number = self.dice.below(2_usize);
        let back = self.up_to(5_000);
        let kind = self.dice.below(100);
        match kind {
            0..40 => self.hurt_copy(pair, kind),
            40..52 => {
                if self.nodes[number].agent.take().is_some() {
                    self.after(back, Happening::AgentStarts { node: number });
                }
            }
            52..62 => self.crash(number, back),
            62..80 => {
                let link = self.dice.below(3_usize);
                self.links[link] = if self.dice.percent(60) { Link::Cut } else { Link::Bad };
                self.after(back, Happening::LinkHeals { link });
            }
            80..92 => {
                if self.orchestrator.take().is_some() {
                    self.after(back, Happening::OrchestratorStarts);
                }
            }
            _ => {
                let command = if self.dice.percent(50) { PairCommand::FailOver } else { PairCommand::FailBack };
                self.command(pair, command);
            }
        }
    }

    /// Something happens to the copy that is awake, or to any other one.
    fn hurt_copy(&mut self, pair: u32, kind: u64) {
        let awake = self.working(pair);
        let number = self.dice.below(2_usize);
        let side = Side::BOTH[self.dice.below(2_usize)];
        let (node, side) = match awake.first() {
            Some((node, side, _)) if self.dice.percent(70) => (*node, *side),
            _ => (number, side),
        };
        let pause = self.up_to(6_000);
        let Some(process) = self.nodes[node].processes.get_mut(&(pair, side)).filter(|process| process.alive) else {
            return;
        };
        let pid = process.pid;
        match kind {
            0..20 => self.end(node, pair, side, pid, RankEnd::Signal(11)),
            20..28 if process.state == CopyState::Awake => {
                // Checkpoints until now count.
                self.nodes[node].checkpoint(self.now, pair);
                if let Some(process) = self.process(node, pair, side, pid) {
                    process.hung = true;
                }
                self.after(3 * MS, Happening::Missed { node, pair, side, pid });
            }
            28..38 => {
                self.nodes[node].checkpoint(self.now, pair);
                if let Some(process) = self.process(node, pair, side, pid) {
                    process.stopped = true;
                }
                self.after(3 * MS, Happening::Missed { node, pair, side, pid });
                self.after(pause, Happening::Continues { node, pair, side, pid });
            }
            38.. if process.state == CopyState::Awake => self.end(node, pair, side, pid, RankEnd::SUCCESS),
            _ => {}
        }
    }

    /// The node goes down. Its disk stays, or is in memory.
    fn crash(&mut self, number: usize, back: Time) {
        let keeps = self.dice.percent(50);
        let node = &mut self.nodes[number];
        if !node.up {
            return;
        }
        node.up = false;
        node.agent = None;
        node.processes.clear();
        node.checkpoints.clear();
        node.hold.clear();
        if !keeps {
            node.disk.clear();
        }
        for (index, spec) in self.pairs.iter_mut().enumerate() {
            let on_disk = self.nodes[number].disk.get(&(index as u32)).is_some_and(|(snapshot, _)| snapshot.finished);
            // Otherwise nobody knows it any more.
            if spec.finished_on == Some(number) && !spec.told {
                spec.finished = on_disk;
            }
        }
        self.after(back, Happening::NodeBoots { node: number });
    }

    fn command(&mut self, pair: u32, command: PairCommand) {
        let spec = &self.pairs[pair as usize];
        let node = spec.nodes[0];
        if spec.is_local() {
            self.machine(node, pair, Event::Command(command));
            return;
        }
        let now = self.time();
        if let Some(orchestrator) = &mut self.orchestrator
            && orchestrator.granter.check(pair, command).is_ok()
        {
            orchestrator.granter.command(now, pair, command);
            self.follow_granter();
        }
    }

    /// Everything that is down returns; what a user moved away is moved back.
    fn heal(&mut self) {
        self.links = [Link::Good; 3];
        for node in 0..2 {
            if !self.nodes[node].up {
                self.happen(Happening::NodeBoots { node });
            }
            self.start_agent(node);
        }
        self.start_orchestrator();
        for pair in 0..self.pairs.len() as u32 {
            self.command(pair, PairCommand::FailBack);
        }
    }
}
