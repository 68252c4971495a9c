//! The state of the relaunch loop in memory, and the operations on it that all [handlers](super::handlers) use. It
//! knows none of them.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName, Placement, Rank, RankEnd, RunNode};

use super::action::Action;
use super::changes::{Changes, LastTaken};
use super::classify::ActiveGeneration;
use super::config::Config;
use super::contacts::Contacts;
use super::node_state::{NodeState, NodeStatus};
use super::placement::numbered;
use super::snapshot::{Phase, RestoreError, Snapshot};
use super::waits::Waits;
use super::watchdog::Watchdog;
use crate::events::LogEvent;

#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) config: Config,
    pub(super) state: Snapshot,
    /// The state at the last call of [`take_changes`](Self::take_changes).
    pub(super) taken: LastTaken,
    /// Position of each node in the allocation.
    positions: HashMap<NodeName, u32>,
    pub(super) contacts: Contacts,
    /// Nodes whose agents are being restarted.
    pub(super) restarting: BTreeSet<u32>,
    /// Running time has passed since the nodes were checked.
    pub(super) unchecked: bool,
    pub(super) count: Counts,
    /// The ranks of each node in the last placement.
    pub(super) ranks_on: Vec<Vec<Rank>>,
    /// The failure domain of each node.
    pub(super) domains: Vec<u32>,
    /// The first node with ranks.
    pub(super) leader: Option<u32>,
    /// Updates to be sent to agents when all events of the batch are handled.
    pub(super) pending_updates: PendingUpdates,
    pub(super) not_halted: NotHalted,
    pub(super) watchdog: Watchdog,
    pub(super) waits: Waits,
}

/// Nodes on which no halt condition held when their ranks had ended, by their positions.
#[derive(Clone, Debug, Default)]
pub(super) struct NotHalted {
    /// When the ranks were to be killed.
    pub since: Duration,
    pub nodes: BTreeSet<u32>,
}

/// Nodes by their condition.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// The agent is being started.
    pub starting: u32,
    pub healthy: u32,
    /// The job has not lent the node to this step.
    pub not_lent: u32,
    /// The agent was up at some time.
    pub reached: u32,
    /// The node has ranks in the last placement, and is not down.
    pub used: u32,
    /// The node is excluded, and not down.
    pub excluded: u32,
    /// The node is excluded, whether it is down or not.
    pub all_excluded: u32,
    /// The node has ranks in the last placement, is excluded, and not down.
    pub excluded_used: u32,
}

/// Updates that are to be sent after the batch of events, by positions of nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingUpdates {
    /// Nodes that are to get the generation again: they lost it, or have not accepted it yet.
    pub prepare: BTreeSet<u32>,
    /// Nodes whose agents have a new address.
    pub moved: BTreeSet<u32>,
    /// Nodes whose agents continue the generation from their disk, and may have old addresses of the others.
    pub adopted: BTreeSet<u32>,
    /// Nodes without ranks that went down: the generation goes on without them.
    pub down: BTreeSet<u32>,
}

impl Machine {
    /// A loop that has not begun; [`begin`](Self::begin) starts it.
    pub fn new(config: Config) -> Self {
        let state = Snapshot::fresh(&config);
        Self::with(config, state)
    }

    /// The loop as it was when the snapshot was taken; `config.started` is replaced by the snapshot's. A process that
    /// takes over calls [`begin`](Self::begin), which repeats the actions that were under way.
    ///
    /// # Errors
    /// If the snapshot is of another version, of another allocation, or damaged.
    pub fn restore(mut config: Config, snapshot: Snapshot) -> Result<Self, RestoreError> {
        snapshot.check(&config)?;
        config.started = snapshot.started;
        Ok(Self::with(config, snapshot))
    }

    fn with(config: Config, state: Snapshot) -> Self {
        let nodes = state.nodes.len();
        let positions = (0..).zip(&state.names).map(|(position, name)| (name.clone(), position)).collect();
        let number = |is: fn(&NodeState) -> bool| state.nodes.iter().filter(|node| is(node)).count() as u32;
        let count = Counts {
            starting: number(NodeState::is_starting),
            healthy: number(NodeState::is_healthy),
            not_lent: number(NodeState::is_not_lent),
            reached: number(|node| node.address.is_some()),
            ..Counts::default()
        };
        let mut machine = Machine {
            taken: LastTaken::of(&state),
            positions,
            contacts: Contacts::new(nodes),
            restarting: BTreeSet::new(),
            unchecked: false,
            count,
            ranks_on: Vec::new(),
            domains: numbered(config.nodes.iter().map(|node| node.failure_domain.as_str())),
            leader: None,
            pending_updates: PendingUpdates::default(),
            not_halted: NotHalted::default(),
            watchdog: Watchdog::default(),
            waits: Waits::default(),
            config,
            state,
        };
        machine.index_homes();
        machine.find_restarts();
        machine
    }

    /// The last generation of the job's finished steps; none in the first.
    pub fn finished_steps(&self) -> Generation {
        self.state.finished_steps
    }

    /// Runs in this allocation that ended before this one, and left the job unfinished.
    pub fn earlier_runs(&self) -> u32 {
        self.state.earlier_runs
    }

    /// True if a generation of this run made progress.
    pub fn made_progress(&self) -> bool {
        self.state.head.made_progress
    }

    /// True unless it is known that no generation of this run made progress.
    pub fn may_have_made_progress(&self) -> bool {
        self.made_progress() || !self.config.observes_progress()
    }

    /// True until something is launched in this allocation, by this run or one before it: the caches are empty.
    pub fn is_before_first_launch(&self) -> bool {
        let first_step = self.state.finished_steps == self.config.finished;
        self.state.head.launches == 0 && self.state.earlier_runs == 0 && first_step
    }

    /// Nodes that are not down.
    pub fn nodes_left(&self) -> usize {
        self.state.nodes_left()
    }

    /// True if a halt condition was met that the user has not removed.
    pub fn is_halted(&self) -> bool {
        self.state.head.halt.is_some()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.state.clone()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When something was first launched in this step.
    pub fn first_launched(&self) -> Option<Duration> {
        self.state.history.iter().next().map(|first| first.launched)
    }

    /// True after [`Action::Finish`].
    pub fn is_finished(&self) -> bool {
        self.state.head.phase == Phase::Finished
    }

    /// The generation that is prepared, under way, or was last.
    pub fn generation(&self) -> Generation {
        self.state.generation()
    }

    /// True while nothing is known that ends this generation.
    pub fn is_running(&self, generation: Generation) -> bool {
        self.state.head.phase == Phase::Running && self.generation() == generation
    }

    /// True if the end of a rank has a cause of its own: nothing is known that ends this generation. The unknown end of
    /// ranks that are halted has none.
    pub fn is_failure(&self, generation: Generation, end: RankEnd) -> bool {
        let expected = self.state.active.as_ref().is_some_and(ActiveGeneration::expects_end);
        self.is_running(generation) && !(expected && end == RankEnd::Unknown)
    }

    /// The nodes whose agents are up, and their addresses.
    pub fn agents(&self) -> impl Iterator<Item = (&NodeName, std::net::SocketAddr)> {
        let nodes = self.state.names.iter().zip(&self.state.nodes);
        nodes.filter(|(_, node)| node.is_healthy()).filter_map(|(name, node)| Some((name, node.address?)))
    }

    /// The first node with ranks, whose agent leads the generation.
    pub fn leader(&self) -> Option<NodeName> {
        self.leader.map(|leader| self.name(leader))
    }

    /// The node of rank 0.
    pub fn first_rank_node(&self) -> Option<NodeName> {
        self.state.homes.iter().next().map(|home| self.name(*home))
    }

    /// The newest checkpoint that was complete in cache.
    pub fn newest(&self) -> Option<CheckpointId> {
        self.state.head.newest
    }

    /// The placement of the generation that is prepared or under way.
    pub fn placement(&self) -> Option<Arc<Placement>> {
        match self.state.head.phase {
            Phase::Preparing | Phase::Running | Phase::Ending { .. } => Some(self.current_placement()),
            _ => None,
        }
    }

    pub(super) fn position(&self, node: &NodeName) -> Option<u32> {
        self.positions.get(node).copied()
    }

    pub(super) fn name(&self, position: u32) -> NodeName {
        self.state.names[position as usize].clone()
    }

    pub(super) fn names_of(&self, positions: impl IntoIterator<Item = u32>) -> Vec<NodeName> {
        positions.into_iter().map(|position| self.name(position)).collect()
    }

    /// The positions of the nodes whose agents are up.
    pub(super) fn healthy_nodes(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.state.nodes).filter(|(_, node)| node.is_healthy()).map(|(position, _)| position)
    }

    /// The node has ranks in the last placement.
    pub(super) fn is_used(&self, position: u32) -> bool {
        !self.ranks_on[position as usize].is_empty()
    }

    pub(super) fn index_homes(&mut self) {
        self.ranks_on = vec![Vec::new(); self.state.nodes.len()];
        for (rank, home) in (0u32..).zip(&self.state.homes) {
            self.ranks_on[*home as usize].push(Rank(rank));
        }
        self.leader = self.state.homes.iter().min().copied();
        let used = self.ranks_on.iter().zip(&self.state.nodes);
        self.count.used = used.filter(|(ranks, node)| !ranks.is_empty() && !node.is_out()).count() as u32;
        (self.count.all_excluded, self.count.excluded, self.count.excluded_used) = (0, 0, 0);
        for (ranks, node) in self.ranks_on.iter().zip(&self.state.nodes).filter(|(_, node)| node.is_excluded()) {
            let up = u32::from(!node.is_out());
            self.count.all_excluded += 1;
            self.count.excluded += up;
            self.count.excluded_used += up * u32::from(!ranks.is_empty());
        }
    }

    pub(super) fn current_placement(&self) -> Arc<Placement> {
        let nodes = self.state.nodes.iter().zip(&self.config.nodes).zip(&self.ranks_on);
        let nodes = nodes.filter(|((node, _), _)| !node.is_out()).filter_map(|((node, known), ranks)| {
            Some(RunNode {
                name: known.name.clone(),
                address: node.address?,
                failure_domain: known.failure_domain.clone(),
                ranks: ranks.clone(),
            })
        });
        let leader = self.leader.map_or_else(|| NodeName::new(""), |leader| self.name(leader));
        Arc::new(Placement { nodes: nodes.collect(), leader })
    }

    /// Finds the agents that are being restarted.
    pub(super) fn find_restarts(&mut self) {
        let is_restarted = |node: &NodeState| match &node.status {
            NodeStatus::Starting(starting) => starting.lost.is_some() && starting.retry.is_none(),
            NodeStatus::Healthy | NodeStatus::Down { .. } | NodeStatus::NotLent => false,
        };
        let nodes = (0u32..).zip(&self.state.nodes);
        self.restarting = nodes.filter(|(_, node)| is_restarted(node)).map(|(position, _)| position).collect();
    }

    pub(super) fn set_status(&mut self, position: u32, status: NodeStatus) {
        let used = u32::from(self.is_used(position));
        let node = self.state.nodes.change(position);
        let excluded = u32::from(node.is_excluded());
        self.count.starting -= u32::from(node.is_starting());
        self.count.healthy -= u32::from(node.is_healthy());
        self.count.not_lent -= u32::from(node.is_not_lent());
        let up = u32::from(!node.is_out());
        self.count.used -= used * up;
        self.count.excluded -= excluded * up;
        self.count.excluded_used -= excluded * used * up;
        node.status = status;
        self.count.starting += u32::from(node.is_starting());
        self.count.healthy += u32::from(node.is_healthy());
        self.count.not_lent += u32::from(node.is_not_lent());
        let up = u32::from(!node.is_out());
        self.count.used += used * up;
        self.count.excluded += excluded * up;
        self.count.excluded_used += excluded * used * up;
        if !node.is_healthy() {
            node.silent_since = None;
            self.contacts.forget(position);
            self.watchdog.forget(&self.state.names[position as usize]);
            self.waits.forget(&self.state.names[position as usize]);
        }
        self.restarting.remove(&position);
    }

    pub(super) fn set_address(&mut self, position: u32, address: SocketAddr) {
        if self.state.nodes[position as usize].address != Some(address) {
            let known = self.state.nodes.change(position).address.replace(address);
            self.count.reached += u32::from(known.is_none());
        }
    }

    /// Records an answer of a node's agent. False if the agent is not up.
    pub(super) fn note_contact(&mut self, position: u32, out: &mut Vec<Action>) -> bool {
        if !self.state.nodes[position as usize].is_healthy() {
            return false;
        }
        let silence = self.contacts.silence(position);
        if let Some(suspicion) = self.contacts.answered(position)
            && suspicion.logged
        {
            let millis = silence.as_millis() as u64;
            self.record(LogEvent::AgentAnswers { node: self.name(position), millis }, out);
        }
        if self.state.nodes[position as usize].silent_since.is_some() {
            self.state.nodes.change(position).silent_since = None;
        }
        true
    }

    /// Has a down node fenced.
    pub(super) fn fence(&self, position: u32, out: &mut Vec<Action>) {
        let address = self.state.nodes[position as usize].address;
        out.push(Action::FenceNode { node: self.name(position), address });
    }

    /// The generation under way, if it is this one.
    pub(super) fn active_of(&mut self, generation: Generation) -> Option<&mut ActiveGeneration> {
        self.state.active.as_mut().filter(|active| active.facts.generation == generation)
    }

    /// Records a fact about the generation under way.
    pub(super) fn note_fact(&mut self, generation: Generation, note: impl FnOnce(&mut ActiveGeneration)) {
        if let Some(active) = self.active_of(generation) {
            note(active);
        }
    }

    /// The generation under way, while nothing is known that ends it: later ends of ranks are caused by the machine.
    pub(super) fn ongoing(&mut self, generation: Generation) -> Option<&mut ActiveGeneration> {
        match self.state.head.phase {
            Phase::Running => self.active_of(generation),
            _ => None,
        }
    }

    /// The changes since the last call, or since [`new`](Self::new) or [`restore`](Self::restore).
    pub fn take_changes(&mut self) -> Changes {
        self.taken.take_changes(&mut self.state)
    }

    pub(super) fn record(&self, event: LogEvent, out: &mut Vec<Action>) {
        out.push(Action::Record(event));
    }

    /// Enters another phase. The sets that belong to the former phase are cleared.
    pub(super) fn set_phase(&mut self, phase: Phase) {
        self.state.waiting.replace([]);
        self.state.unkilled.replace([]);
        self.state.unanswered.replace([]);
        self.state.head.phase = phase;
    }
}
