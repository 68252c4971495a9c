//! `holdfast rank`: the parent of one rank under mpirun.

use super::failure::Failure;
use crate::exit;
use crate::launch::mpirun::rank;

/// Run one rank and report how it ended: started by mpirun, never by hand
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mpirun -np 4 holdfast rank -- ./app --steps 400")]
pub struct RankArgs {
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

pub(super) fn run(args: RankArgs) -> Result<u8, Failure> {
    rank::run(&args.command).map_err(|error| Failure::of(exit::UNAVAILABLE, &error))
}
