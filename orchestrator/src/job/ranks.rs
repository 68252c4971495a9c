//! The ranks of a step: launched, followed, cancelled.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::state_files;
use holdfast_model::{Generation, NodeName, Placement, Rank};
use holdfast_rank::RankSettings;
use holdfast_wire::environment;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::background::{Background, TaskResult};
use super::progress::ProgressSources;
use super::running_step::{self, RunningStep, StepReport, StepUpdate};
use super::state;
use crate::allocation::Allocation;
use crate::events::Screen;
use crate::launch::{self, LaunchError, LaunchRequest, Launcher, Obstacle, StepPlan, supervisor};
use crate::relaunch::Event;
use crate::spec::RunSpec;

/// Updates that wait in the channel.
const WAITING_UPDATES: usize = 64;
/// At the end of a step, a cancelled launch is waited for at most this long.
const BEGUN_WITHIN: Duration = Duration::from_secs(5);

/// Why the ranks of an earlier orchestrator cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    #[error("it was never started")]
    NeverStarted,
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

pub(super) struct LaunchSettings {
    pub(super) launcher: Box<dyn Launcher>,
    pub(super) run: RunSpec,
    /// Further variables of all ranks.
    pub(super) variables: BTreeMap<String, String>,
    /// Set if each rank is a rank process, which starts the program.
    pub(super) rank_settings: Option<RankSettings>,
    pub(super) program: PathBuf,
    pub(super) supervisor: PathBuf,
    pub(super) working_directory: PathBuf,
    pub(super) prefix: PathBuf,
    pub(super) progress: ProgressSources,
}

/// The ranks of the step's present generation.
pub(super) struct Ranks {
    settings: Arc<LaunchSettings>,
    allocation: Arc<dyn Allocation>,
    screen: Screen,
    pending: Option<PendingLaunch>,
    running: Option<RunningStep>,
    updates: mpsc::Sender<StepUpdate>,
    updated: mpsc::Receiver<StepUpdate>,
    /// Updates of the generation that is being launched.
    held_updates: VecDeque<StepUpdate>,
    /// Where the ranks of the last two generations are.
    placements: VecDeque<(Generation, Arc<Placement>)>,
}

/// Ranks that a thread is launching or beginning to follow, which may take as long as their file system does.
struct PendingLaunch {
    generation: Generation,
    /// Cancels the launch: nothing is started any more.
    cancelled: CancellationToken,
    task: JoinHandle<()>,
}

impl Ranks {
    pub(super) fn new(settings: LaunchSettings, allocation: Arc<dyn Allocation>, screen: Screen) -> Self {
        let (updates, updated) = mpsc::channel(WAITING_UPDATES);
        Ranks {
            settings: Arc::new(settings),
            allocation,
            screen,
            pending: None,
            running: None,
            updates,
            updated,
            held_updates: VecDeque::new(),
            placements: VecDeque::new(),
        }
    }

    /// The node of a rank.
    pub(super) fn node_of(&self, generation: Generation, rank: Rank) -> Option<NodeName> {
        let (_, placement) = self.placements.iter().find(|(of, _)| *of == generation)?;
        placement.nodes.iter().find(|node| node.ranks.contains(&rank)).map(|node| node.name.clone())
    }

    fn place(&mut self, generation: Generation, placement: &Arc<Placement>) {
        self.placements.truncate(1);
        self.placements.push_front((generation, Arc::clone(placement)));
    }

    /// The next update of the generation that is followed. Cancel safe.
    pub(super) async fn next(&mut self) -> StepUpdate {
        loop {
            let update = match self.held_updates.pop_front_if(|update| !Self::is_pending(&self.pending, update)) {
                Some(update) => update,
                // A sender is held here, so the channel does not end.
                None => match self.updated.recv().await {
                    Some(update) => update,
                    None => return std::future::pending().await,
                },
            };
            if Self::is_pending(&self.pending, &update) {
                self.held_updates.push_back(update);
                continue;
            }
            let StepUpdate { generation, report } = &update;
            let followed = self.running.as_mut().filter(|running| running.generation == *generation);
            match (followed, report) {
                (Some(running), StepReport::Event(event)) => running.receive(event),
                (Some(_), _) => {}
                (None, _) => continue,
            }
            return update;
        }
    }

    fn is_pending(pending: &Option<PendingLaunch>, update: &StepUpdate) -> bool {
        pending.as_ref().is_some_and(|pending| pending.generation == update.generation)
    }

    /// Starts the supervisor of a generation's ranks, in the background: ends as [`TaskResult::Launched`] or
    /// [`Event::LaunchFailed`].
    pub(super) fn launch(
        &mut self,
        generation: Generation,
        placement: &Arc<Placement>,
        sockets: BTreeMap<NodeName, PathBuf>,
        background: Background,
    ) {
        self.place(generation, placement);
        let (launch, placement) = (self.launch_context(generation), Arc::clone(placement));
        self.begin(generation, background, move |cancelled| match launch.start(&placement, &sockets, cancelled) {
            Ok(running) => Ok(running),
            Err(error) => {
                let (reason, obstacle) = (error.to_string(), Obstacle::of_error(&error));
                Err(Event::LaunchFailed { generation, reason, obstacle })
            }
        });
    }

    /// Follows the ranks that an earlier orchestrator launched, in the background: ends as [`TaskResult::Launched`] or
    /// [`Event::StepLost`].
    pub(super) fn follow(&mut self, generation: Generation, placement: &Arc<Placement>, background: Background) {
        self.place(generation, placement);
        let (launch, placement) = (self.launch_context(generation), Arc::clone(placement));
        self.begin(generation, background, move |_| match launch.follow(&placement) {
            Ok(running) => Ok(Some(running)),
            Err(error) => Err(Event::StepLost { generation, reason: error.to_string() }),
        });
    }

    fn launch_context(&self, generation: Generation) -> LaunchContext {
        LaunchContext {
            generation,
            settings: Arc::clone(&self.settings),
            allocation: Arc::clone(&self.allocation),
            updates: self.updates.clone(),
            screen: self.screen.clone(),
            directory: self.directory(generation),
        }
    }

    fn begin(
        &mut self,
        generation: Generation,
        background: Background,
        open: impl FnOnce(&CancellationToken) -> Result<Option<RunningStep>, Event> + Send + 'static,
    ) {
        let cancelled = CancellationToken::new();
        let token = cancelled.clone();
        let task = tokio::task::spawn_blocking(move || match open(&token) {
            // Cancelled, and no other part of the program has the ranks.
            Ok(Some(running)) if token.is_cancelled() => (running.canceller())(),
            Ok(Some(running)) => background.send(TaskResult::Launched(Box::new(running))),
            Ok(None) => {}
            Err(event) => background.event(event),
        });
        self.pending = Some(PendingLaunch { generation, cancelled, task });
    }

    /// The ranks of a generation were launched, or are followed. Ends them if the launch was cancelled meanwhile.
    pub(super) fn launched(&mut self, running: RunningStep) {
        let begun = self.pending.take_if(|pending| pending.generation == running.generation);
        if begun.is_some_and(|pending| !pending.cancelled.is_cancelled()) {
            self.running = Some(running);
        } else {
            tokio::task::spawn_blocking(running.canceller());
        }
    }

    /// Ends the ranks of a generation in the background.
    pub(super) fn cancel(&self, generation: Generation) {
        if let Some(pending) = self.pending.as_ref().filter(|pending| pending.generation == generation) {
            pending.cancelled.cancel();
        }
        if let Some(cancel) = self.canceller(generation) {
            tokio::task::spawn_blocking(cancel);
        }
    }

    /// A function that ends the ranks of a generation, for a thread that may block: for as long as
    /// [`RunningStep::canceller`], or as the file system does. `None` if they have ended, or are still being launched.
    pub(super) fn canceller(&self, generation: Generation) -> Option<Box<dyn FnOnce() + Send>> {
        if self.pending.as_ref().is_some_and(|pending| pending.generation == generation) {
            return None;
        }
        match self.running.as_ref().filter(|running| running.generation == generation) {
            Some(running) if running.has_ended() => None,
            Some(running) => Some(Box::new(running.canceller())),
            // Launched by an earlier orchestrator and not followed: the processes that its supervisor recorded.
            None => {
                let (directory, job_id) = (self.directory(generation), self.allocation.job_id().to_owned());
                Some(Box::new(move || running_step::cancel(&directory, None, Vec::new(), &job_id)))
            }
        }
    }

    /// Ends the processes of the generation that still run.
    pub(super) async fn end(&mut self, generation: Generation) {
        if let Some(PendingLaunch { cancelled, task, .. }) = self.pending.take() {
            cancelled.cancel();
            if tokio::time::timeout(BEGUN_WITHIN, task).await.is_err() {
                tracing::warn!("a cancelled launch still waits for its file system");
            }
        }
        let cancel: Option<Box<dyn FnOnce() + Send>> = match self.running.take() {
            Some(running) if running.has_ended() => None,
            Some(running) => Some(Box::new(running.canceller())),
            None => self.canceller(generation),
        };
        if let Some(cancel) = cancel
            && let Err(error) = tokio::task::spawn_blocking(cancel).await
        {
            tracing::warn!(%generation, %error, "the ranks of a generation could not be cancelled");
        }
        let directory = self.directory(generation);
        let supervised = tokio::task::spawn_blocking(move || launch::is_supervised(&directory));
        if matches!(supervised.await, Ok(true)) {
            tracing::warn!(%generation, "the ranks of a generation do not end although they were cancelled");
        }
    }

    fn directory(&self, generation: Generation) -> PathBuf {
        state::generation_directory(&self.settings.prefix, generation)
    }
}

/// What a thread needs to launch or follow a generation.
struct LaunchContext {
    generation: Generation,
    settings: Arc<LaunchSettings>,
    allocation: Arc<dyn Allocation>,
    updates: mpsc::Sender<StepUpdate>,
    screen: Screen,
    directory: PathBuf,
}

impl LaunchContext {
    /// Starts the supervisor; `None` if that was cancelled before.
    fn start(
        &self,
        placement: &Placement,
        sockets: &BTreeMap<NodeName, PathBuf>,
        cancelled: &CancellationToken,
    ) -> Result<Option<RunningStep>, LaunchError> {
        let LaunchSettings { launcher, run, variables, program, supervisor, working_directory, progress, .. } =
            &*self.settings;
        let mut variables = variables.clone();
        let (mut program, mut leading_arguments) = (program, Vec::new());
        if let Some(settings) = &self.settings.rank_settings {
            // Strings, numbers and lists can always be written as JSON.
            let settings = serde_json::to_string(settings).unwrap_or_default();
            variables.insert(environment::RANK_SETTINGS.to_owned(), settings);
            leading_arguments = ["rank", "--role", "checkpoints", "--"].map(str::to_owned).to_vec();
            leading_arguments.push(program.to_string_lossy().into_owned());
            program = supervisor;
        }
        let directory = &self.directory;
        state_files::create_directory(directory)?;
        let shell = |node: &NodeName| Some((node.clone(), self.allocation.remote_shell(node)?));
        let reach = placement.used().filter_map(|node| shell(&node.name)).collect();
        let of_node = |node: &NodeName| Some((node.clone(), self.allocation.rank_variables(node)?));
        let node_variables = placement.used().filter_map(|node| of_node(&node.name)).collect();
        let plan = launcher.plan(LaunchRequest {
            job_id: self.allocation.job_id(),
            generation: self.generation,
            placement,
            sockets,
            reach: &reach,
            run,
            variables: &variables,
            node_variables: &node_variables,
            program,
            leading_arguments: &leading_arguments,
            working_directory,
            directory,
        })?;
        plan.write(directory)?;
        progress.begin(self.generation, cancelled);
        if cancelled.is_cancelled() {
            return Ok(None);
        }
        let child = supervisor::spawn(supervisor, directory)?;
        self.follow_from(placement, Some(child)).map(Some)
    }

    fn follow(&self, placement: &Placement) -> Result<RunningStep, FollowError> {
        if !StepPlan::events_in(&self.directory).is_file() {
            return Err(FollowError::NeverStarted);
        }
        Ok(self.follow_from(placement, None)?)
    }

    fn follow_from(&self, placement: &Placement, child: Option<Child>) -> Result<RunningStep, LaunchError> {
        let ranks: Vec<Rank> = placement.used().flat_map(|node| node.ranks.iter().copied()).collect();
        let (job_id, updates) = (self.allocation.job_id(), self.updates.clone());
        let turn = self.screen.output_turn(&self.directory);
        let running = RunningStep::follow(self.generation, job_id, &self.directory, ranks, child, updates, turn);
        running.map_err(LaunchError::Supervisor)
    }
}
