//! Injects the faults of the spec while a step runs: the agents of the nodes do it. See [`FaultSchedule`].
//!
//! [`FaultSchedule`]: super::fault_schedule::FaultSchedule

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::store;
use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::agent::{FaultRequest, NodeFault};
use regex::bytes::Regex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::background::{Background, TaskResult};
use super::fault_schedule::{AgentPlaces, DueFault, FaultSchedule, Observation};
use super::reporter::Reporter;
use super::state;
use super::step::StepDriver;
use crate::allocation::Allocation;
use crate::events::LogEvent;
use crate::fleet::RequestError;
use crate::launch::output::{OutputLine, OutputTail};
use crate::launch::{LineLabels, StepPlan, registry};
use crate::spec::FaultAction;
use crate::spec::quantity::whole_millis;

/// How often the output of the ranks is read for a line that a fault waits for.
const READ_EVERY: Duration = Duration::from_millis(50);

impl AgentPlaces for StepDriver<'_> {
    fn nodes_up(&self) -> Vec<NodeName> {
        StepDriver::nodes_up(self)
    }

    fn node_of(&self, rank: Rank) -> Option<NodeName> {
        self.ranks.node_of(self.machine.generation(), rank)
    }
}

impl StepDriver<'_> {
    /// Injects the faults that are due, in the background, and reports those that agents injected themselves.
    pub(super) fn inject_due_faults(&mut self) {
        let by_agents = self.faults.lock().injected_by_agents(&self.allocation.injected_faults());
        for (node, action) in by_agents {
            self.record.state.faults_injected = self.faults.lock().injected();
            self.record.make_durable();
            self.reporter.emit(injected(&node, &action));
        }
        if let Some(first) = self.record.state.first_launch_ms.map(Duration::from_millis) {
            let now = self.clock.now();
            let of_step = self.machine.first_launched().map(|first| now.saturating_sub(first));
            self.observe(&Observation::SinceLaunch { job: now.saturating_sub(first), step: of_step });
        }
        let due = self.faults.lock().take_due(&self.step.name, self);
        for fault in due {
            self.record.state.faults_injected = self.faults.lock().injected();
            self.record.make_durable();
            self.inject(fault);
        }
    }

    /// Takes note of the step's progress.
    pub(super) fn observe(&self, observation: &Observation) {
        self.faults.lock().observe(&self.step.name, observation);
    }

    fn inject(&mut self, due: DueFault) {
        match &due.action {
            FaultAction::StallPrefix(time) => {
                store::stall_for(*time);
                self.reporter.emit(LogEvent::PrefixStalled { millis: whole_millis(*time) });
            }
            action => due.nodes.iter().for_each(|node| self.reporter.emit(injected(node, action))),
        }
        if matches!(due.fault, NodeFault::LoseNode | NodeFault::KillAgent) {
            due.nodes.iter().for_each(|node| self.allocation.agent_is_killed(node));
        }
        if due.fault == NodeFault::LoseNode {
            due.nodes.iter().for_each(|node| self.agents.node_lost(node.clone()));
        }
        let addresses = self.agents.roster().agents();
        for node in due.nodes.clone() {
            let Some(address) = addresses.get(&node).copied() else { continue };
            let (client, background, due) = (self.agents.client().clone(), self.background.clone(), due.clone());
            let allocation = Arc::clone(&self.allocation);
            tokio::spawn(async move {
                let result = client.inject_fault(address, &FaultRequest { fault: due.fault }).await;
                if due.fault == NodeFault::LoseNode {
                    let _ = tokio::task::spawn_blocking(move || allocation.lose_node(&node)).await;
                }
                let silenced = |error: &RequestError| {
                    due.may_be_unanswered()
                        && matches!(error, RequestError::Silent { .. } | RequestError::Broken { .. })
                };
                if let Err(error) = result
                    && !silenced(&error)
                {
                    background.send(TaskResult::FaultFailed { number: due.number, reason: error.brief() });
                }
            });
        }
    }

    pub(super) fn fault_failed(&mut self, number: usize, reason: String) {
        self.faults.lock().failed(number, reason);
        self.record.state.faults_injected = self.faults.lock().injected();
    }

    /// Reports the faults that were not injected, at the end of the job.
    pub(super) fn report_missed_faults(&mut self) {
        report_missed(&mut self.faults.lock(), &*self.allocation, &mut self.reporter);
    }

    /// Begins to read the output of a generation for the lines that faults wait for, until another generation begins.
    pub(super) fn watch_output(&mut self, generation: Generation) {
        let expressions = self.faults.lock().awaited_lines(&self.step.name);
        // They were checked when the spec was read.
        let compiled = expressions.into_iter().filter_map(|(number, line)| Some((number, Regex::new(&line).ok()?)));
        let awaited: Vec<_> = compiled.collect();
        self.output_watch = (!awaited.is_empty()).then(|| {
            let directory = state::generation_directory(&self.settings.prefix, generation);
            let watch = OutputWatch { directory, ranks: self.step.run.ranks, awaited };
            watch.start(self.background.clone())
        });
    }
}

fn injected(node: &NodeName, action: &FaultAction) -> LogEvent {
    LogEvent::FaultInjected {
        node: node.clone(),
        agent_only: matches!(action, FaultAction::KillAgent(_)),
        action: Some(action.word().to_owned()),
        rank: if let FaultAction::KillRank(rank) = action { Some(*rank) } else { None },
    }
}

/// Reports the faults that were not injected.
pub(super) fn report_missed(faults: &mut FaultSchedule, allocation: &dyn Allocation, reporter: &mut Reporter) {
    let by_agents = faults.injected_by_agents(&allocation.injected_faults());
    by_agents.iter().for_each(|(node, action)| reporter.emit(injected(node, action)));
    for missed in faults.report() {
        if let Some(reason) = missed.reason {
            reporter.emit(LogEvent::FaultNotInjected { fault: missed.fault, reason });
        }
    }
}

/// Lines of a generation for which faults wait.
struct OutputWatch {
    directory: PathBuf,
    ranks: u32,
    awaited: Vec<(usize, Regex)>,
}

impl OutputWatch {
    /// Ends when the result is dropped, or all lines were found.
    fn start(self, background: Background) -> DropGuard {
        let cancelled = CancellationToken::new();
        let token = cancelled.clone();
        tokio::task::spawn_blocking(move || self.read(&token, &background));
        cancelled.drop_guard()
    }

    fn read(mut self, cancelled: &CancellationToken, background: &Background) {
        let mut tail = OutputTail::new(&self.directory, (0..self.ranks).map(Rank), labels(&self.directory), false);
        tail.follow_all();
        let mut lines: Vec<OutputLine> = Vec::new();
        while !self.awaited.is_empty() && !cancelled.is_cancelled() {
            lines.clear();
            let more = tail.pass_on(&mut lines);
            let found = |expression: &Regex| lines.iter().any(|line| expression.is_match(&line.text));
            self.awaited.retain(|(number, expression)| {
                let is_found = found(expression);
                if is_found {
                    background.send(TaskResult::LinePrinted { fault: *number });
                }
                !is_found
            });
            if !more {
                std::thread::sleep(READ_EVERY);
            }
        }
    }
}

/// How the launcher of a generation labels the lines of its ranks.
fn labels(directory: &std::path::Path) -> Option<&'static LineLabels> {
    let plan = StepPlan::read(&StepPlan::path_in(directory)).ok()?;
    registry::supervision(&plan).ok()?.labels()
}
