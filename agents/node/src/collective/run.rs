//! The run in force, and taking one on.

use std::sync::Arc;

use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::agent::{PeersUpdate, RunAccepted};
use holdfast_wire::peer::ToLeader;
use holdfast_wire::run::RunPlan;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError};
use tokio_util::sync::CancellationToken;

use super::leader::{self, LayoutError, Leader};
use super::member::{self, Calls};
use crate::agent::Agent;
use crate::memory::{self, Remembered};
use crate::ranks;
use crate::sources::{self, CheckpointSource, UnknownSource};
use crate::store::StoreError;
use crate::watchdog;

/// The run and its collectives.
#[derive(Debug)]
pub struct Collectives {
    /// The agent that takes part.
    pub agent: Arc<Agent>,
    run: watch::Sender<Option<Arc<Run>>>,
}

/// One generation, as this agent takes part in it.
#[derive(Debug)]
pub struct Run {
    /// Who runs where, and the settings.
    pub plan: Arc<RunPlan>,
    /// This agent was restarted in the middle of it: ranks may be at different calls, so nothing waits for the others.
    pub adopted: bool,
    /// Calls of this node's ranks that are not answered yet.
    pub calls: Calls,
    /// What is said to the leader goes in here.
    pub to_leader: mpsc::UnboundedSender<ToLeader>,
    /// What this node knows of the run's checkpoints.
    pub memory: Remembered,
    /// Ends the copies that belong to the run.
    pub cancelled: CancellationToken,
    /// Who produces the checkpoint files.
    pub source: Arc<dyn CheckpointSource>,
    /// If this is the run's first node.
    pub leader: Option<Arc<Leader>>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Run {
    /// The ranks on this node.
    pub fn local_ranks(&self, node: &NodeName) -> &[Rank] {
        self.plan.node(node).map_or(&[], |node| &node.ranks)
    }

    /// Ends the run's tasks.
    fn end(&self) {
        self.cancelled.cancel();
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        self.calls.abandon();
    }
}

impl Collectives {
    /// No run yet.
    pub fn new(agent: Arc<Agent>) -> Self {
        Collectives { agent, run: watch::Sender::new(None) }
    }

    /// The run in force.
    pub fn run(&self) -> Option<Arc<Run>> {
        self.run.borrow().clone()
    }

    /// Its plan.
    pub fn plan(&self) -> Option<Arc<RunPlan>> {
        self.run.borrow().as_ref().map(|run| run.plan.clone())
    }

    /// Waits until this agent serves `generation` or a newer one; returns which.
    pub async fn reached(&self, generation: Generation) -> Generation {
        let mut run = self.run.subscribe();
        let reached = run
            .wait_for(|run| run.as_ref().is_some_and(|run| run.plan.generation >= generation))
            .await
            .ok()
            .and_then(|run| run.as_ref().map(|run| run.plan.generation));
        reached.unwrap_or(Generation::NONE)
    }

    /// Takes over new addresses of the run's agents, and which of them will not come back.
    pub fn update_addresses(&self, update: PeersUpdate) {
        self.agent.streams.learn(update.addresses);
        let run = self.run().filter(|run| run.plan.generation == update.generation);
        if let Some(leader) = run.and_then(|run| run.leader.clone()) {
            update.down.iter().for_each(|node| leader.give_up(node));
        }
    }
}

/// Why a run could not be taken on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A newer generation is in force.
    #[error("generation {asked} is over: this agent serves generation {serving}")]
    Old {
        /// What was asked for.
        asked: Generation,
        /// What is in force.
        serving: Generation,
    },
    /// The plan does not fit together.
    #[error("the plan of generation {generation} cannot be used: {source}")]
    Unusable {
        /// Of which run.
        generation: Generation,
        /// What is wrong.
        source: LayoutError,
    },
    /// The settings name a checkpoint source that does not exist.
    #[error(transparent)]
    Source(#[from] UnknownSource),
    /// A task of the agent panicked.
    #[error("the agent failed: {0}")]
    Crashed(#[from] JoinError),
    /// The state could not be put on disk.
    #[error("the run could not be recorded in {directory}: {source}; is the file system full or read-only?")]
    Record {
        /// The control directory.
        directory: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The filemaps could not be set up.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes on a generation: kills older ranks, cuts older streams, records the plan, sets up the filemaps, connects to the
/// leader. The same plan again changes nothing.
pub async fn begin_run(collectives: &Collectives, plan: RunPlan) -> Result<RunAccepted, RunError> {
    let agent = &collectives.agent;
    let accepted = RunAccepted { socket: agent.paths.socket() };
    if let Some(serving) = collectives.plan() {
        if serving.generation > plan.generation {
            return Err(RunError::Old { asked: plan.generation, serving: serving.generation });
        }
        if *serving == plan {
            return Ok(accepted);
        }
    }
    let before = Generation(plan.generation.0.saturating_sub(1));
    let reason = format!("generation {} begins", plan.generation);
    ranks::kill(&agent.ranks, holdfast_wire::agent::KillRequest { generation: before, reason }).await;
    agent.ranks.fence(plan.generation);
    agent.streams.fence(plan.generation);
    if let Some(old) = collectives.run() {
        old.end();
    }
    let plan = Arc::new(plan);
    let prepared = prepare(agent, &plan).await?;
    start(collectives, plan, prepared, false);
    Ok(accepted)
}

/// What a run needs that is read from, or recorded on, the node's disks.
struct Prepared {
    memory: Remembered,
    source: Arc<dyn CheckpointSource>,
    leader: Option<Arc<Leader>>,
    cancelled: CancellationToken,
}

/// Sets up the filemaps and the state files of a run, on a thread that may block.
async fn prepare(agent: &Arc<Agent>, plan: &Arc<RunPlan>) -> Result<Prepared, RunError> {
    let (agent, plan) = (agent.clone(), plan.clone());
    tokio::task::spawn_blocking(move || prepare_blocking(&agent, &plan)).await?
}

fn prepare_blocking(agent: &Agent, plan: &Arc<RunPlan>) -> Result<Prepared, RunError> {
    // Before anything is changed.
    let source = sources::open(&plan.settings)?;
    let local = plan.node(&agent.start.node).map_or(&[][..], |node| &node.ranks);
    let bases: Vec<String> = plan.settings.caches.iter().map(|cache| cache.base.clone()).collect();
    agent.store.begin_run(local, &bases)?;
    let nodes = plan.nodes.iter().filter(|node| !node.ranks.is_empty()).count();
    agent.store.write_nodes(u32::try_from(nodes).unwrap_or(u32::MAX))?;
    let control = agent.paths.control();
    memory::write_plan(&control, plan)
        .map_err(|source| RunError::Record { directory: control.display().to_string(), source })?;
    let cancelled = CancellationToken::new();
    let leader = if plan.leader == agent.start.node {
        let unusable = |source| RunError::Unusable { generation: plan.generation, source };
        Some(Arc::new(Leader::new(agent, plan.clone(), source.clone(), cancelled.clone()).map_err(unusable)?))
    } else {
        None
    };
    Ok(Prepared { memory: Remembered::open(&control, plan.generation), source, leader, cancelled })
}

/// Takes up the run again that the control directory knows of, after the agent was restarted.
pub async fn adopt(collectives: &Collectives) -> Option<Generation> {
    let agent = &collectives.agent;
    let plan = Arc::new(memory::read_plan(&agent.paths.control())?);
    // Not a node of that run any more, or a control directory of somebody else's run: nothing to adopt.
    plan.node(&agent.start.node)?;
    let generation = plan.generation;
    // The filemaps are as the earlier agent left them; this only tells whose they are.
    match prepare(agent, &plan).await {
        Ok(prepared) => {
            start(collectives, plan, prepared, true);
            Some(generation)
        }
        Err(error) => {
            tracing::warn!(%generation, %error, "the run in the control directory could not be taken up");
            None
        }
    }
}

fn start(collectives: &Collectives, plan: Arc<RunPlan>, prepared: Prepared, adopted: bool) {
    let agent = &collectives.agent;
    let Prepared { memory, source, leader, cancelled } = prepared;
    agent.streams.learn(plan.nodes.iter().map(|node| (node.name.clone(), node.address)));
    let (to_leader, from_ranks) = mpsc::unbounded_channel();
    let run = Arc::new(Run {
        calls: Calls::default(),
        adopted,
        to_leader,
        memory,
        source,
        cancelled,
        leader: leader.clone(),
        tasks: Mutex::default(),
        plan,
    });
    let mut tasks = vec![tokio::spawn(member::keep_link(agent.clone(), run.clone(), from_ranks)).abort_handle()];
    if let Some(leader) = leader {
        tasks.push(tokio::spawn(leader::lead(agent.clone(), leader)).abort_handle());
    }
    let local = run.local_ranks(&agent.start.node);
    if let Some(settings) = agent.watchdog.begin(&run.plan, local) {
        let watching = watchdog::keep_watch(agent.watchdog.clone(), agent.ranks.clone(), run.plan.generation, settings);
        tasks.push(tokio::spawn(watching).abort_handle());
    }
    *run.tasks.lock() = tasks;
    collectives.run.send_replace(Some(run));
}
