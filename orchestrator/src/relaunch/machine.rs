//! The state machine of the relaunch loop: what goes in, what comes out. The rules are in `agents`, `stages` and
//! `ending`, each an `impl` of this type.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Generation, NodeName, Placement, Rank, RunNode};

use super::action::Action;
use super::config::Config;
use super::event::Event;
use super::snapshot::{Phase, RestoreError, Snapshot};
use super::watchdog::Watch;
use crate::events::LogEvent;

/// The relaunch loop.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) config: Config,
    pub(super) state: Snapshot,
    /// Position of each node in the allocation.
    positions: HashMap<NodeName, u32>,
    /// Nodes whose agent is being started.
    pub(super) starting: u32,
    /// Nodes whose agent is up.
    pub(super) healthy: u32,
    /// Which nodes have ranks in the last placement.
    pub(super) used: Vec<bool>,
    /// Does the run hang?
    pub(super) watch: Watch,
    revision: u64,
}

impl Machine {
    /// A loop that has done nothing yet; [`begin`](Self::begin) starts it.
    pub fn new(config: Config) -> Self {
        let state = Snapshot::fresh(&config);
        Self::with(config, state)
    }

    /// The loop as it was when the snapshot was taken; `config.started` is replaced by the snapshot's. Going on from here equals
    /// never having stopped. A process that takes over calls [`begin`](Self::begin), which asks again for what was under way.
    ///
    /// # Errors
    /// If the snapshot is of another version, of another allocation, or damaged.
    pub fn restore(mut config: Config, snapshot: Snapshot) -> Result<Self, RestoreError> {
        snapshot.check(&config)?;
        config.started = snapshot.started;
        Ok(Self::with(config, snapshot))
    }

    fn with(config: Config, state: Snapshot) -> Self {
        let positions = (0..).zip(&state.names).map(|(position, name)| (name.clone(), position)).collect();
        let starting = state.nodes.iter().filter(|node| node.is_starting()).count() as u32;
        let healthy = state.nodes.iter().filter(|node| node.is_healthy()).count() as u32;
        let (used, watch) = (Vec::new(), Watch::default());
        let mut machine = Machine { used, config, positions, starting, healthy, state, watch, revision: 0 };
        machine.note_homes();
        machine
    }

    /// The first actions; after [`restore`](Self::restore), whatever was under way, asked for again.
    pub fn begin(&mut self, now: Duration) -> Vec<Action> {
        let mut out = Vec::new();
        match self.state.phase {
            Phase::Fresh => {
                self.state.phase = Phase::Gathering;
                self.start_all_agents(now, &mut out);
                self.advance(now, &mut out);
            }
            _ => self.take_over(now, &mut out),
        }
        self.time(now, &mut out);
        self.revision += 1;
        out
    }

    /// Takes in what happened; returns what is to be done, in this order. `now` never decreases.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        if matches!(self.state.phase, Phase::Fresh | Phase::Finished) {
            return out;
        }
        use Event::{PollAnswered, Printed, RanksQuiet, Tick};
        let routine = matches!(event, Tick | PollAnswered { .. } | RanksQuiet { .. } | Printed { .. });
        self.dispatch(now, event, &mut out);
        self.time(now, &mut out);
        if !routine || !out.is_empty() {
            self.revision += 1;
        }
        out
    }

    fn dispatch(&mut self, now: Duration, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::AgentReady { node, address, adopted } => self.agent_ready(now, &node, address, adopted, out),
            Event::AgentUnfit { node, address, fault } => self.agent_unfit(now, &node, address, fault, out),
            Event::AgentStartFailed { node, reason, node_gone } => {
                self.agent_start_failed(now, &node, reason, node_gone, out);
            }
            Event::AgentLost { node, reason } => self.agent_lost(now, &node, reason, out),
            Event::PollAnswered { node, sent, fault } => self.poll_answered(now, &node, sent, fault, out),
            Event::NodeDown { node, reason } => self.node_down(now, &node, reason, out),
            Event::HealthFault { node, fault } => self.health_fault(now, &node, fault, out),
            Event::HaltAnswered { met } => self.halt_answered(now, met, out),
            Event::HaltSet { reason } => self.halt_set(now, reason, out),
            Event::HaltCleared => self.halt_cleared(out),
            Event::RunPrepared { node, generation } => self.run_prepared(now, &node, generation, out),
            Event::RunRefused { node, generation, reason } => self.run_refused(now, &node, generation, reason, out),
            Event::RanksKilled { node, generation } => self.ranks_killed(now, &node, generation, out),
            Event::StepStarted { generation } => self.on_run(generation, |run| run.started = true),
            Event::LaunchFailed { generation, reason } => self.launch_failed(now, generation, reason, out),
            Event::RankExited { generation, rank, end } => self.rank_exited(now, generation, rank, end, out),
            Event::StepEnded { generation, end } => self.step_ended(now, generation, end, out),
            Event::StepLost { generation, reason } => self.step_lost(now, generation, reason, out),
            Event::Printed { generation } => self.on_watch(generation, |watch| watch.printed(now)),
            Event::RanksQuiet { node, generation, ranks } => self.ranks_quiet(now, node, generation, ranks, out),
            Event::StacksSaved { generation } => self.stacks_saved(now, generation, out),
            Event::Restarted { generation, from } => self.restarted(generation, from),
            Event::CheckpointComplete { generation, checkpoint, protected } => {
                self.checkpoint_complete(generation, checkpoint, protected);
            }
            Event::Halting { generation, reason } => self.on_run(generation, |run| run.halting = Some(reason)),
            Event::Finalized { generation } => self.on_run(generation, |run| run.finalized = true),
            Event::Drained { result } => self.drained(now, result, out),
            Event::Signal { name } => self.signalled(now, name, out),
            Event::AllocationEnd { end } => self.config.allocation_end = end,
            Event::Tick => {}
        }
    }

    /// Does what is due.
    fn time(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.check_nodes(now, out);
        self.check_clock(now, out);
    }

    /// When to send [`Event::Tick`] if nothing else happens. May be earlier than needed; then nothing follows from the tick.
    pub fn deadline(&self) -> Option<Duration> {
        let phase = match &self.state.phase {
            Phase::Fresh | Phase::Finished => return None,
            Phase::Gathering | Phase::AskingHalt { .. } | Phase::Preparing { .. } => self.config.launch_until(),
            Phase::Settling { until } => Some(self.config.launch_until().map_or(*until, |limit| limit.min(*until))),
            Phase::Running => self.config.run_until(),
            Phase::Ending { .. } | Phase::Stopping | Phase::Draining => None,
        };
        phase.into_iter().chain(self.state.next_check).min()
    }

    /// Changes with everything that a successor would have to know: when it changed, write [`snapshot`](Self::snapshot) to disk
    /// *before* performing the actions. Events that are there at the same time may be handed in first, and written once.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The last generation of the job's finished steps; none in the first.
    pub fn finished_steps(&self) -> Generation {
        self.state.finished_steps()
    }

    /// The machine's memory.
    pub fn snapshot(&self) -> Snapshot {
        self.state.clone()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// True after [`Action::Finish`].
    pub fn is_finished(&self) -> bool {
        self.state.phase == Phase::Finished
    }

    /// The generation that is prepared, under way, or was last.
    pub fn generation(&self) -> Generation {
        self.state.run.as_ref().map_or(self.state.generation, |run| run.generation)
    }

    /// True while nothing is known that ends this generation: the end of a rank is then its own.
    pub fn is_running(&self, generation: Generation) -> bool {
        self.state.phase == Phase::Running && self.generation() == generation
    }

    /// The nodes whose agents are up, and where they listen. After a take-over: where to poll them.
    pub fn agents(&self) -> impl Iterator<Item = (&NodeName, std::net::SocketAddr)> {
        let nodes = self.state.names.iter().zip(&self.state.nodes);
        nodes.filter(|(_, node)| node.is_healthy()).filter_map(|(name, node)| Some((name, node.address?)))
    }

    /// Who runs where in the generation that is prepared or under way.
    pub fn placement(&self) -> Option<Arc<Placement>> {
        match self.state.phase {
            Phase::Preparing { .. } | Phase::Running | Phase::Ending { .. } => Some(self.placed()),
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

    /// The first node with ranks.
    pub(super) fn leader(&self) -> Option<u32> {
        self.state.homes.iter().min().copied()
    }

    pub(super) fn note_homes(&mut self) {
        self.used = vec![false; self.state.nodes.len()];
        for home in &self.state.homes {
            self.used[*home as usize] = true;
        }
    }

    pub(super) fn placed(&self) -> Arc<Placement> {
        let mut ranks: Vec<Vec<Rank>> = vec![Vec::new(); self.state.nodes.len()];
        for (rank, home) in (0u32..).zip(&self.state.homes) {
            ranks[*home as usize].push(Rank(rank));
        }
        let nodes = self.state.nodes.iter().zip(&self.config.nodes).zip(ranks);
        let nodes = nodes.filter(|((node, _), _)| !node.is_down()).filter_map(|((node, known), ranks)| {
            Some(RunNode {
                name: known.name.clone(),
                address: node.address?,
                failure_domain: known.failure_domain.clone(),
                ranks,
            })
        });
        let leader = self.leader().map_or_else(|| NodeName::new(""), |leader| self.name(leader));
        Arc::new(Placement { nodes: nodes.collect(), leader })
    }

    pub(super) fn record(&self, event: LogEvent, out: &mut Vec<Action>) {
        out.push(Action::Record(event));
    }

    /// Goes on to the next phase if all that this one waits for is there.
    pub(super) fn advance(&mut self, now: Duration, out: &mut Vec<Action>) {
        match &self.state.phase {
            Phase::Gathering => self.gather(now, out),
            Phase::Preparing { waiting } if waiting.is_empty() => self.launch(now, out),
            Phase::Ending { unkilled, unheard, .. } if unkilled.is_empty() && unheard.is_empty() => {
                self.conclude(now, out);
            }
            // Before the first launch nobody waits for agents that are slow to come: there is nothing of ours on their nodes.
            Phase::Stopping if self.starting == 0 || self.state.launches == 0 => self.drain(now, out),
            _ => {}
        }
    }
}
