//! `holdfast example`: the applications that are built into the binary.

use std::path::PathBuf;

use super::failure::Failure;
use super::output::Style;
use crate::exit;

/// Run one rank of an example application; `holdfast run` launches it
#[derive(Clone, Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct ExampleArgs {
    /// Which
    #[command(subcommand)]
    pub command: ExampleCommand,
}

/// The example applications.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ExampleCommand {
    /// A 2-D heat equation: one slab a rank, halo exchange, checkpoints through the client API
    #[command(after_help = "\
Examples:
  holdfast run -- holdfast example heat --steps 400
  holdfast run configs/quickstart.yaml")]
    Heat(HeatArgs),
}

/// `holdfast example heat`.
#[derive(Clone, Debug, clap::Args)]
pub struct HeatArgs {
    /// Time steps
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Steps between checkpoints
    #[arg(long, default_value_t = 50, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub checkpoint_every: u64,
    /// Rows of the field
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub rows: u32,
    /// Columns of the field
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub columns: u32,
    /// Read the initial field from this file; made if it does not exist [default: a built-in field]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Write the final field to this file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Checkpoint files that a rank writes
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub files: u32,
    /// Sleep so long after each step, to have time to watch [such as 20ms]
    #[arg(long, value_name = "DURATION", value_parser = super::job::duration)]
    pub pause: Option<std::time::Duration>,
}

pub(super) fn run(_args: ExampleArgs, _style: Style) -> Result<u8, Failure> {
    Err(Failure::new(exit::INTERNAL, "`example` is not wired"))
}
