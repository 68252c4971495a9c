//! Where mpirun is, and which one.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::dialect::{KNOWN, Recognised, recognise};
use crate::launch::program;

/// Looked for in this order, where the spec names none.
const NAMES: [&str; 4] = ["mpirun", "mpiexec", "mpiexec.hydra", "orterun"];
/// An answer that takes longer does not come.
const WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// More than any of them says of itself.
const ANSWER_BYTES: u64 = 64 << 10;

/// No mpirun can be used.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is none.
    #[error(
        "none of {} is in PATH ({path}), and `launcher: mpirun` needs one; load the module of your MPI, or name it: `run.launcher_program`",
        NAMES.join(", ")
    )]
    Missing {
        /// Where it was looked for.
        path: String,
    },
    /// The one that was named cannot be run.
    #[error("`run.launcher_program: {program}` is no program that can be run here; give the path of mpirun or mpiexec")]
    Named {
        /// As it stands in the spec.
        program: String,
    },
    /// It was not recognised.
    #[error("{} is not an mpirun that is known here: {KNOWN}. Asked for its version it said: {answer}. Name another: `run.launcher_program`", path.display())]
    Unknown {
        /// The program.
        path: PathBuf,
        /// Its first words.
        answer: String,
    },
    /// It said nothing.
    #[error("{} --version {problem}; try it by hand, or name another: `run.launcher_program`", path.display())]
    Silent {
        /// The program.
        path: PathBuf,
        /// What happened instead.
        problem: String,
    },
}

/// Finds mpirun (`named`, or by name in `path`), and asks it what it is.
///
/// # Errors
/// [`FindError`].
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
    let answer = ask(&program).map_err(|problem| FindError::Silent { path: program.clone(), problem })?;
    match recognise(&answer) {
        Some(recognised) => Ok((program, recognised)),
        None => {
            let answer: Vec<&str> = answer.lines().map(str::trim).filter(|line| !line.is_empty()).take(2).collect();
            Err(FindError::Unknown { path: program, answer: answer.join(" / ") })
        }
    }
}

/// What a program answers to `--version`, on whichever stream.
fn ask(program: &Path) -> Result<String, String> {
    let text = |error: std::io::Error| format!("cannot be run: {error}");
    // A file, not a pipe: nobody has to read while it is waited for.
    let mut file = tempfile::tempfile().map_err(text)?;
    let output = file.try_clone().map_err(text)?;
    let errors = file.try_clone().map_err(text)?;
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(text)?;
    let begun = Instant::now();
    while child.try_wait().map_err(text)?.is_none() {
        if begun.elapsed() > WITHIN {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("did not answer within {} s", WITHIN.as_secs()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let mut answer = Vec::new();
    std::io::Seek::rewind(&mut file).map_err(text)?;
    file.take(ANSWER_BYTES).read_to_end(&mut answer).map_err(text)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
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
    fn the_first_that_is_there_is_asked() {
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
    fn what_cannot_be_used_is_told_with_what_was_found() {
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
