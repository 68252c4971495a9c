//! The program `holdfast`: every role (orchestrator, agent, rank, commands) is a subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast::cli::main()
}
