//! A driver for tests: performs every action at once, unless its node is dead or does not answer.

use crate::events::{DrainResult, EndCause, LogEvent, StopReason};
use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::allocation::AgentPresence;
use crate::relaunch::explain::Activity;
use crate::relaunch::*;

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn name(position: usize) -> NodeName {
    NodeName::new(format!("n{position}"))
}

pub fn address(node: &NodeName, start: u16) -> SocketAddr {
    let position: u16 = node.as_str()[1..].parse().unwrap();
    SocketAddr::from(([10, 0, (position >> 8) as u8, position as u8], 1000 + start))
}

pub fn config(nodes: usize, needed: u32) -> Config {
    let node = |position| AllocatedNode { name: name(position), failure_domain: format!("n{position}") };
    Config::new((0..nodes).map(node).collect(), needed, 1)
}

/// Nodes with their ranks.
pub type Homes = Vec<(NodeName, Vec<Rank>)>;

pub struct World {
    pub machine: Machine,
    pub now: Duration,
    /// All actions, in order.
    pub actions: Vec<Action>,
    /// Nodes that do not exist any more.
    pub dead: BTreeSet<NodeName>,
    /// Nodes that neither answer nor fail.
    pub silent: BTreeSet<NodeName>,
    /// Silent nodes whose agents have ended, or whose machines do not answer.
    pub presence: BTreeMap<NodeName, AgentPresence>,
    /// The time in which this orchestrator did not run.
    pub stalled: Duration,
    /// The halt condition that holds.
    pub halt: Option<String>,
    pub drain: DrainResult,
    /// How the commands of `before:` end; `None`: they run until the test ends them.
    pub before: Option<Option<BeforeFailure>>,
    /// What a check for progress finds; `None`: it has no result until the test sends one.
    pub progress: Option<ProgressFound>,
    /// Why superseded directories cannot be recorded, if so; `None`: the action does not end.
    pub supersede: Option<Option<String>>,
    /// The nodes that the job can lend, where steps run side by side, and whether others may come.
    pub pool: (Vec<NodeName>, bool),
    /// What the resource manager says when it is asked whether the allocation exists; `None`: it has not answered yet.
    pub denial: Option<Option<String>>,
    starts: BTreeMap<NodeName, u16>,
}

impl World {
    pub fn new(config: Config) -> Self {
        World {
            machine: Machine::new(config),
            now: Duration::ZERO,
            actions: Vec::new(),
            dead: BTreeSet::new(),
            silent: BTreeSet::new(),
            presence: BTreeMap::new(),
            stalled: Duration::ZERO,
            halt: None,
            drain: DrainResult::Complete { checkpoint: CheckpointId(1) },
            before: Some(None),
            progress: Some(ProgressFound::NoProgress),
            supersede: Some(None),
            pool: (Vec::new(), false),
            denial: Some(None),
            starts: BTreeMap::new(),
        }
    }

    /// Six nodes, four of them used, the first generation running.
    pub fn running() -> Self {
        Self::running_with(config(6, 4))
    }

    pub fn running_with(config: Config) -> Self {
        let mut world = World::new(config);
        world.begin();
        assert_eq!(world.machine.explain().phase, Activity::Running);
        world
    }

    pub fn begin(&mut self) {
        let actions = self.machine.begin(self.now);
        self.perform(actions);
    }

    /// Passes an event to the machine and performs the actions.
    pub fn happens(&mut self, event: Event) {
        let actions = self.machine.handle(self.now, event);
        self.perform(actions);
    }

    /// Passes an event to the machine and performs nothing.
    pub fn only(&mut self, event: Event) -> Vec<Action> {
        let actions = self.machine.handle(self.now, event);
        self.actions.extend(actions.clone());
        actions
    }

    /// Lets time pass; agents that are alive answer polls meanwhile.
    pub fn passes(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end && !self.machine.is_finished() {
            self.now = (self.now + ms(50)).min(end);
            let agents: Vec<NodeName> = self.machine.agents().map(|(node, _)| node.clone()).collect();
            for node in agents {
                if self.answers(&node) {
                    self.happens(Event::PollAnswered { node, sent: self.now, fault: None });
                }
            }
            self.happens(Event::PollsRan { ran: self.now - self.stalled });
            self.happens(Event::Tick);
        }
    }

    /// This orchestrator does not run for a time.
    pub fn stalls(&mut self, time: Duration) {
        self.now += time;
        self.stalled += time;
    }

    /// As [`dies`](Self::dies), so long after the last loss that it begins another series.
    pub fn dies_later(&mut self, node: usize) {
        self.stalls(Duration::from_secs(31));
        self.dies(node);
    }

    /// The node fails: its agent's connection breaks.
    pub fn dies(&mut self, node: usize) {
        self.dead.insert(name(node));
        self.happens(Event::AgentLost { node: name(node), reason: "connection closed".into() });
    }

    pub fn answers(&self, node: &NodeName) -> bool {
        !self.dead.contains(node) && !self.silent.contains(node)
    }

    pub fn perform(&mut self, actions: Vec<Action>) {
        self.actions.extend(actions.clone());
        for action in actions {
            for event in self.answer(action) {
                self.happens(event);
            }
        }
    }

    fn answer(&mut self, action: Action) -> Vec<Event> {
        let alive = |to: Vec<NodeName>| to.into_iter().filter(|node| self.answers(node)).collect::<Vec<_>>();
        match action {
            Action::StartAgent { node } if self.dead.contains(&node) => {
                vec![Event::AgentStartFailed { node, reason: "no such node".into(), node_lost: true }]
            }
            Action::StartAgent { node } if self.silent.contains(&node) => vec![],
            Action::StartAgent { node } => {
                let start = self.starts.entry(node.clone()).or_default();
                *start += 1;
                let adopted = (*start > 1).then(|| self.machine.generation());
                vec![Event::AgentReady { address: address(&node, *start), node, adopted }]
            }
            Action::AskHalt { .. } => vec![Event::HaltAnswered { met: self.halt.clone(), silent: Vec::new() }],
            Action::RunBefore { .. } => {
                self.before.clone().map(|failure| Event::BeforeEnded { failure }).into_iter().collect()
            }
            Action::Prepare { generation, to, .. } => {
                alive(to).into_iter().map(|node| Event::RunPrepared { node, generation }).collect()
            }
            Action::Launch { generation, .. } => vec![Event::StepStarted { generation }],
            Action::PollNow { to } => {
                let sent = self.now;
                alive(to).into_iter().map(|node| Event::PollAnswered { node, sent, fault: None }).collect()
            }
            Action::CheckAgent { node } => {
                let presence = match self.presence.get(&node) {
                    Some(presence) => presence.clone(),
                    None if self.dead.contains(&node) => AgentPresence::NoAnswer,
                    None => AgentPresence::Present,
                };
                vec![Event::AgentChecked { node, presence }]
            }
            Action::SaveStacks { generation, .. } => vec![Event::StacksSaved { generation }],
            Action::KillRanks { generation, to, .. } => {
                alive(to).into_iter().map(|node| Event::RanksKilled { node, generation, may_halt: false }).collect()
            }
            Action::CheckProgress { generation } => {
                let found = self.progress.clone();
                found.map(|found| Event::ProgressChecked { generation, found }).into_iter().collect()
            }
            Action::BorrowNodes { wanted, .. } => {
                let lent = (wanted as usize).min(self.pool.0.len());
                vec![Event::NodesLent { nodes: self.pool.0.drain(..lent).collect(), more_later: self.pool.1 }]
            }
            Action::CheckAllocation => {
                let denial = self.denial.clone();
                denial.map(|denial| Event::AllocationChecked { denial }).into_iter().collect()
            }
            Action::Supersede { from } => {
                let failure = self.supersede.clone();
                failure.map(|failure| Event::Superseded { from, failure }).into_iter().collect()
            }
            Action::Drain { .. } => vec![Event::Drained { result: self.drain.clone(), unplaced: Vec::new() }],
            _ => vec![],
        }
    }

    pub fn generation(&self) -> Generation {
        self.machine.generation()
    }

    /// All ranks end with exit code 0.
    pub fn ranks_end_well(&mut self) {
        let generation = self.generation();
        for rank in 0..self.machine.config().ranks {
            self.happens(Event::RankExited { generation, rank: Rank(rank), end: RankEnd::SUCCESS });
        }
    }

    /// The nodes of the ranks report their end after a signal, and nothing more is performed.
    pub fn all_ranks_are_killed(&mut self) {
        let generation = self.generation();
        for node in 0..4 {
            self.only(Event::RanksKilled { node: name(node), generation, may_halt: false });
            self.only(Event::PollAnswered { node: name(node), sent: self.now, fault: None });
        }
    }

    /// The machine of an orchestrator that takes over with the state on disk.
    pub fn twin(&self) -> Machine {
        self.twin_with(self.machine.config().clone())
    }

    pub fn twin_with(&self, config: Config) -> Machine {
        let text = serde_json::to_string(&self.machine.snapshot()).unwrap();
        Machine::restore(config, serde_json::from_str(&text).unwrap()).unwrap()
    }

    pub fn rank_ends(&mut self, rank: u32, end: RankEnd) {
        self.happens(Event::RankExited { generation: self.generation(), rank: Rank(rank), end });
    }

    pub fn joined(&mut self, from: Option<u64>) {
        self.happens(Event::Restarted {
            generation: self.generation(),
            from: from.map(CheckpointId),
            protected: true,
            fetched_in: None,
            written_by: None,
        });
    }

    pub fn checkpoint(&mut self, id: u64) {
        self.happens(Event::CheckpointComplete {
            generation: self.generation(),
            checkpoint: CheckpointId(id),
            protected: true,
            bytes: 1 << 20,
        });
        self.happens(Event::CheckpointProtected { generation: self.generation(), checkpoint: CheckpointId(id) });
    }

    /// Each launch: its generation, and the nodes with their ranks.
    pub fn launches(&self) -> Vec<(Generation, Homes)> {
        found!(self.actions, Action::Launch { generation, placement } => {
            (*generation, placement.used().map(|node| (node.name.clone(), node.ranks.clone())).collect())
        })
    }

    /// True if the last generation that was prepared may use the files of this node.
    pub fn is_in_last_placement(&self, node: usize) -> bool {
        let placements = found!(self.actions, Action::Prepare { placement, .. } => placement);
        placements.last().unwrap().nodes.iter().any(|placed| placed.name == name(node))
    }

    /// The nodes of the last launch by rank, for runs with one rank a node.
    pub fn homes(&self) -> Vec<String> {
        let last = self.launches().pop().unwrap().1;
        let mut homes: Vec<_> = last
            .into_iter()
            .flat_map(|(node, ranks)| ranks.into_iter().map(move |rank| (rank, node.to_string())))
            .collect();
        homes.sort();
        homes.into_iter().map(|(_, node)| node).collect()
    }

    pub fn causes(&self) -> Vec<EndCause> {
        found!(self.actions, Action::Record(LogEvent::GenerationEnded { cause, .. }) => cause.clone())
    }

    pub fn outcome(&self) -> &Outcome {
        let ends = found!(self.actions, Action::Finish(outcome) => outcome);
        let [outcome] = ends[..] else { panic!("it ends once: {ends:?}") };
        outcome
    }

    pub fn stop(&self) -> &StopReason {
        &self.outcome().stop.reason
    }

    pub fn drained(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Drain { .. }))
    }
}
