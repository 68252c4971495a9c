//! `holdfast example`: the built-in example applications.

use holdfast_heat::{HeatArgs, HeatInitArgs};

use super::example_pair::{self, PairArgs};
use super::failure::Failure;
use super::output::Style;
use crate::exit;

/// Run one rank, or one copy, of an example application; `holdfast run` launches it
#[derive(Clone, Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct ExampleArgs {
    /// Which
    #[command(subcommand)]
    pub command: ExampleCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum ExampleCommand {
    /// Compute a 2-D heat equation: one slab a rank, halo exchange, checkpoints by the client API
    Heat(Box<HeatArgs>),
    /// Write the initial field of the heat equation to a file
    HeatInit(HeatInitArgs),
    /// Be one copy of a pair: add 1, 2 and 3 to a number in each of three rounds, with a checkpoint after each
    Pair(PairArgs),
}

pub(super) fn run(args: ExampleArgs, _style: Style) -> Result<u8, Failure> {
    let result = match &args.command {
        ExampleCommand::Heat(args) => holdfast_heat::run(args),
        ExampleCommand::HeatInit(args) => holdfast_heat::run_init(args),
        ExampleCommand::Pair(args) => return example_pair::run(args),
    };
    result.map(|()| exit::FINISHED).map_err(|error| Failure::of(error.exit_code(), &error))
}
