//! Checks the requirements of Flux on this machine before anything is started.

use std::ffi::OsStr;
use std::path::Path;

use super::environment::Environment;
use super::error::FluxError;
use super::exec::LINE_BUFFERED;
use super::query;
use crate::allocation::error::AllocationError;
use crate::host::program;

/// The oldest version in which a host file may give nodes different numbers of ranks.
const OLDEST_FLUX: (u32, u32) = (0, 75);

/// Checks the environment, Flux's command and its version.
pub(super) fn check(variable: impl Fn(&str) -> Option<String>, path: Option<&OsStr>) -> Result<(), AllocationError> {
    Environment::read(variable)?;
    for command in ["flux", LINE_BUFFERED[0]] {
        if program::find(command, Path::new("/"), path).is_err() {
            return Err(AllocationError::NoCommand { command, manager: "Flux" });
        }
    }
    let found = query::run(&["--version"])?;
    match version(&found) {
        Some((numbers, found)) if numbers < OLDEST_FLUX => {
            Err(FluxError::Old { found: found.to_owned(), oldest: OLDEST_FLUX }.into())
        }
        // An unknown version format is not an error.
        _ => Ok(()),
    }
}

/// The version in a line `commands:    0.88.0`.
fn version(text: &str) -> Option<((u32, u32), &str)> {
    let found = text.lines().find_map(|line| line.strip_prefix("commands:"))?.trim();
    let mut numbers = found.split(['.', '-']);
    Some(((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?), found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flux_that_cannot_place_ranks_is_recognised_by_its_version() {
        let text = "commands:    \t\t0.88.0\nlibflux-core:\t\t0.88.0\nbuild-options:\t\t+hwloc.api==2.8.0\n";
        assert_eq!(version(text), Some(((0, 88), "0.88.0")));
        assert!(version("commands: 0.74.0-6-gabc").is_some_and(|(numbers, _)| numbers < OLDEST_FLUX));
        assert_eq!(version("flux version 2.3.0"), None);
    }

    #[test]
    fn a_missing_command_is_named() {
        let inside = |_: &str| Some("f7".to_owned());
        let script = |name: &str| inside(name).filter(|_| name != "FLUX_JOB_ID");
        let error = check(script, Some(OsStr::new("/nowhere"))).unwrap_err().to_string();
        assert!(error.contains("flux") && error.contains("PATH"), "{error}");
        let error = check(|_| None, None).unwrap_err().to_string();
        assert!(error.contains("flux batch"), "{error}");
    }
}
