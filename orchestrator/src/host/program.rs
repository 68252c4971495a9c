//! Finds the program of a command before anything is started.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// In a spec, this program stands for the running executable, with its built-in examples.
const OURSELVES: &str = "holdfast";

/// The key of a program, where the error does not name another one.
const RUN_COMMAND: &str = "`run.command`";

/// The program of a command cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It does not exist.
    #[error("the program {program:?} does not exist{}; check {key}{}", in_path(searched.as_deref()), words(program))]
    Missing {
        /// As the spec names it.
        program: String,
        /// The PATH that was searched, if it was.
        searched: Option<String>,
        /// The key of the spec that names it.
        key: String,
    },
    /// It exists, but cannot be run.
    #[error("{} is not an executable file; check {key} and its mode", path.display())]
    NotExecutable { path: PathBuf, key: String },
    /// The path of this program is unknown.
    #[error("cannot find the running holdfast executable: {0}; check whether the file was replaced or removed")]
    Ourselves(io::Error),
}

impl ProgramError {
    /// The error with the key of the spec that names the program.
    #[must_use]
    pub fn of_key(mut self, name: String) -> Self {
        if let ProgramError::Missing { key, .. } | ProgramError::NotExecutable { key, .. } = &mut self {
            *key = name;
        }
        self
    }
}

fn in_path(searched: Option<&str>) -> String {
    searched.map(|path| format!(" in PATH ({path})")).unwrap_or_default()
}

/// A name with blanks is a command line that was not split.
fn words(program: &str) -> String {
    let words: Vec<&str> = program.split_whitespace().collect();
    match words.len() {
        0 | 1 => String::new(),
        _ => format!("; write program and arguments as words of their own: {}", words.join(", ")),
    }
}

/// The file of `program`: this executable, a path relative to `working_directory`, or a name in `path`.
pub fn find(program: &str, working_directory: &Path, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    if program == OURSELVES {
        return ourselves();
    }
    which::which_in(program, path, working_directory).map_err(|_| {
        let (file, key) = (working_directory.join(program), RUN_COMMAND.to_owned());
        match program.contains('/') {
            true if file.exists() => ProgramError::NotExecutable { path: file, key },
            true => ProgramError::Missing { program: program.to_owned(), searched: None, key },
            false => {
                let searched = path.unwrap_or_default().to_string_lossy().into_owned();
                ProgramError::Missing { program: program.to_owned(), searched: Some(searched), key }
            }
        }
    })
}

/// The file of this program.
///
/// # Errors
/// [`ProgramError::Ourselves`].
pub fn ourselves() -> Result<PathBuf, ProgramError> {
    env::current_exe().map_err(ProgramError::Ourselves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_path_is_relative_to_the_working_directory() {
        let base = tempfile::tempdir().unwrap();
        let app = base.path().join("app");
        fs::write(&app, b"#!/bin/sh\n").unwrap();
        assert!(matches!(find("./app", base.path(), None), Err(ProgramError::NotExecutable { .. })));
        fs::set_permissions(&app, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(find("./app", base.path(), None).unwrap(), base.path().join("./app"));
        assert!(matches!(find("./other", base.path(), None), Err(ProgramError::Missing { .. })));
    }

    #[test]
    fn a_name_is_searched_in_path_and_directories_are_ignored() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("a/app")).unwrap();
        fs::create_dir(base.path().join("b")).unwrap();
        let app = base.path().join("b/app");
        fs::write(&app, b"").unwrap();
        fs::set_permissions(&app, fs::Permissions::from_mode(0o755)).unwrap();
        let path = env::join_paths([base.path().join("a"), base.path().join("b")]).unwrap();
        assert_eq!(find("app", base.path(), Some(&path)).unwrap(), app);
        let missing = find("application", base.path(), Some(&path)).unwrap_err();
        assert!(missing.to_string().contains("run.command"), "{missing}");
    }

    #[test]
    fn holdfast_is_the_running_executable() {
        assert_eq!(find("holdfast", Path::new("/"), None).unwrap(), env::current_exe().unwrap());
    }
}
