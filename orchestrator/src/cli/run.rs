//! `holdfast run`: runs a job to its end.

use std::path::PathBuf;

use super::failure::Failure;
use super::job;
use super::output::Style;
use crate::exit;
use crate::spec::{JobSpec, Surroundings};

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
    /// The spec that was named, or the one that the command makes, with the parameters of the surroundings.
    ///
    /// # Errors
    /// The mistakes in any of them.
    pub fn spec(&self, surroundings: &Surroundings) -> Result<JobSpec, Failure> {
        Ok(match &self.spec {
            Some(path) => JobSpec::load(path, surroundings)?,
            None => JobSpec::from_command(&self.command, surroundings)?,
        })
    }
}

pub(super) fn run(args: RunArgs, style: Style) -> Result<u8, Failure> {
    let _spec = args.spec(&job::surroundings(&style)?)?;
    Err(Failure::new(exit::INTERNAL, "`run` is not wired"))
}
