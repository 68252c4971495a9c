//! Runs the real binary.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use holdfast_testkit::documents;
use serde_json::Value;

/// The result of a run of the program.
pub struct Ran {
    words: Vec<String>,
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The one document on standard output, which is as the schema of the command describes it.
    #[track_caller]
    pub fn json(&self) -> Value {
        documents::document(Path::new(env!("CARGO_BIN_EXE_holdfast")), &self.words, &self.out)
    }
}

/// The program with these arguments, in an environment without parameters.
pub fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("SCR_") || text.starts_with("SLURM") {
            command.env_remove(name);
        }
    }
    command
}

pub fn run(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().unwrap();
    Ran {
        words: documents::words_of(command),
        code: status.code().unwrap_or_else(|| panic!("ended by a signal: {status}")),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

/// Runs it with these arguments.
pub fn holdfast<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    run(&mut command(arguments))
}

/// Runs it in this directory.
pub fn holdfast_in<S: AsRef<OsStr>>(directory: &Path, arguments: impl IntoIterator<Item = S>) -> Ran {
    run(command(arguments).current_dir(directory))
}
