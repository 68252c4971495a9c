//! `holdfast drain`: for a job whose orchestrator died, or for directories that SCR's own library left.
//!
//! Agents that do not run are started; ranks that still run are ended first, as the end of the allocation would do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::owned::Access;
use holdfast_core::state_directory::StateDirectory;
use holdfast_model::{CheckpointId, Generation, NodeName, Rank};
use holdfast_wire::agent::{KillRequest, PollRequest};
use holdfast_wire::trust;
use tokio::sync::mpsc;

use super::drain_agents::DrainAgents;
use super::error::RunError;
use super::reporter::Reporter;
pub use super::standalone_error::StandaloneError;
use super::state::{self, JobState, RunEnd, Stage};
use super::state_file::JobLock;
use super::{preflight, running_step, settings, start};
use crate::allocation::lent::LentNodes;
use crate::allocation::local::{self, Local};
use crate::allocation::{AgentTemplate, Allocation, AllocationError, AllocationRequest};
use crate::drain::{self, DrainError, DrainOrder, DrainReport, Survey, plan};
use crate::events::{DrainResult, EventLog, Screen};
use crate::exit;
use crate::fleet::{AgentClient, AgentRecord, Roster};
use crate::host::user_name;
use crate::params::Parameters;
use crate::spec::{Checkpoint, JobSpec};

/// An agent of a running job that does not answer within this is left out of a preview.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The job's name for directories that belong to no job.
const OF_ROOTS: &str = "drain";

/// Node directories that the user names: one root for each node.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The directory that contains the roots.
    pub directory: PathBuf,
    /// The nodes; all that have a root if empty.
    pub nodes: Vec<NodeName>,
    /// The job id in the names of the control and cache directories.
    pub job_id: String,
    /// The user in their names.
    pub user: String,
    /// The settings with the paths of control and cache directories.
    pub checkpoint: Checkpoint,
    /// Write the event log.
    pub event_log: bool,
    /// A node whose file systems do not respond for this long is faulty.
    pub disk_timeout: Duration,
    /// Requests to agents that are under way at a time, at most.
    pub requests_at_once: u32,
}

/// Drains what the last job of a prefix directory left. `Ok(None)` if it left nothing.
pub async fn of_prefix(
    prefix: &Path,
    beside: &[PathBuf],
    requested: Option<CheckpointId>,
    screen: &Screen,
) -> Result<Option<DrainReport>, StandaloneError> {
    if !prefix.is_dir() {
        return Err(StandaloneError::NoJob { prefix: prefix.to_owned() });
    }
    let _lock = JobLock::take_of_last_job(prefix)?;
    match left_in(prefix)? {
        Some(state) => of_state((prefix, beside), state, requested, Doubt::Keeps, screen).await.map(Some),
        None => Ok(None),
    }
}

/// The state of a job whose nodes were not released; `None` if they were.
fn left_in(prefix: &Path) -> Result<Option<JobState>, StandaloneError> {
    let state = JobState::read(prefix)?.ok_or_else(|| StandaloneError::NoJob { prefix: prefix.to_owned() })?;
    if matches!(state.stage, Stage::Finished { .. }) {
        return Ok(None);
    }
    if state.has_pairs() {
        return Err(StandaloneError::Pairs { job_id: state.agents.job_id });
    }
    if !state.has_nodes() {
        let place = state.allocation.place();
        return Err(StandaloneError::NoNodes { job_id: state.agents.job_id, place });
    }
    Ok(Some(state))
}

/// What becomes of the nodes if it is [not known](DrainReport::doubt) whether all data is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// They are kept for another drain.
    Keeps,
    /// They are released: a new job is to begin.
    Releases,
}

/// The nodes of a state: of a step that ran beside others, those that were lent to it.
fn nodes_of(state: &JobState, allocation: &Arc<dyn Allocation>) -> Arc<dyn Allocation> {
    match state.snapshot.as_ref().filter(|snapshot| snapshot.has_some_nodes()) {
        Some(snapshot) => Arc::new(LentNodes::new(Arc::clone(allocation), snapshot.lent().cloned().collect())),
        None => Arc::clone(allocation),
    }
}

/// True if another step, in this prefix directory, has some of the same nodes.
pub(super) fn has_nodes_of(prefix: &Path, state: &JobState) -> bool {
    let other = JobState::read(prefix).ok().flatten();
    other.is_some_and(|other| {
        other.has_same_nodes(state) && other.has_nodes() && !matches!(other.stage, Stage::Finished { .. })
    })
}

/// Drains the nodes of a job whose lock the caller holds, and releases them unless they hold files that another drain
/// could save, also those of datasets that are not drained because another one was requested. `beside`: the prefix
/// directories of the job's other steps.
async fn of_state(
    (prefix, beside): (&Path, &[PathBuf]),
    mut state: JobState,
    requested: Option<CheckpointId>,
    doubt: Doubt,
    screen: &Screen,
) -> Result<DrainReport, StandaloneError> {
    let allocation = state.allocation.reopen(None, logs(prefix)).await?;
    end_step(prefix, &state).await;
    let event_log = event_log(prefix, &state.agents.job, state.log_access())?;
    let reporter = Reporter::new(event_log, screen.clone());
    let mut agents =
        DrainAgents::new(nodes_of(&state, &allocation), state.template()?, state.requests_at_once, reporter)?;
    agents.agents.adopt(&state.running).await;
    agents.start_missing().await;
    agents
        .kill_ranks(KillRequest { generation: state.generation(), reason: "the job is being drained".to_owned() })
        .await;
    // The files of the steps before it are not drained.
    if let Some(finished) = state.finished_steps() {
        agents.forget(finished).await;
    }
    let result = agents.drain(prefix, (state.copies(), state.knows_superseded()), requested).await;
    let in_doubt = |report: &DrainReport| report.doubt().filter(|_| doubt == Doubt::Keeps);
    let keeps_data = |report: &DrainReport| report.retry_may_help || !report.left.is_empty();
    let keeps = result.as_ref().map_or(true, |report| keeps_data(report) || in_doubt(report).is_some());
    agents.agents.end_all(!keeps).await;
    state.running.clear();
    let mut released = Ok(());
    let ended = match &state.stage {
        Stage::Kept { exit_code, message } => Some(RunEnd { exit_code: *exit_code, message: message.clone() }),
        Stage::Undrained { ended, .. } => ended.clone(),
        Stage::Running | Stage::Finished { .. } => None,
    };
    let is_mistaken = matches!(result, Err(DrainError::NoSuchDataset { .. }));
    if is_mistaken && matches!(state.stage, Stage::Kept { .. } | Stage::Undrained { .. }) {
        // The nodes are as they were.
    } else if keeps {
        let reason = match &result {
            Ok(DrainReport { result: DrainResult::Incomplete { reason, .. }, .. })
            | Ok(DrainReport { result: DrainResult::Failed { reason, .. }, .. }) => reason.clone(),
            Ok(report) if report.left.is_empty() => in_doubt(report).unwrap_or_default(),
            Ok(report) => {
                format!("only the nodes have dataset {}; the last drain was of another one", report.left_text())
            }
            Err(error) => error.to_string(),
        };
        state.stage = Stage::Undrained { reason, ended };
    } else {
        let is_complete =
            |report: &DrainReport| matches!(report.result, DrainResult::Nothing | DrainResult::Complete { .. });
        let not_finished = |message: &str| RunEnd { exit_code: exit::NOT_FINISHED, message: message.to_owned() };
        let RunEnd { exit_code, message } = match ended {
            None => not_finished("drained after its orchestrator had died"),
            Some(ended) if ended.exit_code != exit::FINISHED || result.as_ref().is_ok_and(is_complete) => ended,
            Some(_) => not_finished("its last checkpoint could not be drained"),
        };
        state.stage = Stage::Finished { exit_code, message };
        // Other steps may have files on their nodes.
        if !beside.iter().any(|other| has_nodes_of(other, &state)) {
            released = allocation.release();
        }
    }
    // Also if the release failed: the job has ended.
    state.write(prefix)?;
    released?;
    Ok(result?)
}

/// Drains what an earlier job could not drain, before a new one begins.
pub(super) async fn finish_earlier(
    spec: &JobSpec,
    prefix: &Path,
    state: JobState,
    screen: &Screen,
) -> Result<(), RunError> {
    let others = spec.steps.iter().map(|step| start::canonical(&step.prefix));
    let beside: Vec<PathBuf> = others.filter(|other| other != prefix).collect();
    let report = of_state((prefix, &beside), state, None, Doubt::Releases, screen).await.map_err(Box::new)?;
    match report.result {
        DrainResult::Nothing | DrainResult::Complete { .. } => Ok(()),
        DrainResult::Incomplete { .. } if !report.retry_may_help => Ok(()),
        DrainResult::Incomplete { reason, unwritable, .. } | DrainResult::Failed { reason, unwritable } => {
            Err(RunError::Undrained { reason, unwritable })
        }
    }
}

/// A job in whose allocation Holdfast launched nothing: a script started a program that uses SCR's library.
#[derive(Clone, Debug)]
pub struct LibraryJob {
    /// The settings of checkpoints and nodes.
    pub spec: JobSpec,
    /// SCR_JOB_ID, which names the directories on the nodes; by default the allocation's id.
    pub job_id: Option<String>,
    /// SCR_USER_NAME; by default the allocation's user.
    pub user: Option<String>,
}

impl LibraryJob {
    /// The job of this process, with SCR's parameters.
    pub fn new(spec: JobSpec, parameters: &Parameters) -> Self {
        let job_id = parameters.text("SCR_JOB_ID").map(str::to_owned);
        LibraryJob { spec, job_id, user: parameters.user.clone() }
    }

    /// True if its nodes are known: those of the allocation, or this machine, if the job id is set.
    ///
    /// # Errors
    /// The manager of the spec does not exist.
    pub fn has_nodes(&self) -> Result<bool, AllocationError> {
        Ok(preflight::manager(&self.spec)?.facts.name != local::ENTRY.facts.name || self.job_id.is_some())
    }

    /// Its agents; none is started yet.
    async fn agents(&self, prefix: &Path, reporter: Reporter) -> Result<DrainAgents, StandaloneError> {
        let no_job = || StandaloneError::NoJob { prefix: prefix.to_owned() };
        let (spec, step) = (&self.spec, self.spec.steps.first().ok_or_else(no_job)?);
        let manager = preflight::manager(spec)?;
        let allocation = if manager.facts.name == local::ENTRY.facts.name {
            // Virtual nodes are made for a job of Holdfast only.
            let job_id = self.job_id.clone().ok_or_else(no_job)?;
            let user = self.user.clone().unwrap_or_else(user_name);
            Arc::new(Local::this_machine(job_id, user, logs(prefix))?) as Arc<dyn Allocation>
        } else {
            // A lost node is the usual reason for a drain: it uses the nodes that it can reach.
            let request = AllocationRequest { needed: 1, ..start::allocation_request(spec, &[], prefix) };
            (manager.open)(request).await?
        };
        let (control, caches, trust) = (&step.checkpoint.control, step.checkpoint.cache.iter(), trust::generate()?);
        let (prefixes, disk_timeout) = (vec![prefix.to_owned()], spec.health.disk_timeout);
        let mut template =
            AgentTemplate::new(OF_ROOTS, prefixes, control, caches, disk_timeout, allocation.identity(), trust);
        template.drains_only = true;
        // The library prefers SCR's parameters to those of the allocation.
        let settings = &mut template.settings;
        settings.job_id = self.job_id.clone().unwrap_or_else(|| settings.job_id.clone());
        settings.user = self.user.clone().unwrap_or_else(|| settings.user.clone());
        Ok(DrainAgents::new(allocation, template, spec.health.requests, reporter)?)
    }
}

/// Whose nodes are drained, if they are not those of the last job of the prefix directory.
#[derive(Clone, Debug)]
pub enum Source {
    /// Node directories that the user names.
    Roots(Box<Roots>),
    /// What SCR's library left in an allocation in which Holdfast launched nothing.
    Library(Box<LibraryJob>),
}

impl Source {
    /// Its agents; none is started yet.
    async fn agents(self, prefix: &Path, reporter: Reporter) -> Result<DrainAgents, StandaloneError> {
        match self {
            Source::Roots(roots) => agents_of(prefix, *roots, reporter),
            Source::Library(job) => job.agents(prefix, reporter).await,
        }
    }

    /// The access of other users to the event log; `None` if there is none.
    fn log_access(&self) -> Option<Access> {
        let is_written = match self {
            Source::Roots(roots) => roots.event_log,
            Source::Library(job) => job.spec.event_log,
        };
        is_written.then_some(Access::Private)
    }

    fn checkpoint(&self) -> Option<&Checkpoint> {
        match self {
            Source::Roots(roots) => Some(&roots.checkpoint),
            Source::Library(job) => job.spec.steps.first().map(|step| &step.checkpoint),
        }
    }
}

/// Drains nodes that belong to no job of Holdfast. Nothing on them is deleted.
pub async fn of_source(
    prefix: &Path,
    source: Source,
    requested: Option<CheckpointId>,
    screen: &Screen,
) -> Result<DrainReport, StandaloneError> {
    let checkpoint = source.checkpoint().ok_or_else(|| StandaloneError::NoJob { prefix: prefix.to_owned() })?;
    let copies = settings::copies(checkpoint);
    let _lock = JobLock::take_of_last_job(prefix)?;
    let event_log = event_log(prefix, OF_ROOTS, source.log_access())?;
    let reporter = Reporter::new(event_log, screen.clone());
    let mut agents = source.agents(prefix, reporter).await?;
    agents.start_missing().await;
    let result = agents.drain(prefix, (copies, true), requested).await;
    agents.agents.end_all(false).await;
    // All datasets stay there.
    Ok(DrainReport { left: BTreeSet::new(), ..result? })
}

/// The result of a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// What would be drained.
    pub plan: plan::DrainPlan,
    /// For each node, the ranks whose files of the dataset it holds.
    pub held: BTreeMap<NodeName, Vec<Rank>>,
    /// Nodes that do not answer.
    pub silent: Vec<NodeName>,
}

/// Plans a drain without changing anything: uses the agents that are up, or, if there is none, starts agents and ends
/// them again. Agents that are up may serve ranks that run, also without an orchestrator.
pub async fn preview(
    prefix: &Path,
    source: Option<Source>,
    requested: Option<CheckpointId>,
    screen: &Screen,
) -> Result<Option<Preview>, StandaloneError> {
    let reporter = Reporter::new(None, screen.clone());
    let found = match source {
        Some(source) => source.agents(prefix, reporter).await?.survey(prefix, requested).await,
        None => {
            let Some(state) = left_in(prefix)? else { return Ok(None) };
            // No generation of this step was prepared: files on the nodes belong to a finished step.
            if state.finished_steps().is_some() && state.generation() == Generation::NONE {
                return Ok(None);
            }
            let client = AgentClient::new(&state.template()?.trust, state.requests_at_once)?;
            let up = agents_up(&client, &state).await;
            if !up.is_empty() || JobLock::is_held(prefix) {
                survey_of(up, client, prefix, &state, requested).await
            } else {
                let allocation = state.allocation.reopen(None, logs(prefix)).await?;
                let agents = DrainAgents::new(
                    nodes_of(&state, &allocation),
                    state.template()?,
                    state.requests_at_once,
                    reporter,
                )?;
                agents.survey(prefix, requested).await
            }
        }
    };
    let Survey { inventories, silent, plan } = found?;
    let first = plan.candidates.first().or(plan.remnant.as_ref());
    let held = first.map(|first| plan::held_ranks(&inventories, first.checkpoint)).unwrap_or_default();
    Ok(Some(Preview { plan, held, silent: silent.into_keys().collect() }))
}

/// The agents of the state that answer.
async fn agents_up(client: &AgentClient, state: &JobState) -> BTreeMap<NodeName, SocketAddr> {
    let answers = client.each(&state.running, |(node, record): (&NodeName, &AgentRecord)| async move {
        let reply = client.poll(record.address, &PollRequest::HEALTH_ONLY, ANSWER_WITHIN).await.ok()?;
        (reply.health.node == *node).then(|| (node.clone(), record.address))
    });
    answers.await.into_iter().flatten().collect()
}

/// Reads the inventories of these agents.
async fn survey_of(
    up: BTreeMap<NodeName, SocketAddr>,
    client: AgentClient,
    prefix: &Path,
    state: &JobState,
    requested: Option<CheckpointId>,
) -> Result<Survey, DrainError> {
    let down = state.running.keys().filter(|node| !up.contains_key(*node)).cloned().collect();
    let roster = Roster::default();
    for (node, address) in up {
        roster.agent_up(&node, address);
    }
    let (events, _) = mpsc::unbounded_channel();
    let order = DrainOrder {
        client,
        roster,
        lost: Vec::new(),
        down,
        prefix: prefix.to_owned(),
        job_id: state.agents.job_id.clone(),
        generation: Generation::NONE,
        continues: state.knows_superseded(),
        copies: state.copies(),
        requested,
        events,
    };
    drain::survey(&order).await
}

fn logs(prefix: &Path) -> PathBuf {
    StateDirectory::below(prefix).join("agents")
}

fn event_log(prefix: &Path, job: &str, access: Option<Access>) -> Result<Option<EventLog>, StandaloneError> {
    EventLog::in_state_of(prefix, job, access).map_err(StandaloneError::EventLog)
}

/// Ends ranks that still run, because their files would change during the copy.
async fn end_step(prefix: &Path, state: &JobState) {
    let directory = state::generation_directory(prefix, state.generation());
    let job_id = state.agents.job_id.clone();
    let ended = tokio::task::spawn_blocking(move || {
        running_step::cancel(&directory, None, Vec::new(), &job_id);
    });
    if let Err(error) = ended.await {
        tracing::warn!(%error, "the ranks could not be ended before the drain");
    }
}

/// The agents for node directories that the user names; none is started yet.
fn agents_of(prefix: &Path, roots: Roots, reporter: Reporter) -> Result<DrainAgents, StandaloneError> {
    let nodes = if roots.nodes.is_empty() { Local::nodes_below(&roots.directory)? } else { roots.nodes };
    let local = Local::over_roots(roots.job_id, roots.user, nodes, roots.directory, logs(prefix))?;
    let Checkpoint { control, cache, .. } = roots.checkpoint;
    let (prefixes, trust) = (vec![prefix.to_owned()], trust::generate()?);
    let template =
        AgentTemplate::new(OF_ROOTS, prefixes, &control, cache.iter(), roots.disk_timeout, local.identity(), trust);
    Ok(DrainAgents::new(Arc::new(local), template, roots.requests_at_once, reporter)?)
}
