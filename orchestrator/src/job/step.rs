//! The driver of one step: gives the relaunch machine what happens, performs what it asks for.
//!
//! Each subject has an owner of its own: the agents ([`AgentSupervisor`]), the ranks ([`Ranks`]), the drain
//! ([`DrainTask`]), what is written for a successor ([`JobRecord`]), what is shown and logged ([`Reporter`]). The driver
//! connects them; nothing that it does follows from anything but an action of the machine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::NodeName;
use holdfast_wire::run::Settings;
use tokio::time::MissedTickBehavior;

use super::background::{Background, Inbox};
use super::drain_task::DrainTask;
use super::ranks::Ranks;
use super::record::JobRecord;
use super::reporter::Reporter;
use super::signals::Signals;
use super::site::CommandContext;
use super::{settings, site};
use crate::allocation::{Allocation, Observation};
use crate::events::{DownReason, LogEvent};
use crate::fleet::{AgentSupervisor, Clock};
use crate::relaunch::{Action, Event, Machine, Outcome};
use crate::spec::{JobSpec, Step};

/// How often the resource manager is asked for down nodes, and due fault injections are looked for.
const RESOURCE_MANAGER_POLL: Duration = Duration::from_millis(100);

/// The driver of one step of a job.
pub(super) struct StepDriver<'job> {
    pub(super) spec: &'job JobSpec,
    pub(super) step: &'job Step,
    /// No step of the job follows.
    pub(super) is_last: bool,
    pub(super) allocation: Arc<dyn Allocation>,
    pub(super) clock: Clock,
    pub(super) settings: Settings,
    pub(super) machine: Machine,
    pub(super) agents: &'job mut AgentSupervisor,
    pub(super) ranks: Ranks,
    pub(super) drain: DrainTask,
    pub(super) record: JobRecord,
    pub(super) reporter: Reporter<'job>,
    pub(super) commands: CommandContext,
    pub(super) outcome: Option<Outcome>,
    pub(super) signals: &'job mut Signals,
    /// Nodes that the resource manager reported as down.
    pub(super) reported_down: BTreeSet<NodeName>,
    pub(super) background: Background,
    pub(super) inbox: Inbox,
}

impl StepDriver<'_> {
    /// The loop, to its end.
    pub(super) async fn run(&mut self) {
        let mut manager_poll = tokio::time::interval(RESOURCE_MANAGER_POLL);
        manager_poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Before the machine wants anything of them: what is asked of an agent that is not known would be lost.
        self.agents.adopt(&self.record.state.running).await;
        let actions = self.machine.begin(self.clock.now());
        self.perform_all(actions).await;
        while self.outcome.is_none() {
            self.reporter.refresh(&self.machine);
            let deadline = self.machine.deadline().map(|at| self.clock.until(at));
            tokio::select! {
                // Signals before anything else; what is known before what follows from time alone.
                biased;
                name = self.signals.next() => self.feed(Event::Signal { name: name.to_owned() }).await,
                Some(result) = self.inbox.results.recv() => self.task_result(result).await,
                event = self.agents.next() => self.fleet_event(event).await,
                update = self.ranks.next() => self.step_update(update).await,
                Some(event) = self.inbox.events.recv() => self.reporter.emit(event),
                () = sleep(deadline) => self.feed(Event::Tick).await,
                _ = manager_poll.tick() => self.poll_resource_manager().await,
            }
        }
        while let Ok(event) = self.inbox.events.try_recv() {
            self.reporter.emit(event);
        }
        self.end_ranks().await;
    }

    /// Gives the machine an event, and performs what it asks for.
    pub(super) async fn feed(&mut self, event: Event) {
        tracing::debug!(?event, "event");
        let actions = self.machine.handle(self.clock.now(), event);
        self.perform_all(actions).await;
    }

    async fn perform_all(&mut self, actions: Vec<Action>) {
        // What is going to be done is on disk before it is done: whoever takes over asks for it again.
        self.record.write_if_changed(&mut self.machine, self.agents);
        for action in actions {
            tracing::debug!(?action, "action");
            self.perform(action).await;
        }
    }

    /// Polls the resource manager and injects due faults.
    async fn poll_resource_manager(&mut self) {
        for (node, state) in self.allocation.down_nodes() {
            if self.reported_down.insert(node.clone()) {
                self.feed(Event::NodeDown { node, reason: DownReason::ResourceManager { state } }).await;
            }
        }
        let end = self.allocation.end().map(settings::epoch);
        if self.agents.allocation_ends(end) {
            self.settings.allocation_end = end;
            self.reporter.emit(LogEvent::AllocationEndChanged { end });
            self.feed(Event::AllocationEnd { end }).await;
        }
        if let Some(first) = self.record.state.first_launch_ms.map(Duration::from_millis) {
            let since = self.clock.now().saturating_sub(first);
            self.inject_faults(Observation::SinceLaunch(since));
        }
    }

    /// The nodes whose agents are up.
    pub(super) fn nodes_up(&self) -> Vec<NodeName> {
        self.agents.roster().agents().into_keys().collect()
    }

    /// Runs the site's health test on nodes: those that fail it, with the reason.
    pub(super) fn health_test(&self) -> Option<(Vec<String>, site::CommandContext)> {
        Some((self.spec.health.command.clone()?, self.commands.clone()))
    }
}

/// Never ends without a deadline.
async fn sleep(until: Option<Duration>) {
    match until {
        Some(until) => tokio::time::sleep(until).await,
        None => std::future::pending().await,
    }
}
