//! `holdfast status`: what a running job is doing.

use super::failure::Failure;
use super::job::JobSelection;
use super::output::Style;
use crate::exit;

/// Show what a running job is doing: nodes, generation, newest checkpoint and whether it is protected
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast status job.yaml
  holdfast status --json --prefix ./heat-run

JSON: {version, job, generation, phase, checkpoint, protected, nodes: [{name, state, ranks, reason}…], halt}

Exit codes: 0 shown; 69 no job of this prefix is running")]
pub struct StatusArgs {
    /// The job
    #[command(flatten)]
    pub job: JobSelection,
}

pub(super) fn run(_args: StatusArgs, _style: Style) -> Result<u8, Failure> {
    Err(Failure::new(exit::INTERNAL, "`status` is not wired"))
}
