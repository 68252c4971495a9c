//! `holdfast report`: what happened in a job, why it failed, and where its time went.

use std::path::PathBuf;
use std::time::SystemTime;

use holdfast_core::durable::{self, CreationMode};
use holdfast_model::Timestamp;
use serde_json::json;

use super::failure::Failure;
use super::job::JobSelection;
use super::output::{Style, printable, report};
use super::running_job::RunningJob;
use crate::events::Failure as JobFailure;
use crate::events::reader::Reader;
use crate::exit;
use crate::host::log::last_lines;
use crate::job::state::{Stage, generation_directory};
use crate::report::{JobFacts, JobReport, page};

/// Failures whose ranks are quoted: each needs the end of a file.
const QUOTED: usize = 100;

/// Show what happened in a job: failures with their causes, where the time went, generations, checkpoints, nodes
///
/// Everything comes from the event log in the prefix directory: of a job that runs, that has ended, or whose
/// orchestrator died, and on a login node. It covers the last run of the job.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast report job.yaml
  holdfast report --prefix ./heat-run --html report.html    one page for a browser, without requests to anywhere
  holdfast report --json job.yaml | jq .report.failures

Exit codes:
   0  shown
  69  no job was run in this prefix, or it has no event log
  73  the page could not be written
  78  the state of the job belongs to another user")]
pub struct ReportArgs {
    /// The job
    #[command(flatten)]
    pub job: JobSelection,
    /// Write the report as a page for a browser into this file, which is replaced
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

pub(super) fn run(args: &ReportArgs, style: Style) -> Result<u8, Failure> {
    let (job, _) = RunningJob::to_show(&args.job, &args.job.environment(style)?)?;
    let runs = job.has_orchestrator && matches!(job.state.stage, Stage::Running);
    let facts = JobFacts { runs_until: runs.then(|| Timestamp::from(SystemTime::now())) };
    let failed = |error| Failure::of(exit::UNAVAILABLE, &error);
    let records = Reader::open_in(&job.directory).map_err(failed)?;
    let of_job = records.map(|records| JobReport::of(records, &facts)).transpose().map_err(failed)?.flatten();
    let Some(mut of_job) = of_job else {
        return Err(Failure::new(exit::UNAVAILABLE, "there is no event log of a run")
            .at(job.prefix.display())
            .remedy("it is written unless SCR_LOG_ENABLE is 0"));
    };
    for failure in of_job.failures.iter_mut().rev().take(QUOTED) {
        quote(failure, &job);
    }
    if let Some(file) = &args.html {
        let written = durable::replace(file, CreationMode::Umask, page(&of_job).as_bytes());
        written.map_err(|error| Failure::of(exit::CANNOT_WRITE, &error))?;
    }
    style.result(&report(json!({"report": &of_job}), |to| match &args.html {
        Some(file) => writeln!(to, "written: {}", printable(&file.display().to_string())),
        None => of_job.write_text(to),
    }))?;
    Ok(exit::FINISHED)
}

/// Adds the last lines that the rank wrote to standard error, if its launcher kept them for each rank.
fn quote(failure: &mut JobFailure, job: &RunningJob) {
    let Some(rank) = failure.rank else { return };
    let file = generation_directory(&job.prefix, failure.generation).join(format!("rank_{rank}.err"));
    failure.quote(last_lines(&file).unwrap_or_default());
}
