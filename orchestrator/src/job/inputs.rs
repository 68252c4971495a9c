//! Turns what agents, ranks and the drain report into events of the machine.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::agent::{AgentEvent, Health, PollReply};

use super::Driver;
use super::agents::Started;
use super::running_step::StepUpdate;
use crate::allocation::Observation;
use crate::drain::DrainReport;
use crate::events::LogEvent;
use crate::fleet::PollNews;
use crate::launch::StepEvent;
use crate::relaunch::Event;
use holdfast_model::RankEnd;

/// The end of something that a task did.
#[derive(Debug)]
pub(super) enum TaskResult {
    /// An agent was started, or not.
    Started { node: NodeName, started: Started },
    /// An event that needs nothing else.
    Event(Event),
    /// An agent accepted a generation.
    Prepared { node: NodeName, generation: Generation, socket: PathBuf },
    /// A request was not answered.
    Unanswered { node: NodeName, start: u64, reason: String },
    /// The spec's halt conditions are in the halt files.
    HaltSet,
    /// The drain ended.
    Drained(Box<DrainReport>),
}

impl Driver {
    pub(super) async fn task_result(&mut self, result: TaskResult) {
        match result {
            TaskResult::Started { node, started } => self.agent_started(node, started).await,
            TaskResult::Event(event) => self.feed(event).await,
            TaskResult::Prepared { node, generation, socket } => {
                self.context.state.sockets.insert(node.clone(), socket);
                self.feed(Event::RunPrepared { node, generation }).await;
            }
            TaskResult::Unanswered { node, start, reason } => self.agent_lost(node, start, reason).await,
            TaskResult::HaltSet => self.context.state.halt_set = true,
            TaskResult::Drained(report) => {
                let result = report.result.clone();
                // On disk with the machine's state, before the agents are told to remove anything.
                self.context.state.keeps_data = report.retry_may_help;
                self.drained = Some(*report);
                self.drain = None;
                self.feed(Event::Drained { result }).await;
            }
        }
    }

    pub(super) async fn poll_result(&mut self, news: PollNews) {
        match news {
            PollNews::Lost { node, start, reason } => self.agent_lost(node, start, reason).await,
            PollNews::Answered { node, start, sent, reply } => {
                if self.agents.get(&node).is_none_or(|agent| agent.start != start) {
                    return;
                }
                let PollReply { instance, health, events, progress } = *reply;
                if let Some(record) = self.context.state.running.get_mut(&node) {
                    let before = if record.seen.0 == instance { record.seen.1 } else { 0 };
                    let number = events.iter().map(|event| event.number).max().unwrap_or(before);
                    record.seen = (instance, number);
                }
                self.context.screen.progress(&node, &progress);
                for event in events {
                    self.agent_event(&node, event.event).await;
                }
                if self.context.spec.health.hang_after.is_some() {
                    let (node, generation, ranks) = (node.clone(), health.generation, health.quiet.clone());
                    self.feed(Event::RanksQuiet { node, generation, ranks }).await;
                }
                let fault = self.fault_of(&health);
                self.feed(Event::PollAnswered { node, sent, fault }).await;
            }
        }
    }

    /// What is wrong with a node according to its own report.
    pub(super) fn fault_of(&self, health: &Health) -> Option<String> {
        let directory = health
            .directories
            .iter()
            .find_map(|directory| directory.fault.as_ref().map(|fault| format!("{}: {fault}", directory.path)));
        let memory = || {
            let needed = self.context.spec.health.min_memory?;
            let available = health.memory_available;
            (available < needed)
                .then(|| format!("{available} bytes of memory available, {needed} needed (health.min_memory)"))
        };
        directory.or_else(memory)
    }

    async fn agent_event(&mut self, node: &NodeName, event: AgentEvent) {
        self.emit(LogEvent::of_agent(node, event.clone()));
        match event {
            AgentEvent::Restarted { generation, checkpoint, .. } => {
                self.context.state.restarted_from.insert(generation, checkpoint);
                self.feed(Event::Restarted { generation, from: checkpoint }).await;
            }
            AgentEvent::CheckpointComplete { generation, checkpoint, scheme, .. } => {
                let protected = scheme != holdfast_model::Scheme::new("LOCAL");
                self.feed(Event::CheckpointComplete { generation, checkpoint, protected }).await;
                self.observe(Observation::Protected(checkpoint));
            }
            AgentEvent::Halting { generation, reason } => self.feed(Event::Halting { generation, reason }).await,
            AgentEvent::Finalized { generation } => self.feed(Event::Finalized { generation }).await,
            _ => {}
        }
    }

    /// Injects the ordered failures that are due.
    pub(super) fn observe(&mut self, observation: Observation) {
        let allocation = Arc::clone(&self.context.allocation);
        let Some(injection) = allocation.fault_injection() else { return };
        for fault in injection.due_faults(observation) {
            self.emit(LogEvent::FaultInjected { node: fault.node.clone(), agent_only: fault.agent_only });
            let running = self.running.as_ref().filter(|_| !fault.agent_only);
            tokio::task::block_in_place(|| {
                // The agent first: a node that dies reports nothing.
                allocation.kill_agent(&fault.node);
                if let Some(step) = running {
                    step.kill_on(&fault.node);
                }
                injection.inject_fault(&fault);
            });
        }
    }

    pub(super) async fn step_update(&mut self, news: StepUpdate) {
        let current = self.running.as_ref().map(|step| step.generation);
        match news {
            StepUpdate::Output(lines) => {
                if let Some(generation) = current.filter(|_| self.context.spec.health.hang_after.is_some()) {
                    self.feed(Event::Printed { generation }).await;
                }
                for (rank, stream, line) in lines {
                    self.context.screen.rank_line(rank, stream, &line);
                }
            }
            StepUpdate::Event(generation, event) if current == Some(generation) => {
                if let Some(step) = &mut self.running {
                    step.take_in(&event);
                }
                self.step_event(generation, event).await;
            }
            StepUpdate::Orphaned(generation) if current == Some(generation) => {
                self.step_lost(generation, "its supervisor is gone").await;
            }
            StepUpdate::Unreadable(generation, reason) if current == Some(generation) => {
                self.step_lost(generation, &format!("what it does cannot be read: {reason}")).await;
            }
            StepUpdate::Event(..) | StepUpdate::Orphaned(_) | StepUpdate::Unreadable(..) => {}
        }
    }

    async fn step_event(&mut self, generation: Generation, event: StepEvent) {
        match event {
            StepEvent::Supervisor { .. } => self.feed(Event::StepStarted { generation }).await,
            StepEvent::Started { .. } => {}
            StepEvent::Waiting { reason } => self.emit(LogEvent::LaunchDelayed { generation, reason }),
            StepEvent::Refused { reason, .. } => self.feed(Event::LaunchFailed { generation, reason }).await,
            StepEvent::Exited { rank, end } => {
                if end != RankEnd::SUCCESS {
                    let failed = LogEvent::RankFailed { generation, rank, end };
                    // That ranks die of being killed is only for the log.
                    if self.context.machine.is_running(generation) {
                        self.emit(failed);
                    } else {
                        self.context.journal.write(&failed);
                    }
                }
                self.feed(Event::RankExited { generation, rank, end }).await;
            }
            StepEvent::Failed { end } => self.feed(Event::StepEnded { generation, end }).await,
            // Every rank's own end was told before.
            StepEvent::Done => self.feed(Event::StepEnded { generation, end: RankEnd::SUCCESS }).await,
        }
    }

    /// Nobody can say any more how the ranks end: they are killed, and the generation with them.
    async fn step_lost(&mut self, generation: Generation, reason: &str) {
        if let Some(step) = &self.running {
            tokio::task::block_in_place(|| step.cancel());
        }
        self.feed(Event::StepLost { generation, reason: reason.to_owned() }).await;
        self.feed(Event::StepEnded { generation, end: RankEnd::Unknown }).await;
    }
}
