//! `holdfast halt`: halt conditions of a running job.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Local};
use clap::builder::NonEmptyStringValueParser;
use holdfast_model::{HaltChange, HaltCondition, HaltState};
use serde_json::json;

use super::failure::Failure;
use super::job::StepSelection;
use super::output::{Style, printable, report};
use super::running_job::RunningJob;
use crate::exit;
use crate::job::settings::epoch;
use crate::spec::quantity;

/// List, set and remove the conditions under which a running job stops
///
/// Conditions are checked when a checkpoint completes and before each launch. If one holds, the job saves the
/// checkpoint and ends with exit code 75, so that another allocation can continue. Of steps that run side by side, all
/// are halted, or that of `--step`; no further step begins.
#[derive(Clone, Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct HaltArgs {
    /// What to do
    #[command(subcommand)]
    pub command: HaltCommand,
}

/// The subcommands of `halt`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum HaltCommand {
    /// Show the conditions that are set
    #[command(after_help = "\
Examples:
  holdfast halt list job.yaml
  holdfast halt list --json --prefix ./heat-run")]
    List(StepSelection),
    /// Set conditions; others are not changed
    Set(HaltSetArgs),
    /// Remove conditions
    Unset(HaltUnsetArgs),
}

/// `holdfast halt set`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast halt set --now job.yaml                        at the next checkpoint, within `halt.grace`
  holdfast halt set --immediate job.yaml                  without a checkpoint
  holdfast halt set --checkpoints 3 job.yaml              after three more checkpoints
  holdfast halt set --before 2026-11-20T18:00 --seconds 10min job.yaml
  holdfast halt set --now --step member-3 job.yaml        one of several steps that run side by side
  holdfast halt set --dry-run --after 2026-11-20T18:00:00Z job.yaml")]
pub struct HaltSetArgs {
    /// The job
    #[command(flatten)]
    pub job: StepSelection,
    #[command(flatten)]
    conditions: TypedConditions,
    /// Show what would be set; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

// At least one condition is required.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct TypedConditions {
    /// Stop at the next checkpoint; the reason is recorded. Ranks that reach none within `halt.grace`, and ranks that
    /// do not use the checkpoint API, get SIGTERM, and after as long again SIGKILL
    #[arg(long, value_name = "REASON", num_args = 0..=1, require_equals = true, default_missing_value = "USER_REQUEST")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    now: Option<String>,
    /// Kill the ranks now, without a checkpoint; the reason is recorded
    #[arg(long, value_name = "REASON", num_args = 0..=1, require_equals = true, default_missing_value = "USER_REQUEST")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    #[arg(conflicts_with = "now")]
    immediate: Option<String>,
    /// Stop after this many more checkpoints
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    checkpoints: Option<u64>,
    /// Stop from this time on: `2026-11-20T18:00` (local time) or `2026-11-20T18:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = time)]
    after: Option<SystemTime>,
    /// Stop early enough to end by this time: `--seconds` before it
    #[arg(long, value_name = "TIME", value_parser = time)]
    before: Option<SystemTime>,
    /// Stop this long before the allocation ends, or before the time of `--before`
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    seconds: Option<Duration>,
}

impl HaltSetArgs {
    fn change(&self) -> HaltChange {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let TypedConditions { now, immediate, checkpoints, after, before, seconds } = self.conditions.clone();
        HaltChange {
            immediate: immediate.is_some(),
            reason: now.or(immediate),
            checkpoints_left: checkpoints.map(whole),
            after: after.map(epoch),
            before: before.map(epoch),
            seconds: seconds.map(|seconds| whole(seconds.as_secs())),
            unset: Vec::new(),
        }
    }
}

/// `holdfast halt unset`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast halt unset --checkpoints job.yaml
  holdfast halt unset --all job.yaml")]
pub struct HaltUnsetArgs {
    /// The job
    #[command(flatten)]
    pub job: StepSelection,
    #[command(flatten)]
    which: TypedUnset,
    /// Show what would be removed; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

// At least one condition is required.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct TypedUnset {
    /// The reason to stop at the next checkpoint
    #[arg(long)]
    now: bool,
    /// The number of checkpoints left
    #[arg(long)]
    checkpoints: bool,
    /// The time to stop from
    #[arg(long)]
    after: bool,
    /// The time to stop before
    #[arg(long)]
    before: bool,
    /// The time ahead of the end
    #[arg(long)]
    seconds: bool,
    /// All of them
    #[arg(long)]
    all: bool,
}

impl HaltUnsetArgs {
    /// The conditions to remove.
    fn conditions(&self) -> Vec<HaltCondition> {
        let TypedUnset { now, checkpoints, after, before, seconds, all } = self.which;
        [
            (now, HaltCondition::Reason),
            (checkpoints, HaltCondition::CheckpointsLeft),
            (after, HaltCondition::After),
            (before, HaltCondition::Before),
            (seconds, HaltCondition::Seconds),
        ]
        .into_iter()
        .filter_map(|(typed, condition)| (typed || all).then_some(condition))
        .collect()
    }
}

fn time(text: &str) -> Result<SystemTime, &'static str> {
    quantity::parse_time(text).ok_or("write a point in time: `2026-11-20T18:00:00` (local) or `2026-11-20T18:00:00Z`")
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    // A number without unit is seconds, as in SCR.
    let seconds = || text.parse::<u32>().ok().map(|seconds| Duration::from_secs(seconds.into()));
    quantity::parse_duration(text).or_else(seconds).ok_or("write a duration: `600`, `90s` or `10min`")
}

pub(super) fn run(args: HaltArgs, style: Style) -> Result<u8, Failure> {
    let (job, change, dry_run) = match &args.command {
        HaltCommand::List(job) => (job, None, false),
        HaltCommand::Set(set) => (&set.job, Some(set.change()), set.dry_run),
        HaltCommand::Unset(unset) => {
            (&unset.job, Some(HaltChange { unset: unset.conditions(), ..HaltChange::default() }), unset.dry_run)
        }
    };
    let jobs = RunningJob::each_of(job, style)?;
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (name, running) in &jobs {
        match halt(running, change.as_ref(), dry_run) {
            Ok(halted) => found.push((name.clone(), halted)),
            Err(failure) => failed.push((name, failure)),
        }
    }
    // A step that waits for nodes has no agents: the others are halted nevertheless.
    if found.is_empty() && !failed.is_empty() {
        return Err(failed.swap_remove(0).1);
    }
    let would = change.filter(|_| dry_run);
    let fields_of = |halted: &Halted| serde_json::to_value(&halted.state).unwrap_or_default();
    let mut fields = found.first().map(|(_, first)| fields_of(first)).unwrap_or_default();
    if jobs.len() > 1 {
        let step = |(name, halted): &(Option<String>, Halted)| json!({"name": name, "result": fields_of(halted)});
        fields["steps"] = found.iter().map(step).collect();
    }
    style.result(&report(fields, |to| {
        for (name, halted) in &found {
            if let Some(name) = name.as_ref().filter(|_| jobs.len() > 1) {
                writeln!(to, "step {name}:")?;
            }
            write_halt(to, &halted.state, would.as_ref(), (halted.moment, halted.has_orchestrator))?;
        }
        Ok(())
    }))?;
    if found.iter().any(|(_, halted)| halted.end_is_missing) {
        style.warn("the end of the allocation is not known: `--seconds` has an effect with `--before` only");
    }
    for (name, Failure { message, .. }) in &failed {
        style.warn(&format!("step {} was not asked: {message}", name.as_deref().unwrap_or_default()));
    }
    Ok(if failed.is_empty() { exit::FINISHED } else { exit::UNAVAILABLE })
}

/// The conditions of a step, when they were read or changed.
struct Halted {
    state: HaltState,
    moment: HaltMoment,
    has_orchestrator: bool,
    /// The change is about the time before an end that is not known.
    end_is_missing: bool,
}

/// Reads the conditions of a running step, or changes them.
fn halt(running: &RunningJob, change: Option<&HaltChange>, dry_run: bool) -> Result<Halted, Failure> {
    if change.is_some_and(|change| change.checkpoints_left.is_some()) {
        running.refuse_with_pairs(
            "`--checkpoints` has no effect on a job with pairs: it ends when all pairs are finished, or at once",
            "write `--now`, or give a time with `--after` or `--before`",
        )?;
    }
    let has_pairs = running.state.pairs.is_some();
    // A dry run also needs a running job, but changes nothing.
    let sent = change.cloned().filter(|_| !dry_run);
    let has_orchestrator = running.has_orchestrator;
    let moment = match (has_pairs, change.is_some_and(|change| change.immediate && has_orchestrator)) {
        (true, _) => HaltMoment::Now,
        (false, true) => HaltMoment::WithoutCheckpoint,
        (false, false) => HaltMoment::NextCheckpoint,
    };
    let state = super::runtime::block_on(running.halt(sent))??;
    let is_about_end = change.is_some_and(|change| change.seconds.is_some() && change.before.is_none());
    let end_is_missing = is_about_end && state.before.is_none() && running.state.allocation_end.is_none();
    Ok(Halted { state, moment, has_orchestrator, end_is_missing })
}

/// When the job ends that the user halts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HaltMoment {
    NextCheckpoint,
    /// Pairs do not wait for a checkpoint.
    Now,
    /// `--immediate`: the orchestrator ends the ranks.
    WithoutCheckpoint,
}

impl HaltMoment {
    fn text(self) -> &'static str {
        match self {
            HaltMoment::NextCheckpoint => "at the next checkpoint",
            HaltMoment::Now => "now",
            HaltMoment::WithoutCheckpoint => "now, without another checkpoint",
        }
    }
}

/// What is set, or would be changed.
fn write_halt(
    to: &mut dyn Write,
    state: &HaltState,
    would: Option<&HaltChange>,
    (moment, has_orchestrator): (HaltMoment, bool),
) -> io::Result<()> {
    if let Some(change) = would {
        for condition in &change.unset {
            writeln!(to, "would remove: {}", condition_text(*condition, moment))?;
        }
        let HaltChange { reason, checkpoints_left, after, before, seconds, .. } = change.clone();
        let set = HaltState { reason, checkpoints_left, after, before, seconds, met: None };
        return conditions(to, "would set: ", &set, moment);
    }
    if (HaltState { met: None, ..state.clone() }) == HaltState::default() {
        return writeln!(to, "no halt condition is set");
    }
    conditions(to, "", state, moment)?;
    let Some(met) = &state.met else { return Ok(()) };
    let what = match moment {
        // Pairs are ended by the orchestrator.
        HaltMoment::Now if !has_orchestrator => {
            "recorded, but no orchestrator has taken it up yet; the next `holdfast run` ends the copies and jobs"
        }
        HaltMoment::Now => "the job ends its copies and jobs now",
        HaltMoment::WithoutCheckpoint => "the job ends its ranks now, without another checkpoint",
        HaltMoment::NextCheckpoint => "the job stops at its next checkpoint",
    };
    writeln!(to, "{what}: {}", printable(met))
}

fn conditions(to: &mut dyn Write, before: &str, state: &HaltState, moment: HaltMoment) -> io::Result<()> {
    let time = |seconds: i64| {
        let time = DateTime::from_timestamp(seconds, 0).map(|time| time.with_timezone(&Local));
        time.map_or_else(|| seconds.to_string(), |time| time.format("%Y-%m-%d %H:%M:%S").to_string())
    };
    let left = |left: i64| format!("after {left} more checkpoint{}", if left == 1 { "" } else { "s" });
    let seconds = |seconds: i64| match state.before {
        Some(_) => format!("{seconds} s before that time"),
        None => format!("{seconds} s before the end of the allocation"),
    };
    let lines = [
        state.reason.as_deref().map(|reason| format!("{}: {}", moment.text(), printable(reason))),
        state.checkpoints_left.map(left),
        state.after.map(|at| format!("from {}", time(at))),
        state.before.map(|at| format!("before {}", time(at))),
        state.seconds.map(seconds),
    ];
    lines.into_iter().flatten().try_for_each(|line| writeln!(to, "{before}halt {line}"))
}

fn condition_text(condition: HaltCondition, moment: HaltMoment) -> &'static str {
    match condition {
        HaltCondition::Reason if moment == HaltMoment::Now => "halt now",
        HaltCondition::Reason => "halt at the next checkpoint",
        HaltCondition::CheckpointsLeft => "halt after a number of checkpoints",
        HaltCondition::After => "halt from a time on",
        HaltCondition::Before => "halt before a time",
        HaltCondition::Seconds => "halt ahead of the end",
    }
}
