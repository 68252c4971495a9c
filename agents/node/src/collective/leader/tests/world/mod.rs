//! A simulated cluster: nodes that carry out orders at once, a prefix directory, a halt file, and a clock that advances
//! only when the machine waits for it.

mod node;
mod prefix;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::redundancy::numbers::SET_SIZE;
use holdfast_model::{
    CheckpointId, Failure, FailureKind, FlushMode, Generation, HaltState, Level, NodeName, Rank, RestartSource,
    RunNode, Scheme, SchemeNumbers,
};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::fixtures;
use holdfast_wire::peer::{Order, Outcome, ToLeader, ToMember};
use holdfast_wire::rank::{Call, Reply, Restart};
use holdfast_wire::run::RunPlan;

use super::super::{
    HaltWork, LeaderAction, LeaderEvent, LeaderMachine, LeaderMemory, LeaderStart, LeaderWork, UnfinishedFlushes,
    WorkOutput, WorkResult,
};
pub(super) use node::Node;
pub(super) use prefix::SimulatedPrefix;

pub(super) const BASE: &str = "/cache";
pub(super) const GENERATION: Generation = Generation(3);
const XOR: Scheme = Scheme::new("XOR");

type OrderFault = Box<dyn FnMut(&str, &Order) -> Option<Failure>>;
type WorkFault = Box<dyn FnMut(&LeaderWork) -> Option<Failure>>;
type WorkFilter = Box<dyn Fn(&LeaderWork) -> bool>;
type OrderFilter = Box<dyn Fn(&str, &Order) -> bool>;

/// Where the ranks are in a new world: the last node is a spare.
pub(super) const PLACES: &[&[u32]] = &[&[0], &[1], &[2], &[3], &[]];

/// The cluster around one leader.
pub(super) struct World {
    pub(super) plan: RunPlan,
    pub(super) machine: LeaderMachine,
    pub(super) now: Duration,
    pub(super) nodes: BTreeMap<NodeName, Node>,
    pub(super) prefix: SimulatedPrefix,
    pub(super) halt: HaltState,
    /// Halts the run after this many more checkpoints.
    pub(super) checkpoints_left: Option<i64>,
    /// On the leader's disk.
    pub(super) saved: LeaderMemory,
    pub(super) saved_flushes: UnfinishedFlushes,
    /// Reported events, oldest first.
    pub(super) events: Vec<AgentEvent>,
    /// The datasets of which it was reported how long they blocked the ranks: in all, for their redundancy, for that of
    /// an earlier one, and for flushes; milliseconds. Not in `events`.
    pub(super) blocked: Vec<(CheckpointId, [u64; 4])>,
    /// The results that each node received, oldest first.
    pub(super) answers: Vec<(NodeName, u64, Arc<Outcome>)>,
    /// Names of the performed file work, oldest first.
    pub(super) works: Vec<&'static str>,
    /// Every order that was sent, oldest first.
    pub(super) orders: Vec<(NodeName, u64, Order)>,
    /// Every order that was cancelled.
    pub(super) cancelled: Vec<(NodeName, u64)>,
    /// Every order whose limits were lifted.
    pub(super) lifted: Vec<(NodeName, u64)>,
    /// Orders that [`World::hold_orders`] delays.
    pub(super) held: Vec<(NodeName, u64, Order)>,
    seq: u64,
    instance: u64,
    next_link: u64,
    links: BTreeMap<NodeName, u64>,
    pending: VecDeque<LeaderEvent>,
    order_fault: OrderFault,
    work_fault: WorkFault,
    hold: OrderFilter,
    hold_work: WorkFilter,
    delay_work: WorkFilter,
    /// Results of file work that [`World::delay_work`] delays.
    delayed: Vec<LeaderEvent>,
}

impl World {
    /// Four nodes with one rank each and a spare, XOR sets of four, all links up.
    pub(super) fn new() -> World {
        World::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut RunPlan)) -> World {
        let mut plan = plan(PLACES);
        change(&mut plan);
        let nodes = plan.nodes.iter().map(|node| (node.name.clone(), Node::of(&node.name, &node.ranks))).collect();
        let mut world = World {
            machine: machine(&plan, 1, &LeaderMemory::fresh(GENERATION), &UnfinishedFlushes::fresh(GENERATION)),
            plan,
            now: Duration::ZERO,
            nodes,
            prefix: SimulatedPrefix::default(),
            halt: HaltState::default(),
            checkpoints_left: None,
            saved: LeaderMemory::fresh(GENERATION),
            saved_flushes: UnfinishedFlushes::fresh(GENERATION),
            events: Vec::new(),
            blocked: Vec::new(),
            answers: Vec::new(),
            works: Vec::new(),
            orders: Vec::new(),
            cancelled: Vec::new(),
            lifted: Vec::new(),
            held: Vec::new(),
            seq: 0,
            instance: 1,
            next_link: 0,
            links: BTreeMap::new(),
            pending: VecDeque::new(),
            order_fault: Box::new(|_, _| None),
            work_fault: Box::new(|_| None),
            hold: Box::new(|_, _| false),
            hold_work: Box::new(|_| false),
            delay_work: Box::new(|_| false),
            delayed: Vec::new(),
        };
        world.link_all();
        world
    }

    /// The same, whose ranks have called init.
    pub(super) fn begun() -> World {
        World::begun_with(|_| {})
    }

    pub(super) fn begun_with(change: impl FnOnce(&mut RunPlan)) -> World {
        let mut world = World::with(change);
        world.init();
        world
    }

    /// A run that has begun, flushes each dataset of such a number, and keeps so many in cache.
    pub(super) fn flushing(mode: FlushMode, every: u64, keep: u32) -> World {
        World::begun_with(|plan| {
            (plan.settings.flush.mode, plan.settings.flush.every) = (mode, every);
            plan.settings.caches[0].keep = keep;
        })
    }

    /// [`World::next_run`], whose ranks call init.
    pub(super) fn next_init(&mut self, ranks: &[&[u32]]) -> Restart {
        self.next_run(ranks);
        self.init()
    }

    /// The next run of the same job: the nodes keep their files, the ranks are placed again.
    pub(super) fn next_run(&mut self, ranks: &[&[u32]]) {
        self.plan.nodes = plan(ranks).nodes;
        for node in &self.plan.nodes {
            self.nodes.entry(node.name.clone()).or_insert_with(|| Node::of(&node.name, &[])).ranks = node.ranks.clone();
        }
        (self.saved, self.saved_flushes) = (LeaderMemory::fresh(GENERATION), UnfinishedFlushes::fresh(GENERATION));
        self.seq = 0;
        self.instance += 100;
        self.machine = machine(&self.plan, self.instance, &self.saved, &self.saved_flushes);
        self.pending.clear();
        self.held.clear();
        self.answers.clear();
        self.link_all();
    }

    /// All files of a node are lost.
    pub(super) fn lose(&mut self, node: &str) {
        let node = self.nodes.get_mut(&node.into()).unwrap();
        *node = Node::of(&node.name.clone(), &[]);
    }

    /// The leader's process is killed and started again with what is on its disk; the members connect and repeat their
    /// calls.
    pub(super) fn restart_leader(&mut self, repeated: Option<Call>) {
        self.instance += 100;
        self.machine = machine(&self.plan, self.instance, &self.saved, &self.saved_flushes);
        self.pending.clear();
        self.held.clear();
        self.link_all();
        if let Some(call) = repeated {
            self.send_calls(|_| call.clone());
        }
    }

    pub(super) fn link_all(&mut self) {
        let nodes: Vec<NodeName> = self.plan.nodes.iter().map(|node| node.name.clone()).collect();
        nodes.iter().for_each(|node| self.link(node.as_str()));
    }

    pub(super) fn link(&mut self, node: &str) {
        self.next_link += 1;
        self.links.insert(node.into(), self.next_link);
        self.handle(LeaderEvent::LinkUp { node: node.into(), link: self.next_link });
    }

    pub(super) fn unlink(&mut self, node: &str) {
        if let Some(link) = self.links.remove(&node.into()) {
            self.handle(LeaderEvent::LinkDown { node: node.into(), link });
        }
        self.held.retain(|(holder, _, _)| holder.as_str() != node);
    }

    /// Orders for which `fault` returns a failure are answered with it.
    pub(super) fn fail_orders(&mut self, fault: impl FnMut(&str, &Order) -> Option<Failure> + 'static) {
        self.order_fault = Box::new(fault);
    }

    pub(super) fn fail_work(&mut self, fault: impl FnMut(&LeaderWork) -> Option<Failure> + 'static) {
        self.work_fault = Box::new(fault);
    }

    /// Orders like this are received and not answered.
    pub(super) fn hold_orders(&mut self, hold: impl Fn(&str, &Order) -> bool + 'static) {
        self.hold = Box::new(hold);
    }

    /// File work like this is never done.
    pub(super) fn hold_work(&mut self, hold: impl Fn(&LeaderWork) -> bool + 'static) {
        self.hold_work = Box::new(hold);
    }

    /// File work like this is done at once, and its result comes after [`World::release`].
    pub(super) fn delay_work(&mut self, delay: impl Fn(&LeaderWork) -> bool + 'static) {
        self.delay_work = Box::new(delay);
    }

    /// Carries out the delayed orders, and from now on all others at once; then the delayed results of file work come.
    pub(super) fn release(&mut self) {
        self.hold = Box::new(|_, _| false);
        self.delay_work = Box::new(|_| false);
        for (node, order, what) in std::mem::take(&mut self.held) {
            self.carry_out(node, order, what);
        }
        self.pending.extend(std::mem::take(&mut self.delayed));
        self.run();
    }

    /// All ranks make a call; returns its outcome.
    pub(super) fn call(&mut self, call: Call) -> Outcome {
        self.begin(call);
        self.outcome().unwrap_or_else(|| panic!("the collective did not end: {:?}", self.machine))
    }

    /// All ranks make a call; it may not have ended when this returns.
    pub(super) fn begin(&mut self, call: Call) {
        self.begin_each(|_| call.clone());
    }

    pub(super) fn begin_each(&mut self, call: impl Fn(Rank) -> Call) {
        self.seq += 1;
        self.send_calls(call);
    }

    fn send_calls(&mut self, call: impl Fn(Rank) -> Call) {
        self.queue_calls(call);
        self.run();
    }

    fn queue_calls(&mut self, call: impl Fn(Rank) -> Call) {
        let busy: Vec<RunNode> = self.plan.nodes.iter().filter(|node| !node.ranks.is_empty()).cloned().collect();
        for node in busy {
            let calls = node.ranks.iter().map(|rank| (*rank, call(*rank))).collect();
            let message = ToLeader::Calls { seq: self.seq, calls };
            self.pending.push_back(LeaderEvent::Received { node: node.name, message });
        }
    }

    /// The outcome of the last call, if all nodes with ranks have received it.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let mut outcome = None;
        for node in self.plan.nodes.iter().filter(|node| !node.ranks.is_empty()) {
            let got = self.answers.iter().find(|(to, seq, _)| *to == node.name && *seq == self.seq);
            outcome = Some((*got?.2).clone());
        }
        outcome
    }

    /// Begins and completes a checkpoint; returns its id.
    pub(super) fn checkpoint(&mut self) -> CheckpointId {
        let started = self.call(Call::Start);
        let Ok(Reply::Started { checkpoint, .. }) = started else { panic!("not started: {started:?}") };
        self.complete();
        checkpoint
    }

    /// Completes the dataset that was started, and it is kept.
    pub(super) fn complete(&mut self) {
        let completed = self.call(Call::Complete { valid: true });
        assert!(matches!(completed, Ok(Reply::Completed { kept: true, .. })), "{completed:?}");
    }

    pub(super) fn checkpoints(&mut self, count: u32) {
        for _ in 0..count {
            self.checkpoint();
        }
    }

    pub(super) fn init(&mut self) -> Restart {
        restart(self.call(Call::Init))
    }

    /// As [`World::run`], but the clock does not move beyond `limit`.
    pub(super) fn run_until(&mut self, limit: Duration) {
        while let Some(event) = self.pending.pop_front() {
            self.handle(event);
        }
        while let Some(deadline) = self.machine.deadline().filter(|deadline| *deadline <= limit) {
            assert!(deadline > self.now, "a deadline that passed was not handled");
            self.now = deadline;
            self.handle(LeaderEvent::Tick);
            while let Some(event) = self.pending.pop_front() {
                self.handle(event);
            }
        }
        self.now = limit;
    }

    /// All ranks make a call, which is not handled yet.
    pub(super) fn queue_each(&mut self, call: impl Fn(Rank) -> Call) {
        self.seq += 1;
        self.queue_calls(call);
    }

    /// All ranks repeat their call, which may be another one now.
    pub(super) fn repeat_each(&mut self, call: impl Fn(Rank) -> Call) {
        self.queue_calls(call);
    }

    /// Handles events until there are none; the clock moves to the machine's deadline only then.
    pub(super) fn run(&mut self) {
        for _ in 0..100_000 {
            if let Some(event) = self.pending.pop_front() {
                self.handle(event);
            } else if let Some(deadline) = self.machine.deadline() {
                assert!(deadline > self.now, "a deadline that passed was not handled");
                self.now = deadline;
                self.handle(LeaderEvent::Tick);
            } else {
                return;
            }
        }
        panic!("the machine repeats itself: {:?}", self.machine);
    }

    pub(super) fn handle(&mut self, event: LeaderEvent) {
        for action in self.machine.handle(self.now, event) {
            match action {
                LeaderAction::Send { node, message: ToMember::Order { order, what } } => {
                    assert!(self.links.contains_key(&node), "{node} has no link");
                    self.orders.push((node.clone(), order, what.clone()));
                    if (self.hold)(node.as_str(), &what) {
                        self.held.push((node, order, what));
                    } else {
                        self.carry_out(node, order, what);
                    }
                }
                LeaderAction::Send { node, message: ToMember::Cancel { order } } => {
                    self.cancelled.push((node.clone(), order));
                    if let Some(at) = self.held.iter().position(|(to, held, _)| *to == node && *held == order) {
                        self.held.remove(at);
                        let result = Err(Failure::new(FailureKind::LostPeer, "cancelled"));
                        let message = ToLeader::Done { order, result };
                        self.pending.push_back(LeaderEvent::Received { node, message });
                    }
                }
                LeaderAction::Send { node, message: ToMember::LiftLimits { order } } => {
                    self.lifted.push((node.clone(), order));
                    if let Some(at) = self.held.iter().position(|(to, held, _)| *to == node && *held == order) {
                        let (node, order, mut what) = self.held.remove(at);
                        what.limits_mut().unwrap().lift();
                        if (self.hold)(node.as_str(), &what) {
                            self.held.push((node, order, what));
                        } else {
                            self.carry_out(node, order, what);
                        }
                    }
                }
                LeaderAction::Send { message, .. } => panic!("results are sent by Answer: {message:?}"),
                LeaderAction::Answer { nodes, seq, outcome } => {
                    self.answers.extend(nodes.into_iter().map(|node| (node, seq, outcome.clone())));
                }
                LeaderAction::Emit(AgentEvent::RanksBlocked {
                    generation: _,
                    checkpoint,
                    millis,
                    redundancy_millis,
                    earlier_redundancy_millis,
                    flush_millis,
                }) => {
                    let times = [millis, redundancy_millis, earlier_redundancy_millis, flush_millis];
                    self.blocked.push((checkpoint, times));
                }
                LeaderAction::Emit(event) => self.events.push(event),
                LeaderAction::Perform { work, .. } if (self.hold_work)(&work) => {}
                LeaderAction::Perform { id, work } => {
                    self.works.push(work.name());
                    let delayed = (self.delay_work)(&work);
                    let result = match (self.work_fault)(&work) {
                        Some(failure) => Err(failure),
                        None => self.perform(work),
                    };
                    let finished = LeaderEvent::WorkFinished { id, result };
                    if delayed { self.delayed.push(finished) } else { self.pending.push_back(finished) }
                }
            }
        }
    }

    fn carry_out(&mut self, node: NodeName, order: u64, what: Order) {
        let result = match (self.order_fault)(node.as_str(), &what) {
            Some(failure) => Err(failure),
            None => node::carry_out(&mut self.nodes, &node, what),
        };
        self.pending.push_back(LeaderEvent::Received { node, message: ToLeader::Done { order, result } });
    }

    fn perform(&mut self, work: LeaderWork) -> WorkResult {
        let leader = &self.nodes[&self.plan.leader];
        Ok(match work {
            LeaderWork::SaveMemory(memory) => {
                self.saved = *memory;
                WorkOutput::Done
            }
            LeaderWork::SaveFlushes(flushes) => {
                self.saved_flushes = flushes;
                WorkOutput::Done
            }
            LeaderWork::Halt(work) => {
                match work {
                    HaltWork::CountCheckpoint => {
                        self.checkpoints_left = self.checkpoints_left.map(|left| left - 1);
                        if self.checkpoints_left == Some(0) {
                            self.halt.met = Some("the requested number of checkpoints is reached".to_owned());
                        }
                    }
                    HaltWork::SetReason(reason) => self.halt.reason = Some(reason),
                    HaltWork::Read | HaltWork::Begin { .. } => {}
                }
                WorkOutput::Halt(self.halt.clone())
            }
            LeaderWork::DatasetsHere { base } => WorkOutput::Datasets(leader.in_base(base.as_deref())),
            LeaderWork::LocationsHere { checkpoint } => {
                WorkOutput::Locations(leader.flush.get(&checkpoint).copied().unwrap_or_default())
            }
            on_prefix => return self.prefix.perform(on_prefix),
        })
    }

    pub(super) fn held_by(&self, node: &str) -> Vec<u64> {
        self.nodes[&node.into()].held.keys().map(|id| id.0).collect()
    }

    /// The names of the orders that went to a node, oldest first.
    pub(super) fn orders_of(&self, node: &str) -> Vec<&'static str> {
        self.orders.iter().filter(|(to, _, _)| to.as_str() == node).map(|(_, _, what)| node::name(what)).collect()
    }

    /// The names of the events, oldest first.
    pub(super) fn reported(&self) -> Vec<String> {
        let text = self.events.iter().map(|event| serde_json::to_value(event).unwrap());
        text.map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }
}

pub(super) fn lost_peer() -> Failure {
    Failure::new(FailureKind::LostPeer, "the connection broke")
}

pub(super) fn disk_full() -> Failure {
    Failure::new(FailureKind::Io, "no space left")
}

pub(super) fn damaged() -> Failure {
    Failure::new(FailureKind::Damaged, "wrong content")
}

/// What prevented a restart: the node, and why.
pub(super) fn prevented(world: &World) -> Vec<(Option<&str>, &str)> {
    let prevented = world.events.iter().filter_map(|event| match event {
        AgentEvent::RestartPrevented { faulty, reason, .. } => {
            Some((faulty.as_ref().map(NodeName::as_str), reason.as_str()))
        }
        _ => None,
    });
    prevented.collect()
}

pub(super) fn restart(outcome: Outcome) -> Restart {
    match outcome {
        Ok(Reply::Restart(restart)) => restart,
        other => panic!("not a restart: {other:?}"),
    }
}

/// The checkpoint that a run restarted from, and its source.
pub(super) fn from(restart: &Restart) -> (Option<u64>, RestartSource) {
    (restart.checkpoint.map(|id| id.0), restart.source)
}

/// The datasets that a node with ranks has in cache.
pub(super) fn held(world: &World) -> Vec<u64> {
    world.held_by("n1")
}

pub(super) fn is_encode(order: &Order) -> bool {
    matches!(order, Order::Encode { .. })
}

pub(super) fn is_flush(order: &Order) -> bool {
    matches!(order, Order::Flush { .. })
}

/// A checkpoint of variables.
pub(super) fn of_level(world: &mut World, level: Level) -> Outcome {
    let begun = world.call(Call::StartLevel { level, id: 7 });
    assert!(matches!(begun, Ok(Reply::Started { .. })), "{begun:?}");
    world.call(Call::Complete { valid: true })
}

fn machine(plan: &RunPlan, instance: u64, memory: &LeaderMemory, flushes: &UnfinishedFlushes) -> LeaderMachine {
    let source = crate::sources::open(&plan.settings).unwrap();
    LeaderMachine::new(LeaderStart {
        plan: Arc::new(plan.clone()),
        directories: plan.settings.descriptors.iter().map(|requested| format!("{}/index.0", requested.base)).collect(),
        instance,
        memory: memory.clone(),
        flushes: flushes.clone(),
        policy: source.policy(),
    })
    .unwrap()
}

/// The numbers of a descriptor with sets of this size.
pub(super) fn sets_of(size: u32) -> SchemeNumbers {
    [(SET_SIZE.name, size)].into_iter().collect()
}

/// A run with these ranks on nodes n0, n1, ….
pub(super) fn plan(ranks: &[&[u32]]) -> RunPlan {
    let node = |(at, ranks): (usize, &&[u32])| RunNode {
        name: NodeName::new(format!("n{at}")),
        address: "127.0.0.1:1".parse().unwrap(),
        failure_domain: format!("n{at}"),
        ranks: ranks.iter().copied().map(Rank).collect(),
    };
    let mut settings = fixtures::settings("/prefix", BASE, 2, XOR);
    settings.descriptors[0].numbers = sets_of(4);
    settings.flush.bandwidth = 7;
    settings.crc.on_restart = true;
    let nodes = ranks.iter().enumerate().map(node).collect();
    RunPlan { generation: GENERATION, nodes, leader: "n0".into(), settings }
}
