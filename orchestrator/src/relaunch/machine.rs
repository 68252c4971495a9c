//! The state machine of the relaunch loop: its state, its input and its output. The rules are in `agent_events`,
//! `stages` and `ending`, each an `impl` of this type.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName, Placement, Rank, RunNode};

use super::action::Action;
use super::changes::LastTaken;
use super::config::Config;
use super::contacts::Contacts;
use super::event::Event;
use super::node_state::NodeState;
use super::peer_updates::PendingUpdates;
use super::snapshot::{Phase, RestoreError, Snapshot};
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
    /// The first node with ranks.
    pub(super) leader: Option<u32>,
    /// Updates to be sent to agents when all events of the batch are handled.
    pub(super) pending_updates: PendingUpdates,
    pub(super) watchdog: Watchdog,
}

/// Nodes by their condition.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// The agent is being started.
    pub starting: u32,
    pub healthy: u32,
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
            leader: None,
            pending_updates: PendingUpdates::default(),
            watchdog: Watchdog::default(),
            config,
            state,
        };
        machine.index_homes();
        machine.find_restarts();
        machine
    }

    /// The first actions; after [`restore`](Self::restore), the actions that were under way, repeated.
    pub fn begin(&mut self, now: Duration) -> Vec<Action> {
        let mut out = Vec::new();
        self.contacts.begin(now);
        match self.state.head.phase {
            Phase::Fresh => {
                self.set_phase(Phase::Gathering);
                self.exclude_at_start(now, &mut out);
                self.start_all_agents(&mut out);
                self.advance(now, &mut out);
            }
            _ => {
                self.take_over(now, &mut out);
                if self.state.head.phase != Phase::Finished {
                    let excluded = self.config.excluded.clone();
                    self.set_exclusions(now, &excluded, &mut out);
                }
            }
        }
        self.check_due(now, &mut out);
        self.flush_updates(&mut out);
        out
    }

    /// Handles one event: see [`handle_all`](Self::handle_all).
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        self.handle_all(now, [event])
    }

    /// Handles events, signals first, the others in their order. Returns the actions in the order in which they are to
    /// be begun. `now` must not decrease.
    pub fn handle_all(&mut self, now: Duration, events: impl IntoIterator<Item = Event>) -> Vec<Action> {
        let mut out = Vec::new();
        let (signals, others): (Vec<_>, Vec<_>) =
            events.into_iter().partition(|event| matches!(event, Event::Signal { .. }));
        for event in signals.into_iter().chain(others) {
            if matches!(self.state.head.phase, Phase::Fresh | Phase::Finished) {
                break;
            }
            self.dispatch(now, event, &mut out);
        }
        if !matches!(self.state.head.phase, Phase::Fresh | Phase::Finished) {
            self.check_due(now, &mut out);
        }
        self.flush_updates(&mut out);
        out
    }

    fn dispatch(&mut self, now: Duration, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::AgentReady { node, address, adopted } => self.agent_ready(now, &node, address, adopted, out),
            Event::AgentUnfit { node, address, fault } => self.agent_unfit(now, &node, address, fault, out),
            Event::AgentStartFailed { node, reason, node_lost } => {
                self.agent_start_failed(now, &node, reason, node_lost, out);
            }
            Event::AgentLost { node, reason } => self.agent_lost(now, &node, reason, out),
            Event::PollAnswered { node, sent, fault } => self.poll_answered(now, &node, sent, fault, out),
            Event::PollsRan { ran } => self.polls_ran(now, ran, out),
            Event::AgentChecked { node, presence } => self.agent_checked(now, &node, presence, out),
            Event::NodeDown { node, reason } => self.node_down(now, &node, reason, out),
            Event::ExclusionsChanged { excluded } => self.set_exclusions(now, &excluded, out),
            Event::HealthFault { node, fault } => self.health_fault(now, &node, fault, out),
            Event::HaltAnswered { met, silent } => self.halt_answered(now, met, &silent, out),
            Event::BeforeEnded { failure } => self.before_ended(now, failure, out),
            Event::HaltSet { reason, immediate, ends } => self.halt_set(now, reason, immediate, ends, out),
            Event::HaltCleared => self.halt_cleared(out),
            Event::RunPrepared { node, generation } => self.run_prepared(now, &node, generation, out),
            Event::RunRefused { node, generation, reason } => self.run_refused(now, &node, generation, reason, out),
            Event::RanksKilled { node, generation } => self.ranks_killed(now, &node, generation, out),
            Event::StepStarted { generation } => self.note_fact(generation, |active| active.facts.started = true),
            Event::LaunchFailed { generation, reason } => self.launch_failed(now, generation, reason, out),
            Event::RankExited { generation, rank, end } => self.rank_exited(now, generation, rank, end, out),
            Event::StepEnded { generation, end } => self.step_ended(now, generation, end, out),
            Event::StepLost { generation, reason } => self.step_lost(now, generation, reason, out),
            Event::Printed { generation } => self.with_watchdog(generation, |watch| watch.printed(now)),
            Event::RanksQuiet { node, generation, ranks } => self.ranks_quiet(now, node, generation, ranks, out),
            Event::StacksSaved { generation } => self.stacks_saved(now, generation, out),
            Event::Restarted { generation, from, fetched_in } => self.restarted(generation, from, fetched_in),
            Event::RestartPrevented { generation, faulty, reason } => {
                self.restart_prevented(now, generation, faulty.as_ref(), reason, out);
            }
            Event::LibraryStarted { generation } => self.library_started(generation),
            Event::CheckpointComplete { generation, checkpoint, protected, bytes } => {
                self.checkpoint_complete(generation, checkpoint, protected, bytes);
                self.dataset_kept(generation);
            }
            Event::DatasetDropped { generation, checkpoint, reason } => {
                self.dataset_dropped(generation, checkpoint, reason);
            }
            Event::Flushed { generation, took } => {
                self.dataset_kept(generation);
                if self.generation() == generation {
                    self.state.head.drain_estimate.transferred(took);
                }
            }
            Event::Halting { generation, reason } => {
                self.note_fact(generation, |active| active.facts.halting = Some(reason))
            }
            Event::Finalized { generation } => self.note_fact(generation, |active| active.facts.finalized = true),
            Event::RankConnected { generation, rank } => self.note_fact(generation, |active| {
                active.left.remove(rank.0);
            }),
            Event::RankLeft { generation, rank } => self.rank_left(generation, rank),
            Event::ProgressChecked { generation, found } => self.progress_checked(now, generation, found, out),
            Event::Drained { result } => self.drained(now, result, out),
            Event::Signal { name } => self.signalled(now, name, out),
            Event::AllocationEnd { end } => self.allocation_end(now, end, out),
            Event::Tick => {}
        }
    }

    /// Handles what is due by the time alone.
    fn check_due(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.check_nodes(now, out);
        self.check_clock(now, out);
    }

    /// When to send [`Event::Tick`] if no other event arrives. May be earlier than needed; then the tick has no effect.
    /// What is due on nodes depends on [`Event::PollsRan`] instead.
    pub fn deadline(&self) -> Option<Duration> {
        match &self.state.head.phase {
            Phase::Fresh | Phase::Finished => None,
            Phase::Gathering | Phase::AskingHalt { .. } | Phase::RunningBefore { .. } | Phase::Preparing => {
                self.launch_until()
            }
            Phase::Settling { until } => Some(self.launch_until().map_or(*until, |limit| limit.min(*until))),
            Phase::Running => self.halt_deadline(),
            Phase::Ending { .. } | Phase::CheckingProgress | Phase::Stopping | Phase::Draining => None,
        }
    }

    /// The last generation of the job's finished steps; none in the first.
    pub fn finished_steps(&self) -> Generation {
        self.state.finished_steps()
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
        let first_step = self.state.finished_steps() == self.config.finished;
        self.state.head.launches == 0 && self.state.earlier_runs == 0 && first_step
    }

    /// Nodes that are not down.
    pub fn nodes_left(&self) -> usize {
        self.state.nodes_left()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.state.clone()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// True after [`Action::Finish`].
    pub fn is_finished(&self) -> bool {
        self.state.head.phase == Phase::Finished
    }

    /// The generation that is prepared, under way, or was last.
    pub fn generation(&self) -> Generation {
        self.state.generation()
    }

    /// True while nothing is known that ends this generation: the end of a rank then has a cause of its own.
    pub fn is_running(&self, generation: Generation) -> bool {
        self.state.head.phase == Phase::Running && self.generation() == generation
    }

    /// An action that waited, updated for the present state of the nodes; `None` if it is not needed any more because
    /// its generation has ended.
    pub fn refreshed(&self, action: Action) -> Option<Action> {
        let phase = self.state.head.phase;
        let is_current = |of: Generation| matches!(phase, Phase::Preparing | Phase::Running) && self.generation() == of;
        match action {
            Action::Prepare { generation, mut to, .. } if is_current(generation) => {
                to.retain(|node| self.position(node).is_some_and(|at| !self.state.nodes[at as usize].is_down()));
                Some(Action::Prepare { generation, placement: self.current_placement(), to })
            }
            Action::UpdatePeers { generation, .. } if is_current(generation) => Some(action),
            // After a signal the generation ends as one that has not started.
            Action::Launch { generation, .. } if self.is_running(generation) && self.state.head.signal.is_none() => {
                Some(action)
            }
            Action::Drain { stop, .. } if phase == Phase::Draining => Some(self.drain_action(stop)),
            Action::StopAgents { .. } => {
                let mut out = Vec::new();
                self.end_agents(&mut out);
                out.pop()
            }
            Action::Prepare { .. } | Action::UpdatePeers { .. } | Action::Launch { .. } | Action::Drain { .. } => None,
            other => Some(other),
        }
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
        self.count.used = used.filter(|(ranks, node)| !ranks.is_empty() && !node.is_down()).count() as u32;
        (self.count.all_excluded, self.count.excluded, self.count.excluded_used) = (0, 0, 0);
        for (ranks, node) in self.ranks_on.iter().zip(&self.state.nodes).filter(|(_, node)| node.is_excluded()) {
            let up = u32::from(!node.is_down());
            self.count.all_excluded += 1;
            self.count.excluded += up;
            self.count.excluded_used += up * u32::from(!ranks.is_empty());
        }
    }

    pub(super) fn current_placement(&self) -> Arc<Placement> {
        let nodes = self.state.nodes.iter().zip(&self.config.nodes).zip(&self.ranks_on);
        let nodes = nodes.filter(|((node, _), _)| !node.is_down()).filter_map(|((node, known), ranks)| {
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

    /// Enters the next phase if everything that this one waits for has happened.
    pub(super) fn advance(&mut self, now: Duration, out: &mut Vec<Action>) {
        match &self.state.head.phase {
            Phase::Gathering => self.gather(now, out),
            Phase::RunningBefore { failed } => self.check_before(now, failed.is_some(), out),
            Phase::Preparing if self.state.waiting.is_empty() => self.launch(now, out),
            Phase::Ending { .. } if self.state.unkilled.is_empty() && self.state.unanswered.is_empty() => {
                self.conclude(now, out);
            }
            // Before the first launch agents that are slow to start are not waited for: their nodes hold nothing of
            // this job.
            Phase::Stopping if self.count.starting == 0 || self.state.head.launches == 0 => self.drain(now, out),
            _ => {}
        }
    }
}
