//! What every job has, whatever it runs: the lock of its prefix directory, its signals, the supervisor of its agents,
//! and at its end the next allocation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::error::RunError;
use super::metrics::MetricsService;
use super::notify::Notifier;
use super::reporter::Reporter;
use super::requeue::{self, RequeueError};
use super::restart_choice::RunChoices;
use super::signals::Signals;
use super::state::JobState;
use super::state_file::JobLock;
use super::traces::Tracer;
use super::{settings, start};
use crate::allocation::Allocation;
use crate::events::{EventLog, LogEvent, RunReport, Screen};
use crate::exit;
use crate::fleet::{AgentClient, AgentSupervisor, Clock, FleetSettings};
use crate::spec::{JobSpec, Step};

/// Time limit for recording the end of a chain of allocations.
const END_WITHIN: Duration = Duration::from_secs(10);

/// The options of `holdfast run`.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub spec: JobSpec,
    pub choices: RunChoices,
    /// The faults of the spec may be injected on machines; on virtual nodes they always may.
    pub allows_faults: bool,
    /// The caller closes it.
    pub screen: Screen,
}

/// What gets the events of a job besides the event logs and the screen.
pub(super) struct Observers {
    pub(super) metrics: Option<MetricsService>,
    notifier: Notifier,
    tracer: Option<Tracer>,
    /// The job has several steps: each is observed under its name.
    has_steps: bool,
}

impl Observers {
    /// For the events of a step, or of the job.
    pub(super) fn reporter(&self, event_log: Option<EventLog>, screen: Screen, step: Option<&Step>) -> Reporter {
        let step = step.filter(|_| self.has_steps).map(|step| Arc::from(step.name.as_str()));
        let metrics = self.metrics.as_ref().and_then(|metrics| metrics.sink(step.clone()));
        let notifier = self.notifier.sink(step.clone());
        let traces = self.tracer.as_ref().and_then(|tracer| tracer.sink(step));
        let mut reporter = Reporter::new(event_log, screen);
        reporter.sinks = metrics.into_iter().chain(notifier).chain(traces).collect();
        reporter
    }
}

/// A job from its beginning to its end. While it exists, signals do not end the process.
pub(super) struct JobShell<'job> {
    pub(super) spec: &'job JobSpec,
    pub(super) choices: RunChoices,
    pub(super) screen: Screen,
    /// The prefix directory of the job.
    pub(super) prefix: PathBuf,
    pub(super) signals: Signals,
    /// The allocation, from the moment at which it is open.
    pub(super) allocation_id: Option<String>,
    /// A step was finished, a generation made progress, or a copy of a pair was awake.
    pub(super) made_progress: bool,
    pub(super) observers: Observers,
    /// The lock of the prefix directory.
    _lock: JobLock,
}

impl<'job> JobShell<'job> {
    /// Makes the prefix directory and locks it.
    ///
    /// # Errors
    /// Another orchestrator runs a job there, or the directory cannot be used.
    pub(super) fn begin(options: &'job RunOptions) -> Result<Self, RunError> {
        let spec = &options.spec;
        let prefix = start::make_prefix(&spec.prefix)?;
        let signals = Signals::new().map_err(RunError::io("listen for signals"))?;
        let notifier = Notifier::start(&spec.job, &prefix, &spec.notify)?;
        Ok(JobShell {
            spec,
            choices: options.choices.clone(),
            screen: options.screen.clone(),
            _lock: JobLock::take(&prefix, spec.group_access)?,
            prefix,
            signals,
            allocation_id: None,
            made_progress: false,
            observers: Observers {
                metrics: None,
                notifier,
                tracer: Tracer::start(&spec.job),
                has_steps: spec.steps.len() > 1,
            },
        })
    }

    /// The event log of a prefix directory, if one is written, and the screen; of a step, or of the job.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub(super) fn reporter(&self, prefix: &Path, step: Option<&Step>) -> Result<Reporter, RunError> {
        let event_log = EventLog::in_state_of(prefix, &self.spec.job, self.spec.log_access())
            .map_err(RunError::io("open the event log"))?;
        Ok(self.observers.reporter(event_log, self.screen.clone(), step))
    }

    /// The supervisor of the agents on the nodes of the job.
    ///
    /// # Errors
    /// Requests to agents are not possible.
    pub(super) fn supervisor(
        &self,
        allocation: &Arc<dyn Allocation>,
        state: &JobState,
        clock: Clock,
    ) -> Result<AgentSupervisor, RunError> {
        let health = &self.spec.health;
        let fleet = FleetSettings {
            template: state.template()?,
            poll_interval: health.poll,
            poll_patience: health.down_after,
            allocation_end: allocation.end().map(settings::epoch),
            clock,
        };
        let client = AgentClient::new(&fleet.template.trust, health.requests)?.for_agents(allocation.nodes().len());
        Ok(AgentSupervisor::new(Arc::clone(allocation), client, fleet))
    }

    /// Submits the next allocation if the run ended with exit code 75, and no run in this allocation did so before.
    /// If that fails, the run ends with [`exit::UNAVAILABLE`]; if too many allocations made no progress, with
    /// [`exit::NO_PROGRESS`]. Then the lock is released.
    pub(super) async fn end(self, ended: Result<RunReport, RunError>) -> Result<RunReport, RunError> {
        let code = match &ended {
            Ok(report) => report.exit_code,
            Err(error) => error.exit_code(),
        };
        let Some(requeue) = self.spec.requeue.clone() else { return ended };
        if code != exit::NOT_FINISHED {
            self.end_chain().await;
            return ended;
        }
        let (prefix, allocation, made_progress) = (self.prefix.clone(), self.allocation_id.clone(), self.made_progress);
        let submitted = move || requeue::submit(&requeue, &prefix, allocation.as_deref(), made_progress);
        let submitted = tokio::task::spawn_blocking(submitted).await;
        let (event, failure) = match submitted.unwrap_or_else(|error| Err(error.into())) {
            Ok(event) => (event, None),
            Err(error @ RequeueError::NoProgress { allocations }) => {
                (LogEvent::RequeueEnded { allocations }, Some(error))
            }
            Err(error) => (LogEvent::RequeueFailed { reason: error.to_string() }, Some(error)),
        };
        match self.reporter(&self.prefix, None) {
            Ok(mut reporter) => reporter.emit(event),
            Err(error) => {
                tracing::warn!(%error, "the event log cannot be written");
                self.screen.event(&event);
            }
        }
        match (ended, failure) {
            (ended, None) => ended,
            (Ok(report), Some(error)) => Ok(RunReport {
                outcome: format!("{}; the next allocation was not submitted: {error}", report.outcome),
                exit_code: error.exit_code(),
                ..report
            }),
            (Err(ended), Some(error)) => Err(RunError::NotRequeued { ended: Box::new(ended), error }),
        }
    }

    /// The chain has ended: a later run begins another one.
    async fn end_chain(&self) {
        let prefix = self.prefix.clone();
        let ended = tokio::task::spawn_blocking(move || requeue::end_chain(&prefix));
        match tokio::time::timeout(END_WITHIN, ended).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the end of a chain of allocations is not recorded"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the end of a chain of allocations is not recorded"),
        }
    }
}
