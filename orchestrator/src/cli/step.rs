//! `holdfast step`: the supervisor of the processes of a generation.

use std::path::PathBuf;

use super::failure::Failure;
use super::output::Style;
use crate::exit;
use crate::launch::supervisor;

/// Start the processes of a launch plan, and write down what becomes of them: started by `holdfast run`, never by hand
///
/// Outlives the orchestrator, so that an application goes on when that is killed. Ends with its last process; SIGTERM
/// kills them all.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast step heat-run/.holdfast/generations/1/plan.json")]
pub struct StepArgs {
    /// The launch plan
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
}

pub(super) fn run(args: StepArgs, _style: Style) -> Result<u8, Failure> {
    supervisor::supervise(&args.plan).map_err(|error| Failure::of(exit::UNAVAILABLE, &error))?;
    Ok(exit::FINISHED)
}
