//! The run in force, and beginning one.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::agent::{CheckpointReply, CheckpointRequest, PeersUpdate, RunAccepted};
use holdfast_wire::peer::Endpoint;
use holdfast_wire::plan::{AcceptedPlan, MemberPlan, PlanError, RunRequest};
use holdfast_wire::run::Settings;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch as channel};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::leader::driver::{self, Driver, SavedState};
use super::leader::{LayoutError, Leader};
use super::link;
use super::member;
use super::participation::Participation;
use crate::agent::Agent;
use crate::copy::transfer_record;
use crate::directories::claim::{self, ClaimError};
use crate::library::watch::LibraryWatch;
use crate::library::{transfer, watch};
use crate::ranks;
use crate::run::Run;
use crate::run::workspace;
use crate::sources::{self, UnknownSource};
use crate::state::memory::{self, Remembered};
use crate::store::StoreError;
use crate::watchdog;

/// How long the end of a run waits for orders and file work that are under way: copies end within a fraction of a
/// second, unless a file system hangs. What ends later changes nothing: files are replaced in one step by the same
/// content, and a container never replaces another one.
const WORK_ENDS_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Collectives {
    pub agent: Arc<Agent>,
    participation: channel::Sender<Option<Arc<Participation>>>,
}

impl Collectives {
    pub fn new(agent: Arc<Agent>) -> Self {
        Collectives { agent, participation: channel::Sender::new(None) }
    }

    /// This agent's participation in the run in force.
    pub fn participation(&self) -> Option<Arc<Participation>> {
        self.participation.borrow().clone()
    }

    pub fn run(&self) -> Option<Arc<Run>> {
        self.participation.borrow().as_ref().map(|part| part.run.clone())
    }

    pub fn plan(&self) -> Option<Arc<MemberPlan>> {
        self.participation.borrow().as_ref().map(|part| part.run.plan.clone())
    }

    /// The bases of the job's cache directories on this node.
    pub fn cache_bases(&self) -> BTreeSet<String> {
        let plan = self.plan();
        let planned = plan.iter().flat_map(|plan| plan.settings.caches.iter().map(|cache| cache.base.clone()));
        self.agent.start.cache_bases.keys().cloned().chain(planned).collect()
    }

    /// Waits until this agent serves `generation` or a newer one; returns the one that it serves.
    pub async fn reached(&self, generation: Generation) -> Generation {
        let mut part = self.participation.subscribe();
        let serving = |part: &Option<Arc<Participation>>| part.as_ref().map(|part| part.run.plan.generation);
        let reached = part.wait_for(|part| serving(part) >= Some(generation)).await;
        reached.ok().and_then(|part| serving(&part)).unwrap_or(Generation::NONE)
    }

    /// Takes over new addresses of the run's agents, and, for the leader, which nodes are down.
    pub fn update_addresses(&self, update: PeersUpdate) {
        let issued = update.issued;
        let endpoint = |(node, address)| (node, Endpoint { address, issued });
        self.agent.streams.update_addresses(update.addresses.into_iter().map(endpoint));
        if let Some(leader) = self.leader(update.generation) {
            update.down.iter().for_each(|node| leader.node_down(node));
        }
    }

    /// Ends the run in force, if it is of this generation or an older one: the job is being drained. Its leader and its
    /// flushes are stopped, also if this agent is restarted. Waits for orders and file work that are under way.
    pub async fn end_run(&self, generation: Generation) {
        let Some(part) = self.participation().filter(|part| part.run.plan.generation <= generation) else { return };
        let (control, ended) = (self.agent.paths.control(), part.run.plan.generation);
        let recorded = tokio::task::spawn_blocking(move || memory::write_ended(&control, ended)).await;
        if let Err(error) = recorded.map_err(io::Error::from).flatten() {
            // It matters only if this agent is restarted during the drain; the drain then ends the run again.
            tracing::warn!(%error, "end_of_run_not_recorded");
        }
        part.end();
        part.run.work.close();
        if tokio::time::timeout(WORK_ENDS_WITHIN, part.run.work.wait()).await.is_err() {
            tracing::warn!(generation = %ended, "work_of_ended_run_under_way");
        }
        tracing::info!(generation = %ended, "run_ended");
    }

    /// A halt condition was set or removed here.
    pub fn halt_changed(&self) {
        if let Some(leader) = self.participation().and_then(|part| part.leader.clone()) {
            leader.halt_changed();
        }
    }

    /// Requests a checkpoint of the run, if this agent leads it.
    pub async fn request_checkpoint(&self, request: CheckpointRequest) -> CheckpointReply {
        let leader = self.participation().and_then(|part| part.leader.clone());
        let requested = match leader {
            Some(leader) => leader.request_checkpoint(request.after).await,
            None => None,
        };
        CheckpointReply { requested }
    }

    /// The leader of this generation, if it is this agent.
    fn leader(&self, generation: Generation) -> Option<Arc<Leader>> {
        let part = self.participation().filter(|part| part.run.plan.generation == generation);
        part.and_then(|part| part.leader.clone())
    }
}

/// Serves a member's link to this agent, the leader, until it breaks or the leader's run is over here.
pub async fn serve_link(
    collectives: &Collectives,
    node: NodeName,
    generation: Generation,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let part = collectives.participation().filter(|part| part.run.plan.generation == generation);
    let Some((part, leader)) = part.and_then(|part| part.leader.clone().map(|leader| (part, leader))) else {
        tracing::warn!(%node, %generation, "link_to_wrong_leader");
        return;
    };
    let (to_member, mut from_member) = link::to_member(collectives.agent.clone(), &node, stream);
    let link = leader.link_up(&node, to_member);
    loop {
        tokio::select! {
            message = from_member.recv() => match message {
                Some(message) => leader.receive(&node, message),
                None => break,
            },
            // The same generation may be prepared again with other nodes. A member whose own part is unchanged does not
            // notice that: it has to connect to the new leader.
            () = part.run.cancelled.cancelled() => break,
        }
    }
    leader.link_down(&node, link);
}

/// Why a run could not be begun.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("generation {asked} is over: this agent serves generation {serving}")]
    Old { asked: Generation, serving: Generation },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(
        "{} is not a prefix directory of this job, as it was started: end the job, and start it again if the spec was \
         changed",
        .0.display()
    )]
    ForeignPrefix(PathBuf),
    #[error(
        "{0} is not the base of a cache of this job, as it was started: end the job, and start it again if the spec \
         was changed"
    )]
    ForeignBase(String),
    #[error("the plan of generation {generation} cannot be used: {source}")]
    Unusable { generation: Generation, source: LayoutError },
    /// The settings name a checkpoint source that does not exist.
    #[error(transparent)]
    Source(#[from] UnknownSource),
    #[error("the agent failed: {0}")]
    Crashed(#[from] JoinError),
    #[error("the run could not be recorded in {directory}: {source}; is the file system full or read-only?")]
    Record { directory: String, source: std::io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another user may have a hand in a cache directory.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

/// Checks that a run uses only directories that the agent's start message names: the sender of a plan must not be able
/// to choose others.
///
/// # Errors
/// The directory that it does not name.
pub fn check_places(agent: &Agent, settings: &Settings) -> Result<(), RunError> {
    if !agent.prefixes.contains(&settings.prefix) {
        return Err(RunError::ForeignPrefix(settings.prefix.clone()));
    }
    let settings = settings.clone().for_node(&agent.start.node);
    let caches = settings.caches.into_iter().map(|cache| cache.base);
    let mut bases = caches.chain(settings.descriptors.into_iter().map(|descriptor| descriptor.base));
    let foreign = bases.find(|base| !agent.start.cache_bases.contains_key(base));
    foreign.map_or(Ok(()), |base| Err(RunError::ForeignBase(base)))
}

/// Begins a generation: kills older ranks, closes older streams, records the plan, sets up the filemaps, connects to
/// the leader. The same plan again changes nothing.
pub async fn begin_run(collectives: &Collectives, request: RunRequest) -> Result<RunAccepted, RunError> {
    let agent = &collectives.agent;
    let accepted = RunAccepted { socket: agent.paths.socket() };
    let generation = request.shared.generation;
    check_places(agent, &request.shared.settings)?;
    let plan = request.clone().accept(&agent.start.node)?;
    if let Some(serving) = collectives.participation() {
        let in_force = serving.run.plan.generation;
        if in_force > generation {
            return Err(RunError::Old { asked: generation, serving: in_force });
        }
        if serving.plan.is_same_run(&plan) && !serving.run.cancelled.is_cancelled() {
            return Ok(accepted);
        }
    }
    let before = Generation(generation.0.saturating_sub(1));
    let reason = format!("generation {generation} begins");
    ranks::kill(&agent.ranks, holdfast_wire::agent::KillRequest { generation: before, reason }).await;
    agent.ranks.fence(generation);
    agent.halt.run_begins(generation);
    agent.streams.fence(generation);
    if let Some(old) = collectives.participation() {
        old.end();
    }
    let prepared = prepare(agent, request, plan, true).await?;
    start(collectives, prepared, false);
    Ok(accepted)
}

/// The parts of a run that are read from the node's disks, or recorded there.
pub(crate) struct Prepared {
    plan: AcceptedPlan,
    run: Arc<Run>,
    leader: Option<(Leader, Driver)>,
}

#[cfg(feature = "simulation")]
impl Prepared {
    /// The run, and the machine of its leader if that is here.
    pub(crate) fn into_parts(self) -> (Arc<Run>, Option<super::leader::LeaderMachine>) {
        (self.run, self.leader.map(|(_, driver)| driver.into_machine()))
    }
}

/// Sets up the filemaps and the state files of a run, on a thread that may block; `begins` unless it is adopted.
async fn prepare(
    agent: &Arc<Agent>,
    request: RunRequest,
    plan: AcceptedPlan,
    begins: bool,
) -> Result<Prepared, RunError> {
    let agent = agent.clone();
    tokio::task::spawn_blocking(move || prepare_blocking(&agent, &request, plan, begins)).await?
}

pub(crate) fn prepare_blocking(
    agent: &Agent,
    request: &RunRequest,
    plan: AcceptedPlan,
    begins: bool,
) -> Result<Prepared, RunError> {
    let member = &plan.member;
    let generation = member.generation;
    // Before anything is changed.
    let source = sources::open(&member.settings)?;
    let bases: Vec<String> = member.settings.caches.iter().map(|cache| cache.base.clone()).collect();
    for base in &bases {
        match claim::directory(&agent.paths, &agent.paths.cache_node_path(base)) {
            Err(error) if error.is_refusal() => return Err(error.into()),
            // The health report has it; a checkpoint in this cache fails.
            Err(error) => tracing::error!(%base, %error, "cache_directory_unusable"),
            Ok(_) => {}
        }
    }
    // LLNL's library keeps its files by itself; an agent that changed them would compete with it.
    let cancelled = CancellationToken::new();
    let is_library = source.entry().is_library;
    let library = is_library.then(|| Arc::new(LibraryWatch::begin(agent, member.clone(), !begins, cancelled.clone())));
    if library.is_none() {
        agent.store.begin_run(&member.local, &bases)?;
    }
    if begins && library.is_none() {
        transfer_record::remove(&agent.paths);
    }
    if begins && let Err(error) = workspace::remove_all(&agent.paths, &bases) {
        // Each rank process gets an empty directory, or the error.
        tracing::warn!(%error, "directories_of_rank_processes_not_removed");
    }
    let control = agent.paths.control();
    let not_recorded = |source| RunError::Record { directory: control.display().to_string(), source };
    if begins && memory::read_ended(&control).map_err(not_recorded)? >= generation {
        memory::write_ended(&control, Generation::NONE).map_err(not_recorded)?;
    }
    if library.is_none() {
        agent.store.write_nodes(member.used_nodes)?;
    }
    memory::write_plan(&control, request).map_err(not_recorded)?;
    let work = TaskTracker::new();
    let leader = match &plan.leader {
        Some(plan) => {
            let unusable = |source| RunError::Unusable { generation, source };
            let saved = SavedState::read(&control, generation).map_err(not_recorded)?;
            Some(Leader::open(agent, plan.clone(), saved, &source, work.clone()).map_err(unusable)?)
        }
        None => None,
    };
    let memory = Remembered::open(&control, generation).map_err(not_recorded)?;
    let run = Arc::new(Run { plan: member.clone(), memory, source, library, cancelled, work });
    Ok(Prepared { plan, run, leader })
}

/// Adopts the run that is recorded in the control directory, after the agent was restarted.
pub async fn adopt(collectives: &Collectives) -> Option<Generation> {
    let agent = &collectives.agent;
    let request = memory::read_plan(&agent.paths.control()).inspect_err(|error| {
        tracing::warn!(%error, "run_not_adopted");
    });
    let request = request.ok().flatten()?;
    let generation = request.shared.generation;
    let prepared = async {
        check_places(agent, &request.shared.settings)?;
        // The plan may be of another node: then there is nothing to adopt.
        let plan = request.clone().accept(&agent.start.node)?;
        // The filemaps are unchanged; this only assigns them to the ranks.
        prepare(agent, request, plan, false).await
    };
    match prepared.await {
        Ok(prepared) => {
            start(collectives, prepared, true);
            if memory::read_ended(&agent.paths.control()).is_ok_and(|ended| ended >= generation) {
                // The job is being drained.
                collectives.participation().iter().for_each(|part| part.end());
            }
            Some(generation)
        }
        Err(error) => {
            tracing::warn!(%generation, %error, "run_not_adopted");
            None
        }
    }
}

fn start(collectives: &Collectives, prepared: Prepared, adopted: bool) {
    let agent = &collectives.agent;
    let Prepared { plan, run, leader } = prepared;
    let endpoint = |node: &NodeName, address| (node.clone(), Endpoint { address, issued: plan.issued });
    agent.streams.update_addresses([endpoint(&run.plan.leader, run.plan.leader_address)]);
    if let Some(leader) = &plan.leader {
        agent.streams.update_addresses(leader.nodes.iter().map(|node| endpoint(&node.name, node.address)));
    }
    let (to_leader, from_ranks) = mpsc::unbounded_channel();
    let (leader, driver) = leader.map(|(leader, driver)| (Arc::new(leader), driver)).unzip();
    let part = Arc::new(Participation::new(plan, run.clone(), leader, to_leader, adopted));
    part.own(tokio::spawn(member::keep_link(agent.clone(), part.clone(), from_ranks)));
    if let Some(driver) = driver {
        part.own(tokio::spawn(driver::drive(agent.clone(), driver)));
    }
    if let Some(settings) = agent.watchdog.begin(&run.plan) {
        let (watchdog, ranks) = (agent.watchdog.clone(), agent.ranks.clone());
        part.own(tokio::spawn(watchdog::keep_watch(watchdog, ranks, run.plan.generation, settings)));
    }
    if let Some(library) = &part.run.library {
        part.own(tokio::spawn(watch::keep_watch(agent.clone(), library.clone())));
        let (agent, run, counted) = (agent.clone(), part.run.clone(), part.run.work.token());
        tokio::task::spawn_blocking(move || {
            transfer::serve(&agent, &run.plan.settings, &run.cancelled);
            drop(counted);
        });
    }
    collectives.participation.send_replace(Some(part));
}
