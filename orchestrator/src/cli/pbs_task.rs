//! `holdfast pbs-task`: tasks of a PBS job with standard input and output.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::failure::Failure;
use super::runtime;
use crate::allocation::pbs::tasks::{self, TaskError};
use crate::exit;

/// Start a task of a PBS job, or be one: run by `holdfast run`, never by hand
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast pbs-task run --toward 10.0.0.1 --directory heat-run/.holdfast/agents n5 -- hostname")]
pub struct PbsTaskArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Verb {
    /// Start one program on several nodes; it outlives this process
    Start {
        #[command(flatten)]
        way: Way,
        /// The nodes, separated by commas
        #[arg(value_delimiter = ',')]
        nodes: Vec<String>,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        words: Vec<String>,
    },
    /// Run a command on a node; it ends with this process
    Run {
        #[command(flatten)]
        way: Way,
        node: String,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Be the task
    Join {
        /// The file with the command
        file: PathBuf,
        /// Where it was started
        address: SocketAddr,
        /// The name of its node
        node: String,
    },
}

/// How tasks find their starter.
#[derive(Clone, Debug, clap::Args)]
struct Way {
    /// The address at which the nodes reach this machine
    #[arg(long)]
    toward: IpAddr,
    /// A directory that all nodes share
    #[arg(long)]
    directory: PathBuf,
}

pub(super) fn run(args: PbsTaskArgs) -> Result<u8, Failure> {
    let failed = |error: TaskError| Failure::of(exit::UNAVAILABLE, &error);
    match args.verb {
        Verb::Start { way, nodes, words } => {
            runtime::block_on(tasks::start(way.toward, &way.directory, &nodes, words))?.map_err(failed)
        }
        Verb::Run { way, node, words } => {
            runtime::block_on(tasks::run(way.toward, &way.directory, node, words))?.map_err(failed)
        }
        Verb::Join { file, address, node } => tasks::join(&file, address, &node).map_err(failed),
    }
}
