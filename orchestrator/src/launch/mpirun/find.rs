//! Finds mpirun and its dialect.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::dialect::{Dialect, KNOWN, Recognised, recognise};
use crate::host::external_command::{self, ExternalCommandError};
use crate::host::program;
use crate::launch::error::LaunchError;

/// Searched in this order if the spec names none.
const NAMES: [&str; 4] = ["mpirun", "mpiexec", "mpiexec.hydra", "orterun"];
/// Time limit for the answer to `--version`.
const WITHIN: Duration = Duration::from_secs(20);

/// No mpirun can be used.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error(
        "none of {} is in PATH ({path}), and `launcher: mpirun` needs one; load the module of your MPI, or set \
        `run.launcher_program`",
        NAMES.join(", ")
    )]
    Missing { path: String },
    #[error("`run.launcher_program: {program}` cannot be run here; give the path of mpirun or mpiexec")]
    Named {
        /// As in the spec.
        program: String,
    },
    #[error(
        "{} is not a supported mpirun ({KNOWN}); its answer to --version: {answer}; set another with \
        `run.launcher_program`",
        path.display()
    )]
    Unknown { path: PathBuf, answer: String },
    #[error("cannot get the version of mpirun: {0}; try `--version` by hand, or set `run.launcher_program`")]
    NoVersion(#[from] ExternalCommandError),
}

impl From<FindError> for LaunchError {
    fn from(error: FindError) -> Self {
        LaunchError::OfLauncher(error.into())
    }
}

/// Finds mpirun (`named`, or by name in `path`), and recognises it.
pub fn find(
    named: Option<&str>,
    working_directory: &Path,
    path: Option<&OsStr>,
) -> Result<(PathBuf, Recognised), FindError> {
    let program = match named {
        Some(name) => {
            program::find(name, working_directory, path).map_err(|_| FindError::Named { program: name.to_owned() })?
        }
        None => NAMES
            .iter()
            .find_map(|name| program::find(name, working_directory, path).ok())
            .ok_or_else(|| FindError::Missing { path: path.unwrap_or_default().to_string_lossy().into_owned() })?,
    };
    let answer = version(&program)?;
    match recognise(&answer) {
        Some(recognised) => Ok((program, recognised)),
        None => {
            let answer: Vec<&str> = answer.lines().map(str::trim).filter(|line| !line.is_empty()).take(2).collect();
            Err(FindError::Unknown { path: program, answer: answer.join(" / ") })
        }
    }
}

/// The family of an mpirun in PATH: of this name, or the first one. `None` if there is none, or it is not supported.
pub(crate) fn dialect_of(named: Option<&str>, working_directory: &Path) -> Option<Dialect> {
    let path = std::env::var_os("PATH");
    find(named, working_directory, path.as_deref()).ok().map(|(_, recognised)| recognised.dialect)
}

/// The answer to `--version`, from standard output or standard error.
fn version(program: &Path) -> Result<String, ExternalCommandError> {
    let answer = external_command::run(program, &["--version"], &BTreeMap::new(), WITHIN)?;
    Ok(if answer.output.trim().is_empty() { answer.errors } else { answer.output })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn script(directory: &Path, name: &str, text: &str) {
        let path = directory.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn uses_the_first_program_that_exists() {
        let base = tempfile::tempdir().unwrap();
        script(base.path(), "mpiexec", "echo 'mpiexec (OpenRTE) 4.1.4'");
        let (path, found) = find(None, Path::new("/"), Some(base.path().as_os_str())).unwrap();
        assert_eq!((path, found.name.as_str()), (base.path().join("mpiexec"), "Open MPI 4.1.4"));
        script(base.path(), "mpirun", "echo HYDRA build details: >&2; echo '  Version:  4.2' >&2");
        let (path, found) = find(None, Path::new("/"), Some(base.path().as_os_str())).unwrap();
        assert_eq!((path, found.name.as_str()), (base.path().join("mpirun"), "Hydra 4.2"));
        let (path, _) = find(Some("./mpiexec"), base.path(), None).unwrap();
        assert_eq!(path, base.path().join("./mpiexec"));
    }

    #[test]
    fn unusable_programs_are_reported() {
        let base = tempfile::tempdir().unwrap();
        let path = Some(base.path().as_os_str());
        let missing = find(None, Path::new("/"), path).unwrap_err().to_string();
        assert!(missing.contains("mpirun") && missing.contains("launcher_program"), "{missing}");
        script(base.path(), "mpirun", "echo 'Other MPI 7'");
        let unknown = find(None, Path::new("/"), path).unwrap_err().to_string();
        assert!(unknown.contains("Other MPI 7") && unknown.contains("Open MPI"), "{unknown}");
        let named = find(Some("/no/such/mpirun"), Path::new("/"), path).unwrap_err().to_string();
        assert!(named.contains("/no/such/mpirun"), "{named}");
    }
}
