//! `requeue:`: submits the next allocation when a run ends with exit code 75.
//!
//! `<prefix>/.holdfast/requeue.json` records for which allocation that was done. It is written before the command runs:
//! if this process is killed meanwhile, the command is not run a second time, because two allocations would run the
//! same job. After a failure it may be run again. The file also has the number of allocations in a row that made no
//! progress: the chain ends when they are too many.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_core::owned::OwnedError;
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;
use serde::{Deserialize, Serialize};

use super::state_file::JobLock;
use crate::allocation::registry as managers;
use crate::events::LogEvent;
use crate::exit;
use crate::host::external_command::{self, CommandOutput, ExternalCommandError};
use crate::host::program::{self, ProgramError};
use crate::spec::{AdaptedCommand, JobSpec, ManagerFacts, Requeue, RerunFacts, Submission};

/// Time limit of the command: a controller that is restarted answers after some seconds.
const WITHIN: Duration = Duration::from_secs(60);
const FILE: &str = "requeue.json";
const VERSION: u32 = 1;
const LARGEST: u64 = 64 << 10;

/// Why the next allocation was not submitted.
#[derive(Debug, thiserror::Error)]
pub enum RequeueError {
    #[error(
        "`requeue.{manager}` needs a {title} job, but {variable} is not set; write `requeue: {{command: […]}}` instead"
    )]
    NoJob { manager: &'static str, title: &'static str, variable: &'static str },
    /// The manager will not run the job again.
    #[error("`requeue.{manager}` is not possible: {reason}")]
    Impossible { manager: &'static str, reason: String },
    #[error("{0}, which `requeue.command` names")]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Command(#[from] ExternalCommandError),
    #[error("{command} failed: {reason}")]
    Failed { command: String, reason: String },
    /// The manager does not know the allocation: it was lost, or has ended long ago.
    #[error("{command} failed: {reason}; submit the batch script again")]
    UnknownJob { command: String, reason: String },
    /// Without the record, another run in the allocation would submit a second one.
    #[error("it cannot be read or recorded whether the next allocation was submitted: {0}")]
    Record(#[from] OwnedError),
    #[error("the thread of the command failed: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// Another one would most likely make no progress either.
    #[error(
        "{allocations} allocations in a row (requeue.no_progress_limit) made no progress; programs that keep their own \
         state need `progress` in the spec"
    )]
    NoProgress { allocations: u32 },
}

impl RequeueError {
    /// True if the spec cannot be used here.
    pub fn is_configuration(&self) -> bool {
        matches!(self, RequeueError::NoJob { .. } | RequeueError::Impossible { .. } | RequeueError::Program(_))
    }

    /// The exit code of a run whose successor was not submitted.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            RequeueError::NoProgress { .. } => exit::NO_PROGRESS,
            _ => exit::UNAVAILABLE,
        }
    }
}

/// The record of an allocation whose successor was submitted.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RequeueRecord {
    version: u32,
    /// See [`Allocation::allocation_id`](crate::allocation::Allocation::allocation_id).
    allocation: String,
    progress: RequeueProgress,
    /// Allocations in a row, up to this one, that made no progress.
    #[serde(default)]
    without_progress: u32,
}

impl RequeueRecord {
    /// Allocations in a row without progress after a run in this allocation. An allocation counts once, and not at all
    /// if one of its runs made progress.
    fn without_progress(earlier: Option<&Self>, allocation: Option<&str>, made_progress: bool) -> u32 {
        match earlier {
            _ if made_progress => 0,
            Some(earlier) if allocation == Some(&earlier.allocation) => earlier.without_progress,
            earlier => earlier.map_or(0, |earlier| earlier.without_progress).saturating_add(1),
        }
    }

    /// True if a run in this allocation has submitted the next one, or was about to.
    fn is_submitted_by(&self, allocation: Option<&str>) -> bool {
        let submitted = matches!(self.progress, RequeueProgress::Begun | RequeueProgress::Submitted);
        submitted && allocation == Some(&self.allocation)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RequeueProgress {
    /// The command was about to run.
    Begun,
    Submitted,
    Failed,
    /// Nothing was submitted: the chain has ended.
    Ended,
}

/// Checks before the job begins that the command can be run.
///
/// # Errors
/// [`RequeueError::NoJob`], [`RequeueError::Program`], [`RequeueError::Impossible`].
pub(super) fn check(requeue: &Requeue) -> Result<(), RequeueError> {
    command(&requeue.submission)?;
    if let Submission::ByManager(manager) = requeue.submission
        && let (Some(facts), Some(job_id)) = by_manager(manager)
        && let Some(requeue) = &facts.requeue
    {
        return (requeue.check)(&job_id).map_err(|reason| RequeueError::Impossible { manager, reason });
    }
    Ok(())
}

/// A manager, and the id of its job that this process is in.
fn by_manager(manager: &str) -> (Option<&'static ManagerFacts>, Option<String>) {
    let facts = managers::find(manager).ok().map(|entry| &entry.facts);
    (facts, facts.and_then(|facts| facts.variables.job_id(|name| env::var(name).ok())))
}

/// The command with the path of its program, as the installed version accepts it.
fn command(submission: &Submission) -> Result<Vec<String>, RequeueError> {
    let words = command_as_written(submission)?;
    Ok(adapted(&words).map_or(words, |adapted| adapted.words))
}

/// The command without what the installed version does not accept.
fn adapted(words: &[String]) -> Option<AdaptedCommand> {
    rerun_facts().find_map(|(_, facts)| (facts.adapt)(words))
}

/// The managers that run some jobs again without a request.
fn rerun_facts() -> impl Iterator<Item = (&'static ManagerFacts, &'static RerunFacts)> {
    let facts = managers::managers().map(|entry| &entry.facts);
    facts.filter_map(|facts| Some((facts, facts.requeue.as_ref()?.after_failures.as_ref()?)))
}

/// What is not done as `requeue.command` is written, because the installed version does not have it. Blocks.
pub fn warning(requeue: &Requeue) -> Option<String> {
    let words = command_as_written(&requeue.submission).ok()?;
    adapted(&words).map(|adapted| format!("requeue.command: {}", adapted.change))
}

/// Prevents that the manager runs the job of this process again after this exit code of the run, unless the next
/// allocation is to come in this way, or another orchestrator runs the job. `spec`: `None` if it could not be read.
/// Returns the command that did it, or why the job may be run again. Blocks.
pub fn prevent_rerun(code: u8, spec: Option<&JobSpec>) -> Option<Result<String, String>> {
    let requeue = spec.and_then(|spec| spec.requeue.as_ref());
    let submitted = requeue.is_some_and(|requeue| matches!(requeue.submission, Submission::Command(_)));
    let is_wanted = code == exit::FINISHED || (code == exit::NOT_FINISHED && !submitted);
    if is_wanted || spec.is_some_and(|spec| JobLock::is_held(&spec.prefix)) {
        return None;
    }
    rerun_facts().find_map(|(manager, facts)| {
        let job_id = manager.variables.job_id(|name| env::var(name).ok())?;
        (facts.prevent)(&job_id)
    })
}

fn command_as_written(submission: &Submission) -> Result<Vec<String>, RequeueError> {
    let mut words = match submission {
        Submission::Command(words) => words.clone(),
        Submission::ByManager(manager) => command_of_manager(manager)?,
    };
    let here = env::current_dir().unwrap_or_default();
    if let Some(name) = words.first_mut() {
        *name = program::find(name, &here, env::var_os("PATH").as_deref())?.to_string_lossy().into_owned();
    }
    Ok(words)
}

/// The command with which a manager runs the job of this process again.
fn command_of_manager(manager: &'static str) -> Result<Vec<String>, RequeueError> {
    let (facts, job_id) = by_manager(manager);
    match (facts.and_then(|facts| facts.requeue.as_ref()), job_id) {
        (Some(requeue), Some(job_id)) => Ok((requeue.command)(job_id)),
        _ => {
            let title = facts.map_or(manager, |facts| facts.title);
            let variable = facts.and_then(|facts| facts.variables.job_ids.first().copied()).unwrap_or_default();
            Err(RequeueError::NoJob { manager, title, variable })
        }
    }
}

/// The chain of allocations has ended: a later run begins another one. Blocks.
///
/// # Errors
/// The record cannot be read or written.
pub(super) fn end_chain(prefix: &Path) -> Result<(), OwnedError> {
    match read_record(prefix)? {
        Some(known) if known.without_progress > 0 => {
            write_record(prefix, &RequeueRecord { without_progress: 0, ..known })
        }
        Some(_) | None => Ok(()),
    }
}

/// Submits the next allocation, unless a run in this one did so before. Returns what was done. Blocks.
///
/// # Errors
/// [`RequeueError`]: nothing was submitted.
pub(super) fn submit(
    requeue: &Requeue,
    prefix: &Path,
    allocation: Option<&str>,
    made_progress: bool,
) -> Result<LogEvent, RequeueError> {
    let words = command(&requeue.submission)?;
    let line = words.join(" ");
    let earlier = read_record(prefix)?;
    let without_progress = RequeueRecord::without_progress(earlier.as_ref(), allocation, made_progress);
    let record = |progress, without_progress| {
        let allocation = allocation.unwrap_or_default().to_owned();
        write_record(prefix, &RequeueRecord { version: VERSION, allocation, progress, without_progress })
    };
    if let Some(earlier) = earlier.filter(|earlier| earlier.is_submitted_by(allocation)) {
        record(earlier.progress, without_progress)?;
        return Ok(LogEvent::RequeueSkipped);
    }
    if without_progress >= requeue.no_progress_limit {
        // A user who submits the job again begins another chain.
        record(RequeueProgress::Ended, 0)?;
        return Err(RequeueError::NoProgress { allocations: without_progress });
    }
    record(RequeueProgress::Begun, without_progress)?;
    let arguments: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let variables = [("HOLDFAST_PREFIX".to_owned(), Some(prefix.to_string_lossy().into_owned()))].into();
    let program = words.first().map(String::as_str).unwrap_or_default();
    let outcome = match external_command::run(program, &arguments, &variables, WITHIN) {
        Ok(CommandOutput { success: true, output, .. }) => {
            let message = output.lines().last().unwrap_or_default().trim().to_owned();
            Ok(LogEvent::Requeued { command: line, message, without_progress })
        }
        Ok(CommandOutput { output, errors, .. }) => {
            let last = |text: &str| text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
            let reason = last(&errors).or_else(|| last(&output)).unwrap_or_else(|| "it printed nothing".to_owned());
            match requeue.submission {
                Submission::ByManager(manager) if is_unknown_job(manager, &reason) => {
                    Err(RequeueError::UnknownJob { command: line, reason })
                }
                _ => Err(RequeueError::Failed { command: line, reason }),
            }
        }
        Err(error) => Err(error.into()),
    };
    // A command that was killed after the time limit may have submitted it.
    let progress = match &outcome {
        Ok(_) => RequeueProgress::Submitted,
        Err(RequeueError::Command(ExternalCommandError::Timeout { .. })) => RequeueProgress::Begun,
        Err(_) => RequeueProgress::Failed,
    };
    record(progress, without_progress)?;
    outcome
}

/// True if these words of a manager say that it does not know the job.
fn is_unknown_job(manager: &str, message: &str) -> bool {
    let requeue = by_manager(manager).0.and_then(|facts| facts.requeue.as_ref());
    requeue.is_some_and(|requeue| (requeue.is_unknown_job)(message))
}

/// The record of an earlier run; `None` if there is none, or it cannot be understood.
///
/// # Errors
/// It cannot be read: the next allocation may have been submitted.
fn read_record(prefix: &Path) -> Result<Option<RequeueRecord>, OwnedError> {
    let read = state_files::read(&file(prefix), LARGEST)?;
    Ok(read.and_then(|text| serde_json::from_slice(&text).ok()))
}

fn write_record(prefix: &Path, record: &RequeueRecord) -> Result<(), OwnedError> {
    // Numbers and strings can always be written as JSON.
    state_files::replace(&file(prefix), &serde_json::to_vec(record).unwrap_or_default())
}

fn file(prefix: &Path) -> PathBuf {
    StateDirectory::below(prefix).join(FILE)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_core::crash::{ALL_ERRORS, Subject};
    use holdfast_core::temporary;

    use super::*;

    fn record(allocation: &str, without_progress: u32) -> RequeueRecord {
        let progress = RequeueProgress::Submitted;
        RequeueRecord { version: VERSION, allocation: allocation.to_owned(), progress, without_progress }
    }

    #[test]
    fn allocations_without_progress_are_counted_once_each() {
        let after = |earlier: Option<&RequeueRecord>, allocation, made_progress| {
            RequeueRecord::without_progress(earlier, allocation, made_progress)
        };
        assert_eq!(after(None, Some("1"), false), 1);
        assert_eq!(after(Some(&record("1", 1)), Some("2"), false), 2);
        assert_eq!(after(Some(&record("2", 2)), Some("2"), false), 2, "another run in the same allocation");
        assert_eq!(after(Some(&record("2", 0)), Some("2"), false), 0, "an earlier run there made progress");
        assert_eq!(after(Some(&record("2", 2)), Some("3"), true), 0);
        // These ended before they had nodes.
        assert_eq!(after(Some(&record("", 2)), None, false), 3);
    }

    /// The next allocation is submitted once at most, whatever interrupts that, and once if nothing does.
    #[test]
    fn crash_the_submission_of_the_next_allocation() {
        const HERE: &str = "17";
        let scratch = tempfile::tempdir().unwrap();
        let log = scratch.path().join("submitted");
        let count = || fs::read_to_string(&log).map_or(0, |text| text.lines().count());
        let command = ["sh", "-c", &format!("echo x >>'{}'", log.display())].map(str::to_owned).to_vec();
        let requeue = Requeue { submission: Submission::Command(command), no_progress_limit: 5 };
        let may_be_submitted = |prefix: &Path| -> Result<bool, OwnedError> {
            Ok(!read_record(prefix)?.is_some_and(|known| known.is_submitted_by(Some(HERE))))
        };
        let submit = |prefix: &Path| submit(&requeue, prefix, Some(HERE), false);
        for is_submitted in [false, true] {
            let prepare = |prefix: &Path| {
                fs::create_dir(prefix).unwrap();
                StateDirectory::below(prefix).create().unwrap();
                write_record(prefix, &record("16", 2)).unwrap();
                if is_submitted {
                    submit(prefix).unwrap();
                }
            };
            let work = |prefix: &Path| {
                let (before, may_be) = (count(), may_be_submitted(prefix));
                temporary::remove_abandoned_below(StateDirectory::below(prefix).path()).map_err(|e| e.to_string())?;
                let outcome = submit(prefix);
                match (may_be, count() - before) {
                    (Ok(true), 0 | 1) | (Ok(false), 0) => outcome.map(drop).map_err(|error| error.to_string()),
                    // This test could not read the record.
                    (Err(_), _) => outcome.map(drop).map_err(|error| error.to_string()),
                    (may_be, times) => panic!("submitted {times} times: {may_be:?}"),
                }
            };
            let check = |prefix: &Path| match read_record(prefix).map_err(|error| error.to_string())? {
                Some(known) if known == record("16", 2) && !is_submitted => Ok(()),
                Some(known) if known.allocation == HERE && known.without_progress == 3 => Ok(()),
                other => Err(format!("{other:?}")),
            };
            // After a kill, it is not known whether the command has run: the record stays `Begun`.
            let result = |prefix: &Path| {
                let names = holdfast_testkit::files_below(prefix);
                format!("{} {:?}", !may_be_submitted(prefix).unwrap(), names)
            };
            let (prepare, work, check, result): (&dyn Fn(&Path), _, _, _) = (&prepare, &work, &check, &result);
            let name = if is_submitted { "requeue, again" } else { "requeue" };
            let tried = Subject { name, prepare, work, check, result, power: true, errors: ALL_ERRORS }.interrupt();
            assert!(tried.errors > 20, "{tried:?}");
        }
    }

    #[test]
    fn a_record_of_an_earlier_version_has_no_count() {
        let text = r#"{"version":1,"allocation":"7","progress":"submitted"}"#;
        assert_eq!(serde_json::from_str::<RequeueRecord>(text).unwrap(), record("7", 0));
    }
}
