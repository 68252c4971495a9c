//! `holdfast remote-shell`: what mpirun starts its daemons with.

use super::failure::Failure;
use crate::exit;
use crate::launch::remote_shell::{self, REACH_FILE};

/// Run a command line on a node of the run: started by mpirun, never by hand
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  HOLDFAST_REACH_FILE=heat-run/.holdfast/generations/1/reach.json holdfast remote-shell n5 hostname")]
pub struct RemoteShellArgs {
    /// Options of rsh, which are ignored; the host; the words of the command line
    #[arg(value_name = "ARGUMENTS", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

pub(super) fn run(args: RemoteShellArgs) -> Result<u8, Failure> {
    let error = remote_shell::become_it(&args.arguments, std::env::var_os(REACH_FILE));
    Err(Failure::of(exit::UNAVAILABLE, &error))
}
