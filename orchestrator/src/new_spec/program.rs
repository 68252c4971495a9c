//! What a program is: which library makes its checkpoints, and which MPI it uses.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::host::external_command::ExternalCommandError;
use crate::host::libraries::{Libraries, file_contains};
use crate::host::program::{self, ProgramError, find};
use crate::launch::mpi::Mpi;
use crate::launch::script::{Finding, Script, behind_env, linked_mpi};

/// Functions of Holdfast's libraries, in programs that are linked statically, and the source that serves them.
const STATIC: [(&str, &str); 2] = [("holdfast_snapshot", "variables"), ("HOLDFAST_Rank", "scr")];
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
    let Some(script) = Script::of(command, &found, here, path) else { return binary(given) };
    let none = BTreeMap::new();
    let of_interpreter = script.interpreter.as_ref().map(|path| Libraries::of(path, &none)).transpose()?;
    let source = script.source().or_else(|| linked_source(of_interpreter.as_ref()?));
    let mpi = script.mpi(false, &none).or_else(|| linked_mpi("it", of_interpreter.as_ref()?));
    Ok(Program { name: job_name(&script.path), path: script.path, source, mpi, ..given })
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
    let mpi = linked_mpi("it", &libraries);
    Ok(Program { source, mpi, ..given })
}

fn linked_source(libraries: &Libraries) -> Option<Finding<&'static str>> {
    let (library, source) = libraries.source()?;
    Some(Finding { what: source, how: format!("it is linked with {}", library.display()) })
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

    #[test]
    fn the_name_of_a_job_can_be_part_of_a_path() {
        let of = |path: &str| job_name(Path::new(path));
        assert_eq!([of("/a/solve.py"), of("/a/my prog"), of("/a/.hidden")], ["solve", "my-prog", "hidden"]);
    }
}
