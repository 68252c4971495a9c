//! The `holdfast` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast::cli::main()
}
