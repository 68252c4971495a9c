//! `scr_log_event`: an event of a script, in the event log of the job.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use holdfast_model::CheckpointId;

use super::arguments::parse;
use super::directories;
use super::result::{CompatError, ExitResult, YES, failed};
use crate::events::{EventLog, LogEvent};
use crate::job::state::JobState;
use crate::params::value;

/// Add an event to the event log of the job
#[derive(Parser)]
#[command(name = "scr_log_event", no_binary_name = true)]
struct LogEventArgs {
    /// The user; the log knows it
    #[arg(short)]
    user: Option<String>,
    /// The job's name; the log knows it
    #[arg(short)]
    jobname: Option<String>,
    /// When the job was started; the log knows it
    #[arg(short, value_name = "SECONDS")]
    started: Option<u64>,
    /// The kind of event
    #[arg(short = 'T', value_name = "TYPE")]
    kind: Option<String>,
    #[arg(short = 'N')]
    note: Option<String>,
    /// The checkpoint
    #[arg(short = 'C', value_name = "ID")]
    checkpoint: Option<u64>,
    /// When the event began, in seconds since 1970
    #[arg(short = 'S', value_name = "SECONDS")]
    begun: Option<u64>,
    /// How long it took, in seconds
    #[arg(short = 'D', value_name = "SECONDS")]
    took: Option<u64>,
}

pub(super) fn log_event(words: &[String]) -> ExitResult {
    let LogEventArgs { user: _, jobname: _, started: _, kind, note, checkpoint, begun, took } = parse(words)?;
    let checkpoint = checkpoint.map(CheckpointId);
    write(&LogEvent::ScriptEvent { kind: kind.unwrap_or_default(), note, checkpoint, begun, seconds: took })?;
    Ok(YES)
}

/// Logs that a script begins or ends to copy a checkpoint.
pub(super) fn drain(
    kind: &str,
    checkpoint: CheckpointId,
    begun: SystemTime,
    took: Option<Duration>,
) -> Result<(), CompatError> {
    let begun = begun.duration_since(UNIX_EPOCH).ok().map(|begun| begun.as_secs());
    let (kind, checkpoint, seconds) = (kind.to_owned(), Some(checkpoint), took.map(|took| took.as_secs()));
    write(&LogEvent::ScriptEvent { kind, note: None, checkpoint, begun, seconds })
}

/// Logs that a node was found to be down.
pub(super) fn failed_node(note: &str, begun: i64, seconds: Option<u64>) -> Result<(), CompatError> {
    let (kind, note) = ("FAILED NODE".to_owned(), Some(note.to_owned()));
    write(&LogEvent::ScriptEvent { kind, note, checkpoint: None, begun: u64::try_from(begun).ok(), seconds })
}

fn write(event: &LogEvent) -> Result<(), CompatError> {
    let parameters = directories::parameters()?;
    let prefix = directories::prefix(&parameters);
    if parameters.read("SCR_LOG_ENABLE", value::switch) == Some(false) {
        return Ok(());
    }
    // Without a job of Holdfast there is no event log, as in SCR without its database.
    let Some(job) = JobState::read(&prefix)? else { return Ok(()) };
    let log = EventLog::in_state_of(&prefix, &job.agents.job, job.log_access()).map_err(|error| failed(&error))?;
    log.into_iter().for_each(|mut log| log.write(event));
    Ok(())
}
