//! `holdfast remote-shell`: the program with which mpirun starts its daemons.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::failure::Failure;
use crate::exit;
use crate::launch::mpirun::remote_shell::{self, CALLED, REACH_FILE};

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
    go(&args.arguments)
}

/// The arguments, if this program was called by the name of the remote shell.
pub(super) fn called(mut words: impl Iterator<Item = OsString>) -> Option<Vec<String>> {
    let name = words.next()?;
    let is_shell = Path::new(&name).file_name() == Some(OsStr::new(CALLED));
    is_shell.then(|| words.map(|argument| argument.to_string_lossy().into_owned()).collect())
}

pub(super) fn go(arguments: &[String]) -> Result<u8, Failure> {
    remote_shell::run(arguments, std::env::var_os(REACH_FILE)).map_err(|error| Failure::of(exit::UNAVAILABLE, &error))
}
