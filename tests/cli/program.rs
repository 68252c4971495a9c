//! Runs the real binary.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::iter;
use std::path::Path;
use std::process::{Command, Output};

use holdfast_testkit::documents;
use serde_json::Value;

/// The result of a run of the program.
pub struct Ran {
    /// The program and its arguments.
    line: Vec<OsString>,
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

    #[track_caller]
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// Standard output contains all of these.
    #[track_caller]
    pub fn prints(self, parts: &[&str]) -> Self {
        let missing: Vec<_> = parts.iter().filter(|part| !self.out.contains(**part)).collect();
        assert!(missing.is_empty(), "{missing:?} is not in the output of {self}");
        self
    }

    /// Standard error contains all of these.
    #[track_caller]
    pub fn complains(self, parts: &[&str]) -> Self {
        let missing: Vec<_> = parts.iter().filter(|part| !self.err.contains(**part)).collect();
        assert!(missing.is_empty(), "{missing:?} is not in the errors of {self}");
        self
    }

    /// This is all of standard output.
    #[track_caller]
    pub fn out_is(self, out: &str) -> Self {
        assert_eq!(self.out, out, "{self}");
        self
    }

    /// This is all of standard error.
    #[track_caller]
    pub fn err_is(self, err: &str) -> Self {
        assert_eq!(self.err, err, "{self}");
        self
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}:\n{}{}", self.line, self.out, self.err)
    }
}

/// The program with these arguments, in an environment without parameters.
pub fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = without_parameters(Command::new(env!("CARGO_BIN_EXE_holdfast")));
    command.args(arguments);
    command
}

/// A program in an environment without parameters.
pub fn without_parameters(mut command: Command) -> Command {
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
        line: iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_owned).collect(),
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
