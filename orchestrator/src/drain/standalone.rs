//! `holdfast drain`: on what an orchestrator that died left, or on directories that SCR's own library left.
//!
//! Agents that are dead, or never were, are started afresh; ranks that still run are ended first, as the end of the
//! allocation would.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName, Rank};
use holdfast_wire::agent::{KillRequest, PollRequest, StopRequest};
use holdfast_wire::trust::{self, TrustError};
use tokio::sync::mpsc;

use super::work::{self, DrainOrder, DrainReport};
use super::{DrainError, plan};
use crate::allocation::local::Local;
use crate::allocation::{AgentTemplate, Allocation, AllocationError};
use crate::events::DrainResult;
use crate::events::{Journal, LogEvent, Screen, ScreenStyle};
use crate::exit;
use crate::fleet::{AgentClient, Clock, FleetError, PollNews, PollTarget, Poller, Roster, fan_out};
use crate::job::running_step;
use crate::job::state::{self, JobLock, JobState, Stage, StateError};
use crate::spec::Checkpoint;

/// An agent that an earlier orchestrator started answers within this, or is started anew.
const ADOPT_WITHIN: Duration = Duration::from_secs(2);
/// Between two questions to an agent.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// An agent that is silent for so long during a copy is lost: it is busy, so more than a running job would grant it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Agents of one node that are started after the first died.
const RESTARTS: u32 = 3;
/// An agent that was told to stop gets so long.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// Directories that the user has: one root a node.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The directory that holds them.
    pub directory: PathBuf,
    /// The nodes; all that have a root if empty.
    pub nodes: Vec<NodeName>,
    /// The job id in the names of the control and cache directories.
    pub job_id: String,
    /// The user in their names.
    pub user: String,
    /// Where control and cache are.
    pub checkpoint: Checkpoint,
}

/// Why a drain could not be begun or carried out.
#[derive(Debug, thiserror::Error)]
pub enum StandaloneError {
    /// No job.
    #[error("no job was run in {}; name its spec or `--prefix`, or the nodes' directories with `--root`", prefix.display())]
    NoJob {
        /// The prefix directory.
        prefix: PathBuf,
    },
    /// The nodes are gone.
    #[error("the nodes of job {job_id} are gone ({place}): nothing is left to drain")]
    NoNodes {
        /// The job.
        job_id: String,
        /// Where they were.
        place: String,
    },
    /// The nodes.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// The job's state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The connections.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// No certificate.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The drain itself.
    #[error(transparent)]
    Drain(#[from] DrainError),
    /// The event log.
    #[error("cannot open the event log: {0}; check the prefix directory")]
    Journal(std::io::Error),
}

impl StandaloneError {
    /// The exit code: see [`crate::exit`].
    pub fn exit_code(&self) -> u8 {
        match self {
            StandaloneError::Fleet(_) | StandaloneError::Trust(_) => exit::INTERNAL,
            StandaloneError::Allocation(AllocationError::Name { .. }) => exit::USAGE,
            _ => exit::UNAVAILABLE,
        }
    }
}

/// Drains what the last job of a prefix directory left. `Ok(None)` if it left nothing.
///
/// # Errors
/// [`StandaloneError`].
pub async fn of_prefix(
    prefix: &Path,
    wanted: Option<CheckpointId>,
    style: ScreenStyle,
) -> Result<Option<DrainReport>, StandaloneError> {
    if !prefix.is_dir() {
        return Err(StandaloneError::NoJob { prefix: prefix.to_owned() });
    }
    let _lock = JobLock::take(prefix)?;
    match left_in(prefix)? {
        Some(state) => of_state(prefix, state, wanted, style).await.map(Some),
        None => Ok(None),
    }
}

/// The state of a job that left nodes; `None` if its nodes were given back.
fn left_in(prefix: &Path) -> Result<Option<JobState>, StandaloneError> {
    let state = JobState::read(prefix)?.ok_or_else(|| StandaloneError::NoJob { prefix: prefix.to_owned() })?;
    if matches!(state.stage, Stage::Finished { .. }) {
        return Ok(None);
    }
    if !state.has_nodes() {
        let place = state.allocation.place();
        return Err(StandaloneError::NoNodes { job_id: state.agents.job_id, place });
    }
    Ok(Some(state))
}

/// Drains the nodes of a job whose lock the caller holds; gives them back if nothing on them is of any more use.
///
/// # Errors
/// [`StandaloneError`].
pub async fn of_state(
    prefix: &Path,
    mut state: JobState,
    wanted: Option<CheckpointId>,
    style: ScreenStyle,
) -> Result<DrainReport, StandaloneError> {
    let logs = state::directory(prefix).join("agents");
    let allocation = state.allocation.reopen(Vec::new(), logs).await?;
    end_step(prefix, &state).await;
    let mut crew = Crew::new(Arc::clone(&allocation), state.agents.clone(), prefix, style)?;
    crew.adopt(&state).await;
    crew.start_all().await;
    let kill = KillRequest { generation: state.generation, reason: "the job is being drained".to_owned() };
    crew.kill_ranks(kill).await;
    let result = crew.drain(prefix, state.crc, state.copy_bytes, wanted).await;
    let keeps = result.as_ref().map_or(true, |report| report.retry_may_help);
    crew.stop(!keeps).await;
    state.running.clear();
    if keeps {
        let reason = match result.as_ref().map(|report| &report.result) {
            Ok(DrainResult::Incomplete { reason, .. } | DrainResult::Failed { reason }) => reason.clone(),
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        state.stage = Stage::Undrained { reason };
    } else {
        let exit_code = exit::NOT_FINISHED;
        state.stage = Stage::Finished { exit_code, message: "drained after its orchestrator was gone".to_owned() };
        allocation.release()?;
    }
    state.write(prefix)?;
    result
}

/// Drains directories that the user has. Nothing of them is deleted.
///
/// # Errors
/// [`StandaloneError`].
pub async fn of_roots(
    prefix: &Path,
    roots: Roots,
    wanted: Option<CheckpointId>,
    style: ScreenStyle,
) -> Result<DrainReport, StandaloneError> {
    let _lock = JobLock::take(prefix)?;
    let (mut crew, crc) = crew_of_roots(prefix, roots, style)?;
    crew.start_all().await;
    let result = crew.drain(prefix, crc, crate::job::settings::COPY_BYTES, wanted).await;
    crew.stop(false).await;
    result
}

/// What a drain would find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// What would be drained.
    pub plan: plan::DrainPlan,
    /// Ranks whose files each node holds of the dataset that would be drained.
    pub held: BTreeMap<NodeName, Vec<Rank>>,
    /// Nodes that do not answer.
    pub silent: Vec<NodeName>,
}

/// Looks without changing anything: asks the agents that are there, or starts agents and ends them again.
///
/// # Errors
/// [`StandaloneError`].
pub async fn preview(
    prefix: &Path,
    roots: Option<Roots>,
    wanted: Option<CheckpointId>,
    style: ScreenStyle,
) -> Result<Option<Preview>, StandaloneError> {
    let mut crew = match roots {
        Some(roots) => crew_of_roots(prefix, roots, style)?.0,
        None => {
            let Some(state) = left_in(prefix)? else { return Ok(None) };
            let logs = state::directory(prefix).join("agents");
            let allocation = state.allocation.reopen(Vec::new(), logs).await?;
            let mut crew = Crew::new(allocation, state.agents.clone(), prefix, style)?;
            crew.adopt(&state).await;
            if JobLock::is_held(prefix) {
                // A live orchestrator starts what has to be started.
                crew.borrowed = true;
            }
            crew
        }
    };
    if !crew.borrowed {
        crew.start_all().await;
    }
    let order = crew.order(prefix, true, 0, wanted);
    let found = work::inventories(&order).await;
    if !crew.borrowed {
        crew.stop(false).await;
    }
    let (inventories, silent) = found?;
    let plan = plan::plan(&inventories, wanted);
    let first = plan.candidates.first().or(plan.remnant.as_ref());
    let held = first.map(|first| plan::held_ranks(&inventories, first.checkpoint)).unwrap_or_default();
    Ok(Some(Preview { plan, held, silent: silent.into_keys().collect() }))
}

fn crew_of_roots(prefix: &Path, roots: Roots, style: ScreenStyle) -> Result<(Crew, bool), StandaloneError> {
    let nodes = if roots.nodes.is_empty() { Local::nodes_below(&roots.directory)? } else { roots.nodes };
    let logs = state::directory(prefix).join("agents");
    let local = Arc::new(Local::over_roots(roots.job_id, roots.user, nodes, roots.directory, logs)?);
    let crc = roots.checkpoint.crc.on_flush;
    let template = AgentTemplate::new("drain", &roots.checkpoint, &*local, trust::generate()?);
    Ok((Crew::new(local, template, prefix, style)?, crc))
}

/// Ranks that still run are ended: their files would change under the copy.
async fn end_step(prefix: &Path, state: &JobState) {
    let directory = state::generation_directory(prefix, state.generation);
    let job_id = state.agents.job_id.clone();
    let ended = tokio::task::spawn_blocking(move || {
        running_step::cancel(&directory, None, Vec::new(), &job_id);
    });
    let _ = ended.await;
}

/// The agents that a drain works with.
struct Crew {
    allocation: Arc<dyn Allocation>,
    template: AgentTemplate,
    client: AgentClient,
    clock: Clock,
    roster: Roster,
    /// They belong to a live orchestrator.
    borrowed: bool,
    pids: BTreeMap<NodeName, u32>,
    keepers: Vec<tokio::task::JoinHandle<()>>,
    journal: Option<Journal>,
    screen: Screen,
    news: mpsc::UnboundedSender<CrewNews>,
    ear: mpsc::UnboundedReceiver<CrewNews>,
    entries: mpsc::UnboundedSender<LogEvent>,
    entries_ear: mpsc::UnboundedReceiver<LogEvent>,
}

enum CrewNews {
    Up(NodeName, u32),
    Progress(NodeName, Vec<holdfast_model::Progress>),
}

impl Crew {
    fn new(
        allocation: Arc<dyn Allocation>,
        template: AgentTemplate,
        prefix: &Path,
        style: ScreenStyle,
    ) -> Result<Self, StandaloneError> {
        let own = state::directory(prefix);
        let journal =
            own.is_dir().then(|| Journal::open(&own, &template.job)).transpose().map_err(StandaloneError::Journal)?;
        let (news, ear) = mpsc::unbounded_channel();
        let (entries, entries_ear) = mpsc::unbounded_channel();
        Ok(Crew {
            client: AgentClient::new(&template.trust)?,
            clock: Clock::since(crate::fleet::clock::unix_now()),
            roster: Roster::default(),
            borrowed: false,
            pids: BTreeMap::new(),
            keepers: Vec::new(),
            journal,
            screen: Screen::new(style),
            allocation,
            template,
            news,
            ear,
            entries,
            entries_ear,
        })
    }

    /// Takes over agents that answer.
    async fn adopt(&mut self, state: &JobState) {
        let client = self.client.clone();
        let known: Vec<_> = state.running.iter().map(|(node, record)| (node.clone(), *record)).collect();
        let answers = fan_out(known, move |(node, record)| {
            let client = client.clone();
            async move {
                let question = PollRequest { after: 0, wait_ms: 0, allocation_end: None };
                let reply = client.poll(record.address, &question, ADOPT_WITHIN).await.ok()?;
                (reply.health.node == node).then_some((node, record))
            }
        });
        for (node, record) in answers.await.into_iter().flatten() {
            self.allocation.adopt_agent(&node, record.pid);
            self.pids.insert(node.clone(), record.pid);
            self.roster.arrived(&node, record.address);
        }
    }

    /// Starts the agents that are missing, and keeps all of them running.
    async fn start_all(&mut self) {
        let missing: Vec<NodeName> =
            self.allocation.nodes().iter().filter(|node| self.roster.address(node).is_none()).cloned().collect();
        let (allocation, roster) = (Arc::clone(&self.allocation), self.roster.clone());
        let template = Arc::new(self.template.clone());
        let started = fan_out(missing, move |node| {
            let (allocation, template, roster) = (Arc::clone(&allocation), Arc::clone(&template), roster.clone());
            async move {
                match allocation.start_agent(&node, &template).await {
                    Ok(agent) => {
                        roster.arrived(&node, agent.ready.address);
                        Ok((node, agent.ready.pid))
                    }
                    Err(error) => {
                        roster.down(&node);
                        Err((node, error.to_string()))
                    }
                }
            }
        });
        for outcome in started.await {
            match outcome {
                Ok((node, pid)) => drop(self.pids.insert(node, pid)),
                Err((node, reason)) => self.tell(LogEvent::AgentNotStarted { node, reason: reason.to_string() }),
            }
        }
        for (node, address) in self.roster.agents() {
            let keeper = Keeper {
                allocation: Arc::clone(&self.allocation),
                template: self.template.clone(),
                client: self.client.clone(),
                clock: self.clock,
                roster: self.roster.clone(),
                news: self.news.clone(),
                node,
            };
            self.keepers.push(tokio::spawn(keeper.keep(address)));
        }
    }

    async fn kill_ranks(&self, request: KillRequest) {
        let (client, request) = (self.client.clone(), Arc::new(request));
        let agents: Vec<_> = self.roster.agents().into_iter().collect();
        let killed = fan_out(agents, move |(node, address)| {
            let (client, request) = (client.clone(), Arc::clone(&request));
            async move {
                if let Err(error) = client.kill(address, &request).await {
                    tracing::info!(%node, %error, "the ranks of a node were not killed by its agent");
                }
            }
        });
        killed.await;
    }

    fn order(&self, prefix: &Path, crc: bool, buffer_bytes: usize, wanted: Option<CheckpointId>) -> DrainOrder {
        let agents = self.roster.agents();
        DrainOrder {
            client: self.client.clone(),
            roster: self.roster.clone(),
            down: self.allocation.nodes().iter().filter(|node| !agents.contains_key(*node)).cloned().collect(),
            prefix: prefix.to_owned(),
            job_id: self.template.job_id.clone(),
            crc,
            buffer_bytes,
            wanted,
            events: self.entries.clone(),
        }
    }

    async fn drain(
        &mut self,
        prefix: &Path,
        crc: bool,
        buffer_bytes: usize,
        wanted: Option<CheckpointId>,
    ) -> Result<DrainReport, StandaloneError> {
        let order = self.order(prefix, crc, buffer_bytes, wanted);
        let draining = work::drain(&order);
        tokio::pin!(draining);
        let result = loop {
            tokio::select! {
                result = &mut draining => break result,
                Some(entry) = self.entries_ear.recv() => self.tell(entry),
                Some(news) = self.ear.recv() => self.take_in(news),
            }
        };
        while let Ok(entry) = self.entries_ear.try_recv() {
            self.tell(entry);
        }
        self.screen.close();
        Ok(result?)
    }

    fn take_in(&mut self, news: CrewNews) {
        match news {
            CrewNews::Up(node, pid) => drop(self.pids.insert(node, pid)),
            CrewNews::Progress(node, progress) => self.screen.progress(&node, &progress),
        }
    }

    fn tell(&mut self, event: LogEvent) {
        if let Some(journal) = &mut self.journal {
            journal.write(&event);
        }
        self.screen.event(&event);
    }

    /// Ends all agents; what does not end by itself is killed.
    async fn stop(&mut self, remove: bool) {
        for keeper in self.keepers.drain(..) {
            keeper.abort();
            // Waited for: one that goes on for a moment would start an agent anew because it is being stopped.
            let _ = keeper.await;
        }
        while let Ok(news) = self.ear.try_recv() {
            self.take_in(news);
        }
        let client = self.client.clone();
        let agents: Vec<_> = self.roster.agents().into_iter().collect();
        let stops = fan_out(agents, move |(_, address)| {
            let client = client.clone();
            async move { tokio::time::timeout(STOP_WITHIN, client.stop(address, &StopRequest { remove })).await.is_ok() }
        });
        stops.await;
        let known: Vec<(NodeName, u32)> = self.pids.iter().map(|(node, pid)| (node.clone(), *pid)).collect();
        let allocation = Arc::clone(&self.allocation);
        let ended = tokio::task::spawn_blocking(move || allocation.terminate_agents(&known, STOP_WITHIN));
        let _ = ended.await;
    }
}

/// Keeps one node's agent running during a drain.
struct Keeper {
    allocation: Arc<dyn Allocation>,
    template: AgentTemplate,
    client: AgentClient,
    clock: Clock,
    roster: Roster,
    news: mpsc::UnboundedSender<CrewNews>,
    node: NodeName,
}

impl Keeper {
    async fn keep(self, mut address: std::net::SocketAddr) {
        for start in 0..=RESTARTS {
            let (polls, mut ear) = mpsc::unbounded_channel();
            let target = PollTarget {
                node: self.node.clone(),
                start: start.into(),
                address,
                interval: POLL_EVERY,
                patience: PATIENCE,
                seen: None,
                end: tokio::sync::watch::channel(None).1,
            };
            let _poller = Poller::spawn(self.client.clone(), target, self.clock, polls);
            while let Some(PollNews::Answered { reply, .. }) = ear.recv().await {
                let _ = self.news.send(CrewNews::Progress(self.node.clone(), reply.progress));
            }
            self.roster.lost(&self.node);
            match self.allocation.start_agent(&self.node, &self.template).await {
                Ok(agent) => {
                    address = agent.ready.address;
                    let _ = self.news.send(CrewNews::Up(self.node.clone(), agent.ready.pid));
                    self.roster.arrived(&self.node, address);
                }
                Err(error) => {
                    tracing::info!(node = %self.node, %error, "an agent did not come back");
                    break;
                }
            }
        }
        self.roster.down(&self.node);
    }
}
