//! `holdfast step`: runs one command the way a launcher would; for launchers and tests.

use super::failure::Failure;
use super::output::Style;
use crate::exit;

/// Run one command as a step of the allocation
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast step -- hostname")]
pub struct StepArgs {
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub(super) fn run(_args: StepArgs, _style: Style) -> Result<u8, Failure> {
    Err(Failure::new(exit::INTERNAL, "`step` is not wired"))
}
