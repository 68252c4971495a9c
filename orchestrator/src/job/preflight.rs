//! Everything that can be known to be wrong before anything is started.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::site;
use super::start::RunError;
use crate::allocation::AllocationError;
use crate::allocation::slurm::job_of_environment;
use crate::host::external_command::{self, ExternalCommandError};
use crate::host::program;
use crate::launch::{LaunchError, Launcher, LauncherContext, registry};
use crate::spec::{JobSpec, Manager, Step};

/// The commands of Slurm that we use.
const SLURM_COMMANDS: [&str; 3] = ["srun", "squeue", "sinfo"];
/// The first Slurm whose steps can overlap.
const OLDEST_SLURM: (u32, u32) = (20, 11);

/// Commands of the system and the site answer within this, or hang.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// What preflight found.
pub(super) struct Prepared {
    pub(super) manager: Manager,
    pub(super) launcher: Box<dyn Launcher>,
    pub(super) program: PathBuf,
    pub(super) working_directory: PathBuf,
}

/// What is missing here.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// A command of the resource manager.
    #[error(
        "{command} is not in PATH, and {manager} needs it; load the module of your site, or run this on a node that has it"
    )]
    Command {
        /// The command.
        command: &'static str,
        /// Who needs it.
        manager: &'static str,
    },
    /// Too old a resource manager.
    #[error("this is Slurm {found}, and steps that overlap came with {}.{:02}", OLDEST_SLURM.0, OLDEST_SLURM.1)]
    OldSlurm {
        /// What it says of itself.
        found: String,
    },
    /// A command that hangs.
    #[error("{0}; try it by hand")]
    ExternalCommand(#[from] ExternalCommandError),
    /// Libraries of the application.
    #[error("{} needs {}, which cannot be found; load the modules that it was built with, or set LD_LIBRARY_PATH under `run.env`", program.display(), missing.join(", "))]
    Libraries {
        /// The program.
        program: PathBuf,
        /// What it needs.
        missing: Vec<String>,
    },
}

/// Looks at one step of a job.
pub(super) fn preflight(spec: &JobSpec, step: &Step) -> Result<Prepared, RunError> {
    let variable = |name: &str| env::var(name).ok();
    let manager =
        spec.allocation.manager.resolve(variable).map_err(|manager| AllocationError::UnknownManager { manager })?;
    if manager == Manager::Slurm {
        slurm(variable, env::var_os("PATH").as_deref())?;
    }
    if manager == Manager::Ssh && !cfg!(feature = "ssh") {
        return Err(AllocationError::NoSsh.into());
    }
    let wanted = step.run.launcher.name();
    // Before anything else is looked for: the two may not go together.
    registry::select(manager.name(), wanted)?;
    let working_directory =
        site::working_directory(step.run.directory.as_deref()).map_err(RunError::io("find the working directory"))?;
    if !working_directory.is_dir() {
        return Err(LaunchError::NoDirectory { path: working_directory }.into());
    }
    let name = step.run.command.first().map(String::as_str).unwrap_or_default();
    let path = step.run.env.get("PATH").map(Into::into).or_else(|| env::var_os("PATH"));
    let context =
        LauncherContext { run: &step.run, allocation: &spec.allocation, working_directory: &working_directory };
    let launcher = registry::open(manager.name(), wanted, &context)?;
    let program = program::find(name, &working_directory, path.as_deref()).map_err(LaunchError::from)?;
    let missing = missing_libraries(&program, step)?;
    if !missing.is_empty() {
        return Err(PreflightError::Libraries { program, missing }.into());
    }
    let (have, needed) = (spec.allocation.nodes, step.run.nodes);
    if have < needed {
        return Err(RunError::TooFewNodes { have: have as usize, needed });
    }
    Ok(Prepared { manager, launcher, program, working_directory })
}

fn slurm(variable: impl Fn(&str) -> Option<String>, path: Option<&OsStr>) -> Result<(), RunError> {
    if job_of_environment(variable).is_none() {
        return Err(AllocationError::Outside { manager: "slurm", missing: "SLURM_JOB_ID" }.into());
    }
    for command in SLURM_COMMANDS {
        if program::find(command, Path::new("/"), path).is_err() {
            return Err(PreflightError::Command { command, manager: "Slurm" }.into());
        }
    }
    let found = external_command::run("srun", &["--version"], &BTreeMap::new(), ANSWER_WITHIN)
        .map_err(PreflightError::from)?
        .output;
    let found = found.trim().to_owned();
    match slurm_version(&found) {
        Some(version) if version < OLDEST_SLURM => Err(PreflightError::OldSlurm { found }.into()),
        // One that says it in another way is not old for that.
        _ => Ok(()),
    }
}

/// `slurm 22.05.8` or `slurm-wlm 22.05.8`.
fn slurm_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The shared libraries that the loader does not find for a program. Nothing for scripts, for static programs, and where
/// the loader cannot be asked.
fn missing_libraries(program: &Path, step: &Step) -> Result<Vec<String>, PreflightError> {
    let mut magic = [0_u8; 4];
    let is_elf = File::open(program).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF";
    if !is_elf || env::current_exe().is_ok_and(|own| own == program) {
        return Ok(Vec::new());
    }
    let variables = step.run.env.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    let file = program.to_string_lossy();
    match external_command::run("ldd", &[&file], &variables, ANSWER_WITHIN) {
        Ok(answer) => Ok(not_found(&answer.output)),
        // Not every system has it.
        Err(ExternalCommandError::Start { .. }) => Ok(Vec::new()),
        Err(timeout) => Err(timeout.into()),
    }
}

fn not_found(listing: &str) -> Vec<String> {
    let missing = listing.lines().filter_map(|line| line.trim().strip_suffix("=> not found"));
    missing.map(|name| name.trim().to_owned()).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slurm_that_cannot_overlap_steps_is_told_by_its_version() {
        assert_eq!(slurm_version("slurm-wlm 22.05.8"), Some((22, 5)));
        assert!(slurm_version("slurm 20.02.7").is_some_and(|version| version < OLDEST_SLURM));
        assert!(slurm_version("slurm 20.11.0").is_some_and(|version| version >= OLDEST_SLURM));
        assert_eq!(slurm_version("slurm"), None);
    }

    #[test]
    fn libraries_that_the_loader_does_not_find_are_named_once_each() {
        let listing = "\tlibmpi.so.40 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\tlibmpi.so.40 => not found\n\tlibscr.so.0 => not found\n";
        assert_eq!(not_found(listing), ["libmpi.so.40", "libscr.so.0"]);
    }

    #[test]
    fn what_slurm_needs_and_is_not_in_path_is_named() {
        let inside = |name: &str| (name == "SLURM_JOB_ID").then(|| "7".to_owned());
        let error = slurm(inside, Some(OsStr::new("/nowhere"))).unwrap_err().to_string();
        assert!(error.contains("srun") && error.contains("PATH"), "{error}");
        let error = slurm(|_| None, None).unwrap_err().to_string();
        assert!(error.contains("sbatch"), "{error}");
    }
}
