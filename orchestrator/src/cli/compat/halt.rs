//! `scr_halt`, and `scr_halt_cntl`, which it runs on the nodes of a job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::Local;
use clap::Parser;
use holdfast_core::control::halt::{HaltFile, local_time, reason};
use holdfast_core::durable::{self, CreationMode};
use holdfast_model::{HaltCondition, NodeName};
use holdfast_wire::run::job_directory;

use super::arguments::{parse, usage};
use super::hosts::expand;
use super::result::{CompatError, ExitResult, NO, YES, failed, print, printed, refused};
use super::{directories, node_commands};
use crate::host::external_command::{self, ExternalCommandError};

/// Maximum duration of a command of Slurm or `date`.
const WITHIN: Duration = Duration::from_secs(30);
/// The step with Holdfast's agents, which must save the checkpoint.
const AGENTS: &str = "holdfast-agents";

/// Set or change the halt conditions of jobs
#[derive(Parser)]
#[command(name = "scr_halt", no_binary_name = true, infer_long_args = true)]
struct HaltArgs {
    /// All jobs
    #[arg(short = 'z', long)]
    all: bool,
    /// The jobs of these users
    #[arg(short, long, value_name = "USERS")]
    user: Vec<String>,
    /// Halt after this many checkpoints
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    checkpoints: Option<i64>,
    /// Halt before this time; the halt seconds count
    #[arg(short, long, value_name = "TIME")]
    before: Option<String>,
    /// Halt after this time
    #[arg(short, long, value_name = "TIME")]
    after: Option<String>,
    /// Halt now: also end the running steps
    #[arg(short, long)]
    immediate: bool,
    /// Halt this many seconds before the end
    #[arg(short, long, value_name = "SECONDS")]
    seconds: Option<i64>,
    /// List the conditions
    #[arg(short, long)]
    list: bool,
    #[arg(long)]
    unset_checkpoints: bool,
    #[arg(long)]
    unset_before: bool,
    #[arg(long)]
    unset_after: bool,
    #[arg(long)]
    unset_seconds: bool,
    #[arg(long)]
    unset_reason: bool,
    /// Remove the halt file
    #[arg(short, long)]
    remove: bool,
    /// Require that every node of the job can be reached
    #[arg(short, long)]
    every: bool,
    #[arg(short, long)]
    verbose: bool,
    /// The job ids [default: the job of this process]
    jobids: Vec<String>,
}

/// A job in Slurm's queue.
struct QueuedJob {
    id: String,
    user: String,
    nodes: Vec<NodeName>,
}

pub(super) fn halt(words: &[String]) -> ExitResult {
    let args: HaltArgs = parse(words)?;
    let requested =
        if args.jobids.is_empty() { directories::job_id().into_iter().collect() } else { args.jobids.clone() };
    let selects_users = args.all || !args.user.is_empty();
    if requested.is_empty() && !selects_users {
        return Err(usage::<HaltArgs>("outside of a job a job id is required").into());
    }
    let Some(conditions) = conditions(&args)? else { return Ok(NO) };
    let selection = match (args.all, args.user.is_empty()) {
        (true, true) => Vec::new(),
        (_, false) => vec![format!("--user={}", args.user.join(","))],
        _ => vec![format!("--jobs={}", requested.join(","))],
    };
    let jobs = queued(&selection)?;
    if !selects_users {
        for missing in requested.iter().filter(|id| jobs.iter().all(|job| job.id != **id)) {
            print(format!("scr_halt: ERROR: Could not find job {missing}"))?;
        }
    }
    let mut code = YES;
    for job in &jobs {
        print(format!("Updating halt file for jobid {} ... ", job.id))?;
        if !change(job, &conditions, &args)? {
            print(format!("\nscr_halt: ERROR: Failed to create halt file for job {}", job.id))?;
            code = NO;
        }
    }
    if args.immediate {
        if !jobs.is_empty() {
            print("Cancelling job steps ...")?;
        }
        for job in &jobs {
            if !cancel_steps(job)? {
                code = NO;
            }
        }
    }
    Ok(code)
}

/// The arguments for `scr_halt_cntl`; `None` if a time is invalid, which is printed.
fn conditions(args: &HaltArgs) -> Result<Option<Vec<String>>, CompatError> {
    if args.remove {
        return Ok(Some(vec!["--remove".to_owned()]));
    }
    let mut words: Vec<String> = Vec::new();
    words.extend(args.checkpoints.map(|count| format!("-c{count}")));
    for (option, name, text) in [("-b", "--before", &args.before), ("-a", "--after", &args.after)] {
        let Some(text) = text else { continue };
        match seconds_of(text)? {
            Some(seconds) => words.push(format!("{option}{seconds}")),
            None => {
                print(format!("scr_halt: ERROR: Invalid time specified in {name}: {text}"))?;
                return Ok(None);
            }
        }
    }
    words.extend(args.seconds.map(|seconds| format!("-s{seconds}")));
    words.extend(args.list.then(|| "-l".to_owned()));
    let unset = [
        (args.unset_checkpoints, 'c'),
        (args.unset_before, 'b'),
        (args.unset_after, 'a'),
        (args.unset_seconds, 's'),
        (args.unset_reason, 'r'),
    ];
    words.extend(unset.into_iter().filter(|(given, _)| *given).map(|(_, condition)| format!("-x{condition}")));
    if words.is_empty() || args.immediate {
        words.push(format!("-r{}", reason::JOB_HALTED));
    }
    Ok(Some(words))
}

/// A time in seconds since 1970, as `date` reads it.
fn seconds_of(text: &str) -> Result<Option<i64>, CompatError> {
    let ran = external_command::run("date", &["+%s", "--date", text], &BTreeMap::new(), WITHIN);
    let ran = ran.map_err(|error| failed(&error))?;
    Ok(ran.output.trim().parse().ok().filter(|_| ran.success))
}

fn slurm(command: &str, arguments: &[&str]) -> Result<external_command::CommandOutput, ExternalCommandError> {
    external_command::run(command, arguments, &BTreeMap::new(), WITHIN)
}

fn queued(selection: &[String]) -> Result<Vec<QueuedJob>, CompatError> {
    let mut arguments = vec!["--noheader", "--format=%i|%u|%N"];
    arguments.extend(selection.iter().map(String::as_str));
    let ran = slurm("squeue", &arguments).map_err(|error| failed(&error))?;
    // Then no job of these has been found, which is reported for each.
    let is_unknown = ran.errors.contains("Invalid job id");
    if !ran.success && !is_unknown {
        return Err(refused(format!(
            "the jobs are not known, no halt file was changed: squeue: {}",
            ran.errors.trim()
        )));
    }
    let mut jobs = Vec::new();
    for line in ran.output.lines() {
        let mut fields = line.trim().splitn(3, '|');
        let (Some(id), Some(user), Some(list)) = (fields.next(), fields.next(), fields.next()) else { continue };
        // A job that waits has no nodes.
        let nodes = expand(list)?;
        if !nodes.is_empty() {
            jobs.push(QueuedJob { id: id.to_owned(), user: user.to_owned(), nodes });
        }
    }
    Ok(jobs)
}

/// Changes the halt files of a job and prints that of its first node. Those of all nodes are changed, because any node
/// may lead the ranks after a node is lost. Returns whether the first one, with `--every` all, could be changed.
fn change(job: &QueuedJob, conditions: &[String], args: &HaltArgs) -> Result<bool, CompatError> {
    let control = job_directory(&directories::control_base(&directories::parameters()?), &job.user, &job.id);
    let mut arguments = vec![format!("-f{control}/halt.scrinfo")];
    arguments.extend(conditions.iter().cloned());
    if args.verbose {
        print(format!("\nscr_halt_cntl {}", arguments.join(" ")))?;
    }
    let answers = node_commands::run_on(&job.nodes, Some(&job.id), "scr_halt_cntl", &arguments)?;
    if !args.every {
        print("")?;
        if let Some((node, lines)) = job.nodes.iter().find_map(|node| answers.get_key_value(node)) {
            for line in lines.iter().filter(|_| !args.remove) {
                print(format!("{node}: {line}"))?;
            }
        }
        print("")?;
    }
    Ok(if args.every { answers.len() == job.nodes.len() } else { !answers.is_empty() })
}

/// Ends the steps of a job but those with Holdfast's agents.
fn cancel_steps(job: &QueuedJob) -> Result<bool, CompatError> {
    let ran = slurm("squeue", &["--steps", "--noheader", "--format=%i|%j", &format!("--jobs={}", job.id)]);
    let ran = ran.map_err(|error| failed(&error))?;
    if !ran.success {
        print(format!("scr_halt: ERROR: Failed to lookup job step ids for jobid {}", job.id))?;
        return Ok(false);
    }
    let is_number =
        |id: &str| id.rsplit_once('.').is_some_and(|(_, step)| step.bytes().all(|byte| byte.is_ascii_digit()));
    let steps = ran.output.lines().filter_map(|line| line.trim().split_once('|'));
    let steps: Vec<&str> = steps.filter(|(id, name)| is_number(id) && *name != AGENTS).map(|(id, _)| id).collect();
    if steps.is_empty() {
        return Ok(true);
    }
    print(format!("  scancel {}", steps.join(" ")))?;
    let cancelled = slurm("scancel", &steps).map_err(|error| failed(&error))?.success;
    if !cancelled {
        print(format!("scr_halt: ERROR: Failed to cancel job steps {}", steps.join(" ")))?;
    }
    Ok(cancelled)
}

/// Change the halt file of this node
#[derive(Parser)]
#[command(name = "scr_halt_cntl", no_binary_name = true)]
struct HaltFileArgs {
    /// The halt file
    #[arg(short)]
    file: PathBuf,
    /// List the conditions
    #[arg(short)]
    list: bool,
    /// The number of checkpoints left
    #[arg(short, allow_negative_numbers = true)]
    checkpoints: Option<i64>,
    /// The time before which to halt
    #[arg(short)]
    before: Option<i64>,
    /// The time after which to halt
    #[arg(short)]
    after: Option<i64>,
    /// The halt seconds
    #[arg(short)]
    seconds: Option<i64>,
    #[arg(short)]
    reason: Option<String>,
    /// Remove a condition: c, b, a, s or r
    #[arg(short = 'x', value_parser = ["c", "b", "a", "s", "r"])]
    unset: Vec<String>,
    /// Remove the file
    #[arg(long)]
    remove: bool,
}

pub(super) fn halt_cntl(words: &[String]) -> ExitResult {
    let args: HaltFileArgs = parse(words)?;
    if args.remove {
        HaltFile::remove(&args.file).map_err(|error| failed(&error))?;
        // A line shows that the node answered.
        return printed("removed");
    }
    let halt = if args.list {
        HaltFile::read(&args.file).map_err(|error| failed(&error))?.unwrap_or_default()
    } else {
        let unsets = |condition: &str| args.unset.iter().any(|unset| unset == condition);
        for (name, set, condition) in [
            ("CheckpointsLeft", args.checkpoints.is_some(), "c"),
            ("ExitAfter", args.after.is_some(), "a"),
            ("ExitBefore", args.before.is_some(), "b"),
            ("HaltSeconds", args.seconds.is_some(), "s"),
            ("ExitReason", args.reason.is_some(), "r"),
        ] {
            match (set, unsets(condition)) {
                (true, _) => print(format!("Setting {name}"))?,
                (false, true) => print(format!("Unsetting {name}"))?,
                (false, false) => {}
            }
        }
        print("")?;
        if let Some(directory) = args.file.parent() {
            durable::create_directory(directory, CreationMode::Private).map_err(|error| failed(&error))?;
        }
        update(&args, &unsets)?
    };
    print_conditions(&args.file, &halt)?;
    Ok(YES)
}

/// Changes the halt file in the order in which SCR does, and returns it.
fn update(args: &HaltFileArgs, unsets: &dyn Fn(&str) -> bool) -> Result<HaltFile, CompatError> {
    let changed = HaltFile::update(&args.file, |halt| {
        match &args.reason {
            Some(reason) => halt.set_reason(reason),
            None if unsets("r") => drop(halt.unset(HaltCondition::Reason)),
            None => {}
        }
        let numbers = [
            (HaltCondition::CheckpointsLeft, args.checkpoints, "c"),
            (HaltCondition::Before, args.before, "b"),
            (HaltCondition::After, args.after, "a"),
            (HaltCondition::Seconds, args.seconds, "s"),
        ];
        for (condition, number, option) in numbers {
            match number {
                Some(number) => halt.set_number(condition, number),
                None if unsets(option) => drop(halt.unset(condition)),
                None => {}
            }
        }
        halt.clone()
    });
    changed.map_err(|error| failed(&error))
}

fn print_conditions(file: &Path, halt: &HaltFile) -> Result<(), CompatError> {
    print(format!("Halt file settings for {}:", file.display()))?;
    let time = |seconds: i64| local_time(seconds, &Local);
    let earliest = halt.number(HaltCondition::Before).zip(halt.number(HaltCondition::Seconds));
    let lines = [
        halt.reason().map(|reason| format!("  ExitReason:      {reason}")),
        halt.number(HaltCondition::CheckpointsLeft).map(|left| format!("  CheckpointsLeft: {left}")),
        halt.number(HaltCondition::After).map(|after| format!("  ExitAfter:       {}", time(after))),
        halt.number(HaltCondition::Before).map(|before| format!("  ExitBefore:      {}", time(before))),
        halt.number(HaltCondition::Seconds).map(|seconds| format!("  HaltSeconds:     {seconds}")),
        earliest
            .map(|(before, seconds)| format!("  ExitBefore - HaltSeconds: {}", time(before.saturating_sub(seconds)))),
    ];
    if lines.iter().all(Option::is_none) {
        print("  None")?;
    }
    lines.into_iter().flatten().try_for_each(print)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_core::crash::{ALL_ERRORS, Subject};

    use super::*;

    #[test]
    fn crash_the_halt_file_of_a_node() {
        let file = |control: &Path| control.join("halt.scrinfo");
        let prepare = |control: &Path| {
            fs::create_dir(control).unwrap();
            HaltFile::update(&file(control), |halt| halt.set_number(HaltCondition::Seconds, 1200)).unwrap();
        };
        let work = |control: &Path| {
            let words = [format!("-f{}", file(control).display()), "-c3".to_owned(), "-rJOB_HALTED".to_owned()];
            match halt_cntl(&words) {
                Ok(_) => Ok(()),
                Err(CompatError::Failed(failure)) => Err(format!("{failure:?}")),
                Err(CompatError::Usage(_)) => Err("usage".to_owned()),
            }
        };
        let check = |control: &Path| {
            let halt = HaltFile::read(&file(control)).map_err(|error| error.to_string())?.ok_or("it is gone")?;
            let kept = halt.number(HaltCondition::Seconds) == Some(1200);
            let is_whole = halt.reason().is_some() == (halt.number(HaltCondition::CheckpointsLeft) == Some(3));
            (kept && is_whole).then_some(()).ok_or(format!("{halt:?}"))
        };
        let result = |control: &Path| {
            let names = fs::read_dir(control).unwrap().map(|entry| entry.unwrap().file_name());
            format!("{:?} {:?}", HaltFile::read(&file(control)).unwrap(), names.collect::<Vec<_>>())
        };
        let (prepare, work, check, result): (&dyn Fn(&Path), _, _, _) = (&prepare, &work, &check, &result);
        let (name, power, errors) = ("scr_halt_cntl", false, ALL_ERRORS);
        let tried = Subject { name, prepare, work, check, result, power, errors }.interrupt();
        assert!(tried.errors > 5, "{tried:?}");
    }
}
