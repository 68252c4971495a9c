//! The handlers of the machine's events, by subject. Each changes the state of the [machine](super::machine), and adds
//! actions. When a handler is done, `advance` enters the phases whose conditions hold now.
//!
//! | file | events |
//! |---|---|
//! | `agents` | agents that come up, are silent or lost; nodes that go down |
//! | `exclusions` | the user excludes nodes |
//! | `lending` | nodes that a step borrows, where several run side by side |
//! | `stages` | from the first agent to the launch |
//! | `halts`, `limits` | the ranks are halted: last checkpoint, SIGTERM, SIGKILL; the time that is kept for the drain |
//! | `hang` | the application hangs |
//! | `ending` | reports of the generation, its end and the cause |
//! | `supersede` | the directories that a restart supersedes |
//! | `finish` | signals, the drain, the end of the loop |
//! | `peer_updates` | the addresses that agents need of each other, sent once for all events of a batch |
//! | `takeover` | what an earlier orchestrator left under way |

use std::time::Duration;

use holdfast_model::Generation;

use super::action::Action;
use super::event::Event;
use super::machine::Machine;
use super::snapshot::Phase;
use crate::allocation::AgentPresence;

mod agents;
mod ending;
mod exclusions;
mod finish;
mod halts;
mod hang;
mod lending;
mod limits;
mod peer_updates;
mod stages;
mod supersede;
mod takeover;
mod waits;

impl Machine {
    /// The first actions; after [`restore`](Self::restore), the actions that were under way, repeated.
    pub fn begin(&mut self, now: Duration) -> Vec<Action> {
        let mut out = Vec::new();
        self.contacts.begin(now);
        match self.state.head.phase {
            Phase::Fresh => {
                self.set_phase(Phase::Gathering);
                self.exclude_at_start(now, &mut out);
                self.start_all_agents(&mut out);
            }
            _ => {
                self.take_over(now, &mut out);
                self.advance(now, &mut out);
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
            let _ = self.dispatch(now, event, &mut out);
            self.advance(now, &mut out);
        }
        if !matches!(self.state.head.phase, Phase::Fresh | Phase::Finished) {
            self.check_due(now, &mut out);
        }
        self.flush_updates(&mut out);
        out
    }

    /// `None`: the event is ignored, because its node is not one of the allocation.
    fn dispatch(&mut self, now: Duration, event: Event, out: &mut Vec<Action>) -> Option<()> {
        match event {
            Event::AgentReady { node, address, adopted } => {
                self.agent_ready(self.position(&node)?, address, adopted, out);
            }
            Event::AgentUnfit { node, address, fault } => {
                self.agent_unfit(now, self.position(&node)?, address, fault, out);
            }
            Event::AgentStartFailed { node, reason, node_lost } => {
                self.agent_start_failed(now, self.position(&node)?, reason, node_lost, out);
            }
            Event::AgentLost { node, reason } => {
                self.agent_lost(now, self.position(&node)?, reason, &AgentPresence::Ended, out);
            }
            Event::PollAnswered { node, sent, fault } => {
                self.poll_answered(now, self.position(&node)?, sent, fault, out);
            }
            Event::PollsRan { ran } => self.polls_ran(now, ran, out),
            Event::AgentChecked { node, presence } => self.agent_checked(now, self.position(&node)?, presence, out),
            Event::NodeDown { node, reason } => self.set_down(now, self.position(&node)?, reason, out),
            Event::ExclusionsChanged { excluded } => self.set_exclusions(now, &excluded, out),
            Event::NodesLent { nodes, more_later } => self.nodes_lent(now, &nodes, more_later, out),
            // A drain also uses nodes that must not get ranks.
            Event::HealthFault { .. } if self.is_over() => {}
            Event::HealthFault { node, fault } => {
                self.health_test_failed(now, self.position(&node)?, fault, out);
            }
            Event::HaltAnswered { met, silent } => self.halt_answered(now, met, &silent, out),
            Event::BeforeEnded { failure } => self.before_ended(now, failure, out),
            Event::HaltSet { reason, immediate, ends } => self.halt_set(now, reason, immediate, ends, out),
            Event::HaltCleared => self.halt_cleared(out),
            Event::RunPrepared { node, generation } => self.run_prepared(self.position(&node)?, generation, out),
            Event::RunRefused { node, generation, reason } => {
                self.run_refused(now, self.position(&node)?, generation, reason, out);
            }
            Event::RanksKilled { node, generation, may_halt } => {
                self.ranks_killed(self.position(&node)?, generation, may_halt, out);
            }
            Event::StepStarted { generation } => self.note_fact(generation, |active| active.facts.started = true),
            Event::LaunchFailed { generation, reason, obstacle } => {
                self.launch_failed(now, generation, reason, obstacle, out);
            }
            Event::RankExited { generation, rank, end } => self.rank_exited(now, generation, rank, end, out),
            Event::StepEnded { generation, end } => self.step_ended(now, generation, end, out),
            Event::StepLost { generation, reason } => self.step_lost(now, generation, reason, out),
            Event::Printed { generation } => self.with_watchdog(generation, |watch| watch.printed(now)),
            Event::RanksQuiet { node, generation, ranks } => self.ranks_quiet(now, node, generation, ranks, out),
            Event::RanksWait { node, generation, waiting } => self.ranks_wait(now, node, generation, waiting),
            Event::StacksSaved { generation } => self.stacks_saved(now, generation, out),
            Event::Restarted { generation, from, protected, fetched_in, written_by } => {
                if self.generation() == generation {
                    self.state.head.of_other_ranks = from.zip(written_by);
                }
                self.restarted(generation, from, protected, fetched_in, out);
            }
            Event::CheckpointUnusable { generation, checkpoint, reason } => {
                self.checkpoint_unusable(generation, checkpoint, &reason);
            }
            Event::RestartPrevented { generation, faulty, reason } => {
                self.restart_prevented(now, generation, faulty.as_ref(), reason, out);
            }
            Event::LibraryStarted { generation } => self.library_started(generation),
            Event::CheckpointComplete { generation, checkpoint, protected, bytes } => {
                self.checkpoint_complete(generation, checkpoint, protected, bytes);
            }
            Event::CheckpointProtected { generation, checkpoint } => self.checkpoint_protected(generation, checkpoint),
            Event::ProtectionFailed { generation, checkpoint } => self.protection_failed(generation, checkpoint),
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
            Event::RankConnected { generation, rank } => {
                self.state.head.api_called = true;
                self.note_fact(generation, |active| {
                    active.facts.connected = true;
                    active.left.remove(rank.0);
                });
            }
            // Also of a generation that has ended meanwhile: that of the next one would be the same.
            Event::RankRefused { generation, rank, reason } => {
                if generation == self.state.head.generation && self.state.head.refused.is_none() {
                    self.state.head.refused = Some(format!("rank {rank} was refused: {reason}"));
                }
            }
            Event::RankLeft { generation, rank } => self.rank_left(generation, rank),
            Event::ProgressChecked { generation, found } => self.progress_checked(now, generation, found, out),
            Event::Superseded { from, failure } => self.superseded(from, failure, out),
            Event::Drained { result, unplaced } => self.drained(now, result, unplaced, out),
            Event::Signal { name } => self.signalled(now, name, out),
            Event::AllocationChecked { denial } => self.allocation_checked(now, denial, out),
            Event::AllocationEnd { end } => self.allocation_end(now, end, out),
            Event::Tick => {}
        }
        Some(())
    }

    /// Handles what is due by the time alone.
    fn check_due(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.check_nodes(now, out);
        self.advance(now, out);
        self.check_clock(now, out);
        self.advance(now, out);
    }

    /// When to send [`Event::Tick`] if no other event arrives. May be earlier than needed; then the tick has no effect.
    /// What is due on nodes depends on [`Event::PollsRan`] instead.
    pub fn deadline(&self) -> Option<Duration> {
        match &self.state.head.phase {
            Phase::Fresh | Phase::Finished => None,
            Phase::Gathering
            | Phase::AskingHalt { .. }
            | Phase::RunningBefore { .. }
            | Phase::CheckingAllocation
            | Phase::AwaitingNodes
            | Phase::Preparing => self.launch_until(),
            Phase::Settling { until } => Some(self.launch_until().map_or(*until, |limit| limit.min(*until))),
            Phase::Running => {
                let reports = self.api_silence_at().into_iter().chain(self.wait_reported_at());
                self.halt_deadline().into_iter().chain(reports).min()
            }
            Phase::Ending { .. } | Phase::CheckingProgress | Phase::Stopping | Phase::Draining => None,
        }
    }

    /// An action that waited, updated for the present state of the nodes; `None` if it is not needed any more because
    /// its generation has ended.
    pub fn refreshed(&self, action: Action) -> Option<Action> {
        let phase = self.state.head.phase;
        let is_current = |of: Generation| matches!(phase, Phase::Preparing | Phase::Running) && self.generation() == of;
        match action {
            Action::Prepare { generation, mut to, .. } if is_current(generation) => {
                to.retain(|node| self.position(node).is_some_and(|at| !self.state.nodes[at as usize].is_out()));
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

    /// Enters the next phases, as long as everything that a phase waits for has happened.
    fn advance(&mut self, now: Duration, out: &mut Vec<Action>) {
        loop {
            let phase = self.state.head.phase;
            match phase {
                Phase::Gathering => self.gather(now, out),
                // Nothing is waited for if there is no next launch.
                Phase::Settling { .. } if self.obstacle(now).is_some() => self.set_phase(Phase::Gathering),
                Phase::AwaitingNodes => self.check_lent(now, out),
                Phase::RunningBefore { failed } => self.check_before(now, failed.is_some(), out),
                Phase::Preparing if self.state.waiting.is_empty() => self.launch(now, out),
                Phase::Ending { .. } if self.state.unkilled.is_empty() && self.state.unanswered.is_empty() => {
                    self.conclude(now, out);
                }
                // Without an agent there is no drain: nothing is waited for.
                Phase::Stopping if self.state.head.superseding.is_under_way() && self.count.healthy > 0 => {}
                // Before the first launch agents that are slow to start are not waited for: their nodes hold nothing of
                // this job.
                Phase::Stopping if self.count.starting == 0 || self.state.head.launches == 0 => self.drain(now, out),
                _ => {}
            }
            if self.state.head.phase == phase {
                return;
            }
        }
    }
}
