//! The commands that read files of a control directory: `scr_flush_file`, `scr_nodes_file`, `scr_retries_halt`,
//! `scr_print_hash_file`.

use std::io;
use std::path::{Path, PathBuf};

use chrono::{Local, Utc};
use clap::Parser;
use holdfast_core::control::flush::FlushFile;
use holdfast_core::control::halt::{HaltFile, HaltReason, local_time};
use holdfast_core::kvtree::file;
use holdfast_model::CheckpointId;

use super::super::inspect;
use super::arguments::parse;
use super::directories;
use super::result::{ExitResult, NO, YES, failed, print, printed};
use crate::params::value;

/// Show what the flush file of a node contains
#[derive(Parser)]
#[command(name = "scr_flush_file", no_binary_name = true, infer_long_args = true)]
struct FlushFileArgs {
    /// The control directory
    #[arg(short, long, value_name = "DIR")]
    dir: PathBuf,
    /// Exit with 0 if this checkpoint must be flushed, else with 1
    #[arg(short, long, value_name = "ID", allow_negative_numbers = true)]
    needflush: Option<i64>,
    /// Exit with 0 if this checkpoint is in the prefix directory, else with 1
    #[arg(short, long, value_name = "ID", allow_negative_numbers = true, conflicts_with = "needflush")]
    id: Option<i64>,
    /// Print the newest checkpoint
    #[arg(short, long)]
    latest: bool,
}

pub(super) fn flush_file(words: &[String]) -> ExitResult {
    let args: FlushFileArgs = parse(words)?;
    let read = FlushFile::read(&args.dir.join("flush.scrinfo")).map_err(|error| failed(&error))?;
    let Some(flush) = read else { return Ok(NO) };
    if let Some((id, in_prefix)) = args.needflush.map(|id| (id, false)).or(args.id.map(|id| (id, true))) {
        let id = u64::try_from(id).ok().filter(|id| *id > 0);
        let locations = id.and_then(|id| flush.locations(CheckpointId(id)));
        return Ok(if locations.is_some_and(|known| known.pfs == in_prefix) { YES } else { NO });
    }
    flush.checkpoints().last().filter(|_| args.latest).map_or(Ok(NO), printed)
}

/// Print the number of nodes of the last run
#[derive(Parser)]
#[command(name = "scr_nodes_file", no_binary_name = true, infer_long_args = true)]
struct NodesFileArgs {
    /// The control directory
    #[arg(short, long, value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn nodes_file(words: &[String]) -> ExitResult {
    let args: NodesFileArgs = parse(words)?;
    match directories::nodes_of(&args.dir) {
        Ok(Some(number)) => {
            print(number)?;
            Ok(if number == 0 { NO } else { YES })
        }
        Ok(None) => Ok(NO),
        Err(error) => Err(failed(&error)),
    }
}

/// Print a file of SCR's
#[derive(Parser)]
#[command(name = "scr_print_hash_file", no_binary_name = true)]
struct PrintArgs {
    /// The file
    file: PathBuf,
}

pub(super) fn print_hash_file(words: &[String]) -> ExitResult {
    let args: PrintArgs = parse(words)?;
    inspect::write_tree(&file::read(&args.file)?, &mut io::stdout().lock())?;
    Ok(YES)
}

/// Exit with 0 if the job must not be launched again, with 1 if it may be
#[derive(Parser)]
#[command(name = "scr_retries_halt", no_binary_name = true, infer_long_args = true)]
struct RetriesHaltArgs {
    /// The control directory
    #[arg(short, long, value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn retries_halt(words: &[String]) -> ExitResult {
    let args: RetriesHaltArgs = parse(words)?;
    let (halts, lines) = halt_conditions(&args.dir)?;
    for line in lines {
        print(line)?;
    }
    Ok(if halts { YES } else { NO })
}

/// Whether a control directory's halt file ends the job, with a line for each reason.
///
/// # Errors
/// The file cannot be read: it may contain a reason to halt.
fn halt_conditions(control: &Path) -> Result<(bool, Vec<String>), super::result::CompatError> {
    let seconds: u32 = directories::parameters()?.read("SCR_HALT_SECONDS", value::whole).unwrap_or_default();
    let read = HaltFile::read(&control.join("halt.scrinfo")).map_err(|error| failed(&error))?;
    let Some(halt) = read else {
        return Ok((false, vec!["scr_retries_halt: CONTINUE RUN: No halt file found.".to_owned()]));
    };
    let now = Utc::now().timestamp();
    let reasons = halt.check(now, None, Some(i64::from(seconds)));
    let lines = reasons.iter().map(|reason| format!("scr_retries_halt: HALT RUN: {}", halt_line(reason, now)));
    Ok((!reasons.is_empty(), lines.collect()))
}

fn halt_line(reason: &HaltReason, now: i64) -> String {
    let past = |name: &str, time: i64| {
        let (now, time) = (local_time(now, &Local), local_time(time, &Local));
        format!("Current time ({now}) is past {name} time ({time}).")
    };
    match reason {
        HaltReason::Recorded(reason) => format!("Reason: {reason}."),
        HaltReason::NoCheckpointsLeft => "No checkpoints remaining.".to_owned(),
        HaltReason::ExitBefore { time } => past("ExitBefore-HaltSeconds", *time),
        HaltReason::ExitAfter { time } => past("ExitAfter", *time),
        other => other.message(&Local),
    }
}
