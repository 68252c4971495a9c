//! `holdfast report`: what happened in a job, why it failed, and where its time went.

use std::path::PathBuf;
use std::time::SystemTime;

use holdfast_core::durable::{self, CreationMode};
use holdfast_model::Timestamp;
use serde_json::json;

use super::failure::Failure;
use super::job::StepSelection;
use super::output::{PrintableLines, Style, printable, report};
use super::running_job::RunningJob;
use super::status::stage_text;
use crate::events::Failure as JobFailure;
use crate::events::reader::Reader;
use crate::exit;
use crate::host::log::last_lines;
use crate::job::state::{JobState, Stage, generation_directory};
use crate::report::{JobFacts, JobReport, ReportedStep, page, write_steps};

/// Events without effect on a report.
const OF_PROCESSES: [&str; 2] = ["rank_connected", "rank_gone"];
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
  holdfast report --json job.yaml | jq -r '.report.settings[] | [.key, .value, .origin] | @tsv'

Exit codes:
   0  shown
  69  no job was run in this prefix, or it has no event log
  73  the page could not be written
  78  the state of the job belongs to another user")]
pub struct ReportArgs {
    /// The job
    #[command(flatten)]
    pub job: StepSelection,
    /// Write the report as a page for a browser into this file, which is replaced
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

pub(super) fn run(args: &ReportArgs, style: Style) -> Result<u8, Failure> {
    let environment = args.job.job.environment(style)?;
    let (job, _) = RunningJob::to_show(&args.job, &environment)?;
    let Some(of_job) = of_step(&job)? else {
        return Err(Failure::new(exit::UNAVAILABLE, "there is no event log of a run")
            .at(job.prefix.display())
            .remedy("it is written unless SCR_LOG_ENABLE is 0"));
    };
    let steps = super::job::steps(&args.job.job, &environment, &args.job.job.prefix(&environment)?)?;
    let steps = steps.into_iter().map(|(name, prefix)| reported(name, prefix)).collect::<Result<Vec<_>, _>>()?;
    if let Some(file) = &args.html {
        let written = durable::replace(file, CreationMode::Umask, page(&of_job, &steps).as_bytes());
        written.map_err(|error| Failure::of(exit::CANNOT_WRITE, &error))?;
    }
    style.result(&report(json!({"report": &of_job, "steps": &steps}), |to| match &args.html {
        Some(file) => writeln!(to, "written: {}", printable(&file.display().to_string())),
        None => {
            let mut to = PrintableLines::new(to);
            if !steps.is_empty() {
                write_steps(&steps, &mut to)?;
            }
            of_job.write_text(&mut to)?;
            to.finish()
        }
    }))?;
    Ok(exit::FINISHED)
}

/// The report of a job, or of a step of it; `None` without an event log.
fn of_step(job: &RunningJob) -> Result<Option<JobReport>, Failure> {
    let runs = job.has_orchestrator && matches!(job.state.stage, Stage::Running);
    let facts = JobFacts { runs_until: runs.then(|| Timestamp::from(SystemTime::now())) };
    let failed = |error| Failure::of(exit::UNAVAILABLE, &error);
    let records = Reader::open_in(&job.directory).map_err(failed)?.map(|records| records.without(&OF_PROCESSES));
    let mut report = records.map(|records| JobReport::of(records, &facts)).transpose().map_err(failed)?.flatten();
    for failure in report.iter_mut().flat_map(|report| report.failures.iter_mut().rev().take(QUOTED)) {
        quote(failure, job);
    }
    Ok(report)
}

fn reported(name: String, prefix: PathBuf) -> Result<ReportedStep, Failure> {
    let job = match JobState::read_to_show(&prefix)? {
        Some(_) => Some(RunningJob::in_prefix(prefix.clone(), None)?),
        None => None,
    };
    let state = stage_text(job.as_ref().map(|job| &job.state.stage), false);
    let report = job.as_ref().map(of_step).transpose()?.flatten();
    Ok(ReportedStep { name, prefix, state, report })
}

/// Adds the last lines that the rank wrote to standard error, if its launcher kept them for each rank.
fn quote(failure: &mut JobFailure, job: &RunningJob) {
    let Some(rank) = failure.rank else { return };
    let file = generation_directory(&job.prefix, failure.generation).join(format!("rank_{rank}.err"));
    failure.quote(last_lines(&file).unwrap_or_default());
}
