//! `holdfast reach`: a command on a host of `manager: ssh`.

use std::collections::BTreeMap;

use holdfast_wire::environment;

use super::failure::Failure;
use super::output::Style;
use crate::allocation::ssh::on_node::NodeCommand;
use crate::allocation::ssh::{self, Target};
use crate::exit;

/// The variables that are passed to the command; all others are those of the host.
const HANDED_ON: [&str; 3] = [environment::JOB, environment::NODE, "HOLDFAST_PREFIX"];

/// Run a command on a host: started by `holdfast run` for `before`, `after` and the health test, never by hand
#[derive(Clone, Debug, clap::Args)]
pub struct ReachArgs {
    /// The host and how to get there, as JSON
    target: String,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(super) fn run(args: ReachArgs, _style: Style) -> Result<u8, Failure> {
    let target: Target = serde_json::from_str(&args.target)
        .map_err(|error| Failure::new(exit::USAGE, "the first argument is not a valid target").because(error))?;
    let directory = std::env::current_dir()
        .map_err(|error| Failure::new(exit::UNAVAILABLE, "cannot find the working directory").because(error))?;
    let variables = HANDED_ON.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    let environment: BTreeMap<String, String> = variables.collect();
    let command = NodeCommand { words: args.command, directory, environment };
    ssh::run_command(&target, &command).map_err(|error| Failure::of(exit::UNAVAILABLE, &error))
}
