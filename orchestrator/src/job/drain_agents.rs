//! The agents of `holdfast drain`: started where they are missing, restarted when they are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName};
use holdfast_wire::agent::{ForgetRequest, KillRequest};
use tokio::sync::mpsc;

use super::reporter::Reporter;
use crate::allocation::{AgentTemplate, Allocation};
use crate::drain::{self, CopySettings, DrainError, DrainOrder, DrainReport, Survey};
use crate::events::LogEvent;
use crate::fleet::clock::unix_now;
use crate::fleet::{AgentClient, AgentSupervisor, Clock, FleetError, FleetEvent, FleetSettings};

/// The interval of polls.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// An agent that is silent for this long, in running time, is lost. Longer than in a running job, because agents are
/// busy copying.
const PATIENCE: Duration = Duration::from_secs(10);
/// Restarts of a node's agent before the node is given up.
const RESTARTS: u32 = 3;

pub(super) struct DrainAgents {
    allocation: Arc<dyn Allocation>,
    pub(super) agents: AgentSupervisor,
    job_id: String,
    reporter: Reporter,
    restarts: BTreeMap<NodeName, u32>,
    /// Nodes whose agent is being started.
    starting: BTreeSet<NodeName>,
    /// Nodes whose agent could not be started, with the reason.
    not_started: BTreeMap<NodeName, String>,
    /// The running time.
    ran: Duration,
    /// The running time at the last answer of each agent that is up.
    answered: BTreeMap<NodeName, Duration>,
}

impl DrainAgents {
    pub(super) fn new(
        allocation: Arc<dyn Allocation>,
        template: AgentTemplate,
        requests_at_once: u32,
        reporter: Reporter,
    ) -> Result<Self, FleetError> {
        let client = AgentClient::new(&template.trust, requests_at_once)?.for_agents(allocation.nodes().len());
        let job_id = template.settings.job_id.clone();
        let settings = FleetSettings {
            template,
            poll_interval: POLL_EVERY,
            poll_patience: PATIENCE,
            allocation_end: None,
            clock: Clock::since(unix_now()),
        };
        let agents = AgentSupervisor::new(Arc::clone(&allocation), client, settings);
        Ok(DrainAgents {
            allocation,
            agents,
            job_id,
            reporter,
            restarts: BTreeMap::new(),
            starting: BTreeSet::new(),
            not_started: BTreeMap::new(),
            ran: Duration::ZERO,
            answered: BTreeMap::new(),
        })
    }

    /// Starts the agents that are missing, and waits for them.
    pub(super) async fn start_missing(&mut self) {
        let up = self.agents.roster().agents();
        let missing = self.allocation.nodes().iter().filter(|node| !up.contains_key(*node));
        self.starting = missing.cloned().collect();
        for node in &self.starting {
            self.agents.start(node.clone());
        }
        while !self.starting.is_empty() {
            let event = self.agents.next().await;
            self.receive(event);
        }
    }

    fn receive(&mut self, event: FleetEvent) {
        match event {
            FleetEvent::Up { node, clock_skew_ms, health, .. } => {
                self.reporter.agent_up(&node, clock_skew_ms, health.as_deref());
                self.starting.remove(&node);
                self.not_started.remove(&node);
                self.answered.insert(node, self.ran);
            }
            FleetEvent::Unchanged { answers } => {
                self.answered.extend(answers.into_iter().map(|(node, _)| (node, self.ran)));
            }
            FleetEvent::Answered { node, reply, .. } => {
                self.reporter.screen.progress(&node, &reply.progress);
                self.answered.insert(node, self.ran);
            }
            FleetEvent::PollsRan { ran } => {
                if self.ran.is_zero() {
                    self.answered.values_mut().for_each(|at| *at = ran);
                }
                self.ran = ran;
                let silent = self.answered.iter().filter(|(_, at)| ran.saturating_sub(**at) > PATIENCE);
                let silent: Vec<NodeName> = silent.map(|(node, _)| node.clone()).collect();
                for node in silent {
                    self.lost(node, &format!("no answer for {} s", PATIENCE.as_secs()));
                }
            }
            FleetEvent::Checked { .. } => {}
            FleetEvent::StartFailed { node, reason, .. } => {
                self.starting.remove(&node);
                self.agents.stop_awaiting(&node);
                self.not_started.insert(node.clone(), reason.clone());
                self.reporter.emit(LogEvent::AgentNotStarted { node, reason });
            }
            FleetEvent::Lost { node, reason } => self.lost(node, &reason),
        }
    }

    fn lost(&mut self, node: NodeName, reason: &str) {
        tracing::info!(%node, reason, "an agent was lost during the drain");
        self.answered.remove(&node);
        self.reporter.clear_progress(&node);
        let restarts = self.restarts.entry(node.clone()).or_default();
        if *restarts < RESTARTS {
            *restarts += 1;
            self.agents.start(node);
        } else {
            self.agents.stop_awaiting(&node);
        }
    }

    pub(super) async fn kill_ranks(&self, request: KillRequest) {
        let (client, request) = (self.agents.client(), &request);
        let killed = client.each(self.agents.roster().agents(), |(node, address)| async move {
            if let Err(error) = client.kill(address, request).await {
                tracing::info!(%node, %error, "an agent could not kill the ranks of its node");
            }
        });
        killed.await;
    }

    pub(super) async fn forget(&self, finished: Generation) {
        let (client, request) = (self.agents.client(), &ForgetRequest { finished, earlier_runs: 0 });
        let forgotten = client.each(self.agents.roster().agents(), |(node, address)| async move {
            client
                .forget(address, request)
                .await
                .inspect_err(|error| {
                    tracing::warn!(%node, %error, "finished steps cannot be forgotten; the node is left out");
                })
                .is_err()
                .then_some(node)
        });
        for node in forgotten.await.into_iter().flatten() {
            self.agents.roster().node_down(&node);
        }
    }

    pub(super) async fn drain(
        &mut self,
        prefix: &Path,
        (copies, continues): (CopySettings, bool),
        requested: Option<CheckpointId>,
    ) -> Result<DrainReport, DrainError> {
        let (order, mut emitted) = self.order(prefix, requested);
        let order = DrainOrder { copies, continues, ..order };
        let draining = drain::drain(&order);
        tokio::pin!(draining);
        let result = loop {
            tokio::select! {
                result = &mut draining => break result,
                Some(event) = emitted.recv() => self.reporter.emit(event),
                event = self.agents.next() => self.receive(event),
            }
        };
        while let Ok(event) = emitted.try_recv() {
            self.reporter.emit(event);
        }
        self.with_reasons(result)
    }

    /// The drain knows only which agents are not up; why one could not be started is known here.
    fn with_reasons(&self, result: Result<DrainReport, DrainError>) -> Result<DrainReport, DrainError> {
        match result {
            Ok(mut report) => {
                for (node, reason) in &mut report.failed_nodes {
                    if let Some(known) = self.not_started.get(node) {
                        reason.clone_from(known);
                    }
                }
                Ok(report)
            }
            Err(DrainError::NoInventory { reason }) => {
                let reason = self.not_started.values().next().cloned().unwrap_or(reason);
                Err(DrainError::NoInventory { reason })
            }
            Err(error) => Err(error),
        }
    }

    /// Starts missing agents, requests the inventories, and ends all agents again.
    pub(super) async fn survey(mut self, prefix: &Path, requested: Option<CheckpointId>) -> Result<Survey, DrainError> {
        self.start_missing().await;
        let (order, mut emitted) = self.order(prefix, requested);
        let survey = drain::survey(&order).await;
        while let Ok(event) = emitted.try_recv() {
            self.reporter.emit(event);
        }
        self.agents.end_all(false).await;
        survey
    }

    /// A drain with the agents that are up, and the receiver of its events.
    fn order(&self, prefix: &Path, requested: Option<CheckpointId>) -> (DrainOrder, mpsc::UnboundedReceiver<LogEvent>) {
        let (events, emitted) = mpsc::unbounded_channel();
        let up = self.agents.roster().agents();
        let order = DrainOrder {
            client: self.agents.client().clone(),
            roster: self.agents.roster().clone(),
            lost: Vec::new(),
            down: self.allocation.nodes().iter().filter(|node| !up.contains_key(*node)).cloned().collect(),
            prefix: prefix.to_owned(),
            job_id: self.job_id.clone(),
            generation: Generation(u64::MAX),
            continues: true,
            copies: CopySettings { crc: false, buffer_bytes: 0, threads: None, container: None, keep: 0 },
            requested,
            events,
        };
        (order, emitted)
    }
}
