//! `holdfast run`: runs a job to its end.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use holdfast_core::owned::Access;
use serde_json::{Value, json};

use super::failure::Failure;
use super::fault_permission::AllowFaults;
use super::output::{Report, Style, document, printable, report};
use super::{job, prefix_access};
use crate::events::{DrainResult, EventLog, LogEvent, OutputNotShown, RunReport};
use crate::exit;
use crate::job::{Plan, RestartChoice, RunChoices, RunError, RunOptions, requeue};
use crate::spec::{Environment, JobSpec};

/// Run a job to its end
///
/// Starts an agent on every node, launches the application, relaunches it on the healthy nodes when a node is lost, and
/// drains the newest checkpoint to the prefix directory. If the job is running already in this allocation, and its
/// orchestrator ended, this one takes over. Ctrl-C or SIGTERM: stop the ranks, drain, report. A
/// second one: end at once, without a drain. A job that is finished is not run again, without `--again`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast run configs/quickstart.yaml      six virtual nodes, two of them are killed
  holdfast run -- ./app --steps 400         no spec: default settings
  exec holdfast run job.yaml                last line of a batch script: signals reach it, and `requeue:` in the spec
                                            submits the next allocation on exit code 75 (not finished)
  holdfast run --from-beginning job.yaml    does not use the checkpoints of earlier runs
  holdfast run --dry-run job.yaml           checks only: show what would be started where")]
pub struct RunArgs {
    /// The job spec
    #[arg(value_name = "SPEC", required_unless_present = "command")]
    pub spec: Option<PathBuf>,
    /// Words behind the spec: a command that is not behind `--`.
    #[arg(value_name = "ARGUMENTS", hide = true, requires = "spec")]
    pub arguments: Vec<String>,
    /// Instead of a spec: a command, to be run with default settings
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "spec")]
    pub command: Vec<String>,
    /// Repeat a job, or steps, that were finished in earlier runs; they restart from their newest checkpoints
    #[arg(long)]
    pub again: bool,
    /// Start without a checkpoint: the newest in the caches is drained first, all are kept, and a relaunch restarts
    /// only from what this run writes
    #[arg(long, conflicts_with = "checkpoint")]
    pub from_beginning: bool,
    /// Restart from this directory below the prefix: it becomes the current one
    #[arg(long, value_name = "NAME")]
    pub checkpoint: Option<String>,
    #[command(flatten)]
    pub faults: AllowFaults,
    /// Show what would be started where, and exit with the code of the run
    #[arg(long)]
    pub dry_run: bool,
}

impl RunArgs {
    /// The spec of the arguments, or the one of the command, with the parameters of the environment.
    ///
    /// # Errors
    /// The mistakes in any of them.
    pub fn spec(&self, environment: &Environment) -> Result<JobSpec, Failure> {
        Ok(match &self.spec {
            Some(path) if !self.arguments.is_empty() => return Err(self.command_without_dashes(path)),
            Some(path) => JobSpec::load(path, environment)?,
            None => JobSpec::from_command(&self.command, environment)?,
        })
    }

    fn command_without_dashes(&self, first: &Path) -> Failure {
        let command = format!("{} {}", first.display(), self.arguments.join(" "));
        Failure::new(exit::USAGE, "one job spec is expected, more words follow")
            .at(first.display())
            .remedy(format!("a command is behind `--`: `holdfast run -- {command}`"))
    }

    fn choices(&self) -> RunChoices {
        let restart = match &self.checkpoint {
            _ if self.from_beginning => RestartChoice::Beginning,
            Some(name) => RestartChoice::Checkpoint(name.clone()),
            None => RestartChoice::Newest,
        };
        RunChoices { again: self.again, restart }
    }
}

pub(super) fn run(args: RunArgs, style: Style) -> Result<u8, Failure> {
    let is_dry_run = args.dry_run;
    let read = job::environment(style).and_then(|environment| Ok((args.spec(&environment)?, environment)));
    let spec = read.as_ref().ok().map(|(spec, _)| spec.clone());
    let ended = read.and_then(|(spec, environment)| run_to_the_end(args, spec, &environment, style));
    if !is_dry_run {
        prevent_rerun(ended.as_ref().map_or_else(Failure::code, |code| *code), spec.as_ref(), style);
    }
    ended
}

/// Prevents that the manager runs the job again after this exit code, where the next allocation would not help, and
/// reports it. `spec`: `None` if it could not be read.
pub(super) fn prevent_rerun(code: u8, spec: Option<&JobSpec>, style: Style) {
    match requeue::prevent_rerun(code, spec) {
        Some(Ok(command)) => {
            style
                .warn(&format!("the manager would run this job again after exit code {code}: `{command}` prevents it"));
        }
        Some(Err(reason)) => {
            let message = "the manager may run this job again after exit code";
            style.warn(&format!("{message} {code}: {reason}; cancel the job if it does"));
        }
        None => {}
    }
}

fn run_to_the_end(args: RunArgs, spec: JobSpec, environment: &Environment, style: Style) -> Result<u8, Failure> {
    spec.warnings.iter().for_each(|warning| style.warn(warning));
    if let Some(warning) = spec.requeue.as_ref().and_then(requeue::warning) {
        style.warn(&warning);
    }
    prefix_access::warn(&spec.prefix, style);
    if let Some(disabled) = &environment.disabled {
        if spec.replicated.is_some() {
            let message = format!("{disabled}: a job of `kind: replicated` cannot run without Holdfast");
            return Err(Failure::new(exit::CONFIGURATION, message).remedy("unset it"));
        }
        style.warn(&format!("{disabled}: the application runs without checkpoints, and is launched once"));
        let keys = crate::job::keys_without_effect(&spec).chain(args.checkpoint.is_some().then_some("--checkpoint"));
        for key in keys {
            style.warn(&format!("{disabled}: `{key}` has no effect"));
        }
    }
    if args.dry_run {
        return dry_run(&spec, &args.choices(), style);
    }
    if let Some(disabled) = &environment.disabled {
        if matches!(style, Style::Json { .. }) {
            let message = format!("there is no document of a program that runs without Holdfast: {disabled}");
            return Err(Failure::new(exit::USAGE, message).remedy("leave out `--json`"));
        }
        return super::runtime::block_on(crate::job::run_plain(&spec))?.map_err(failed);
    }
    let choices = args.choices();
    let allows_faults = args.faults.check(&spec)?;
    let report = run_job(JobRun { spec, choices, allows_faults }, style)?;
    if style == Style::Quiet {
        // Nothing else shows them: the report is not printed.
        for missed in report.faults.iter().filter(|fault| !fault.injected) {
            style.warn(&format!("the fault {} was not injected", missed.fault));
        }
    }
    if style == Style::Quiet && report.exit_code != exit::FINISHED {
        // Nothing else shows why: the report is not printed.
        let message = format!("job {}: {}", report.job, printable(&report.outcome));
        return Err(Failure::new(report.exit_code, message));
    }
    Ok(report.exit_code)
}

/// A job that is to be run.
pub(super) struct JobRun {
    pub(super) spec: JobSpec,
    pub(super) choices: RunChoices,
    /// The faults of the spec may be injected on machines.
    pub(super) allows_faults: bool,
}

/// Runs a job and prints its report.
pub(super) fn run_spec(spec: JobSpec, choices: RunChoices, style: Style) -> Result<RunReport, Failure> {
    run_job(JobRun { spec, choices, allows_faults: false }, style)
}

/// As [`run_spec`].
pub(super) fn run_job(job: JobRun, style: Style) -> Result<RunReport, Failure> {
    let JobRun { spec, choices, allows_faults } = job;
    prefix_access::refuse_root(&spec.prefix, "run the job as its user, or withdraw the permission with `chmod go-w`")?;
    let access = spec.group_access.access();
    let (report, not_shown) = super::runtime::with_screen(style, async |screen| {
        crate::job::run(&RunOptions { spec, choices, allows_faults, screen }).await.map_err(failed)
    })?;
    if let Some(not_shown) = not_shown {
        record_not_shown(&report, access, not_shown);
    }
    Ok(report)
}

/// Records what standard output did not accept where it can be read.
fn record_not_shown(report: &RunReport, access: Access, not_shown: OutputNotShown) {
    let OutputNotShown { bytes, directories, .. } = not_shown;
    let directory = report.files.events.as_deref().and_then(Path::parent);
    if let Some(Ok(mut event_log)) = directory.map(|directory| EventLog::open(directory, &report.job, access)) {
        event_log.write(&LogEvent::OutputNotShown { bytes, directories });
    }
}

fn dry_run(spec: &JobSpec, choices: &RunChoices, style: Style) -> Result<u8, Failure> {
    let Plan { text, refusal } = crate::job::plan(spec, choices).map_err(failed)?;
    let refusal = refusal.map(failed);
    let mut fields = json!({"plan": text.lines().collect::<Vec<_>>()});
    if let Some(refusal) = &refusal {
        fields["error"] = refusal.json()["error"].take();
    }
    style.result(&report(fields, |to| to.write_all(text.as_bytes())))?;
    match refusal {
        // The document has the refusal.
        Some(refusal) if matches!(style, Style::Json { .. }) => Ok(refusal.code()),
        Some(refusal) => Err(refusal),
        None => Ok(exit::FINISHED),
    }
}

pub(super) fn failed(error: RunError) -> Failure {
    let failure = Failure::of(error.exit_code(), &error);
    if failure.code() == exit::CANNOT_WRITE { failure.remedy(DrainResult::MEND) } else { failure }
}

impl Report for RunReport {
    fn human(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(self.text().as_bytes())
    }

    fn json(&self) -> Value {
        document(serde_json::to_value(self).unwrap_or_default())
    }
}
