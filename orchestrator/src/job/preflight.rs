//! The checks before anything is started.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{PreflightError, RunError};
use super::{interpose, requeue, site};
use crate::allocation::{AllocationError, ManagerEntry, registry as managers};
use crate::host::external_command::{self, ExternalCommandError};
use crate::host::program;
use crate::launch::{LaunchError, Launcher, LauncherContext, registry as launchers};
use crate::spec::{Chosen, JobSpec, Step};

/// Commands of the system that do not answer within this are considered to hang.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The manager, the launcher and the program of a step.
pub struct Prepared {
    pub manager: &'static ManagerEntry,
    pub launcher: Box<dyn Launcher>,
    /// The application's path.
    pub program: PathBuf,
    /// The working directory of every rank, absolute.
    pub working_directory: PathBuf,
    /// The program that supervises the ranks of a generation: `holdfast` itself.
    pub supervisor: PathBuf,
    /// Variables of the ranks whose files are intercepted.
    pub interposition: BTreeMap<String, String>,
}

/// Checks one step of a job.
pub(super) fn preflight(spec: &JobSpec, step: &Step) -> Result<Prepared, RunError> {
    let manager = manager(spec)?;
    (manager.check)()?;
    let requested = step.run.launcher;
    // First of all, because manager and launcher may not be compatible.
    launchers::select(&manager.facts, requested)?;
    let working_directory =
        site::working_directory(step.run.directory.as_deref()).map_err(RunError::io("find the working directory"))?;
    if !working_directory.is_dir() {
        return Err(LaunchError::NoDirectory { path: working_directory, key: "run.directory" }.into());
    }
    let name = step.run.command.first().map(String::as_str).unwrap_or_default();
    let path = step.run.env.get("PATH").map(Into::into).or_else(|| env::var_os("PATH"));
    let context =
        LauncherContext { run: &step.run, allocation: &spec.allocation, working_directory: &working_directory };
    let launcher = launchers::open(&manager.facts, requested, &context)?;
    let program = program::find(name, &working_directory, path.as_deref()).map_err(LaunchError::from)?;
    let checkpoint = &step.checkpoint;
    let commands = [("checkpoint.command.save", &checkpoint.command.save), ("checkpoint.resume", &checkpoint.resume)];
    for (key, words) in commands {
        // A path with a variable is known on the node only.
        let name = words.iter().flatten().next().filter(|name| !name.contains('$'));
        if let Some(name) = name.filter(|name| program::find(name, &working_directory, path.as_deref()).is_err()) {
            return Err(PreflightError::Command { key, program: name.clone() }.into());
        }
    }
    let missing = missing_libraries(&program, step)?;
    if !missing.is_empty() {
        return Err(PreflightError::Libraries { program, missing }.into());
    }
    if let Some(requeue) = &spec.requeue {
        requeue::check(requeue)?;
    }
    let needed = spec.relaunch.min_nodes.map_or(step.run.nodes, |fewest| fewest.min(step.run.nodes));
    let (nodes, have) = (spec.allocation.nodes, spec.allocation.usable);
    if have < needed {
        return Err(RunError::TooFewNodes { have: have as usize, excluded: (nodes - have) as usize, needed });
    }
    let supervisor = env::current_exe().map_err(LaunchError::Supervisor)?;
    let interposition = interpose::variables(step, &spec.allocation, &working_directory, &supervisor)?;
    Ok(Prepared { manager, launcher, program, working_directory, supervisor, interposition })
}

/// The resource manager of a spec, in the environment of this process.
pub(super) fn manager(spec: &JobSpec) -> Result<&'static ManagerEntry, AllocationError> {
    let facts = launchers::registered()
        .manager(spec.allocation.manager, |name| env::var(name).ok())
        .map_err(|manager| AllocationError::UnknownManager { manager: manager.to_owned() })?;
    let is_chosen = spec.allocation.manager.is_some() || !matches!(facts.chosen, Chosen::Otherwise);
    let path = env::var_os("PATH");
    let here = env::current_dir().unwrap_or_default();
    let has_command = |command: &str| program::find(command, &here, path.as_deref()).is_ok();
    match launchers::registered().passed_over(has_command).filter(|_| !is_chosen) {
        Some((facts, help)) => Err(AllocationError::NoAllocation { manager: facts.title, help }),
        None => managers::find(facts.name),
    }
}

/// The shared libraries of a program that the loader does not find. None for scripts, for static programs, and on
/// systems without `ldd`.
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
        // Not every system has `ldd`.
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
    fn missing_libraries_are_listed_once_each() {
        let listing = "\tlibmpi.so.40 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                       \tlibmpi.so.40 => not found\n\tlibscr.so.0 => not found\n";
        assert_eq!(not_found(listing), ["libmpi.so.40", "libscr.so.0"]);
    }
}
