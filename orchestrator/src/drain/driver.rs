//! Drives the machine: performs its actions, and turns their results and the changes of the roster into events.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::Local;
use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::prefix::scan::FileDamage;
use holdfast_core::redundancy::files::SetId;
use holdfast_model::{CheckpointId, ContainerPolicy, Generation, NodeName};
use holdfast_wire::agent::{CopyRequest, EndRunRequest, FlushedNote, RebuildRequest, VerifyRequest};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::action::{AgentAt, DrainAction, DrainRequest};
use super::config::{DrainConfig, LOST_AGENT_WAIT};
use super::error::{DrainError, RequestFailure};
use super::event::{Answer, DrainEvent, RequestId};
use super::machine::DrainMachine;
use super::prefix_steps::{self, PrefixSteps};
use super::report::{DrainEnd, DrainReport, Survey};
use crate::events::LogEvent;
use crate::fleet::roster::{RosterChange, RosterState};
use crate::fleet::{AgentClient, Roster};

/// A copy may take this long; an agent that is lost is noticed long before.
const LONGEST_COPY: Duration = Duration::from_secs(7 * 24 * 3600);
/// A request to verify or rebuild files may take this long.
const LONGEST_CHECK: Duration = Duration::from_secs(24 * 3600);

/// How agents copy files.
#[derive(Clone, Copy, Debug)]
pub struct CopySettings {
    /// Compute checksums.
    pub crc: bool,
    /// Size of a copy's buffer, bytes.
    pub buffer_bytes: usize,
    /// Files that an agent copies at a time; `None`: as many as suit its processors.
    pub threads: Option<u32>,
    /// Pack checkpoints into containers.
    pub container: Option<ContainerPolicy>,
    /// Checkpoints of the job that stay in the prefix directory; 0 is all.
    pub keep: u32,
}

/// What is to be drained.
#[derive(Clone, Debug)]
pub struct DrainOrder {
    /// Requests to agents.
    pub client: AgentClient,
    pub roster: Roster,
    /// Nodes that the roster does not list, and whose agents may come up.
    pub lost: Vec<NodeName>,
    /// Nodes without an agent that the roster does not list.
    pub down: Vec<NodeName>,
    pub prefix: PathBuf,
    /// The job id, part of the checkpoint directory's name.
    pub job_id: String,
    /// Runs of this generation and older ones are ended.
    pub generation: Generation,
    /// Incomplete directories are completed; otherwise it is not known which of them are superseded, and a new one is
    /// created.
    pub continues: bool,
    pub copies: CopySettings,
    /// This dataset instead of the newest.
    pub requested: Option<CheckpointId>,
    /// Receives the events of the drain.
    pub events: mpsc::UnboundedSender<LogEvent>,
}

/// Drains. Dropping the future cancels the drain; another one continues it.
///
/// # Errors
/// The drain could not be carried out; files that were copied are kept.
pub async fn drain(order: &DrainOrder) -> Result<DrainReport, DrainError> {
    match DrainDriver::new(order, LOST_AGENT_WAIT, false).run().await {
        DrainEnd::Drained(mut report) => {
            let (prefix, job_id) = (order.prefix.clone(), order.job_id.clone());
            let unplaced = spawn_blocking(move || prefix_steps::unplaced(prefix, &job_id)).await;
            match unplaced.map_err(|error| error.to_string()).and_then(|found| found.map_err(|error| error.to_string()))
            {
                Ok(unplaced) => report.unplaced = unplaced,
                Err(reason) => tracing::warn!(reason, "whether all outputs are at their paths is not known"),
            }
            Ok(report)
        }
        DrainEnd::Surveyed(_) => Ok(DrainReport::default()),
        DrainEnd::Failed(error) => Err(error),
    }
}

/// Requests the inventories of the agents that are up, and plans the drain. Changes nothing.
///
/// # Errors
/// [`DrainError::NoInventory`].
pub async fn survey(order: &DrainOrder) -> Result<Survey, DrainError> {
    match DrainDriver::new(order, Duration::ZERO, true).run().await {
        DrainEnd::Surveyed(survey) => Ok(*survey),
        DrainEnd::Drained(_) => Ok(Survey::default()),
        DrainEnd::Failed(error) => Err(error),
    }
}

/// The answer to a request; why it failed, if so.
type RequestResult = Result<Answer, RequestFailure>;

struct DrainDriver {
    machine: DrainMachine,
    order: Arc<DrainOrder>,
    steps: Arc<PrefixSteps>,
    changes: mpsc::UnboundedReceiver<RosterChange>,
    /// One task a request. They are aborted when the driver is dropped.
    tasks: JoinSet<(RequestId, RequestResult)>,
    under_way: HashMap<RequestId, AbortHandle>,
    /// The requests by task: a task that panics does not return its request.
    requests: HashMap<Id, RequestId>,
}

impl DrainDriver {
    fn new(order: &DrainOrder, lost_agent_wait: Duration, survey_only: bool) -> Self {
        let (RosterState { agents, mut lost, mut down }, changes) = order.roster.follow();
        lost.extend(order.lost.iter().filter(|node| !down.contains(*node)).cloned());
        down.extend(order.down.iter().cloned());
        let machine = DrainMachine::new(DrainConfig {
            agents,
            lost,
            down,
            requested: order.requested,
            crc: order.copies.crc,
            container: order.copies.container,
            keep: order.copies.keep,
            requests_at_once: order.client.requests_at_once(),
            lost_agent_wait,
            survey_only,
        });
        DrainDriver {
            machine,
            steps: Arc::new(PrefixSteps::new(order)),
            order: Arc::new(order.clone()),
            changes,
            tasks: JoinSet::new(),
            under_way: HashMap::new(),
            requests: HashMap::new(),
        }
    }

    async fn run(mut self) -> DrainEnd {
        let begun = Instant::now();
        let mut actions = self.machine.begin(Duration::ZERO);
        loop {
            for action in actions {
                if let Some(end) = self.perform(action) {
                    return end;
                }
            }
            let event = self.next_event(begun).await;
            actions = self.machine.handle(begun.elapsed(), event);
        }
    }

    async fn next_event(&mut self, begun: Instant) -> DrainEvent {
        let deadline = self.machine.deadline().map(|deadline| begun + deadline);
        loop {
            tokio::select! {
                // An answer counts even if the agent was lost right after it.
                biased;
                Some(ended) = self.tasks.join_next_with_id() => {
                    if let Some(event) = self.ended(ended) {
                        return event;
                    }
                }
                Some(change) = self.changes.recv() => return DrainEvent::Roster(change),
                () = sleep_until(deadline.unwrap_or(begun)), if deadline.is_some() => return DrainEvent::Tick,
            }
        }
    }

    fn ended(&mut self, ended: Result<(Id, (RequestId, RequestResult)), JoinError>) -> Option<DrainEvent> {
        let (id, outcome) = match ended {
            Ok((id, (_, outcome))) => (id, outcome),
            Err(error) => (error.id(), Err(format!("a task of the drain failed: {error}").into())),
        };
        let request = self.requests.remove(&id)?;
        // `None` if it was cancelled.
        self.under_way.remove(&request)?;
        Some(match outcome {
            Ok(answer) => DrainEvent::Answered { request, answer },
            Err(failure) => DrainEvent::Failed { request, failure },
        })
    }

    fn perform(&mut self, action: DrainAction) -> Option<DrainEnd> {
        match action {
            // The receiver may have been dropped at the end of the orchestrator; the report has the result.
            DrainAction::Emit(event) => drop(self.order.events.send(event)),
            DrainAction::Finish(end) => return Some(*end),
            DrainAction::Cancel { request } => {
                if let Some(task) = self.under_way.remove(&request) {
                    task.abort();
                }
            }
            DrainAction::Request(request, what) => {
                let answer = carry_out(Arc::clone(&self.order), Arc::clone(&self.steps), what);
                let task = self.tasks.spawn(async move { (request, answer.await) });
                self.requests.insert(task.id(), request);
                self.under_way.insert(request, task);
            }
        }
        None
    }
}

async fn carry_out(order: Arc<DrainOrder>, steps: Arc<PrefixSteps>, request: DrainRequest) -> RequestResult {
    let DrainOrder { client, prefix, generation, copies, .. } = &*order;
    match request {
        DrainRequest::TakeInventory { agent, end_run } => {
            if end_run {
                client.end_run(agent.address, &EndRunRequest { generation: *generation }).await?;
            }
            let inventory = client.inventory(agent.address).await?;
            Ok(Answer::Inventory(Box::new(inventory)))
        }
        DrainRequest::Copy { agent, checkpoint, directory, container, order } => {
            let request = CopyRequest {
                checkpoint,
                directory: prefix.join(directory.as_str()),
                crc: copies.crc,
                on_behalf_of: order.on_behalf_of.to_vec(),
                partners_only: order.partners_only,
                buffer_bytes: copies.buffer_bytes,
                threads: copies.threads,
                container: container.map(|places| *places),
            };
            let copied = client.copy(agent.address, &request, LONGEST_COPY).await;
            copied.map(Answer::Copied).map_err(|error| {
                let unwritable = error.prevents_writing();
                RequestFailure { reason: error.brief(), unwritable }
            })
        }
        DrainRequest::Verify { agent: Some(agent), directory, files } => {
            let names = files.iter().map(|unit| unit.name.clone()).collect();
            let directory = prefix.join(directory.as_str());
            verify_at(client, &agent, VerifyRequest { directory, files: names, threads: copies.threads }).await
        }
        DrainRequest::Rebuild { agent: Some(agent), checkpoint, directory, set } => {
            rebuild_at(client, &agent, checkpoint, prefix.join(directory.as_str()), set).await
        }
        DrainRequest::NoteFlushed { agent, checkpoint } => note_flushed(client, &agent, checkpoint, prefix).await,
        // On a thread of its own, which the file system may block.
        step => match spawn_blocking(move || steps.carry_out(step, Local::now().naive_local())).await {
            Ok(answer) => answer,
            Err(error) => Err(format!("a task of the drain failed: {error}").into()),
        },
    }
}

async fn verify_at(client: &AgentClient, agent: &AgentAt, request: VerifyRequest) -> RequestResult {
    match client.verify(agent.address, &request, LONGEST_CHECK).await {
        Ok(reply) => {
            let damaged = reply.damaged.into_iter().map(|(name, text)| (name, FileDamage::Unreadable(text)));
            Ok(Answer::Verified { damaged: damaged.collect() })
        }
        Err(error) => {
            tracing::info!(node = %agent.node, %error, "an agent cannot verify files; the orchestrator does it");
            Err(error.into())
        }
    }
}

async fn rebuild_at(
    client: &AgentClient,
    agent: &AgentAt,
    checkpoint: CheckpointId,
    directory: PathBuf,
    set: SetRebuild,
) -> RequestResult {
    let SetRebuild { set: SetId { scheme, group_id, members }, missing, ranks } = set;
    let request = RebuildRequest { directory, checkpoint, scheme, group_id, members, missing, ranks };
    match client.rebuild(agent.address, &request, LONGEST_CHECK).await {
        Ok(_) => Ok(Answer::Rebuilt),
        Err(error) => {
            tracing::info!(node = %agent.node, %error, "an agent cannot rebuild a set; the orchestrator does it");
            Err(error.into())
        }
    }
}

async fn note_flushed(client: &AgentClient, agent: &AgentAt, checkpoint: CheckpointId, prefix: &Path) -> RequestResult {
    match client.flushed(agent.address, &FlushedNote { checkpoint, prefix: prefix.to_owned() }).await {
        Ok(_) => Ok(Answer::FlushNoted),
        Err(error) => {
            tracing::warn!(node = %agent.node, %error, "a drained dataset cannot be recorded in a flush file");
            Err(error.into())
        }
    }
}
