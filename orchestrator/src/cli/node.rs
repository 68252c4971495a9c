//! `holdfast node`: the host's end of an ssh connection.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::failure::Failure;
use super::output::Style;
use crate::allocation::ssh::on_node::{self, NodeError};
use crate::exit;
use crate::launch;

/// Serve one request on this machine: started over ssh by `holdfast run`, never by hand
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast node survey < request.json       the first request of `holdfast run` to every host")]
pub struct NodeArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Verb {
    /// Report version, clock and identity of this machine
    Survey,
    /// Start the agent, in a session of its own
    Agent {
        /// Where its log goes
        log: PathBuf,
    },
    /// End an agent
    End {
        /// Its process
        pid: u32,
        /// Milliseconds that it may take to end by itself
        patience: u64,
    },
    /// Run a command
    Run,
    /// Run the ranks of this node
    Ranks,
}

pub(super) fn run(args: NodeArgs, _style: Style) -> Result<u8, Failure> {
    let failed = |error: NodeError| Failure::of(exit::UNAVAILABLE, &error);
    // Not locked after the message is read, because another thread waits for the end of the input.
    let mut input = io::BufReader::with_capacity(1, io::stdin());
    let done = match args.verb {
        Verb::Survey => on_node::survey::run(&mut input, io::stdout()),
        Verb::Agent { log } => on_node::agent::start(&mut input, io::stdout(), &log),
        Verb::Ranks => launch::ssh::on_node::run(&mut input, io::stdout()),
        Verb::Run => return on_node::run::run(&mut input).map_err(failed),
        Verb::End { pid, patience } => {
            let ended = on_node::agent::end(pid, Duration::from_millis(patience));
            return if ended {
                Ok(exit::FINISHED)
            } else {
                Err(Failure::new(exit::UNAVAILABLE, format!("process {pid} has not ended after SIGKILL")))
            };
        }
    };
    done.map(|()| exit::FINISHED).map_err(failed)
}
