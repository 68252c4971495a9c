//! Pairs of main and replica, and the non-critical jobs beside them.
//!
//! One thread (`watcher`) watches all copies of the node, and performs what their machines decide; another one
//! (`start`) does for it what may block. Copies do not end with the agent: one that is started again finds them in the
//! registry and in a state file, and goes on (`state`). So pairs do not need an orchestrator within a node.

mod board;
mod clock;
mod freezer;
mod jobs;
mod mirror;
mod process;
mod requests;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod watcher;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use holdfast_model::Side;
use holdfast_model::pair::{
    CHECKPOINT_RING, CopyState, JobConfig, JobRunState, PairChange, PairConfig, PairEvent, PairStatus,
};
use holdfast_shm::{Layout, Registry, ShmError};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::pairs::{
    AdoptedCopy, CommandRequest, PairOnNode, PairsAccepted, PairsPlan, PairsReport, PairsSettings, PairsStop,
    PairsSync, PlanFault,
};
use holdfast_wire::peer::{MirrorAnswer, ToMirror};
use parking_lot::Mutex;
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::sync::oneshot;

use crate::agent::Agent;
use crate::claim::{self, ClaimError};
use crate::stream::StreamError;
use board::Board;
use mirror::Mirror;
use process::{CopyProcess, ProcessId};
use requests::{Request, Requests};
use start::Directories;
use state::State;
use watcher::Watcher;

pub(crate) use mirror::QUIET;
pub use requests::CommandFault;

/// The directory of pairs below the control directory.
const DIRECTORY: &str = "pairs";
/// The registry's name in it.
const REGISTRY: &str = "registry";
/// How long the end of all copies may take when the agent itself ends.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Why a request about pairs failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairsError {
    #[error("the plan of the pairs cannot be carried out: {0}")]
    Plan(#[from] PlanFault),
    #[error("the request is of an orchestrator (epoch {0}) that another one (epoch {1}) has replaced")]
    Superseded(u64, u64),
    #[error("the node has pairs of another plan: end them first (`holdfast halt`), then run the job again")]
    OtherPlan,
    #[error("the node has no pairs: its agent has no plan of them")]
    NoPlan,
    #[error(
        "the watcher of the pairs cannot run on CPU {cpu}: the agent may use only the CPUs {allowed}; change \
         `pin_watcher`"
    )]
    Cpu { cpu: u32, allowed: String },
    #[error("the directory for output {} is not below a prefix directory of this job", .0.display())]
    Output(PathBuf),
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Registry(#[from] ShmError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Command(#[from] CommandFault),
    #[error("cannot {action}: {source}")]
    Io { action: String, source: io::Error },
}

/// The pairs of the plan in force.
#[derive(Debug)]
struct Running {
    plan: PairsPlan,
    requests: Requests,
    board: Arc<Board>,
    mirror: Arc<Mirror>,
    adopted: Vec<AdoptedCopy>,
    thread: Option<JoinHandle<()>>,
}

/// The pairs of the node.
#[derive(Debug, Default)]
pub struct Pairs {
    running: Mutex<Option<Running>>,
    /// Held while a plan comes into force, or its end is completed.
    changing: Mutex<()>,
    /// The highest epoch of an orchestrator.
    epoch: Mutex<u64>,
}

impl Pairs {
    /// Notes the epoch of an orchestrator.
    fn check_epoch(&self, epoch: u64) -> Result<(), PairsError> {
        let mut known = self.epoch.lock();
        if epoch < *known {
            return Err(PairsError::Superseded(epoch, *known));
        }
        *known = epoch;
        Ok(())
    }

    /// What is needed for a request: the watcher's requests and board.
    fn current(&self) -> Result<(Requests, Arc<Board>), PairsError> {
        let running = self.running.lock();
        let running = running.as_ref().ok_or(PairsError::NoPlan)?;
        Ok((running.requests.clone(), running.board.clone()))
    }

    /// Goes on with the pairs that an earlier agent of the node has left, if there are any. Blocks.
    pub fn adopt(&self, agent: &Agent) {
        let Some(state) = state::read(&directory(agent), &clock::boot()) else { return };
        match self.begin(agent, state.plan) {
            Ok(accepted) => tracing::info!(copies = accepted.adopted.len(), "pairs_adopted"),
            Err(error) => tracing::error!(%error, "pairs_not_adopted"),
        }
    }

    /// Brings a plan into force. Blocks.
    ///
    /// # Errors
    /// When it cannot be carried out, or another one is in force.
    pub fn begin(&self, agent: &Agent, plan: PairsPlan) -> Result<PairsAccepted, PairsError> {
        plan.check()?;
        self.check_epoch(plan.epoch)?;
        let _changing = self.changing.lock();
        if let Some(running) = &mut *self.running.lock() {
            if !is_compatible(&running.plan, &plan) {
                return Err(PairsError::OtherPlan);
            }
            running.plan = plan.clone();
            running.requests.send(Request::Plan(plan));
            return Ok(accepted(running));
        }
        if let Some(output) = &plan.settings.output
            && !agent.prefixes.is_above(output)
        {
            return Err(PairsError::Output(output.clone()));
        }
        let running = start(agent, plan)?;
        let accepted = accepted(&running);
        *self.running.lock() = Some(running);
        Ok(accepted)
    }

    /// Takes grants and revocations, waits for a change, and returns the state.
    ///
    /// # Errors
    /// When the orchestrator was replaced, or there is no plan.
    pub async fn sync(&self, sync: PairsSync, longest: Duration) -> Result<PairsReport, PairsError> {
        self.check_epoch(sync.epoch)?;
        let (requests, board) = self.current()?;
        let PairsSync { instance, mut leases, revoke, finished, peers, seen, wait_ms, .. } = sync;
        if !peers.is_empty() {
            requests.send(Request::Peers(peers));
        }
        if instance != board.instance {
            leases.clear();
        }
        if !(leases.is_empty() && revoke.is_empty() && finished.is_empty()) {
            requests.send(Request::Leases { leases, revoke, finished });
        }
        board.wait(seen, Duration::from_millis(wait_ms).min(longest)).await;
        Ok(board.report())
    }

    /// Requests what a user wants.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn command(&self, request: CommandRequest) -> Result<PairStatus, PairsError> {
        self.check_epoch(request.epoch)?;
        let (requests, _) = self.current()?;
        let (reply, answer) = oneshot::channel();
        requests.send(Request::Command { pair: request.pair, command: request.command, reply });
        Ok(answer.await.map_err(|_| PairsError::NoPlan)??)
    }

    /// Ends all copies and jobs, and returns when they are gone.
    ///
    /// # Errors
    /// When the orchestrator was replaced, or the registry cannot be removed.
    pub async fn stop(self: &Arc<Self>, agent: &Agent, stop: PairsStop) -> Result<(), PairsError> {
        self.check_epoch(stop.epoch)?;
        self.end(directory(agent), stop.at_once).await
    }

    async fn end(self: &Arc<Self>, directory: PathBuf, at_once: bool) -> Result<(), PairsError> {
        let Ok((requests, _)) = self.current() else { return Ok(()) };
        let (reply, gone) = oneshot::channel();
        requests.send(Request::Stop { at_once, reply });
        // Without an answer: the thread has ended.
        let _ = gone.await;
        let pairs = self.clone();
        let completed = tokio::task::spawn_blocking(move || pairs.complete_end(&directory)).await;
        completed.map_err(|error| PairsError::Io { action: "end the pairs".to_owned(), source: error.into() })?
    }

    /// Removes what a later agent would go on with.
    fn complete_end(&self, directory: &Path) -> Result<(), PairsError> {
        let _changing = self.changing.lock();
        let Some(mut running) = self.running.lock().take() else { return Ok(()) };
        running.mirror.end();
        if let Some(thread) = running.thread.take() {
            let _ = thread.join();
        }
        state::remove(directory)?;
        remove(&directory.join(REGISTRY))
    }

    /// Ends all copies and jobs because the agent ends for good.
    pub async fn end_with_agent(self: &Arc<Self>, agent: &Agent) {
        match tokio::time::timeout(END_WITHIN, self.end(directory(agent), false)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "pairs_not_removed"),
            Err(_) => tracing::error!("pairs_not_ended"),
        }
    }

    /// Enters a checkpoint that the agent of another node has sent.
    pub(crate) fn mirrored(&self, message: ToMirror) -> MirrorAnswer {
        let mirror = self.running.lock().as_ref().map(|running| running.mirror.clone());
        match mirror {
            Some(mirror) => mirror.receive(message),
            None => MirrorAnswer::Refused { reason: PairsError::NoPlan.to_string() },
        }
    }

    /// True while there is work of pairs or jobs: the agent is needed, also without an orchestrator.
    pub fn are_needed(&self) -> bool {
        let Some(report) = self.running.lock().as_ref().map(|running| running.board.report()) else { return false };
        let over = |status: &PairStatus| {
            let copies = Side::BOTH.into_iter().filter_map(|side| status.copy(side));
            let is_over = |state: CopyState| matches!(state, CopyState::Finished | CopyState::GivenUp);
            copies.clone().any(|copy| copy.state == CopyState::Finished)
                || copies.clone().all(|copy| is_over(copy.state))
        };
        let has_process = |status: &PairStatus| {
            Side::BOTH.into_iter().filter_map(|side| status.copy(side)).any(|copy| copy.pid.is_some())
        };
        report.pairs.iter().any(|status| !over(status) || has_process(status))
            || report.jobs.iter().any(|job| matches!(job.state, JobRunState::Running | JobRunState::Suspended))
    }
}

fn accepted(running: &Running) -> PairsAccepted {
    PairsAccepted { registry: running.board.registry.clone(), adopted: running.adopted.clone() }
}

/// True if the plans differ only in the orchestrator, in addresses, and in what can be changed while copies run: from
/// the next start on, or, as the restart policy, from now on.
fn is_compatible(known: &PairsPlan, plan: &PairsPlan) -> bool {
    let pair = |pair: &PairOnNode| {
        let PairConfig { name, checkpoint_bytes, period, .. } = &pair.config;
        (pair.index, pair.sides, name.clone(), *checkpoint_bytes, *period)
    };
    let job = |job: &JobConfig| (job.name.clone(), job.order);
    let settings = |plan: &PairsPlan| {
        let PairsSettings { lease, pin_watcher, output, .. } = &plan.settings;
        (*lease, *pin_watcher, output.clone())
    };
    known.pairs.iter().map(pair).eq(plan.pairs.iter().map(pair))
        && known.jobs.iter().map(job).eq(plan.jobs.iter().map(job))
        && settings(known) == settings(plan)
}

/// The directory of registry and state.
fn directory(agent: &Agent) -> PathBuf {
    agent.paths.control().join(DIRECTORY)
}

fn remove(path: &Path) -> Result<(), PairsError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(PairsError::Io { action: format!("remove {}", path.display()), source })
        }
        _ => Ok(()),
    }
}

/// The pairs of a plan, with what an earlier agent has left.
fn start(agent: &Agent, plan: PairsPlan) -> Result<Running, PairsError> {
    let cpu = plan.settings.pin_watcher.map(allowed_cpu).transpose()?;
    let at = directory(agent);
    claim::directory_below(&agent.paths, agent.paths.control_node_path(), Path::new(DIRECTORY))?;
    let kept = state::read(&at, &clock::boot()).filter(|kept| is_compatible(&kept.plan, &plan));
    let registry_path = at.join(REGISTRY);
    let opened = open_registry(&registry_path, agent.paths.job_id(), &plan, kept)?;
    let OpenedRegistry { registry, kept, replaced } = opened;
    if let Some(reason) = replaced {
        for pair in &plan.pairs {
            let change = PairChange::RegistryReplaced { reason: reason.clone() };
            let name = pair.config.name.clone();
            agent.events.add(AgentEvent::Pair(PairEvent { name, at: SystemTime::now().into(), change }));
        }
    }
    let board = Arc::new(Board::new(agent.instance, registry_path));
    let failed = |source| PairsError::Io { action: "watch the pairs".to_owned(), source };
    let (requests, inbox) = requests::requests().map_err(failed)?;
    let output = plan.settings.output.clone().unwrap_or_else(|| at.clone());
    let directories = Directories { pairs: at, output };
    let (registry, state) = (Arc::new(registry), State::of(plan.clone()));
    let spawned = start::spawn(directories, registry.clone(), state, requests.clone(), agent.events.clone());
    let (work, worker) = spawned.map_err(failed)?;
    let connector = agent.streams.peer_connector()?;
    let numbers = plan.pairs.iter().map(|pair| pair.index);
    let mirror = Mirror::new(registry.clone(), requests.clone(), connector, plan.settings.lease, numbers);
    let mirror = Arc::new(mirror);
    let made = Watcher::new(plan.clone(), kept, registry, inbox, work, (board.clone(), mirror.clone()));
    let (watcher, adopted) = made.map_err(failed)?;
    let run = move || {
        if let Some(cpu) = cpu
            && let Err(error) = sched_setaffinity(None, &cpu)
        {
            tracing::error!(%error, "watcher_not_pinned");
        }
        holdfast_shm::process::run_soon();
        watcher.run();
        let _ = worker.join();
    };
    let thread = std::thread::Builder::new().name("pairs".to_owned()).spawn(run).map_err(failed)?;
    Ok(Running { plan, requests, board, mirror, adopted, thread: Some(thread) })
}

/// The set of one CPU, if this process may use it.
fn allowed_cpu(cpu: u32) -> Result<CpuSet, PairsError> {
    let allowed = sched_getaffinity(None)
        .map_err(|error| PairsError::Io { action: "ask for the CPUs of the agent".to_owned(), source: error.into() })?;
    let wanted = cpu as usize;
    if wanted >= CpuSet::MAX_CPU || !allowed.is_set(wanted) {
        let allowed: Vec<String> =
            (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu.to_string()).collect();
        return Err(PairsError::Cpu { cpu, allowed: allowed.join(",") });
    }
    let mut set = CpuSet::new();
    set.set(wanted);
    Ok(set)
}

/// The registry of an earlier agent or a new one, and what is left of the earlier agent's state.
struct OpenedRegistry {
    registry: Registry,
    kept: Option<State>,
    /// Why there is a new one in place of an earlier one.
    replaced: Option<String>,
}

/// If the earlier registry is damaged, its copies can be neither woken nor stopped by it: they are killed.
fn open_registry(path: &Path, job: &str, plan: &PairsPlan, kept: Option<State>) -> Result<OpenedRegistry, PairsError> {
    let layout = layout(plan);
    let mut replaced = None;
    if fs::symlink_metadata(path).is_ok() {
        let reason = match Registry::open(path) {
            Ok(registry) if registry.is_of_job(job) && registry.layout() == layout => {
                return Ok(OpenedRegistry { registry, kept, replaced });
            }
            Ok(registry) => {
                kill_registered(&registry);
                "it is of another plan".to_owned()
            }
            Err(error) => error.to_string(),
        };
        remove(path)?;
        replaced = Some(reason);
    } else if kept.as_ref().is_some_and(|kept| !kept.pairs.is_empty()) {
        // The file is removed after the state when pairs end.
        replaced = Some("the file is gone".to_owned());
    }
    if let Some(reason) = &replaced {
        tracing::warn!(path = %path.display(), reason, "registry_replaced");
    }
    if let Some(kept) = &kept {
        let processes = kept.pairs.values().flat_map(|pair| pair.processes.into_iter().chain(pair.programs)).flatten();
        processes.filter_map(|(_, id)| CopyProcess::open(id)).for_each(|process| process.signal(Signal::KILL));
    }
    let kept = kept.map(without_copies);
    Ok(OpenedRegistry { registry: Registry::create(path, &layout, job)?, kept, replaced })
}

/// The state after all copies were killed.
fn without_copies(mut kept: State) -> State {
    kept.pairs.values_mut().for_each(|pair| {
        (pair.processes, pair.programs) = ([None, None], [None, None]);
        // Their checkpoints went with the registry.
        pair.worked = None;
    });
    kept
}

fn kill_registered(registry: &Registry) {
    for pair in 0..registry.pairs() {
        let ids = Side::BOTH.map(|side| ProcessId::registered(&registry.copy(pair, side)));
        let processes = ids.into_iter().flatten().filter_map(CopyProcess::open);
        processes.for_each(|process| process.signal(Signal::KILL));
    }
}

/// A place for each pair of the node, by its number in the job; those of other nodes have no room for checkpoints.
fn layout(plan: &PairsPlan) -> Layout {
    let pairs = plan.pairs.iter().map(|pair| pair.index + 1).max().unwrap_or(1);
    let mut checkpoint_bytes = vec![0; pairs as usize];
    for pair in &plan.pairs {
        if let Some(bytes) = checkpoint_bytes.get_mut(pair.index as usize) {
            *bytes = pair.config.checkpoint_bytes;
        }
    }
    Layout { pairs, checkpoint_bytes, ring: CHECKPOINT_RING }
}
