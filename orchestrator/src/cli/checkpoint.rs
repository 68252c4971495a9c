//! `holdfast checkpoint`: has a running job save a checkpoint.

use std::time::Duration;

use holdfast_model::CheckpointId;
use holdfast_wire::agent::{RequestState, RequestedCheckpoint};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::failure::Failure;
use super::job::StepSelection;
use super::output::{Style, report};
use super::running_job::RunningJob;
use crate::exit;
use crate::spec::quantity;

/// How often the state of the requested checkpoint is read.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Have a running job save a checkpoint, and wait until it is complete
///
/// The checkpoint becomes due at once, whatever the intervals of the job are. `source: command` and `source: jubatus`
/// save it now; a program that uses the API saves it when it asks next whether a checkpoint is due
/// (`SCR_Need_checkpoint`, `holdfast_snapshot`), or when it saves one by itself. Checkpoints of `source: none`,
/// `source: scr-files` and `watch` cannot be requested.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast checkpoint job.yaml
  holdfast checkpoint --no-wait --prefix ./heat-run
  holdfast checkpoint --timeout 10min job.yaml && scancel 4711

Exit codes:
   0  the checkpoint is complete, or requested with --no-wait
  65  it was dropped, or could not be begun
  69  the job is not running, its checkpoints cannot be requested, or the timeout has passed")]
pub struct CheckpointArgs {
    /// The job
    #[command(flatten)]
    pub job: StepSelection,
    /// Only request it
    #[arg(long)]
    pub no_wait: bool,
    /// Stop waiting after this time; the request stays [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_wait")]
    pub timeout: Option<Duration>,
}

pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    quantity::parse_duration(text).ok_or("write a duration: `90s` or `10min`")
}

pub(super) fn run(args: CheckpointArgs, style: Style) -> Result<u8, Failure> {
    let jobs = RunningJob::each_of(&args.job, style)?;
    if let [first, _, ..] = &jobs[..] {
        let names: Vec<&str> = jobs.iter().filter_map(|(name, _)| name.as_deref()).collect();
        return Err(Failure::new(exit::USAGE, "several steps of the job run side by side")
            .at(first.1.prefix.display())
            .remedy(format!("name one with `--step`: {}", names.join(", "))));
    }
    let Some((_, running)) = jobs.into_iter().next() else { return Ok(exit::FINISHED) };
    let requested = request_of(&running, args.no_wait, args.timeout)?;
    let (state, checkpoint) = requested;
    let fields = json!({"state": state, "checkpoint": checkpoint});
    style.result(&report(fields, |to| writeln!(to, "{}", sentence(requested))))?;
    Ok(exit::FINISHED)
}

/// Requests a checkpoint. Returns what became of it.
///
/// # Errors
/// Those of `holdfast checkpoint --no-wait`.
pub(super) fn request_without_waiting(running: &RunningJob) -> Result<String, Failure> {
    request_of(running, true, None).map(sentence)
}

fn request_of(running: &RunningJob, no_wait: bool, timeout: Option<Duration>) -> Result<Requested, Failure> {
    running.refuse_with_pairs(
        "checkpoints of a job with pairs cannot be requested: its programs store them by themselves",
        "`holdfast pairs list` shows the newest one of each pair",
    )?;
    super::runtime::block_on(request(running, no_wait, timeout))?
}

fn sentence((state, checkpoint): Requested) -> String {
    match (state, checkpoint) {
        ("complete", Some(checkpoint)) => format!("checkpoint {checkpoint} is complete"),
        (_, Some(checkpoint)) => format!("checkpoint {checkpoint} is being written"),
        (_, None) => "a checkpoint is requested".to_owned(),
    }
}

/// What became of the request, and the checkpoint.
type Requested = (&'static str, Option<CheckpointId>);

/// Requests the checkpoint, and waits for it.
async fn request(running: &RunningJob, no_wait: bool, timeout: Option<Duration>) -> Result<Requested, Failure> {
    let begun = Instant::now();
    let mut after = None;
    loop {
        let requested = running.request_checkpoint(after).await?;
        if let Some(requested) = &requested {
            after = Some(after.unwrap_or(requested.after));
            if let Some(result) = result_of(requested, no_wait)? {
                return Ok(result);
            }
        } else if no_wait {
            return Err(Failure::new(exit::UNAVAILABLE, "the job is between two launches: no ranks run")
                .at(running.prefix.display())
                .remedy("repeat the command, or leave out `--no-wait`"));
        }
        if timeout.is_some_and(|timeout| begun.elapsed() >= timeout) {
            return Err(Failure::new(exit::UNAVAILABLE, "the requested checkpoint is not complete yet")
                .at(running.prefix.display())
                .remedy("it stays requested; `holdfast status` shows the newest complete one"));
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// The result, if there is one.
fn result_of(requested: &RequestedCheckpoint, no_wait: bool) -> Result<Option<Requested>, Failure> {
    match &requested.state {
        RequestState::Complete { checkpoint } => Ok(Some(("complete", Some(*checkpoint)))),
        RequestState::Begun { checkpoint } if no_wait => Ok(Some(("begun", Some(*checkpoint)))),
        RequestState::Waiting if no_wait => Ok(Some(("waiting", None))),
        RequestState::Begun { .. } | RequestState::Waiting => Ok(None),
        RequestState::Dropped { checkpoint, reason } => {
            let message = format!("checkpoint {checkpoint} was dropped");
            let remedy = "correct the reason, and repeat the command; the job continues";
            Err(Failure::new(exit::DAMAGED_DATA, message).because(reason.clone()).remedy(remedy))
        }
        RequestState::Refused { reason } => {
            let message = "checkpoints of this job cannot be requested".to_owned();
            Err(Failure::new(exit::UNAVAILABLE, message).because(reason.clone()))
        }
    }
}
