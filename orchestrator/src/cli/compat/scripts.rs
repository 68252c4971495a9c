//! The scripts around a job: `scr_prerun`, `scr_test_runtime`, and `scr_transfer`, which the agents replace.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chrono::Local;
use clap::Parser;

use super::arguments::parse;
use super::directories;
use super::result::{CompatError, ExitResult, YES, failed, print};
use crate::allocation::registry;
use crate::host::external_command;
use crate::params::value;

/// `date` ends at once.
const DATE_WITHIN: Duration = Duration::from_secs(10);

/// The time as the scripts print it: the output of `date`, whose time zone has a name.
pub(super) fn date() -> String {
    match external_command::run("date", &[], &BTreeMap::new(), DATE_WITHIN) {
        Ok(ran) if ran.success => ran.output.trim_end().to_owned(),
        _ => Local::now().format("%a %b %e %H:%M:%S %Z %Y").to_string(),
    }
}

/// True if SCR_ENABLE is 0, in the environment or in a file: the scripts do nothing.
pub(super) fn is_disabled() -> bool {
    // A mistake in another parameter is reported by the part of the script that uses it.
    directories::parameters().is_ok_and(|parameters| parameters.read("SCR_ENABLE", value::switch) == Some(false))
}

/// The output of a script: lines at its start and its end.
pub(super) struct ScriptOutput {
    name: &'static str,
    begun: Instant,
}

impl ScriptOutput {
    pub(super) fn start(name: &'static str) -> Result<Self, CompatError> {
        print(format!("{name}: Started: {}", date()))?;
        Ok(ScriptOutput { name, begun: Instant::now() })
    }

    pub(super) fn line(&self, text: &str) -> Result<(), CompatError> {
        print(format!("{}: {text}", self.name))
    }

    pub(super) fn end(self, code: u8) -> ExitResult {
        self.line(&format!("Ended: {}", date()))?;
        self.line(&format!("secs: {}", self.begun.elapsed().as_secs()))?;
        self.line(&format!("exit code: {code}"))?;
        Ok(code)
    }
}

/// Prepare a job
#[derive(Parser)]
#[command(name = "scr_prerun", no_binary_name = true)]
struct PrerunArgs {
    /// The prefix directory
    #[arg(short, value_name = "DIR")]
    p: Option<PathBuf>,
}

pub(super) fn prerun(words: &[String]) -> ExitResult {
    if is_disabled() {
        return Ok(YES);
    }
    let PrerunArgs { p: _ } = parse(words)?;
    ScriptOutput::start("scr_prerun")?.end(YES)
}

/// Check that what the scripts need is there
#[derive(Parser)]
#[command(name = "scr_test_runtime", no_binary_name = true)]
struct TestRuntimeArgs {}

pub(super) fn test_runtime(words: &[String]) -> ExitResult {
    let TestRuntimeArgs {} = parse(words)?;
    registry::find("slurm").and_then(|slurm| (slurm.check)()).map_err(|error| failed(&error))?;
    Ok(YES)
}

/// Does nothing: the agents copy files
#[derive(Parser)]
#[command(name = "scr_transfer", no_binary_name = true)]
struct TransferArgs {
    /// The transfer file
    file: PathBuf,
}

pub(super) fn transfer(words: &[String]) -> ExitResult {
    let TransferArgs { file: _ } = parse(words)?;
    Ok(YES)
}
