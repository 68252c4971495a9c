//! `requeue:`: submits the next allocation when a run ends with exit code 75.
//!
//! `<prefix>/.holdfast/requeue.json` records for which allocation that was done. It is written before the command runs:
//! if this process is killed meanwhile, the command is not run a second time, because two allocations would run the
//! same job. After a failure it may be run again.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_core::owned::OwnedError;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::state;
use crate::allocation::slurm::environment::job_of_environment;
use crate::events::{EventLog, LogEvent, RunReport, Screen};
use crate::exit;
use crate::host::external_command::{self, CommandOutput, ExternalCommandError};
use crate::host::own_files;
use crate::host::program::{self, ProgramError};
use crate::spec::{JobSpec, Requeue};

/// Time limit of the command: a controller that is restarted answers after some seconds.
const WITHIN: Duration = Duration::from_secs(60);
const FILE: &str = "requeue.json";
const VERSION: u32 = 1;
const LARGEST: u64 = 64 << 10;

/// Why the next allocation was not submitted.
#[derive(Debug, thiserror::Error)]
pub enum RequeueError {
    #[error(
        "`requeue.slurm` needs a Slurm job, but SLURM_JOB_ID is not set; write `requeue: {{command: […]}}` instead"
    )]
    NoJob,
    #[error("{0}, which `requeue.command` names")]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Command(#[from] ExternalCommandError),
    #[error("{command} failed: {reason}")]
    Failed { command: String, reason: String },
    /// Without the record, another run in the allocation would submit a second one.
    #[error("it cannot be recorded that the next allocation is submitted: {0}")]
    Record(#[from] OwnedError),
    #[error("the thread of the command failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl RequeueError {
    /// True if the spec cannot be used here.
    pub fn is_configuration(&self) -> bool {
        matches!(self, RequeueError::NoJob | RequeueError::Program(_))
    }
}

/// The record of an allocation whose successor was submitted.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RequeueRecord {
    version: u32,
    /// See [`AllocatedNodes::allocation_id`](crate::allocation::AllocatedNodes::allocation_id).
    allocation: String,
    progress: RequeueProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RequeueProgress {
    /// The command was about to run.
    Begun,
    Submitted,
    Failed,
}

/// Checks before the job begins that the command can be run.
///
/// # Errors
/// [`RequeueError::NoJob`], [`RequeueError::Program`].
pub(super) fn check(requeue: &Requeue) -> Result<(), RequeueError> {
    command(requeue).map(drop)
}

/// The command with the path of its program.
fn command(requeue: &Requeue) -> Result<Vec<String>, RequeueError> {
    let mut words = match requeue {
        Requeue::Command(words) => words.clone(),
        Requeue::Slurm => {
            let job_id = job_of_environment(|name| env::var(name).ok()).ok_or(RequeueError::NoJob)?;
            vec!["scontrol".to_owned(), "requeue".to_owned(), job_id]
        }
    };
    let here = env::current_dir().unwrap_or_default();
    if let Some(name) = words.first_mut() {
        *name = program::find(name, &here, env::var_os("PATH").as_deref())?.to_string_lossy().into_owned();
    }
    Ok(words)
}

/// The end of a run, and what is needed to submit the next allocation.
pub(super) struct EndedRun<'a> {
    pub spec: &'a JobSpec,
    pub prefix: PathBuf,
    /// `None` if the run ended before it had nodes.
    pub allocation: Option<String>,
    pub screen: Screen,
}

impl EndedRun<'_> {
    /// Submits the next allocation if the run ended with exit code 75, and no run in this allocation did so before.
    /// If that fails, the run ends with [`exit::UNAVAILABLE`].
    pub(super) async fn requeue(self, ended: Result<RunReport, RunError>) -> Result<RunReport, RunError> {
        let code = match &ended {
            Ok(report) => report.exit_code,
            Err(error) => error.exit_code(),
        };
        let Some(requeue) = self.spec.requeue.clone().filter(|_| code == exit::NOT_FINISHED) else {
            return ended;
        };
        let (prefix, allocation) = (self.prefix.clone(), self.allocation.clone());
        let submitted = tokio::task::spawn_blocking(move || submit(&requeue, &prefix, allocation.as_deref())).await;
        let (event, failure) = match submitted.unwrap_or_else(|error| Err(error.into())) {
            Ok(event) => (event, None),
            Err(error) => (LogEvent::RequeueFailed { reason: error.to_string() }, Some(error)),
        };
        self.emit(&event);
        match (ended, failure) {
            (ended, None) => ended,
            (Ok(report), Some(error)) => Ok(RunReport {
                outcome: format!("{}; the next allocation was not submitted: {error}", report.outcome),
                exit_code: exit::UNAVAILABLE,
                ..report
            }),
            (Err(ended), Some(error)) => Err(RunError::NotRequeued { ended: Box::new(ended), error }),
        }
    }

    fn emit(&self, event: &LogEvent) {
        let directory = state::directory(&self.prefix);
        match EventLog::open(&directory, &self.spec.job, self.spec.group_access.access()) {
            Ok(mut log) => log.write(event),
            Err(error) => tracing::warn!(%error, "the event log cannot be written"),
        }
        self.screen.event(event);
    }
}

/// Blocks.
fn submit(requeue: &Requeue, prefix: &Path, allocation: Option<&str>) -> Result<LogEvent, RequeueError> {
    let words = command(requeue)?;
    let line = words.join(" ");
    if allocation.is_some_and(|allocation| was_submitted(prefix, allocation)) {
        return Ok(LogEvent::RequeueSkipped);
    }
    let record = |progress| {
        let allocation = allocation.unwrap_or_default().to_owned();
        let record = RequeueRecord { version: VERSION, allocation, progress };
        // Numbers and strings can always be written as JSON.
        own_files::replace(&file(prefix), &serde_json::to_vec(&record).unwrap_or_default())
    };
    record(RequeueProgress::Begun)?;
    let arguments: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let variables = [("HOLDFAST_PREFIX".to_owned(), Some(prefix.to_string_lossy().into_owned()))].into();
    let program = words.first().map(String::as_str).unwrap_or_default();
    let outcome = match external_command::run(program, &arguments, &variables, WITHIN) {
        Ok(CommandOutput { success: true, output, .. }) => {
            let message = output.lines().last().unwrap_or_default().trim().to_owned();
            Ok(LogEvent::Requeued { command: line, message })
        }
        Ok(CommandOutput { output, errors, .. }) => {
            let last = |text: &str| text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
            let reason = last(&errors).or_else(|| last(&output)).unwrap_or_else(|| "it printed nothing".to_owned());
            Err(RequeueError::Failed { command: line, reason })
        }
        Err(error) => Err(error.into()),
    };
    // A command that was killed after the time limit may have submitted it.
    let progress = match &outcome {
        Ok(_) => RequeueProgress::Submitted,
        Err(RequeueError::Command(ExternalCommandError::Timeout { .. })) => RequeueProgress::Begun,
        Err(_) => RequeueProgress::Failed,
    };
    record(progress)?;
    outcome
}

/// True if a run in this allocation has submitted the next one, or was about to.
fn was_submitted(prefix: &Path, allocation: &str) -> bool {
    let read = own_files::read(&file(prefix), LARGEST).ok().flatten();
    let known: Option<RequeueRecord> = read.and_then(|text| serde_json::from_slice(&text).ok());
    known.is_some_and(|known| known.allocation == allocation && known.progress != RequeueProgress::Failed)
}

fn file(prefix: &Path) -> PathBuf {
    state::directory(prefix).join(FILE)
}
