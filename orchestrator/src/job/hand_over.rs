//! The transition from one step of a job to the next: the same nodes and agents, another prefix directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_core::owned::Access;

use super::error::RunError;
use super::preflight::Prepared;
use super::reporter::Reporter;
use super::restart_choice::RestartChoice;
use super::state::{JobState, Stage};
use super::state_file::JobLock;
use super::step::StepDriver;
use super::{restart_choice, standalone, start};
use crate::events::EventLog;
use crate::spec::{GroupAccess, Step};

/// After a signal, the state of the next step is waited for at most this long.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A step that has not run yet.
pub(super) struct NextStep<'job> {
    /// Its position in the spec.
    pub(super) at: usize,
    pub(super) step: &'job Step,
    pub(super) prepared: Prepared,
}

/// A step that is about to begin. Its state is on disk.
pub(super) struct OpenedStep<'job> {
    /// Its position in the spec.
    pub(super) at: usize,
    pub(super) step: &'job Step,
    pub(super) prepared: Prepared,
    pub(super) prefix: PathBuf,
    /// The lock of its own prefix directory, in a job of several steps.
    pub(super) lock: Option<JobLock>,
    pub(super) reporter: Reporter,
    pub(super) state: JobState,
}

/// Opens the step after one that ended. Afterwards the agents are in the states of both steps, so that an orchestrator
/// that takes over finds them in either.
pub(super) async fn hand_over<'job>(
    driver: &mut StepDriver<'_>,
    next: NextStep<'job>,
    restart: &RestartChoice,
) -> Result<OpenedStep<'job>, RunError> {
    let NextStep { at, step, prepared } = next;
    let (path, job, group_access) = (step.prefix.clone(), driver.spec.job.clone(), driver.spec.group_access);
    let log_access = driver.spec.log_access();
    let opened = driver.signals.or(on_thread(move || OpenedPrefix::open(&path, &job, group_access, log_access)));
    let OpenedPrefix { prefix, lock, event_log, left } = opened.await?;
    let mut reporter = Reporter::new(event_log, driver.reporter.screen.clone());
    let former = &driver.record.state;
    let state = match left {
        // The orchestrator that began it died before it recorded the end of the former step.
        Some(state) if state.stage == Stage::Running && state.is_same_job(former) => state,
        left => {
            if let Some(left) = left {
                driver.signals.or(standalone::finish_earlier(&prefix, left, &reporter.screen)).await?;
            }
            let (allocation, template) = (former.allocation.clone(), former.template()?);
            let mut state = start::state_of_step(driver.spec, step, allocation, template);
            state.running = driver.agents.hand_over().await;
            state.snapshot = Some(driver.machine.snapshot().next_step());
            let (choice, to) = (restart.clone(), prefix.clone());
            state.ignored = driver.signals.or(on_thread(move || restart_choice::apply(&choice, &to))).await?;
            // The times of injected faults are counted from the first launch of the job.
            state.first_launch_ms = former.first_launch_ms;
            state.faults_injected = former.faults_injected.clone();
            begin_step(driver, &state, &prefix).await?;
            start::announce(&state, &prefix, &mut reporter);
            state
        }
    };
    Ok(OpenedStep { at, step, prepared, prefix, lock: Some(lock), reporter, state })
}

/// Writes the state of a step that begins. If a signal comes first, the state is written nevertheless, and then that
/// the job has ended, so that its key does not stay in the prefix directory.
async fn begin_step(driver: &mut StepDriver<'_>, state: &JobState, prefix: &Path) -> Result<(), RunError> {
    let (written, to) = (state.clone(), prefix.to_owned());
    let mut begin = std::pin::pin!(on_thread(move || {
        start::set_old_generations_aside(&to);
        Ok(written.write(&to)?)
    }));
    let begun = driver.signals.or(&mut begin).await;
    if let Err(error @ RunError::Signal(_)) = &begun {
        let (mut ended, to) = (state.clone(), prefix.to_owned());
        let (exit_code, message) = (error.exit_code(), error.to_string());
        let end = async {
            if let Err(error) = begin.await {
                tracing::warn!(%error, "the state of the next step is not written");
            }
            on_thread(move || {
                ended.end(&to, exit_code, message);
                Ok(())
            })
            .await
        };
        if tokio::time::timeout(END_WITHIN, end).await.is_err() {
            tracing::warn!("the prefix directory of the next step does not answer; its state is not recorded as ended");
        }
    }
    begun
}

/// The prefix directory of a step that is about to begin.
struct OpenedPrefix {
    prefix: PathBuf,
    lock: JobLock,
    event_log: Option<EventLog>,
    /// The state of an earlier job there that is to be continued or drained.
    left: Option<JobState>,
}

impl OpenedPrefix {
    fn open(prefix: &Path, job: &str, group_access: GroupAccess, log_access: Option<Access>) -> Result<Self, RunError> {
        let prefix = start::make_prefix(prefix)?;
        let lock = JobLock::take(&prefix, group_access)?;
        let event_log = EventLog::in_state_of(&prefix, job, log_access).map_err(RunError::io("open the event log"))?;
        let left = JobState::read(&prefix)?.filter(JobState::has_nodes);
        let left = left.filter(|state| !matches!(state.stage, Stage::Finished { .. }));
        Ok(OpenedPrefix { prefix, lock, event_log, left })
    }
}

/// Runs work on a file system on another thread, so that signals are handled meanwhile.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RunError> + Send + 'static,
) -> Result<T, RunError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RunError::io("open the prefix directory of the next step")(error.into())))
}
