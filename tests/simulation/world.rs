//! The simulated world: its parts, what can happen in it, and time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdfast::drain::{DrainAction, DrainEvent};
use holdfast::relaunch::{Event, Outcome};
use holdfast_agent::collective::leader::{LeaderWork, WorkResult};
use holdfast_model::{Generation, Placement, Rank};
use holdfast_testkit::Dice;
use holdfast_wire::agent::PeersUpdate;
use holdfast_wire::peer::{Order, Outcome as CallOutcome, ToLeader, ToMember};
use holdfast_wire::run::RunPlan;

use crate::agent::Agent;
use crate::application::Application;
use crate::exchange::Effect;
use crate::joint::{Joint, JointKey};
use crate::link::Link;
use crate::names::At;
use crate::oracle::Oracle;
use crate::orchestrator::Orchestrator;
use crate::prefix::Prefix;
use crate::queue::{MS, Queue, Time};
use crate::scenario::Scenario;
use crate::store::Disk;

/// Steps after which a job counts as endless.
const MOST_STEPS: u64 = 20_000_000;
/// Simulated time after which it does.
const LONGEST: Time = 3_600_000 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// Neither answers nor fails.
    Frozen,
    Dead,
}

/// A node.
pub struct Node {
    pub life: Life,
    /// The agent's process.
    pub agent: Option<Agent>,
    pub starts: u16,
    /// The newest generation whose ranks were killed here.
    pub killed: Option<Generation>,
    /// The generation of the ranks that live here.
    pub ranks: Option<Generation>,
    pub disk: Disk,
    /// What arrived while the node was frozen.
    pub waiting: Vec<Happening>,
    /// Files were lost here, or its disk failed: nothing is expected of them any more.
    pub damaged: bool,
}

/// Something that will happen.
pub enum Happening {
    /// An event reaches the orchestrator, if this incarnation of it still lives.
    Tell(u32, Box<Event>),
    /// The events that have reached this incarnation are handed to the machine.
    Decide(u32),
    /// The journal's entries up to this one are on disk.
    Journalled(u32, u64),
    PollRound(u32),
    Poll(u32, At, u16),
    PollTimeout(u32, At),
    StartAgent(At),
    /// Requests go to the agent of this start; another one does not listen there.
    Prepare(At, u16, Arc<RunPlan>, u64),
    Kill(At, u16, Generation),
    Fence(At),
    UpdatePeers(At, u16, Arc<PeersUpdate>),
    StopAgent(At),
    Launch(u32, Generation, Arc<Placement>),
    CancelStep(Generation),
    /// A member's agent looks for the leader.
    Connect(At, u64),
    ToLeader(u64, Box<ToLeader>),
    ToMember(u64, Box<ToMember>),
    Results(u64, u64, Arc<CallOutcome>),
    /// The leader notices that a link is broken.
    LinkDown {
        leader: At,
        instance: u64,
        member: At,
        link: u64,
    },
    /// A member notices.
    LinkLost {
        member: At,
        instance: u64,
        link: u64,
    },
    /// An agent carries out an order.
    Perform {
        at: At,
        instance: u64,
        generation: Generation,
        order: u64,
        what: Box<Order>,
    },
    Exchange(JointKey),
    CheckJoint(JointKey, u32),
    Effect {
        at: At,
        instance: u64,
        generation: Generation,
        order: u64,
        effect: Box<Effect>,
    },
    /// The leader's file work takes place.
    Work {
        at: At,
        instance: u64,
        id: u64,
        work: Box<LeaderWork>,
    },
    WorkFinished {
        at: At,
        instance: u64,
        id: u64,
        result: Box<WorkResult>,
    },
    LeaderTick {
        at: At,
        instance: u64,
    },
    /// The next step of a rank that does not wait for an answer.
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
        at: At,
        instance: u64,
        generation: Generation,
        rank: Rank,
        seq: u64,
        outcome: Arc<CallOutcome>,
    },
    /// An action of the drain takes place.
    Drain(u32, Box<DrainAction>),
    DrainAnswer(u32, Box<DrainEvent>),
    DrainTick(u32),
    Misfortune,
    Thaw(At),
    PrefixWorksAgain,
}

/// Everything.
pub struct World {
    pub scenario: Scenario,
    pub dice: Dice,
    pub now: Time,
    pub queue: Queue<Happening>,
    pub nodes: Vec<Node>,
    pub prefix: Prefix,
    pub prefix_state: PrefixState,
    pub links: HashMap<u64, Link>,
    pub made_links: u64,
    pub made_parts: u64,
    pub joints: HashMap<JointKey, Joint>,
    pub orchestrator: Orchestrator,
    pub applications: BTreeMap<Generation, Application>,
    pub misfortunes: u32,
    pub oracle: Oracle,
    pub traced: bool,
    pub defect: Option<Defect>,
}

/// Something that the simulated side does wrong on purpose, to show that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A member acknowledges an encoding that it did not make.
    EncodingNotMade,
    /// The leader's driver does not wait for the disk: its memory counts as saved and is not.
    MemoryNotSaved,
    /// A drain publishes as complete whatever it finds.
    AllPublishedAsComplete,
    /// A member that receives a rank's files keeps those of the checkpoint before.
    OldFilesKept,
    /// An agent that was asked to kill its ranks answers and does not do it.
    RanksNotKilled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixState {
    Works,
    Fails,
    /// Hangs until then.
    Hangs(Time),
}

/// Prints what happens, when a seed is replayed.
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
            misfortunes: 0,
            oracle: Oracle::default(),
            traced,
            defect,
            scenario,
        }
    }

    /// Runs to the end of the job.
    pub fn run(mut self) -> Outcome {
        if self.scenario.weather.misfortunes > 0 {
            let first = self.dice.below(2 * self.scenario.weather.every);
            self.after(first, Happening::Misfortune);
        }
        self.begin_orchestrator();
        let mut steps = 0u64;
        while self.oracle.finished.is_none() {
            steps += 1;
            assert!(steps < MOST_STEPS && self.now < LONGEST, "the job does not end: {}", self.state());
            let due = self.queue.next_at();
            if let Some(timer) = self.orchestrator.deadline()
                && due.is_none_or(|due| timer <= due)
            {
                self.now = self.now.max(timer);
                self.hand_in(vec![Event::Tick]);
                let next = self.orchestrator.deadline();
                assert!(next.is_none_or(|next| next > self.now), "a timer that never goes off");
                continue;
            }
            let Some((at, happening)) = self.queue.take() else { panic!("nothing will ever happen: {}", self.state()) };
            self.now = self.now.max(at);
            self.happens(happening);
        }
        self.check_end();
        self.oracle.finished.take().unwrap()
    }

    pub fn clock(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    pub fn after(&mut self, delay: Time, happening: Happening) {
        self.queue.enter(self.now + delay, happening);
    }

    /// Between two times.
    pub fn between(&mut self, least: Time, most: Time) -> Time {
        least + self.dice.below(most - least + 1)
    }

    /// A message's way through the network: mostly short.
    pub fn hop(&mut self) -> Time {
        match self.dice.below(40) {
            0 => self.between(5 * MS, 60 * MS),
            _ => self.between(100, 2 * MS),
        }
    }

    /// What is known when something is stuck.
    fn state(&self) -> String {
        let phase = format!("{:?}", self.orchestrator.phase());
        let nodes = self.nodes.iter().enumerate().take(20).map(|(at, node)| {
            let serving = node.agent.as_ref().and_then(|agent| agent.part.as_ref()).map(|part| part.plan.generation);
            format!("n{at} {:?} agent {} serving {serving:?} ranks {:?}", node.life, node.agent.is_some(), node.ranks)
        });
        format!("at {} ms, {phase}\n{}", self.now / MS, nodes.collect::<Vec<_>>().join("\n"))
    }

    /// The node where it happens, if it waits while that is frozen.
    fn place(&self, happening: &Happening) -> Option<At> {
        match happening {
            Happening::Prepare(at, ..)
            | Happening::Kill(at, ..)
            | Happening::UpdatePeers(at, ..)
            | Happening::StopAgent(at)
            | Happening::Connect(at, _)
            | Happening::Perform { at, .. }
            | Happening::Effect { at, .. }
            | Happening::Work { at, .. }
            | Happening::WorkFinished { at, .. }
            | Happening::LeaderTick { at, .. }
            | Happening::LinkDown { leader: at, .. }
            | Happening::LinkLost { member: at, .. }
            | Happening::RankReply { at, .. } => Some(*at),
            Happening::ToLeader(link, _) => self.links.get(link).map(|link| link.leader),
            Happening::ToMember(link, _) | Happening::Results(link, ..) => self.links.get(link).map(|link| link.member),
            Happening::RankStep { generation, rank, .. } | Happening::RankCall { generation, rank, .. } => {
                self.applications.get(generation).map(|application| application.homes[rank.index()])
            }
            _ => None,
        }
    }

    fn happens(&mut self, happening: Happening) {
        if let Some(at) = self.place(&happening) {
            match self.nodes[at as usize].life {
                Life::Alive => {}
                Life::Frozen => return self.nodes[at as usize].waiting.push(happening),
                Life::Dead => return,
            }
        }
        match happening {
            Happening::Tell(incarnation, event) => self.tell_arrives(incarnation, *event),
            Happening::Decide(incarnation) => self.decide(incarnation),
            Happening::Journalled(incarnation, upto) => self.journalled(incarnation, upto),
            Happening::PollRound(incarnation) => self.poll_round(incarnation),
            Happening::Poll(incarnation, at, start) => self.poll(incarnation, at, start),
            Happening::PollTimeout(incarnation, at) => self.poll_times_out(incarnation, at),
            Happening::StartAgent(at) => self.start_agent(at),
            Happening::Prepare(at, start, plan, issued) => self.prepare(at, start, &plan, issued),
            Happening::Kill(at, start, generation) => self.kill(at, start, generation),
            Happening::Fence(at) => self.fence(at),
            Happening::UpdatePeers(at, start, update) => self.update_peers(at, start, &update),
            Happening::StopAgent(at) => self.agent_dies(at),
            Happening::Launch(incarnation, generation, placement) => {
                if incarnation == self.orchestrator.incarnation {
                    self.launch(generation, placement);
                }
            }
            Happening::CancelStep(generation) => self.cancel_step(generation),
            Happening::Connect(at, instance) => self.connect(at, instance),
            Happening::ToLeader(link, message) => self.leader_receives(link, *message),
            Happening::ToMember(link, message) => self.member_receives(link, *message),
            Happening::Results(link, seq, outcome) => self.results_arrive(link, seq, &outcome),
            Happening::LinkDown { leader, instance, member, link } => self.link_down(leader, instance, member, link),
            Happening::LinkLost { member, instance, link } => self.link_lost(member, instance, link),
            Happening::Perform { at, instance, generation, order, what } => {
                self.perform_order(at, instance, generation, order, *what);
            }
            Happening::Exchange(key) => self.exchange(key),
            Happening::CheckJoint(key, tries) => self.check_joint(key, tries),
            Happening::Effect { at, instance, generation, order, effect } => {
                self.take_effect(at, instance, generation, order, *effect);
            }
            Happening::Work { at, instance, id, work } => self.leader_work(at, instance, id, *work),
            Happening::WorkFinished { at, instance, id, result } => self.work_finished(at, instance, id, *result),
            Happening::LeaderTick { at, instance } => self.leader_tick(at, instance),
            Happening::RankStep { generation, rank, turn } => self.rank_step(generation, rank, turn),
            Happening::RankCall { generation, rank, turn } => self.rank_calls(generation, rank, turn),
            Happening::RankReply { at, instance, generation, rank, seq, outcome } => {
                self.rank_reply(at, instance, generation, rank, seq, &outcome);
            }
            Happening::Drain(number, action) => self.drain_takes_place(number, *action),
            Happening::DrainAnswer(number, event) => self.drain_event(number, *event),
            Happening::DrainTick(number) => self.drain_event(number, DrainEvent::Tick),
            Happening::Misfortune => self.misfortune(),
            Happening::Thaw(at) => self.thaw(at),
            Happening::PrefixWorksAgain => {
                trace!(self, "the prefix directory works again");
                self.prefix_state = PrefixState::Works;
            }
        }
    }
}
