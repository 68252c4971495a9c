//! Turns the reports of agents, ranks and the drain into events of the machine.

use holdfast_model::{Generation, Level, NodeName, RankEnd};
use holdfast_wire::agent::{AgentEvent, ForgetRequest, HaltReport, Health, PollReply};

use super::background::TaskResult;
use super::fault_schedule::Observation;
use super::running_step::{StepReport, StepUpdate};
use super::step::StepDriver;
use crate::events::LogEvent;
use crate::fleet::FleetEvent;
use crate::launch::StepEvent;
use crate::relaunch::Event;

impl StepDriver<'_> {
    pub(super) fn task_result(&mut self, result: TaskResult) {
        match result {
            TaskResult::Event(event) => self.feed(event),
            TaskResult::Prepared { node, generation, socket } => {
                if self.sockets.0 == generation {
                    self.sockets.1.insert(node.clone(), socket);
                }
                self.feed(Event::RunPrepared { node, generation });
            }
            TaskResult::HaltSet => self.record.state.halt_set = true,
            TaskResult::AllocationEnd(end) => {
                if self.agents.allocation_ends(end) {
                    self.settings.allocation_end = end;
                    self.record.state.allocation_end = end;
                    self.reporter.emit(LogEvent::AllocationEndChanged { end });
                    self.feed(Event::AllocationEnd { end });
                }
            }
            TaskResult::Launched(running) => self.launched(*running),
            TaskResult::FaultFailed { number, reason } => self.fault_failed(number, reason),
            TaskResult::LinePrinted { fault } => self.observe(&Observation::Output(fault)),
            TaskResult::Drained(report) => {
                let (result, unplaced) = (report.result.clone(), report.unplaced.clone());
                // Written together with the machine's state, before the agents remove files.
                self.record.state.keeps_data = report.retry_may_help;
                self.drain.finish(*report);
                self.feed(Event::Drained { result, unplaced });
            }
        }
    }

    pub(super) fn fleet_event(&mut self, event: FleetEvent) {
        match event {
            FleetEvent::Up { node, address, generation: adopted, health, clock_skew_ms } => {
                self.record.agent_changed(&node);
                self.reporter.agent_up(&node, clock_skew_ms, health.as_deref());
                let (finished, earlier_runs) = (self.machine.finished_steps(), self.machine.earlier_runs());
                let forget = ForgetRequest { finished, earlier_runs };
                let full = |health: &Health| self.full_directory(health);
                match health.and_then(|health| self.fault_of(&health).or_else(|| full(&health))) {
                    Some(fault) => self.feed(Event::AgentUnfit { node, address, fault }),
                    None if !forget.is_empty() => {
                        let ready = Event::AgentReady { node: node.clone(), address, adopted };
                        self.forget(forget, node, address, ready);
                    }
                    None => self.feed(Event::AgentReady { node, address, adopted }),
                }
            }
            FleetEvent::StartFailed { node, reason, node_lost } => {
                self.feed(Event::AgentStartFailed { node, reason, node_lost });
            }
            FleetEvent::Lost { node, reason } => {
                self.reporter.clear_progress(&node);
                self.feed(Event::AgentLost { node, reason });
            }
            FleetEvent::PollsRan { ran } => self.feed(Event::PollsRan { ran }),
            FleetEvent::Checked { node, presence } => self.feed(Event::AgentChecked { node, presence }),
            FleetEvent::Unchanged { answers } => {
                for (node, sent) in answers {
                    self.feed(Event::PollAnswered { node, sent, fault: None });
                }
            }
            FleetEvent::Answered { node, sent, reply } => {
                let PollReply { health, events, progress, .. } = *reply;
                self.reporter.screen.progress(&node, &progress);
                if !events.is_empty() {
                    // An orchestrator that takes over requests events again whose numbers are not on disk.
                    self.record.agent_changed(&node);
                }
                for event in events {
                    self.agent_event(&node, event.event);
                }
                if self.spec.health.hang_after.is_some() {
                    let (node, generation, ranks) = (node.clone(), health.generation, health.quiet.clone());
                    self.feed(Event::RanksQuiet { node, generation, ranks });
                }
                if self.spec.health.waiting_after.is_some() {
                    let (node, generation, waiting) = (node.clone(), health.generation, health.waiting.clone());
                    self.feed(Event::RanksWait { node, generation, waiting });
                }
                self.halt_reported(&node, &health);
                let fault = self.fault_of(&health);
                self.feed(Event::PollAnswered { node, sent, fault });
            }
        }
    }

    /// The halt conditions of the leader's node count for the generation that it serves.
    fn halt_reported(&mut self, node: &NodeName, health: &Health) {
        // LLNL's library uses the halt file of the node of rank 0.
        let is_library = self.step.source.facts.agent.is_library;
        let counts = if is_library { self.machine.first_rank_node() } else { self.machine.leader() };
        if !self.machine.is_running(health.generation) || counts.as_ref() != Some(node) {
            return;
        }
        match health.halt.clone() {
            Some(HaltReport { reason, immediate, ends }) => self.feed(Event::HaltSet { reason, immediate, ends }),
            None => self.feed(Event::HaltCleared),
        }
    }

    /// Before the first launch nothing of the job is there: a file system that is full then has no room for it.
    fn full_directory(&self, health: &Health) -> Option<String> {
        let mut directories = health.directories.iter().filter(|_| self.machine.is_before_first_launch());
        directories.find_map(|directory| Some(format!("{}: {}", directory.path, directory.full.as_ref()?)))
    }

    /// The fault in a node's health report.
    fn fault_of(&self, health: &Health) -> Option<String> {
        let directory = health
            .directories
            .iter()
            .find_map(|directory| directory.fault.as_ref().map(|fault| format!("{}: {fault}", directory.path)));
        let memory = || {
            let needed = self.spec.health.min_memory?;
            let available = health.memory_available;
            (available < needed)
                .then(|| format!("{available} bytes of memory available, {needed} needed (health.min_memory)"))
        };
        directory.or_else(memory)
    }

    fn agent_event(&mut self, node: &NodeName, event: AgentEvent) {
        // A fault after a checkpoint: when no more is going to protect it.
        let kept = match event {
            // Its flush protects it.
            AgentEvent::CheckpointComplete { level: Some(level), .. } if level == Level::Prefix.number() => None,
            AgentEvent::CheckpointComplete { checkpoint, protected: false, .. }
            | AgentEvent::CheckpointProtected { checkpoint, .. }
            | AgentEvent::ProtectionFailed { checkpoint, .. }
            | AgentEvent::Flushed { checkpoint, .. }
            | AgentEvent::FlushFailed { checkpoint, .. } => Some(checkpoint),
            _ => None,
        };
        self.reporter.emit(LogEvent::of_agent(node, event.clone()));
        if let Some(event) = Event::of_agent(event) {
            self.feed(event);
        }
        if let Some(checkpoint) = kept {
            self.observe(&Observation::Checkpoint(checkpoint));
        }
    }

    pub(super) fn step_update(&mut self, update: StepUpdate) {
        let StepUpdate { generation, report } = update;
        match report {
            StepReport::Printed => {
                if self.spec.health.hang_after.is_some() {
                    self.feed(Event::Printed { generation });
                }
            }
            StepReport::Event(event) => self.step_event(generation, event),
            StepReport::Orphaned => self.step_lost(generation, "its supervisor ended without a report"),
            StepReport::Unreadable(reason) => {
                self.step_lost(generation, &format!("its events cannot be read: {reason}"));
            }
        }
    }

    fn step_event(&mut self, generation: Generation, event: StepEvent) {
        match event {
            StepEvent::Supervisor { .. } => self.feed(Event::StepStarted { generation }),
            StepEvent::Started { .. } | StepEvent::Printed { .. } => {}
            StepEvent::Waiting { reason } => self.reporter.emit(LogEvent::LaunchDelayed { generation, reason }),
            StepEvent::Refused { reason, obstacle, .. } => {
                self.feed(Event::LaunchFailed { generation, reason, obstacle });
            }
            StepEvent::Exited { rank, end } => {
                if end != RankEnd::SUCCESS {
                    let node = self.ranks.node_of(generation, rank);
                    // Of a launch that was refused, or whose launcher does not say it, the ends are not known.
                    let is_known = end != RankEnd::Unknown;
                    if is_known && self.machine.is_failure(generation, end) && !self.batch.ends_run {
                        self.reporter.emit(LogEvent::RankFailed { generation, rank, node, end });
                    } else {
                        self.reporter.log(&LogEvent::RankEnded { generation, rank, node, end });
                    }
                    self.batch.ends_run |= end != RankEnd::Unknown;
                }
                self.feed(Event::RankExited { generation, rank, end });
            }
            StepEvent::Failed { end } => self.feed(Event::StepEnded { generation, end }),
            // The ends of all ranks were reported before.
            StepEvent::Done => self.feed(Event::StepEnded { generation, end: RankEnd::SUCCESS }),
        }
    }

    /// The ends of the ranks cannot be found out any more: they are killed, and the generation is ended.
    fn step_lost(&mut self, generation: Generation, reason: &str) {
        let (background, reason) = (self.background.clone(), reason.to_owned());
        let cancel = self.ranks.canceller(generation);
        tokio::task::spawn_blocking(move || {
            if let Some(cancel) = cancel {
                cancel();
            }
            background.event(Event::StepLost { generation, reason });
            background.event(Event::StepEnded { generation, end: RankEnd::Unknown });
        });
    }
}
