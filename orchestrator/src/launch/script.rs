//! A script as the command of a job: its interpreter, and what it imports, as far as that is plain.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::mpi::Mpi;
use crate::host::external_command;
use crate::host::libraries::Libraries;
use crate::host::program::find;

/// At most this much of a script is read.
const SCRIPT_READ: u64 = 256 << 10;
/// An interpreter that does not answer within this is considered to hang.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Prints the path of the library of mpi4py, without loading it.
const MPI4PY_LIBRARY: &str = "import importlib.util; print(importlib.util.find_spec('mpi4py.MPI').origin)";
/// Modules of Python, and the source that serves programs that import them.
const MODULES: [(&str, &str); 3] = [("holdfast.variables", "variables"), ("holdfast", "scr"), ("scr", "scr")];

/// What was found, and how: "it is linked with …".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<T> {
    pub what: T,
    pub how: String,
}

/// The MPI with which something is linked.
pub fn linked_mpi(it: &str, libraries: &Libraries) -> Option<Finding<Mpi>> {
    let (what, name) = Mpi::linked(libraries)?;
    Some(Finding { what, how: format!("{it} is linked with {name}") })
}

/// A script and its interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub path: PathBuf,
    /// `None` if it is not found.
    pub interpreter: Option<PathBuf>,
    text: String,
}

impl Script {
    /// The script of a command whose program (behind `env`) was found; `None` if it is a program.
    pub fn of(command: &[String], found: &Path, here: &Path, path: Option<&OsStr>) -> Option<Script> {
        let words = behind_env(command);
        let own = head(found);
        // `python3` itself may be a script that selects a version.
        let (script, interpreter) = if is_python(found) {
            let argument = words.get(1..)?.iter().find(|word| !word.starts_with('-')).map(|word| here.join(word));
            (argument.filter(|script| script.is_file())?, Some(found.to_owned()))
        } else {
            let interpreter = interpreter_of(own.strip_prefix("#!")?);
            (found.to_owned(), interpreter.and_then(|name| find(&name, here, path).ok()))
        };
        Some(Script { text: head(&script), path: script, interpreter })
    }

    /// The source that serves what a script of Python imports.
    pub fn source(&self) -> Option<Finding<&'static str>> {
        let modules = imports(&self.text, |_| true);
        let found = MODULES.iter().find(|(name, _)| is_among(&modules, name));
        found.map(|(name, source)| Finding { what: *source, how: imports_it(name) })
    }

    /// The MPI of mpi4py, if a script of Python imports that. With `always` only where no condition stands before it.
    pub fn mpi(&self, always: bool, variables: &BTreeMap<String, Option<String>>) -> Option<Finding<Mpi>> {
        let modules = imports(&self.text, |line| !always || !line.starts_with([' ', '\t']));
        let what = || {
            let asked =
                external_command::run(self.interpreter.as_ref()?, &["-c", MPI4PY_LIBRARY], variables, ANSWER_WITHIN);
            let library = asked.ok().filter(|answer| answer.success)?.output;
            Mpi::linked(&Libraries::of(Path::new(library.trim()), variables).ok()?)
        };
        is_among(&modules, "mpi4py")
            .then(|| Finding { what: what().map_or(Mpi::Unknown, |(mpi, _)| mpi), how: imports_it("mpi4py") })
    }
}

fn imports_it(module: &str) -> String {
    format!("it imports {module}")
}

/// The modules that these lines of a script of Python import; none in other scripts.
fn imports(script: &str, counts: impl Fn(&str) -> bool) -> Vec<String> {
    script.lines().filter(|line| counts(line)).flat_map(imported).collect()
}

fn is_among(modules: &[String], name: &str) -> bool {
    let is_below = |module: &String| module.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    modules.iter().any(|module| module == name || is_below(module))
}

/// The command behind `env NAME=value …`.
pub fn behind_env(command: &[String]) -> &[String] {
    let is_env = |word: &String| Path::new(word).file_name() == Some(OsStr::new("env"));
    if !command.first().is_some_and(is_env) {
        return command;
    }
    let at = command.iter().skip(1).position(|word| !word.contains('=')).map(|at| at + 1);
    at.map_or(command, |at| &command[at..])
}

/// The beginning of a file, as text; empty if it is a program.
fn head(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(SCRIPT_READ).read_to_end(&mut bytes));
    if read.is_err() || bytes.starts_with(b"\x7fELF") {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The interpreter in the first line of a script, without its `#!`; behind `env`, the first word that is no option.
fn interpreter_of(head: &str) -> Option<String> {
    let mut words = head.lines().next()?.split_whitespace();
    let first = words.next()?;
    let is_env = Path::new(first).file_name() == Some(OsStr::new("env"));
    let named = if is_env { words.find(|word| !word.starts_with('-') && !word.contains('='))? } else { first };
    Some(named.to_owned())
}

fn is_python(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
}

/// The modules of a line `import a, b as c` or `from a import b`; of the latter also `a.b`.
fn imported(line: &str) -> Vec<String> {
    let line = line.trim();
    let first = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
    if let Some(modules) = line.strip_prefix("import ") {
        return modules.split(',').map(first).collect();
    }
    let Some((module, names)) = line.strip_prefix("from ").and_then(|rest| rest.split_once(" import ")) else {
        return Vec::new();
    };
    let module = first(module);
    let inner = names.split(',').map(|name| format!("{module}.{}", first(name)));
    inner.chain([module.clone()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_imports_of_a_script_decide_the_source_and_mpi() {
        let of = |text: &str| {
            let script = Script { path: "a.py".into(), interpreter: None, text: text.to_owned() };
            let mpi = [false, true].map(|always| script.mpi(always, &BTreeMap::new()).is_some());
            (script.source().map(|found| found.what), mpi)
        };
        assert_eq!(of("import numpy\nimport scr\n"), (Some("scr"), [false; 2]));
        assert_eq!(of("import holdfast\nfrom mpi4py import MPI\n"), (Some("scr"), [true; 2]));
        assert_eq!(of("try:\n    from mpi4py import MPI\n"), (None, [true, false]));
        assert_eq!(of("from holdfast import variables as v\n"), (Some("variables"), [false; 2]));
        assert_eq!(of("import os, holdfast.variables\n"), (Some("variables"), [false; 2]));
        assert_eq!(of("import scratch\n# import scr\necho import scr\n"), (None, [false; 2]));
    }

    #[test]
    fn the_interpreter_is_found_behind_env() {
        assert_eq!(interpreter_of("/bin/sh -e\necho").as_deref(), Some("/bin/sh"));
        assert_eq!(interpreter_of(" /usr/bin/env -S python3 -u\n").as_deref(), Some("python3"));
        assert_eq!(interpreter_of("\n"), None);
        assert_eq!(behind_env(&words("env A=1 B=2 ./pi 5")), words("./pi 5"));
        assert_eq!(behind_env(&words("./env A=1")), words("./env A=1"));
    }
}
