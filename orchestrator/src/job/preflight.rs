//! The checks before anything is started.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use super::error::{PreflightError, RunError};
use super::{interpose, requeue, site};
use crate::allocation::{AllocationError, ManagerEntry, registry as managers};
use crate::host::libraries::Libraries;
use crate::host::program;
use crate::launch::mpi::{Mpi, MpirunFound};
use crate::launch::script::{Finding, Script, linked_mpi};
use crate::launch::{LaunchError, Launcher, LauncherContext, registry as launchers};
use crate::spec::{Chosen, JobSpec, NodeCount, RunSpec, Step};

/// The launcher of programs of MPI.
const MPIRUN: &str = "mpirun";

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
    let working_directory = working_directory(step)?;
    let context = LauncherContext {
        run: &step.run,
        manager: &manager.facts,
        allocation: &spec.allocation,
        working_directory: &working_directory,
    };
    let mut launcher = launchers::open(&manager.facts, requested, &context)?;
    let program = programs(step, &working_directory)?;
    let variables = step.run.env.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    let libraries = Libraries::of(&program, &variables).map_err(PreflightError::from)?;
    let missing = libraries.missing();
    if !missing.is_empty() {
        return Err(PreflightError::Libraries { program, missing }.into());
    }
    let source = step.source.facts.agent.name;
    if let Some(library) = libraries.later_scr().filter(|_| is_library(source)) {
        return Err(PreflightError::LaterScr { program, library: library.to_owned() }.into());
    }
    if let Some((library, needed)) = libraries.source().filter(|(_, needed)| *needed != source && is_library(source)) {
        return Err(PreflightError::OtherSource { program, library: library.to_owned(), found: source, needed }.into());
    }
    if step.run.ranks > 1
        && let Some(Finding { what: mpi, how }) = uses_mpi(step, &program, &libraries, &working_directory, &variables)
        && !(launcher.starts_mpi() && launcher.dialect().is_none_or(|dialect| mpi.is_of(dialect)))
    {
        let is_free = requested.is_none() && manager.facts.nodes == NodeCount::Asked;
        let found = mpi.find_mpirun(&working_directory);
        launcher = match (is_free, &found) {
            (true, MpirunFound::First | MpirunFound::Named(_)) => {
                let launcher_program = found.name().map(str::to_owned);
                let run = RunSpec { launcher_program, ..step.run.clone() };
                launchers::open(&manager.facts, Some(MPIRUN), &LauncherContext { run: &run, ..context })?
            }
            _ => {
                let remedy = mpi_remedy(mpi, &found);
                return Err(PreflightError::OtherMpi { program, how, mpi: mpi.title(), remedy }.into());
            }
        };
    }
    if let Some(requeue) = &spec.requeue {
        requeue::check(requeue)?;
    }
    let needed = step.nodes_needed();
    let (nodes, have) = (spec.allocation.nodes, spec.allocation.usable);
    if have < needed {
        return Err(RunError::TooFewNodes { have: have as usize, excluded: (nodes - have) as usize, needed });
    }
    let supervisor = env::current_exe().map_err(LaunchError::Supervisor)?;
    let interposition = interpose::variables(step, &spec.allocation, &working_directory, &supervisor)?;
    Ok(Prepared { manager, launcher, program, working_directory, supervisor, interposition })
}

/// The MPI that the program is linked with, or that its script imports.
fn uses_mpi(
    step: &Step,
    program: &Path,
    libraries: &Libraries,
    here: &Path,
    variables: &BTreeMap<String, Option<String>>,
) -> Option<Finding<Mpi>> {
    let linked = linked_mpi("it", libraries);
    if linked.is_some() {
        return linked;
    }
    let path = step.run.env.get("PATH").map(Into::into).or_else(|| env::var_os("PATH"));
    let script = Script::of(&step.run.command, program, here, path.as_deref())?;
    let interpreter = script.interpreter.as_ref().and_then(|path| Libraries::of(path, variables).ok());
    let linked = interpreter.and_then(|libraries| linked_mpi("its interpreter", &libraries));
    linked.or_else(|| script.mpi(true, variables))
}

/// What starts a program of an MPI with its own mpirun.
fn mpi_remedy(mpi: Mpi, found: &MpirunFound) -> String {
    match found {
        MpirunFound::First => "write `run: {launcher: mpirun}`".to_owned(),
        MpirunFound::Named(name) => format!("write `run: {{launcher: mpirun, launcher_program: {name}}}`"),
        MpirunFound::Missing => {
            format!(
                "write `run: {{launcher: mpirun}}`, and load the module of {}: its mpirun is not in PATH",
                mpi.title()
            )
        }
    }
}

/// The working directory of the ranks, absolute.
fn working_directory(step: &Step) -> Result<PathBuf, RunError> {
    let path =
        site::working_directory(step.run.directory.as_deref()).map_err(RunError::io("find the working directory"))?;
    match path.is_dir() {
        true => Ok(path),
        false => Err(LaunchError::NoDirectory { path, key: "run.directory" }.into()),
    }
}

/// The application's path; it and the programs of the other commands of the step exist on this machine.
fn programs(step: &Step, working_directory: &Path) -> Result<PathBuf, RunError> {
    let name = step.run.command.first().map(String::as_str).unwrap_or_default();
    let path = step.run.env.get("PATH").map(Into::into).or_else(|| env::var_os("PATH"));
    let program = program::find(name, working_directory, path.as_deref()).map_err(LaunchError::from)?;
    let checkpoint = &step.checkpoint;
    let commands = [("checkpoint.command.save", &checkpoint.command.save), ("checkpoint.resume", &checkpoint.resume)];
    for (key, words) in commands {
        // A path with a variable is known on the node only.
        let name = words.iter().flatten().next().filter(|name| !name.contains('$'));
        if let Some(name) = name.filter(|name| program::find(name, working_directory, path.as_deref()).is_err()) {
            return Err(PreflightError::Command { key, program: name.clone() }.into());
        }
    }
    Ok(program)
}

/// What [`preflight`] finds missing of the programs and the working directory of a spec, without its other checks.
#[derive(Debug)]
pub struct MissingProgram {
    pub error: RunError,
    /// The nodes of the job are other machines: what is missing here may exist there.
    pub may_be_on_nodes: bool,
}

/// The first program of the spec that does not exist on this machine.
pub fn missing_program(spec: &JobSpec) -> Option<MissingProgram> {
    let checked = |step| working_directory(step).and_then(|directory| programs(step, &directory));
    let error = spec.steps.iter().find_map(|step| checked(step).err())?;
    // Without an allocation of a resource manager that is here, the job will run in one.
    let nodes_are_here = manager(spec).is_ok_and(|manager| manager.facts.nodes == NodeCount::Asked);
    Some(MissingProgram { error, may_be_on_nodes: !nodes_are_here })
}

/// True for a source that is served by a library of the program.
fn is_library(source: &str) -> bool {
    ["scr", "scr-files", "variables"].contains(&source)
}

/// The manager on whose machines faults of the spec would be injected; `None` without faults, and on virtual nodes.
///
/// # Errors
/// The manager cannot be used.
pub fn machines_with_faults(spec: &JobSpec) -> Result<Option<&'static str>, RunError> {
    if spec.allocation.faults.is_empty() {
        return Ok(None);
    }
    let facts = &manager(spec)?.facts;
    Ok((!facts.has_virtual_nodes()).then_some(facts.name))
}

/// True if the nodes of the job are virtual.
///
/// # Errors
/// The manager cannot be used.
pub fn has_virtual_nodes(spec: &JobSpec) -> Result<bool, RunError> {
    Ok(manager(spec)?.facts.has_virtual_nodes())
}

/// The resource manager of a spec, in the environment of this process.
pub(super) fn manager(spec: &JobSpec) -> Result<&'static ManagerEntry, AllocationError> {
    let facts = launchers::registered()
        .manager(spec.allocation.manager, |name| env::var(name).ok())
        .map_err(managers::unsupported)?;
    let is_chosen = spec.allocation.manager.is_some() || !matches!(facts.chosen, Chosen::Otherwise);
    let path = env::var_os("PATH");
    let here = env::current_dir().unwrap_or_default();
    let has_command = |command: &str| program::find(command, &here, path.as_deref()).is_ok();
    match launchers::registered().passed_over(has_command).filter(|_| !is_chosen) {
        Some((facts, help)) => Err(AllocationError::NoAllocation { manager: facts.title, help }),
        None => managers::find(facts.name),
    }
}
