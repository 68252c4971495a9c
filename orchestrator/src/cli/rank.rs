//! `holdfast rank`: the processes between a launcher and a program.

use holdfast_rank::{guard, program_end};

use super::failure::Failure;
use crate::exit;
use crate::launch::mpirun::rank;
use crate::launch::torchrun;

/// Run one rank: started by `holdfast run` and its launchers, never by hand
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mpirun -np 4 holdfast rank -- ./app --steps 400")]
pub struct RankArgs {
    /// What this process does for the program
    #[arg(long, value_enum, default_value_t = RankRole::Report)]
    pub role: RankRole,
    /// The process that starts a program: it ends with it
    #[arg(long, value_name = "PID")]
    pub parent: Option<u32>,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RankRole {
    /// Reports how a rank under mpirun ends
    Report,
    /// Makes the calls of the checkpoint API for a program that does not use it
    Checkpoints,
    /// Sets the variables of torchrun that differ from rank to rank, and becomes the program
    Torchrun,
    /// Becomes the program
    Program,
    /// Runs a command, and ends what it leaves behind
    Command,
}

pub(super) fn run(args: RankArgs) -> Result<u8, Failure> {
    match args.role {
        RankRole::Report => rank::run(&args.command).map_err(|error| Failure::of(exit::UNAVAILABLE, &error)),
        RankRole::Checkpoints => match holdfast_rank::run(&args.command) {
            Ok(end) => Ok(program_end::end_as(end)),
            Err(error) => Err(Failure::of(exit::UNAVAILABLE, &error)),
        },
        RankRole::Torchrun => match torchrun::rank::run(&args.command) {
            Ok(never) => match never {},
            Err(error) => Err(Failure::of(exit::UNAVAILABLE, &error)),
        },
        RankRole::Program => Ok(guard::execute(args.parent.unwrap_or_default(), &args.command)),
        RankRole::Command => Ok(guard::supervise(&args.command)),
    }
}
