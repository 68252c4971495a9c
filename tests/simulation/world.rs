//! The simulated world: its components, events and time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdfast::drain::{DrainAction, DrainEvent};
use holdfast::events::DrainResult;
use holdfast::relaunch::{Event, Outcome};
use holdfast_agent::collective::leader::{LeaderWork, WorkResult};
use holdfast_model::{Generation, HaltState, Placement, Rank};
use holdfast_testkit::Dice;
use holdfast_wire::agent::PeersUpdate;
use holdfast_wire::peer::{Order, Outcome as CallOutcome, ToLeader, ToMember};
use holdfast_wire::run::RunPlan;

use crate::agent::Agent;
use crate::application::Application;
use crate::exchange::Effect;
use crate::files::{Files, Tally};
use crate::joint::{Joint, JointKey};
use crate::link::Link;
use crate::names::NodeIndex;
use crate::oracle::Oracle;
use crate::orchestrator::Orchestrator;
use crate::prefix::Prefix;
use crate::queue::{MS, Queue, Time};
use crate::scenario::Scenario;
use crate::store::Disk;

/// Steps after which a job counts as endless.
const MOST_STEPS: u64 = 20_000_000;
/// Simulated time after which a job counts as endless.
const LONGEST: Time = 3_600_000 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// Does not run, and closes no connection.
    Frozen,
    Dead,
}

pub struct Node {
    pub life: Life,
    pub agent: Option<Agent>,
    pub starts: u16,
    /// The newest generation whose ranks were killed here.
    pub killed: Option<Generation>,
    /// The generation of the ranks that are alive here.
    pub ranks: Option<Generation>,
    pub disk: Disk,
    /// Events that are delayed until the node runs again.
    pub waiting: Vec<SimulatedEvent>,
    /// The machine of a dead or frozen node does not answer connections.
    pub unreachable: bool,
    /// Its agent and its disk are slow by this much, until then.
    pub slow: Time,
    pub slow_until: Time,
    /// A poll that was received before has no answer yet.
    pub answering_until: Time,
    /// Nothing has happened to its agent since the orchestrator was notified of its start.
    pub undisturbed: bool,
    /// The running time of the orchestrator when the node died.
    pub died: Option<Duration>,
    /// Files were lost or damaged here, or the disk failed: checks do not rely on its files.
    pub damaged: bool,
}

pub enum SimulatedEvent {
    /// An event arrives at the orchestrator, if this incarnation is still alive.
    ToOrchestrator(u32, Box<Event>),
    /// The received events are passed to the machine.
    Decide(u32),
    /// The journal's entries up to this one are on disk.
    JournalWritten(u32, u64),
    PollRound(u32),
    Poll(u32, NodeIndex, u16),
    /// The poller of the orchestrator wakes up.
    PollsRan(u32),
    CheckAgent(u32, NodeIndex),
    StartAgent(NodeIndex),
    /// A request to the agent of this start; another process does not receive it.
    Prepare(NodeIndex, u16, Arc<RunPlan>, u64),
    Kill(NodeIndex, u16, Generation),
    HaltRanks(NodeIndex, u16, Generation, Option<String>),
    Terminate(NodeIndex, u16, Generation),
    Fence(NodeIndex),
    UpdatePeers(NodeIndex, u16, Arc<PeersUpdate>),
    StopAgent(NodeIndex),
    Launch(u32, Generation, Arc<Placement>),
    CancelStep(Generation),
    /// A member's agent connects to the leader.
    Connect(NodeIndex, u64),
    ToLeader(u64, Box<ToLeader>),
    ToMember(u64, Box<ToMember>),
    Results(u64, u64, Arc<CallOutcome>),
    /// The leader detects that a link is broken.
    LinkDown {
        leader: NodeIndex,
        instance: u64,
        member: NodeIndex,
        link: u64,
    },
    /// A member detects that its link is broken.
    LinkLost {
        member: NodeIndex,
        instance: u64,
        link: u64,
    },
    /// An agent carries out an order.
    Perform {
        at: NodeIndex,
        instance: u64,
        generation: Generation,
        order: u64,
        what: Box<Order>,
    },
    Exchange(JointKey),
    CheckJoint(JointKey, u32),
    Effect {
        at: NodeIndex,
        instance: u64,
        generation: Generation,
        order: u64,
        effect: Box<Effect>,
    },
    /// The leader's file work is performed.
    Work {
        at: NodeIndex,
        instance: u64,
        id: u64,
        work: Box<LeaderWork>,
    },
    WorkFinished {
        at: NodeIndex,
        instance: u64,
        id: u64,
        result: Box<WorkResult>,
    },
    LeaderTick {
        at: NodeIndex,
        instance: u64,
    },
    /// The next step of a rank that waits for no answer.
    RankStep {
        generation: Generation,
        rank: Rank,
        turn: u32,
    },
    /// A rank makes its call, or repeats it after its agent was restarted.
    RankCall {
        generation: Generation,
        rank: Rank,
        turn: u32,
    },
    RankReply {
        at: NodeIndex,
        instance: u64,
        generation: Generation,
        rank: Rank,
        seq: u64,
        outcome: Arc<CallOutcome>,
    },
    /// An action of the drain is performed.
    Drain(u32, Box<DrainAction>),
    DrainAnswer(u32, Box<DrainEvent>),
    DrainTick(u32),
    InjectFault,
    UserHalts,
    UnsetHalt,
    Thaw(NodeIndex),
    PrefixWorksAgain,
}

pub struct World {
    pub scenario: Scenario,
    pub dice: Dice,
    pub now: Time,
    pub queue: Queue<SimulatedEvent>,
    pub nodes: Vec<Node>,
    pub prefix: Prefix,
    pub prefix_state: PrefixState,
    pub links: HashMap<u64, Link>,
    pub made_links: u64,
    pub made_parts: u64,
    pub joints: HashMap<JointKey, Joint>,
    pub orchestrator: Orchestrator,
    pub applications: BTreeMap<Generation, Application>,
    /// The user's halt is to kill the ranks at once.
    pub halt_immediately: bool,
    pub injected_faults: u32,
    /// Runs in this allocation that have ended.
    pub runs: u32,
    pub oracle: Oracle,
    pub traced: bool,
    pub defect: Option<Defect>,
    /// The directories, in a job with real files.
    pub files: Option<Files>,
}

/// A deliberate defect of the simulated side, to show that the oracle detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A member acknowledges an encoding that it did not make.
    EncodingNotMade,
    /// The leader's driver does not wait for the disk: its memory counts as saved and is not.
    MemoryNotSaved,
    /// A drain publishes every directory as complete.
    AllPublishedAsComplete,
    /// The oldest checkpoints are evicted, whatever they survive.
    OldestEvicted,
    /// After a relaunch, a checkpoint evicts all older ones: what the run restarted from, too.
    RestartedEvicted,
    /// A member that receives a rank's files keeps those of the checkpoint before.
    OldFilesKept,
    /// An agent acknowledges a request to kill its ranks and does not do it.
    RanksNotKilled,
    /// An agent replaces its halt conditions by those of the leader's node.
    HaltReplaced,
    /// Time in which the orchestrator did not run counts as running time.
    StallsCounted,
    /// Connections to dead nodes do not break, and their agents are reported as present.
    DeathsHidden,
    /// With real files: a byte of the redundancy is wrong.
    RedundancyWrong,
    /// With real files: a flush acknowledges files of which it has written the first half.
    FlushedByHalf,
    /// With real files: actions are released although the journal was not written.
    JournalNotWritten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixState {
    Works,
    Fails,
    /// Hangs until then.
    Hangs(Time),
}

/// Prints a line of the trace, when a seed is replayed.
macro_rules! trace {
    ($world:expr, $($what:tt)*) => {
        if $world.traced {
            println!("{:>10.3} ms  {}", $world.now as f64 / 1000.0, format!($($what)*));
        }
    };
}
pub(crate) use trace;

impl World {
    pub fn new(seed: u64, scenario: Scenario, traced: bool, defect: Option<Defect>) -> World {
        let node = |_| Node {
            life: Life::Alive,
            agent: None,
            starts: 0,
            killed: None,
            ranks: None,
            disk: Disk::default(),
            waiting: Vec::new(),
            unreachable: false,
            slow: 0,
            slow_until: 0,
            answering_until: 0,
            undisturbed: false,
            died: None,
            damaged: false,
        };
        World {
            dice: Dice(seed),
            now: 0,
            queue: Queue::new(),
            nodes: (0..scenario.nodes).map(node).collect(),
            prefix: Prefix::default(),
            prefix_state: PrefixState::Works,
            links: HashMap::new(),
            made_links: 0,
            made_parts: 0,
            joints: HashMap::new(),
            orchestrator: Orchestrator::new(&scenario),
            applications: BTreeMap::new(),
            injected_faults: 0,
            runs: 0,
            halt_immediately: false,
            oracle: Oracle::default(),
            traced,
            defect,
            files: None,
            scenario,
        }
    }

    /// A job with real files.
    pub fn with_files(seed: u64, scenario: Scenario, traced: bool, defect: Option<Defect>) -> World {
        let files = Files::new(scenario.nodes);
        let scenario = scenario.below(&files.prefix());
        let mut world = World { files: Some(files), ..World::new(seed, scenario, traced, defect) };
        world.begin_journal();
        world
    }

    /// Runs to the end of the job.
    pub fn run(mut self) -> Outcome {
        self.run_to_end()
    }

    /// As [`World::run`], for a job with real files; returns also what happened, when it ended, and the last throw of
    /// the dice.
    pub fn run_counted(mut self) -> (Outcome, Tally, Time, u64) {
        let outcome = self.run_to_end();
        let (tally, ended, last) = (self.files.take().unwrap().tally, self.now, self.dice.roll());
        (outcome, tally, ended, last)
    }

    fn run_to_end(&mut self) -> Outcome {
        loop {
            self.run_once();
            self.check_end();
            match self.oracle.finished.take() {
                Some(outcome) if self.continues(&outcome) => self.begin_next_run(),
                outcome => return outcome.unwrap(),
            }
        }
    }

    /// Runs to the end of a run.
    fn run_once(&mut self) {
        if self.injected_faults < self.scenario.faults.most {
            let first = self.dice.below(2 * self.scenario.faults.every);
            self.after(first, SimulatedEvent::InjectFault);
        }
        self.begin_orchestrator();
        let mut steps = 0u64;
        while self.oracle.finished.is_none() {
            steps += 1;
            assert!(steps < MOST_STEPS && self.now < LONGEST, "the job does not end: {}", self.state());
            let due = self.queue.next_at();
            if let Some(timer) = self.orchestrator.deadline().map(|at| at.max(self.orchestrator.stalled_until))
                && due.is_none_or(|due| timer <= due)
            {
                self.now = self.now.max(timer);
                self.hand_in(vec![Event::Tick]);
                let next = self.orchestrator.deadline();
                assert!(next.is_none_or(|next| next > self.now), "a timer that never fires");
                continue;
            }
            let Some((at, event)) = self.queue.take() else { panic!("no event is left: {}", self.state()) };
            self.now = self.now.max(at);
            self.handle(event);
        }
    }

    /// The next run in the same allocation continues from the caches, as with `keep_cache: all`.
    fn continues(&self, outcome: &Outcome) -> bool {
        let machine = &self.orchestrator.machine;
        self.runs < self.scenario.runs
            && outcome.exit_code() == holdfast::exit::NOT_FINISHED
            && matches!(outcome.drain, Some(DrainResult::Complete { .. } | DrainResult::Nothing))
            && machine.generation() > machine.finished_steps()
            && machine.nodes_left() >= machine.config().min_nodes as usize
    }

    /// All processes of the run before have ended; files in cache and control directories are as they were.
    fn begin_next_run(&mut self) {
        trace!(self, "another run begins");
        self.runs += 1;
        for at in 0..self.scenario.nodes {
            self.kill_ranks(at, Generation(u64::MAX));
            if let Some(files) = &mut self.files {
                files.agent_ends(at);
            }
            let node = &mut self.nodes[at as usize];
            if node.life == Life::Frozen {
                node.life = Life::Alive;
            }
            (node.agent, node.ranks, node.unreachable, node.undisturbed, node.died) = (None, None, false, false, None);
            (node.slow, node.slow_until, node.answering_until) = (0, 0, 0);
            node.waiting.clear();
            // Each run has halt conditions of its own.
            (node.disk.halt, node.disk.halt_received) = (HaltState::default(), HaltState::default());
            node.disk.halted_by_user = false;
        }
        self.write_halts();
        self.queue = Queue::new();
        self.links.clear();
        self.joints.clear();
        self.prefix_state = PrefixState::Works;
        self.restart_orchestrator();
    }

    pub fn clock(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    pub fn after(&mut self, delay: Time, event: SimulatedEvent) {
        let slow = match &event {
            SimulatedEvent::Effect { at, .. } | SimulatedEvent::Work { at, .. } => self.slowness(*at),
            _ => 0,
        };
        self.queue.enter(self.now + delay + slow, event);
    }

    /// By how much a node is slow now.
    pub fn slowness(&mut self, at: NodeIndex) -> Time {
        let node = &self.nodes[at as usize];
        if self.now < node.slow_until { self.between(node.slow / 2, self.nodes[at as usize].slow) } else { 0 }
    }

    pub fn between(&mut self, least: Time, most: Time) -> Time {
        least + self.dice.below(most - least + 1)
    }

    /// The delay of a message: mostly short.
    pub fn hop(&mut self) -> Time {
        match self.dice.below(40) {
            0 => self.between(5 * MS, 60 * MS),
            _ => self.between(100, 2 * MS),
        }
    }

    /// A summary for messages about jobs that do not end.
    fn state(&self) -> String {
        let phase = format!("{:?}", self.orchestrator.phase());
        let nodes = self.nodes.iter().enumerate().take(20).map(|(at, node)| {
            let serving = node.agent.as_ref().and_then(|agent| agent.part.as_ref()).map(|part| part.plan.generation);
            format!("n{at} {:?} agent {} serving {serving:?} ranks {:?}", node.life, node.agent.is_some(), node.ranks)
        });
        format!("at {} ms, {phase}\n{}", self.now / MS, nodes.collect::<Vec<_>>().join("\n"))
    }

    /// The node of an event that is delayed while the node is frozen.
    fn place(&self, event: &SimulatedEvent) -> Option<NodeIndex> {
        match event {
            SimulatedEvent::Prepare(at, ..)
            | SimulatedEvent::Kill(at, ..)
            | SimulatedEvent::HaltRanks(at, ..)
            | SimulatedEvent::Terminate(at, ..)
            | SimulatedEvent::UpdatePeers(at, ..)
            | SimulatedEvent::StopAgent(at)
            | SimulatedEvent::Connect(at, _)
            | SimulatedEvent::Perform { at, .. }
            | SimulatedEvent::Effect { at, .. }
            | SimulatedEvent::Work { at, .. }
            | SimulatedEvent::WorkFinished { at, .. }
            | SimulatedEvent::LeaderTick { at, .. }
            | SimulatedEvent::LinkDown { leader: at, .. }
            | SimulatedEvent::LinkLost { member: at, .. }
            | SimulatedEvent::RankReply { at, .. } => Some(*at),
            SimulatedEvent::ToLeader(link, _) => self.links.get(link).map(|link| link.leader),
            SimulatedEvent::ToMember(link, _) | SimulatedEvent::Results(link, ..) => {
                self.links.get(link).map(|link| link.member)
            }
            SimulatedEvent::RankStep { generation, rank, .. } | SimulatedEvent::RankCall { generation, rank, .. } => {
                self.applications.get(generation).map(|application| application.homes[rank.index()])
            }
            _ => None,
        }
    }

    /// The event is part of the orchestrator's work.
    fn is_of_orchestrator(event: &SimulatedEvent) -> bool {
        matches!(
            event,
            SimulatedEvent::ToOrchestrator(..)
                | SimulatedEvent::Decide(_)
                | SimulatedEvent::JournalWritten(..)
                | SimulatedEvent::PollRound(_)
                | SimulatedEvent::PollsRan(_)
                | SimulatedEvent::Drain(..)
                | SimulatedEvent::DrainAnswer(..)
                | SimulatedEvent::DrainTick(_)
        )
    }

    fn handle(&mut self, event: SimulatedEvent) {
        if self.now < self.orchestrator.stalled_until && Self::is_of_orchestrator(&event) {
            return self.queue.enter(self.orchestrator.stalled_until, event);
        }
        if let Some(at) = self.place(&event) {
            match self.nodes[at as usize].life {
                Life::Alive => {}
                Life::Frozen => return self.nodes[at as usize].waiting.push(event),
                Life::Dead => return,
            }
        }
        match event {
            SimulatedEvent::ToOrchestrator(incarnation, event) => self.orchestrator_receives(incarnation, *event),
            SimulatedEvent::Decide(incarnation) => self.decide(incarnation),
            SimulatedEvent::JournalWritten(incarnation, upto) => self.journal_written(incarnation, upto),
            SimulatedEvent::PollRound(incarnation) => self.poll_round(incarnation),
            SimulatedEvent::Poll(incarnation, at, start) => self.poll(incarnation, at, start),
            SimulatedEvent::PollsRan(incarnation) => self.polls_ran(incarnation),
            SimulatedEvent::CheckAgent(incarnation, at) => self.check_agent(incarnation, at),
            SimulatedEvent::StartAgent(at) => self.start_agent(at),
            SimulatedEvent::Prepare(at, start, plan, issued) => self.prepare(at, start, &plan, issued),
            SimulatedEvent::Kill(at, start, generation) => self.kill(at, start, generation),
            SimulatedEvent::HaltRanks(at, start, generation, reason) => self.halt_ranks(at, start, generation, reason),
            SimulatedEvent::Terminate(at, start, generation) => self.terminate(at, start, generation),
            SimulatedEvent::Fence(at) => self.fence(at),
            SimulatedEvent::UpdatePeers(at, start, update) => self.update_peers(at, start, &update),
            SimulatedEvent::StopAgent(at) => self.agent_dies(at),
            SimulatedEvent::Launch(incarnation, generation, placement) => {
                if incarnation == self.orchestrator.incarnation {
                    self.launch(generation, placement);
                }
            }
            SimulatedEvent::CancelStep(generation) => self.cancel_step(generation),
            SimulatedEvent::Connect(at, instance) => self.connect(at, instance),
            SimulatedEvent::ToLeader(link, message) => self.leader_receives(link, *message),
            SimulatedEvent::ToMember(link, message) => self.member_receives(link, *message),
            SimulatedEvent::Results(link, seq, outcome) => self.results_arrive(link, seq, &outcome),
            SimulatedEvent::LinkDown { leader, instance, member, link } => {
                self.link_down(leader, instance, member, link)
            }
            SimulatedEvent::LinkLost { member, instance, link } => self.link_lost(member, instance, link),
            SimulatedEvent::Perform { at, instance, generation, order, what } => {
                self.perform_order(at, instance, generation, order, *what);
            }
            SimulatedEvent::Exchange(key) => self.exchange(key),
            SimulatedEvent::CheckJoint(key, tries) => self.check_joint(key, tries),
            SimulatedEvent::Effect { at, instance, generation, order, effect } => {
                self.take_effect(at, instance, generation, order, *effect);
            }
            SimulatedEvent::Work { at, instance, id, work } => self.leader_work(at, instance, id, *work),
            SimulatedEvent::WorkFinished { at, instance, id, result } => self.work_finished(at, instance, id, *result),
            SimulatedEvent::LeaderTick { at, instance } => self.leader_tick(at, instance),
            SimulatedEvent::RankStep { generation, rank, turn } => self.rank_step(generation, rank, turn),
            SimulatedEvent::RankCall { generation, rank, turn } => self.rank_calls(generation, rank, turn),
            SimulatedEvent::RankReply { at, instance, generation, rank, seq, outcome } => {
                self.rank_reply(at, instance, generation, rank, seq, &outcome);
            }
            SimulatedEvent::Drain(number, action) => self.perform_drain_action(number, *action),
            SimulatedEvent::DrainAnswer(number, event) => self.drain_event(number, *event),
            SimulatedEvent::DrainTick(number) => self.drain_event(number, DrainEvent::Tick),
            SimulatedEvent::InjectFault => self.inject_fault(),
            SimulatedEvent::UserHalts => self.user_halts(),
            SimulatedEvent::UnsetHalt => self.unset_halt(),
            SimulatedEvent::Thaw(at) => self.thaw(at),
            SimulatedEvent::PrefixWorksAgain => {
                trace!(self, "the prefix directory works again");
                self.prefix_state = PrefixState::Works;
            }
        }
    }
}
