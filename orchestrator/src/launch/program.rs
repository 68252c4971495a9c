//! Finding the program of a command, before anything is started.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::LaunchError;

/// The program of a spec that means Holdfast itself: its built-in examples.
const OURSELVES: &str = "holdfast";

/// The file that `program` names: ourselves, a path seen from `working_directory`, or a name in `path`.
///
/// # Errors
/// [`LaunchError::NoProgram`], [`LaunchError::NotExecutable`].
pub fn find(program: &str, working_directory: &Path, path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    if program == OURSELVES {
        return env::current_exe().map_err(LaunchError::Supervisor);
    }
    if program.contains('/') {
        let file = working_directory.join(program);
        return match is_executable(&file) {
            Some(true) => Ok(file),
            Some(false) => Err(LaunchError::NotExecutable { path: file }),
            None => Err(LaunchError::NoProgram { program: program.to_owned(), searched: None }),
        };
    }
    let searched = path.unwrap_or_default();
    env::split_paths(searched)
        .map(|directory| working_directory.join(directory).join(program))
        .find(|file| is_executable(file) == Some(true))
        .ok_or_else(|| LaunchError::NoProgram {
            program: program.to_owned(),
            searched: Some(searched.to_string_lossy().into_owned()),
        })
}

/// `None` if there is nothing.
fn is_executable(file: &Path) -> Option<bool> {
    let metadata = file.metadata().ok()?;
    Some(metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_path_is_seen_from_the_working_directory() {
        let base = tempfile::tempdir().unwrap();
        let app = base.path().join("app");
        fs::write(&app, b"#!/bin/sh\n").unwrap();
        assert!(matches!(find("./app", base.path(), None), Err(LaunchError::NotExecutable { .. })));
        fs::set_permissions(&app, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(find("./app", base.path(), None).unwrap(), base.path().join("./app"));
        assert!(matches!(find("./other", base.path(), None), Err(LaunchError::NoProgram { .. })));
    }

    #[test]
    fn a_name_is_searched_in_path_and_a_directory_of_that_name_does_not_count() {
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
    fn the_program_holdfast_is_ourselves_wherever_it_is_installed() {
        assert_eq!(find("holdfast", Path::new("/"), None).unwrap(), env::current_exe().unwrap());
    }
}
