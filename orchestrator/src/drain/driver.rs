//! Drives the machine: performs its actions, and turns their results and the changes of the roster into events.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::prefix::scan::FileDamage;
use holdfast_core::redundancy::files::SetId;
use holdfast_core::store::DirectoryName;
use holdfast_formats::sion::dataset::DatasetCreation;
use holdfast_model::{CheckpointId, ContainerPolicy, Generation, NodeName};
use holdfast_wire::agent::{CopyRequest, EndRunRequest, FlushedNote, RebuildRequest, VerifyRequest};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::action::{AgentAt, DrainAction, DrainRequest};
use super::config::{DrainConfig, LOST_AGENT_WAIT};
use super::error::{DrainError, RequestFailure};
use super::event::{Answer, DrainEvent, RequestId};
use super::machine::DrainMachine;
use super::prefix_steps;
use super::prefix_steps::{FoundDamage, OpenedDirectory};
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
            match blocking(move || prefix_steps::unplaced(prefix, &job_id)).await {
                Ok(unplaced) => report.unplaced = unplaced,
                Err(failure) => {
                    tracing::warn!(reason = failure.reason, "whether all outputs are at their paths is not known");
                }
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

/// The containers that are being written, by directory. Those that are not completed are removed with the driver.
type Containers = Arc<Mutex<HashMap<DirectoryName, DatasetCreation>>>;

/// The answer to a request; why it failed, if so.
type RequestResult = Result<Answer, RequestFailure>;

struct DrainDriver {
    machine: DrainMachine,
    order: Arc<DrainOrder>,
    containers: Containers,
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
            order: Arc::new(order.clone()),
            containers: Containers::default(),
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
                let answer = carry_out(Arc::clone(&self.order), Arc::clone(&self.containers), what);
                let task = self.tasks.spawn(async move { (request, answer.await) });
                self.requests.insert(task.id(), request);
                self.under_way.insert(request, task);
            }
        }
        None
    }
}

async fn carry_out(order: Arc<DrainOrder>, containers: Containers, request: DrainRequest) -> RequestResult {
    let DrainOrder { client, prefix, job_id, generation, copies, .. } = &*order;
    match request {
        DrainRequest::TakeInventory { agent, end_run } => {
            if end_run {
                client.end_run(agent.address, &EndRunRequest { generation: *generation }).await?;
            }
            let inventory = client.inventory(agent.address).await?;
            Ok(Answer::Inventory(Box::new(inventory)))
        }
        DrainRequest::ExamineFlushed { checkpoint } => {
            let (prefix, job_id) = (prefix.clone(), job_id.clone());
            let copy = blocking(move || prefix_steps::examine_flushed(prefix, &job_id, checkpoint)).await?;
            Ok(Answer::FlushedExamined { copy })
        }
        DrainRequest::OpenDirectory { checkpoint, name, container } => {
            let (prefix, job_id) = (prefix.clone(), job_id.clone());
            let continues = order.continues;
            let open = move || {
                prefix_steps::open(prefix, &job_id, (checkpoint, name.as_deref()), container.as_deref(), continues)
            };
            let OpenedDirectory { directory, resumed, container } = blocking(open).await?;
            let mut under_way = containers.lock();
            // One dataset is drained at a time: the container of another one was not completed.
            under_way.clear();
            let container = container.map(|created| {
                let created = created?;
                let places = Arc::new(created.places());
                under_way.insert(directory.clone(), created);
                Ok(places)
            });
            Ok(Answer::DirectoryOpened { directory, resumed, container })
        }
        DrainRequest::CommitContainer { directory, packed } => {
            let container = containers.lock().remove(&directory);
            let container = container.ok_or("the container is not under way")?;
            blocking(move || prefix_steps::commit(container, &packed)).await?;
            Ok(Answer::ContainerCommitted)
        }
        DrainRequest::Repack { directory, container, files } => {
            let prefix = prefix.clone();
            let damage = blocking(move || prefix_steps::repack(prefix, &directory, &container, &files)).await?;
            Ok(damage.map_or(Answer::ContainerCommitted, |FoundDamage { rank, reason }| Answer::RepackFoundDamage {
                rank,
                reason,
            }))
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
        DrainRequest::Scan { directory } => {
            let prefix = prefix.clone();
            let scan = blocking(move || prefix_steps::read(prefix, &directory)).await?;
            Ok(Answer::Scanned(Box::new(scan)))
        }
        DrainRequest::Verify { agent, directory, files } => {
            let Some(agent) = agent else {
                let prefix = prefix.clone();
                let damaged = blocking(move || prefix_steps::verify(prefix, &directory, &files)).await?;
                return Ok(Answer::Verified { damaged });
            };
            let names = files.iter().map(|unit| unit.name.clone()).collect();
            let directory = prefix.join(directory.as_str());
            verify_at(client, &agent, VerifyRequest { directory, files: names, threads: copies.threads }).await
        }
        DrainRequest::Rebuild { agent, checkpoint, directory, set } => match agent {
            Some(agent) => {
                let directory = prefix.join(directory.as_str());
                rebuild_at(client, &agent, checkpoint, directory, set).await
            }
            None => {
                let prefix = prefix.clone();
                blocking(move || prefix_steps::rebuild(prefix, &directory, &set)).await?;
                Ok(Answer::Rebuilt)
            }
        },
        DrainRequest::Publish { findings } => {
            let (prefix, job_id) = (prefix.clone(), job_id.clone());
            let window_of = (copies.keep > 0).then_some(job_id);
            blocking(move || prefix_steps::publish(prefix, *findings, window_of.as_deref())).await
        }
        DrainRequest::CloseDirectory => {
            let prefix = prefix.clone();
            blocking(move || prefix_steps::close(prefix)).await?;
            Ok(Answer::DirectoryClosed)
        }
        DrainRequest::FindOlder => {
            let prefix = prefix.clone();
            let checkpoint = blocking(move || prefix_steps::find_older(prefix)).await?;
            Ok(Answer::OlderFound { checkpoint })
        }
        DrainRequest::AbandonFlushes => {
            let (prefix, job_id) = (prefix.clone(), job_id.clone());
            let directories = blocking(move || prefix_steps::abandon_flushes(prefix, &job_id)).await?;
            Ok(Answer::FlushesAbandoned { directories })
        }
        DrainRequest::KeepWindow { keep } => {
            let (prefix, job_id) = (prefix.clone(), job_id.clone());
            let left_out = blocking(move || prefix_steps::keep_window(prefix, &job_id, keep)).await?;
            Ok(Answer::WindowKept { left_out })
        }
        DrainRequest::NoteFlushed { agent, checkpoint } => note_flushed(client, &agent, checkpoint, prefix).await,
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

/// Runs a step that may block on file systems on a thread of its own.
async fn blocking<T, E>(step: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, RequestFailure>
where
    T: Send + 'static,
    E: Into<RequestFailure> + Send + 'static,
{
    match spawn_blocking(step).await {
        Ok(done) => done.map_err(Into::into),
        Err(error) => Err(format!("a task of the drain failed: {error}").into()),
    }
}
