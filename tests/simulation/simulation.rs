//! A world with its own truth (nodes, agents and ranks that live and die, answers that are late or lost) and an oracle that
//! watches every action of the machine.

use holdfast::events::{DownReason, DrainResult};
use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use holdfast_testkit::Dice;
use holdfast_wire::agent::QuietRank;

use crate::names::{address, config, ms, name};
use crate::oracle::Oracle;
use holdfast::relaunch::explain::Condition;
use holdfast::relaunch::*;

/// How rough the world is.
#[derive(Clone, Debug)]
pub struct Weather {
    pub nodes: usize,
    pub needed: u32,
    pub min_nodes: u32,
    /// A misfortune every so often, on average, milliseconds.
    pub misfortune_every: u64,
    /// Misfortunes in all.
    pub misfortunes: u64,
    /// Orchestrator deaths allowed.
    pub takeovers: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Life {
    Alive,
    /// Neither answers nor fails.
    Frozen,
    Dead,
}

pub(super) struct Truth {
    pub(super) life: Life,
    agent: bool,
    starts: u16,
    /// The generation whose plan its agent has.
    plan: Option<Generation>,
    /// The newest generation that its agent was told to kill.
    killed: Option<Generation>,
    /// The generation of ranks that live here.
    pub(super) ranks: Option<Generation>,
}

/// What comes about later.
enum Later {
    /// Something reaches the orchestrator, if this incarnation of it still lives.
    Tell(u32, Event),
    StartAgent(NodeName),
    Prepare(NodeName, Generation),
    Kill(NodeName, Generation),
    /// The driver tries to end what may still run on a node that is down.
    Fence(NodeName),
    Launch(Generation, Vec<NodeName>),
    PollNow(NodeName),
    Polls,
    Misfortune,
    /// The application takes its next step.
    Step(Generation, u32),
}

pub struct Simulation {
    pub(super) machine: Machine,
    dice: Dice,
    pub(super) weather: Weather,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    later: HashMap<u64, Later>,
    sequence: u64,
    incarnation: u32,
    pub(super) nodes: BTreeMap<NodeName, Truth>,
    /// What the run under way has said, to be said again to a successor.
    said: Vec<Event>,
    checkpoint: u64,
    misfortunes: u64,
    pub(super) oracle: Oracle,
}

impl Simulation {
    pub fn new(seed: u64, weather: Weather) -> Self {
        let mut dice = Dice(seed);
        let mut settings = config(weather.nodes, weather.needed);
        settings.min_nodes = weather.min_nodes;
        settings.attempts = dice.below(12) as u32;
        settings.no_progress_limit = 1 + dice.below(5) as u32;
        settings.settle = if dice.percent(30) { ms(dice.below(3000)) } else { Duration::ZERO };
        settings.start_within = ms(5000);
        settings.agent_restarts = 4;
        settings.hang_after = Some(ms(200));
        if dice.percent(30) {
            settings.own_node = Some(name(dice.below(weather.nodes as u64) as usize));
        }
        if dice.percent(20) {
            settings.allocation_end = Some(10 + dice.below(60) as i64);
            settings.before_end = ms(dice.below(20_000));
            settings.drain_reserve = ms(dice.below(10_000));
        }
        let truth = || Truth { life: Life::Alive, agent: false, starts: 0, plan: None, killed: None, ranks: None };
        Simulation {
            machine: Machine::new(settings),
            dice,
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            later: HashMap::new(),
            sequence: 0,
            incarnation: 0,
            nodes: (0..weather.nodes).map(|node| (name(node), truth())).collect(),
            weather,
            said: Vec::new(),
            checkpoint: 0,
            misfortunes: 0,
            oracle: Oracle::default(),
        }
    }

    /// Runs to the end of the loop.
    pub fn run(mut self) -> Outcome {
        self.soon(Later::Polls);
        let first = ms(self.dice.below(self.weather.misfortune_every));
        self.after(first, Later::Misfortune);
        let actions = self.machine.begin(self.now);
        self.perform(actions);
        let mut steps = 0u64;
        while self.oracle.finished.is_none() {
            steps += 1;
            assert!(
                steps < 4_000_000 && self.now < ms(3_600_000),
                "it does not end: {:?}",
                self.machine.explain().phase
            );
            let due = self.queue.peek().map(|Reverse((at, _))| *at);
            let timer = self.machine.deadline();
            if let Some(timer) = timer
                && due.is_none_or(|due| timer <= due)
            {
                self.now = self.now.max(timer);
                self.happens(Event::Tick);
                assert!(self.machine.deadline().is_none_or(|next| next > self.now), "a timer that never goes off");
                continue;
            }
            let Some(Reverse((at, key))) = self.queue.pop() else { panic!("nothing will ever happen") };
            self.now = self.now.max(at);
            if let Some(later) = self.later.remove(&key) {
                self.come_about(later);
            }
        }
        assert_eq!(self.machine.handle(self.now, Event::Tick), [], "nothing after the end");
        self.oracle.finished.unwrap()
    }

    fn after(&mut self, delay: Duration, later: Later) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now + delay, self.sequence)));
        self.later.insert(self.sequence, later);
    }

    fn soon(&mut self, later: Later) {
        let delay = ms(1 + self.dice.below(30));
        self.after(delay, later);
    }

    fn tell(&mut self, event: Event) {
        self.soon(Later::Tell(self.incarnation, event));
    }

    fn happens(&mut self, event: Event) {
        if let Event::AgentReady { node, .. } | Event::AgentUnfit { node, .. } = &event
            && self.oracle.down.contains(node)
        {
            self.oracle.reported.insert(node.clone());
        }
        let actions = self.machine.handle(self.now, event);
        if self.weather.takeovers && !actions.is_empty() && self.dice.below(150) == 0 && self.oracle.finished.is_none()
        {
            return self.orchestrator_dies(actions);
        }
        self.perform(actions);
    }

    /// It wrote its snapshot, did a part of what was to be done, and was killed.
    fn orchestrator_dies(&mut self, mut actions: Vec<Action>) {
        let snapshot = serde_json::to_string(&self.machine.snapshot()).unwrap();
        let done = self.dice.below(actions.len() as u64) as usize;
        actions.truncate(done);
        self.perform(actions);
        self.incarnation += 1;
        // A signal to the dead is none to its successor.
        self.oracle.signals = 0;
        let config = self.machine.config().clone();
        self.machine = Machine::restore(config, serde_json::from_str(&snapshot).unwrap()).unwrap();
        // Lines of the event log that were not written any more are known to the machine all the same.
        for node in self.machine.explain().nodes {
            if matches!(node.condition, Condition::Down(_)) {
                self.oracle.down.insert(node.node);
            }
        }
        // A successor fences every node that is down, whatever its predecessor did.
        self.oracle.fenced.clear();
        self.now += ms(self.dice.below(2000));
        let actions = self.machine.begin(self.now);
        self.perform(actions);
    }

    fn come_about(&mut self, later: Later) {
        match later {
            Later::Tell(incarnation, event) if incarnation == self.incarnation => self.happens(event),
            Later::Tell(..) => {}
            Later::StartAgent(node) => self.start_agent(node),
            Later::Prepare(node, generation) => {
                let truth = self.nodes.get_mut(&node).unwrap();
                if truth.life == Life::Alive && truth.agent {
                    if truth.plan.is_none_or(|plan| plan <= generation) {
                        truth.ranks = truth.ranks.filter(|ranks| *ranks >= generation);
                        truth.plan = Some(generation);
                        self.tell(Event::RunPrepared { node, generation });
                    } else {
                        self.tell(Event::RunRefused { node, generation, reason: "older".into() });
                    }
                }
            }
            Later::Kill(node, generation) => {
                let truth = self.nodes.get_mut(&node).unwrap();
                if truth.life == Life::Alive && truth.agent {
                    truth.ranks = truth.ranks.filter(|ranks| *ranks > generation);
                    truth.killed = truth.killed.max(Some(generation));
                    self.tell(Event::RanksKilled { node, generation });
                }
            }
            Later::Fence(node) => {
                let truth = self.nodes.get_mut(&node).unwrap();
                match truth.life {
                    Life::Alive => (truth.agent, truth.ranks) = (false, None),
                    Life::Frozen => self.after(ms(2000), Later::Fence(node)),
                    Life::Dead => {}
                }
            }
            Later::PollNow(node) => self.poll(node),
            Later::Polls => {
                let agents: Vec<NodeName> = self.machine.agents().map(|(node, _)| node.clone()).collect();
                agents.into_iter().for_each(|node| self.poll(node));
                self.after(ms(250), Later::Polls);
            }
            Later::Launch(generation, nodes) => self.launch(generation, nodes),
            Later::Step(generation, step) => self.application_step(generation, step),
            Later::Misfortune => self.misfortune(),
        }
    }

    fn start_agent(&mut self, node: NodeName) {
        let adopts = self.dice.percent(80);
        let gone = self.dice.percent(70);
        let truth = self.nodes.get_mut(&node).unwrap();
        match truth.life {
            Life::Dead => self.tell(Event::AgentStartFailed { node, reason: "unreachable".into(), node_gone: gone }),
            Life::Frozen => {}
            Life::Alive => {
                truth.agent = true;
                truth.starts += 1;
                let adopted = truth.plan.filter(|_| adopts);
                let event = Event::AgentReady { address: address(&node, truth.starts), node, adopted };
                self.tell(event);
            }
        }
    }

    fn poll(&mut self, node: NodeName) {
        let lost = self.dice.percent(3);
        let truth = &self.nodes[&node];
        if truth.life == Life::Alive && truth.agent && !lost {
            self.tell(Event::PollAnswered { node, sent: self.now, fault: None });
        } else if truth.life != Life::Frozen && !lost {
            self.tell(Event::AgentLost { node, reason: "connection closed".into() });
        }
    }

    fn launch(&mut self, generation: Generation, nodes: Vec<NodeName>) {
        self.said.clear();
        if self.dice.percent(2) {
            return self.tell(Event::LaunchFailed { generation, reason: "no launcher".into() });
        }
        for node in nodes {
            let truth = self.nodes.get_mut(&node).unwrap();
            // An agent that was told to kill this generation refuses its ranks; one that knows a newer plan, too.
            if truth.life != Life::Dead && truth.plan == Some(generation) && truth.killed < Some(generation) {
                truth.ranks = Some(generation);
            }
        }
        self.say(Event::StepStarted { generation });
        self.soon(Later::Step(generation, 0));
    }

    /// Something that the run says, and would say again.
    fn say(&mut self, event: Event) {
        self.said.push(event.clone());
        self.tell(event);
    }

    fn application_step(&mut self, generation: Generation, step: u32) {
        if self.oracle.launched != Some(generation) {
            return;
        }
        let homes = self.oracle.homes.clone();
        let well = |node: &NodeName| self.nodes[node].life == Life::Alive && self.nodes[node].ranks == Some(generation);
        if homes.values().any(|node| !well(node)) {
            // A neighbour notices that somebody is gone.
            if let Some((rank, _)) = homes.iter().find(|(_, node)| well(node)).map(|(rank, node)| (*rank, node.clone()))
            {
                self.tell(Event::RankExited { generation, rank, end: RankEnd::Code(1) });
            } else {
                self.tell(Event::StepEnded { generation, end: RankEnd::Signal(9) });
            }
            return self.after(ms(500), Later::Step(generation, step));
        }
        let rank = Rank(self.dice.below(homes.len() as u64) as u32);
        match self.dice.below(40) {
            0 => {
                return self.tell(Event::RankExited { generation, rank, end: RankEnd::Signal(11) });
            }
            1 => self.hang(generation),
            2 => self.say(Event::Halting { generation, reason: "EXIT_AFTER_TIME".into() }),
            3..=5 => {
                self.say(Event::Finalized { generation });
                let end = if self.dice.percent(90) { RankEnd::SUCCESS } else { RankEnd::Code(2) };
                for rank in homes.keys() {
                    self.say(Event::RankExited { generation, rank: *rank, end });
                }
                return self.say(Event::StepEnded { generation, end });
            }
            6 => {
                return self.say(Event::StepEnded { generation, end: RankEnd::SUCCESS });
            }
            _ if step == 0 => self.say(Event::Restarted { generation, from: None }),
            7..=20 => {
                self.checkpoint += 1;
                self.say(Event::CheckpointComplete {
                    generation,
                    checkpoint: CheckpointId(self.checkpoint),
                    protected: true,
                });
            }
            _ => {}
        }
        self.after(ms(100), Later::Step(generation, step + 1));
    }

    /// All agents say that nothing moves any more.
    fn hang(&mut self, generation: Generation) {
        let still =
            |rank: &Rank| QuietRank { rank: *rank, waiting_in: None, quiet_for: ms(60_000), idle_for: ms(60_000) };
        let mut nodes: BTreeMap<NodeName, Vec<QuietRank>> = BTreeMap::new();
        for (rank, node) in &self.oracle.homes {
            nodes.entry(node.clone()).or_default().push(still(rank));
        }
        for (node, ranks) in nodes {
            self.tell(Event::RanksQuiet { node, generation, ranks });
        }
    }

    fn misfortune(&mut self) {
        self.misfortunes += 1;
        if self.misfortunes < self.weather.misfortunes {
            let pause = ms(self.dice.below(2 * self.weather.misfortune_every));
            self.after(pause, Later::Misfortune);
        }
        let node = name(self.dice.below(self.weather.nodes as u64) as usize);
        let truth = self.nodes.get_mut(&node).unwrap();
        let what = self.dice.below(100);
        match what {
            0..=34 => {
                truth.life = Life::Dead;
                (truth.agent, truth.ranks) = (false, None);
                if what < 25 {
                    self.tell(Event::AgentLost { node, reason: "connection closed".into() });
                }
            }
            35..=54 => {
                truth.agent = false;
                self.tell(Event::AgentLost { node, reason: "killed".into() });
            }
            55..=64 if truth.life == Life::Alive => truth.life = Life::Frozen,
            65..=72 if truth.life == Life::Frozen => truth.life = Life::Alive,
            65..=72 => self.tell(Event::HealthFault { node, fault: "disk full".into() }),
            73..=77 => {
                self.tell(Event::NodeDown { node, reason: DownReason::ResourceManager { state: "drained".into() } })
            }
            78..=80 => self.tell(Event::HaltSet { reason: "JOB_HALTED".into() }),
            81..=83 => self.tell(Event::HaltCleared),
            84..=86 => self.tell(Event::Signal { name: "SIGTERM".into() }),
            87..=95 => {
                let generation = self.machine.generation();
                let rank = Rank(self.dice.below(u64::from(self.machine.config().ranks)) as u32);
                self.tell(Event::RankExited { generation, rank, end: RankEnd::Code(1) });
            }
            // Something of long ago, or of nobody.
            _ => self.tell(Event::AgentReady {
                address: address(&node, 99),
                node: NodeName::new("n9999"),
                adopted: None,
            }),
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.watch(&action);
            match action {
                Action::StartAgent { node } => self.soon(Later::StartAgent(node)),
                Action::AskHalt => {
                    let met = self.dice.percent(1).then(|| "EXIT_BEFORE_TIME".to_owned());
                    self.tell(Event::HaltAnswered { met });
                }
                Action::Prepare { generation, to, .. } => {
                    to.into_iter().for_each(|node| self.soon(Later::Prepare(node, generation)));
                }
                Action::KillRanks { generation, to, .. } => {
                    to.into_iter().for_each(|node| self.soon(Later::Kill(node, generation)));
                }
                Action::FenceNode { node, .. } => self.soon(Later::Fence(node)),
                Action::SaveStacks { generation, .. } => self.tell(Event::StacksSaved { generation }),
                Action::PollNow { to } => to.into_iter().for_each(|node| self.soon(Later::PollNow(node))),
                Action::Launch { generation, placement } => {
                    self.soon(Later::Launch(generation, placement.used().map(|node| node.name.clone()).collect()));
                }
                Action::FollowStep { generation, .. } => {
                    if self.dice.percent(20) {
                        self.tell(Event::StepLost { generation, reason: "no launcher".into() });
                    }
                    self.said.clone().into_iter().for_each(|event| self.tell(event));
                }
                Action::Drain { .. } => self.tell(Event::Drained { result: DrainResult::Nothing }),
                _ => {}
            }
        }
    }
}
