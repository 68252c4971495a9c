//! The run in force, and taking one on.

use std::sync::Arc;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::agent::{PeersUpdate, RunAccepted};
use holdfast_wire::peer::{ToLeader, ToMember};
use holdfast_wire::run::RunPlan;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinError;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::leader::{self, LayoutError, Leader};
use super::link::carry;
use super::member;
use super::participation::Participation;
use crate::agent::Agent;
use crate::memory::{self, Remembered};
use crate::ranks;
use crate::run::Run;
use crate::sources::{self, UnknownSource};
use crate::store::StoreError;
use crate::watchdog;

/// The run and its collectives.
#[derive(Debug)]
pub struct Collectives {
    /// The agent that takes part.
    pub agent: Arc<Agent>,
    part: watch::Sender<Option<Arc<Participation>>>,
}

impl Collectives {
    /// No run yet.
    pub fn new(agent: Arc<Agent>) -> Self {
        Collectives { agent, part: watch::Sender::new(None) }
    }

    /// This agent's part in the run in force.
    pub fn participation(&self) -> Option<Arc<Participation>> {
        self.part.borrow().clone()
    }

    /// The run in force.
    pub fn run(&self) -> Option<Arc<Run>> {
        self.part.borrow().as_ref().map(|part| part.run.clone())
    }

    /// Its plan.
    pub fn plan(&self) -> Option<Arc<RunPlan>> {
        self.part.borrow().as_ref().map(|part| part.run.plan.clone())
    }

    /// Waits until this agent serves `generation` or a newer one; returns which.
    pub async fn reached(&self, generation: Generation) -> Generation {
        let mut part = self.part.subscribe();
        let serving = |part: &Option<Arc<Participation>>| part.as_ref().map(|part| part.run.plan.generation);
        let reached = part.wait_for(|part| serving(part) >= Some(generation)).await;
        reached.ok().and_then(|part| serving(&part)).unwrap_or(Generation::NONE)
    }

    /// Takes over new addresses of the run's agents, and which of them will not come back.
    pub fn update_addresses(&self, update: PeersUpdate) {
        self.agent.streams.learn(update.addresses);
        if let Some(leader) = self.leader(update.generation) {
            update.down.iter().for_each(|node| leader.give_up(node));
        }
    }

    /// The leader of this generation, if it is this agent.
    fn leader(&self, generation: Generation) -> Option<Arc<Leader>> {
        let part = self.participation().filter(|part| part.run.plan.generation == generation);
        part.and_then(|part| part.leader.clone())
    }
}

/// Serves a member's link to this agent, the leader, until it breaks.
pub async fn serve_link(
    collectives: &Collectives,
    node: NodeName,
    generation: Generation,
    stream: TlsStream<TcpStream>,
) {
    let Some(leader) = collectives.leader(generation) else {
        tracing::warn!(%node, %generation, "a member took this agent for the leader");
        return;
    };
    let (to_member, mut from_member) = carry::<_, ToMember, ToLeader>(stream);
    let link = leader.link_up(&node, to_member);
    while let Some(message) = from_member.recv().await {
        leader.hear(&node, message);
    }
    leader.link_down(&node, link);
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
    if let Some(old) = collectives.participation() {
        old.end();
    }
    let plan = Arc::new(plan);
    let prepared = prepare(agent, &plan).await?;
    start(collectives, prepared, false);
    Ok(accepted)
}

/// What a run needs that is read from, or recorded on, the node's disks.
struct Prepared {
    run: Arc<Run>,
    leader: Option<Arc<Leader>>,
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
    let memory = Remembered::open(&control, plan.generation);
    Ok(Prepared { run: Arc::new(Run { plan: plan.clone(), memory, source, cancelled }), leader })
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
            start(collectives, prepared, true);
            Some(generation)
        }
        Err(error) => {
            tracing::warn!(%generation, %error, "the run in the control directory could not be taken up");
            None
        }
    }
}

fn start(collectives: &Collectives, prepared: Prepared, adopted: bool) {
    let agent = &collectives.agent;
    let Prepared { run, leader } = prepared;
    let plan = &run.plan;
    agent.streams.learn(plan.nodes.iter().map(|node| (node.name.clone(), node.address)));
    let (to_leader, from_ranks) = mpsc::unbounded_channel();
    let part = Arc::new(Participation::new(run.clone(), leader.clone(), to_leader, adopted));
    part.own(tokio::spawn(member::keep_link(agent.clone(), part.clone(), from_ranks)));
    if let Some(leader) = leader {
        part.own(tokio::spawn(leader::lead(agent.clone(), leader)));
    }
    if let Some(settings) = agent.watchdog.begin(plan, run.local_ranks(&agent.start.node)) {
        let (watchdog, ranks) = (agent.watchdog.clone(), agent.ranks.clone());
        part.own(tokio::spawn(watchdog::keep_watch(watchdog, ranks, plan.generation, settings)));
    }
    collectives.part.send_replace(Some(part));
}
