//! The ranks of a step: launched, followed, cancelled.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;

use holdfast_model::{Generation, NodeName, Placement, Rank};
use tokio::sync::mpsc;

use super::running_step::{RunningStep, StepNews, StepUpdate};
use super::state;
use crate::allocation::Allocation;
use crate::launch::{LaunchError, LaunchRequest, Launcher, StepPlan, step};
use crate::spec::Run;

/// Batches of lines that wait to be shown; an application that prints faster waits in its files.
const WAITING_OUTPUT: usize = 64;

/// The ranks of an earlier orchestrator cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    #[error("it was never started")]
    NeverStarted,
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// How the ranks of a step are launched.
pub(super) struct LaunchSettings {
    pub(super) launcher: Box<dyn Launcher>,
    pub(super) run: Run,
    pub(super) program: PathBuf,
    pub(super) supervisor: PathBuf,
    pub(super) working_directory: PathBuf,
    pub(super) prefix: PathBuf,
}

/// The ranks of the step's present generation.
pub(super) struct Ranks {
    settings: LaunchSettings,
    allocation: Arc<dyn Allocation>,
    running: Option<RunningStep>,
    updates: mpsc::Sender<StepUpdate>,
    updated: mpsc::Receiver<StepUpdate>,
}

impl Ranks {
    pub(super) fn new(settings: LaunchSettings, allocation: Arc<dyn Allocation>) -> Self {
        let (updates, updated) = mpsc::channel(WAITING_OUTPUT);
        Ranks { settings, allocation, running: None, updates, updated }
    }

    /// The next update of the generation that is followed. Cancel safe.
    pub(super) async fn next(&mut self) -> StepUpdate {
        loop {
            // A sender is held here, so the channel does not end.
            let Some(update) = self.updated.recv().await else { return std::future::pending().await };
            let StepUpdate { generation, news } = &update;
            let followed = self.running.as_mut().filter(|running| running.generation == *generation);
            match (followed, news) {
                (Some(running), StepNews::Event(event)) => running.take_in(event),
                // The last lines of a generation that is over are shown too.
                (Some(_), _) | (None, StepNews::Output(_)) => {}
                (None, _) => continue,
            }
            return update;
        }
    }

    /// Starts the supervisor of a generation's ranks.
    pub(super) fn launch(
        &mut self,
        generation: Generation,
        placement: &Placement,
        sockets: &BTreeMap<NodeName, PathBuf>,
    ) -> Result<(), LaunchError> {
        let LaunchSettings { launcher, run, program, supervisor, working_directory, .. } = &self.settings;
        let directory = self.directory(generation);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|source| LaunchError::File { action: "make", path: directory.clone(), source })?;
        let way = |node: &NodeName| Some((node.clone(), self.allocation.remote_shell(node)?));
        let reach = placement.used().filter_map(|node| way(&node.name)).collect();
        let plan = launcher.plan(LaunchRequest {
            job_id: self.allocation.job_id(),
            generation,
            placement,
            sockets,
            reach: &reach,
            run,
            program,
            working_directory,
            directory: &directory,
        })?;
        plan.write(&directory)?;
        let child = step::spawn(supervisor, &directory)?;
        self.follow_from(generation, placement, &directory, Some(child))
    }

    /// Follows the ranks that an earlier orchestrator launched.
    pub(super) fn follow(&mut self, generation: Generation, placement: &Placement) -> Result<(), FollowError> {
        let directory = self.directory(generation);
        if !StepPlan::events_in(&directory).is_file() {
            return Err(FollowError::NeverStarted);
        }
        Ok(self.follow_from(generation, placement, &directory, None)?)
    }

    fn follow_from(
        &mut self,
        generation: Generation,
        placement: &Placement,
        directory: &Path,
        child: Option<Child>,
    ) -> Result<(), LaunchError> {
        let ranks: Vec<Rank> = placement.used().flat_map(|node| node.ranks.iter().copied()).collect();
        let job_id = self.allocation.job_id();
        let running = RunningStep::follow(generation, job_id, directory, ranks, child, self.updates.clone());
        self.running = Some(running.map_err(LaunchError::Supervisor)?);
        Ok(())
    }

    /// Ends the ranks of a generation in the background.
    pub(super) fn cancel(&self, generation: Generation) {
        if let Some(running) = self.running.as_ref().filter(|step| step.generation == generation && !step.has_ended()) {
            tokio::task::spawn_blocking(running.canceller());
        }
    }

    /// Ends the ranks that are followed; blocks for two seconds at most.
    pub(super) fn cancel_now(&self) {
        if let Some(running) = &self.running {
            running.cancel();
        }
    }

    /// Kills the processes on a node, as far as they are known.
    pub(super) fn kill_on(&self, node: &NodeName) {
        if let Some(running) = &self.running {
            running.kill_on(node);
        }
    }

    /// Ends whatever still runs of the generation.
    pub(super) async fn end(&mut self, generation: Generation) {
        if let Some(running) = self.running.take()
            && !running.has_ended()
        {
            let _ = tokio::task::spawn_blocking(running.canceller()).await;
        }
        // Also one whose end was not followed.
        let directory = self.directory(generation);
        if step::is_supervised(&directory) {
            tracing::warn!(directory = %directory.display(), "a step does not end although it was cancelled");
        }
    }

    fn directory(&self, generation: Generation) -> PathBuf {
        state::generation_directory(&self.settings.prefix, generation)
    }
}
