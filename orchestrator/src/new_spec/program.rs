//! What a program is: which library makes its checkpoints, and which MPI it uses.
//!
//! A script is looked through as far as that is plain: its interpreter's libraries, and what Python imports.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::host::external_command::ExternalCommandError;
use crate::host::libraries::{Libraries, file_contains};
use crate::host::program::{self, ProgramError, find};
use crate::launch::mpi::Mpi;

/// At most this much of a script is read.
const SCRIPT_READ: u64 = 256 << 10;
/// Functions of Holdfast's libraries, in programs that are linked statically, and the source that serves them.
const STATIC: [(&str, &str); 2] = [("holdfast_snapshot", "variables"), ("HOLDFAST_Rank", "scr")];
/// Modules of Python, and the source that serves programs that import them.
const MODULES: [(&str, &str); 3] = [("holdfast.variables", "variables"), ("holdfast", "scr"), ("scr", "scr")];

/// A program cannot be examined.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("cannot list the libraries of the program: {0}; try `ldd` on it by hand")]
    Libraries(#[from] ExternalCommandError),
    /// What they are decides the spec, and a run would be refused.
    #[error("the loader does not find these libraries of {}: {}", program.display(), libraries.join(", "))]
    Missing { program: PathBuf, libraries: Vec<String> },
}

/// A program and what it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// As it was given, with its arguments.
    pub command: Vec<String>,
    /// The name that a job of it gets.
    pub name: String,
    /// Its file, or that of its script.
    pub path: PathBuf,
    /// What makes its checkpoints, if that is known.
    pub source: Option<Finding<&'static str>>,
    pub mpi: Option<Finding<Mpi>>,
}

/// What was found, and how: "it is linked with …".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<T> {
    pub what: T,
    pub how: String,
}

/// Examines the program of a command.
///
/// # Errors
/// It does not exist, or `ldd` does not answer.
pub fn examine(command: &[String], here: &Path, path: Option<&OsStr>) -> Result<Program, ExamineError> {
    let words = behind_env(command);
    let name = words.first().map(String::as_str).unwrap_or_default();
    let found = find(name, here, path)?;
    let given =
        Program { command: command.to_vec(), name: job_name(&found), path: found.clone(), source: None, mpi: None };
    if program::ourselves().is_ok_and(|own| own == found) {
        return Ok(example(given, &words[1..]));
    }
    let argument = words[1..].iter().find(|word| !word.starts_with('-')).map(|word| here.join(word));
    let (script, interpreter) = match (is_python(&found), head(&found).strip_prefix("#!")) {
        // `python3` itself may be a script that selects a version.
        (true, _) => (argument.filter(|script| script.is_file()), Some(found.clone())),
        (false, Some(head)) => {
            let interpreter = interpreter_of(head).and_then(|name| find(&name, here, path).ok());
            (Some(found.clone()), interpreter)
        }
        (false, None) => (None, None),
    };
    let Some(script) = script else { return binary(given) };
    let of_interpreter = interpreter.map(|path| Libraries::of(&path, &BTreeMap::new())).transpose()?;
    let imported = imports(&head(&script));
    let source = imported.source.or_else(|| linked_source(of_interpreter.as_ref()?));
    let mpi = imported.mpi.or_else(|| linked_mpi(of_interpreter.as_ref()?));
    Ok(Program { name: job_name(&script), path: script, source, mpi, ..given })
}

/// A program that is no script.
fn binary(given: Program) -> Result<Program, ExamineError> {
    let libraries = Libraries::of(&given.path, &BTreeMap::new())?;
    let missing = libraries.missing();
    if !missing.is_empty() {
        return Err(ExamineError::Missing { program: given.path, libraries: missing });
    }
    let inside = || {
        let found = STATIC.iter().find(|(function, _)| file_contains(&given.path, function.as_bytes()));
        found.map(|(function, source)| Finding { what: *source, how: format!("it contains {function}") })
    };
    let source = linked_source(&libraries).or_else(inside);
    let mpi = linked_mpi(&libraries);
    Ok(Program { source, mpi, ..given })
}

fn linked_source(libraries: &Libraries) -> Option<Finding<&'static str>> {
    let (library, source) = libraries.source()?;
    Some(Finding { what: source, how: format!("it is linked with {}", library.display()) })
}

fn linked_mpi(libraries: &Libraries) -> Option<Finding<Mpi>> {
    let (what, name) = Mpi::linked(libraries)?;
    Some(Finding { what, how: format!("it is linked with {name}") })
}

/// The examples of this program use the API.
fn example(given: Program, arguments: &[String]) -> Program {
    let [kind, name, options @ ..] = arguments else { return given };
    if kind != "example" {
        return given;
    }
    let what = if options.iter().any(|option| option == "--variables") { "variables" } else { "scr" };
    let source = Some(Finding { what, how: "it is an example of Holdfast".to_owned() });
    Program { source, name: name.clone(), ..given }
}

/// The command behind `env NAME=value …`.
fn behind_env(command: &[String]) -> &[String] {
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

#[derive(Debug, Default, PartialEq)]
struct Imports {
    source: Option<Finding<&'static str>>,
    mpi: Option<Finding<Mpi>>,
}

/// What a script of Python imports; nothing of other scripts.
fn imports(script: &str) -> Imports {
    let modules: Vec<String> = script.lines().flat_map(imported).collect();
    let known = |name: &str| modules.iter().any(|module| module == name || module.starts_with(&format!("{name}.")));
    let how = |name: &str| format!("it imports {name}");
    let source = MODULES.iter().find(|(name, _)| known(name));
    Imports {
        source: source.map(|(name, source)| Finding { what: *source, how: how(name) }),
        mpi: known("mpi4py").then(|| Finding { what: Mpi::Unknown, how: how("mpi4py") }),
    }
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

/// The name of the file without its ending, as part of a path.
fn job_name(path: &Path) -> String {
    let stem: OsString = path.file_stem().unwrap_or_default().to_owned();
    let plain = |c: char| if c.is_alphanumeric() || "._-+".contains(c) { c } else { '-' };
    let name: String = stem.to_string_lossy().chars().map(plain).take(100).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "job".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_imports_of_a_script_decide_the_source_and_mpi() {
        let of = |script: &str| {
            let found = imports(script);
            (found.source.map(|found| found.what), found.mpi.map(|found| found.what))
        };
        assert_eq!(of("import numpy\nimport scr\n"), (Some("scr"), None));
        assert_eq!(of("import holdfast\nfrom mpi4py import MPI\n"), (Some("scr"), Some(Mpi::Unknown)));
        assert_eq!(of("from holdfast import variables as v\n"), (Some("variables"), None));
        assert_eq!(of("import os, holdfast.variables\n"), (Some("variables"), None));
        assert_eq!(of("import scratch\n# import scr\necho import scr\n"), (None, None));
    }

    #[test]
    fn the_interpreter_is_found_behind_env() {
        assert_eq!(interpreter_of("/bin/sh -e\necho").as_deref(), Some("/bin/sh"));
        assert_eq!(interpreter_of(" /usr/bin/env -S python3 -u\n").as_deref(), Some("python3"));
        assert_eq!(interpreter_of("\n"), None);
        assert_eq!(behind_env(&words("env A=1 B=2 ./pi 5")), words("./pi 5"));
        assert_eq!(behind_env(&words("./env A=1")), words("./env A=1"));
    }

    #[test]
    fn the_name_of_a_job_can_be_part_of_a_path() {
        let of = |path: &str| job_name(Path::new(path));
        assert_eq!([of("/a/solve.py"), of("/a/my prog"), of("/a/.hidden")], ["solve", "my-prog", "hidden"]);
    }
}
