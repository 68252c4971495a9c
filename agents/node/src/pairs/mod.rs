//! Pairs of main and replica, and the non-critical jobs beside them.
//!
//! One thread (`watcher`) watches all copies of the node, and performs what their machines decide; another one
//! (`start`) does for it what may block. Copies do not end with the agent: one that is started again finds them in the
//! registry and in a state file, and goes on (`state`). So pairs do not need an orchestrator within a node.

mod board;
mod clock;
mod error;
mod freezer;
mod jobs;
mod mirror;
mod process;
mod registry_file;
mod requests;
mod saved;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod watcher;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast_model::Side;
use holdfast_model::pair::{CopyState, JobConfig, JobRunState, PairChange, PairConfig, PairStatus};
use holdfast_shm::Registry;
use holdfast_wire::pairs::{
    AdoptedCopy, CommandRequest, PairOnNode, PairsAccepted, PairsPlan, PairsReport, PairsSettings, PairsStop, PairsSync,
};
use holdfast_wire::peer::{MirrorAnswer, ToMirror};
use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::sync::oneshot;

use crate::directories::claim;
use crate::directories::paths::Paths;
use crate::prefix::job_prefixes::JobPrefixes;
use crate::report::events::EventLog;
use crate::stream::Streams;
use board::Board;
use mirror::Mirror;
use registry_file::OpenedRegistry;
use requests::{Request, Requests};
use start::Directories;
use state::State;
use watcher::Watcher;

pub use error::PairsError;
pub(crate) use mirror::QUIET;
pub use requests::CommandFault;

/// The directory of pairs below the control directory.
const DIRECTORY: &str = "pairs";
/// How long the end of all copies may take when the agent itself ends.
const END_WITHIN: Duration = Duration::from_secs(10);

/// The pairs of the plan in force.
#[derive(Debug)]
struct Running {
    plan: PairsPlan,
    registry: Arc<Registry>,
    requests: Requests,
    board: Arc<Board>,
    mirror: Arc<Mirror>,
    adopted: Vec<AdoptedCopy>,
    thread: Option<JoinHandle<()>>,
}

/// The pairs of the node.
#[derive(Debug)]
pub struct Pairs {
    paths: Paths,
    prefixes: JobPrefixes,
    instance: u64,
    events: Arc<EventLog>,
    streams: Arc<Streams>,
    running: Mutex<Option<Running>>,
    /// Held while a plan comes into force, or its end is completed.
    changing: Mutex<()>,
    /// The highest epoch of an orchestrator.
    epoch: Mutex<u64>,
}

impl Pairs {
    /// `instance` is that of the agent.
    pub fn new(
        paths: Paths,
        prefixes: JobPrefixes,
        instance: u64,
        events: Arc<EventLog>,
        streams: Arc<Streams>,
    ) -> Self {
        let (running, changing, epoch) = Default::default();
        Pairs { paths, prefixes, instance, events, streams, running, changing, epoch }
    }

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
    pub fn adopt(&self) {
        let known = state::read(&self.directory(), &clock::boot());
        match known.and_then(|known| known.map(|state| self.begin(state.plan)).transpose()) {
            Ok(None) => {}
            Ok(Some(accepted)) => tracing::info!(copies = accepted.adopted.len(), "pairs_adopted"),
            Err(error) => tracing::error!(%error, "pairs_not_adopted"),
        }
    }

    /// Brings a plan into force. Blocks.
    ///
    /// # Errors
    /// When it cannot be carried out, or another one is in force.
    pub fn begin(&self, plan: PairsPlan) -> Result<PairsAccepted, PairsError> {
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
        let settings = &plan.settings;
        let mut in_prefix = settings.output.iter().chain(&settings.save_to).chain(&settings.restore_from);
        if let Some(other) = in_prefix.find(|directory| !self.prefixes.is_above(directory)) {
            return Err(PairsError::NotInPrefix(other.clone()));
        }
        let running = self.start(plan)?;
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
    pub async fn stop(self: &Arc<Self>, stop: PairsStop) -> Result<(), PairsError> {
        self.check_epoch(stop.epoch)?;
        self.end(stop.at_once).await
    }

    async fn end(self: &Arc<Self>, at_once: bool) -> Result<(), PairsError> {
        let Ok((requests, _)) = self.current() else { return Ok(()) };
        let (reply, gone) = oneshot::channel();
        requests.send(Request::Stop { at_once, reply });
        // Without an answer: the thread has ended.
        let _ = gone.await;
        let pairs = self.clone();
        let completed = tokio::task::spawn_blocking(move || pairs.complete_end()).await;
        completed.map_err(|error| PairsError::Io { action: "end the pairs".to_owned(), source: error.into() })?
    }

    /// Saves the newest checkpoints, and removes what a later agent would go on with.
    fn complete_end(&self) -> Result<(), PairsError> {
        let _changing = self.changing.lock();
        let Some(mut running) = self.running.lock().take() else { return Ok(()) };
        running.mirror.end();
        if let Some(thread) = running.thread.take() {
            let _ = thread.join();
        }
        let directory = self.directory();
        let state = state::read(&directory, &clock::boot()).unwrap_or_else(|error| {
            tracing::error!(%error, "terms_of_checkpoints_unknown");
            None
        });
        self.report(saved::save(&running.registry, &running.plan, state.as_ref()));
        state::remove(&directory)?;
        state::remove_file(&directory.join(registry_file::NAME))
    }

    /// Ends all copies and jobs because the agent ends for good.
    pub async fn end_with_agent(self: &Arc<Self>) {
        match tokio::time::timeout(END_WITHIN, self.end(false)).await {
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

    fn report(&self, changes: Vec<(String, PairChange)>) {
        for (pair, change) in changes {
            self.events.add(watcher::event(pair, change));
        }
    }

    /// The directory of registry and state.
    fn directory(&self) -> PathBuf {
        self.paths.control().join(DIRECTORY)
    }

    /// The pairs of a plan, with what an earlier agent has left.
    fn start(&self, plan: PairsPlan) -> Result<Running, PairsError> {
        let cpu = plan.settings.pin_watcher.map(allowed_cpu).transpose()?;
        let at = self.directory();
        claim::directory_below(&self.paths, self.paths.control_node_path(), Path::new(DIRECTORY))?;
        let kept = state::read(&at, &clock::boot())?.filter(|kept| is_compatible(&kept.plan, &plan));
        let registry_path = at.join(registry_file::NAME);
        let opened = registry_file::open(&registry_path, &self.paths.job_id, &plan, kept)?;
        let OpenedRegistry { registry, kept, is_new, replaced } = opened;
        if let Some(reason) = replaced {
            let change =
                |pair: &PairOnNode| (pair.config.name.clone(), PairChange::RegistryReplaced { reason: reason.clone() });
            self.report(plan.pairs.iter().map(change).collect());
        }
        if is_new {
            self.report(saved::restore(&registry, &plan));
        }
        let board = Arc::new(Board::new(self.instance, registry_path));
        let failed = |source| PairsError::Io { action: "watch the pairs".to_owned(), source };
        let (requests, inbox) = requests::requests().map_err(failed)?;
        let output = plan.settings.output.clone().unwrap_or_else(|| at.clone());
        let directories = Directories { pairs: at, output };
        let (registry, state) = (Arc::new(registry), State::of(plan.clone()));
        let spawned = start::spawn(directories, registry.clone(), state, requests.clone(), self.events.clone());
        let (work, worker) = spawned.map_err(failed)?;
        let connector = self.streams.peer_connector()?;
        let numbers = plan.pairs.iter().map(|pair| pair.index);
        let mirror = Mirror::new(registry.clone(), requests.clone(), connector, plan.settings.lease, numbers);
        let mirror = Arc::new(mirror);
        let made = Watcher::new(plan.clone(), kept, registry.clone(), inbox, work, (board.clone(), mirror.clone()));
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
        Ok(Running { plan, registry, requests, board, mirror, adopted, thread: Some(thread) })
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
