//! `holdfast run`: runs a job to its end.

use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::output::{Output, Style};
use crate::exit;
use crate::spec::JobSpec;

/// Run a job to its end
///
/// Starts an agent on every node, launches the application, relaunches it on the healthy nodes when one dies, and drains
/// the newest checkpoint to the prefix directory. Started again in the same allocation, it takes a running job over.
/// Ctrl-C or SIGTERM once: halt, drain, report. A second time: at once.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast run configs/quickstart.yaml      six virtual nodes, two of them killed on the way
  holdfast run -- ./app --steps 400         no spec: every default
  holdfast run job.yaml || [ $? -ne 75 ] || sbatch job.sh
                                            75: not finished, another allocation can go on
  holdfast run --dry-run job.yaml           preflight only: what would be started where

JSON: {version, job, outcome, exit_code, generations, checkpoint, complete, prefix, events}")]
pub struct RunArgs {
    /// The job spec
    #[arg(value_name = "SPEC", required_unless_present = "command")]
    pub spec: Option<PathBuf>,
    /// Instead of a spec: the command to run with every default
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "spec")]
    pub command: Vec<String>,
    /// Say what would be started where, and stop
    #[arg(long)]
    pub dry_run: bool,
}

impl RunArgs {
    /// The spec that was named, or the one that the command makes; warnings about parameters are told.
    ///
    /// # Errors
    /// The mistakes in it.
    pub fn spec(&self, output: &dyn Output) -> Result<JobSpec, Failure> {
        match &self.spec {
            Some(path) => load(path, output),
            None => Ok(JobSpec::from_command(&self.command)?),
        }
    }
}

/// Loads a spec, with the parameters of the environment above it.
pub(super) fn load(path: &Path, _output: &dyn Output) -> Result<JobSpec, Failure> {
    Ok(JobSpec::load(path)?)
}

pub(super) fn run(args: RunArgs, style: Style) -> Result<u8, Failure> {
    let _spec = args.spec(&style)?;
    Err(Failure::new(exit::INTERNAL, "`run` is not wired"))
}
