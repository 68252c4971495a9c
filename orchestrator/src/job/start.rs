//! The start of a job: its nodes, its state and its prefix directory.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use chrono::Local as LocalTime;
use holdfast_core::durable::{self, CreationMode};
use holdfast_core::state_directory::StateDirectory;
use holdfast_core::state_files;
use holdfast_model::Generation;
use holdfast_wire::trust;

use super::error::RunError;
use super::preflight::Prepared;
use super::reporter::Reporter;
use super::restart_choice::RunChoices;
use super::state::{JobState, StateError};
use super::{command_record, settings};
use crate::allocation::{AgentSettings, AgentTemplate, Allocation, AllocationRecord, AllocationRequest, Continuation};
use crate::events::LogEvent;
use crate::host::user_name;
use crate::relaunch::Snapshot;
use crate::spec::library_parameters::{self, LibraryJob};
use crate::spec::{JobSpec, Step};

/// Creates the prefix directory if it does not exist.
pub(super) fn make_prefix(prefix: &Path) -> Result<PathBuf, RunError> {
    if !prefix.is_dir() {
        durable::create_directory(prefix, CreationMode::Umask)?;
    }
    prefix.canonicalize().map_err(RunError::io("find the prefix directory"))
}

/// The path that [`make_prefix`] will return for a prefix directory that may not exist yet: links are resolved as far
/// as it exists.
pub fn canonical(prefix: &Path) -> PathBuf {
    let existing = prefix.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let resolved = existing.and_then(|(above, resolved)| Some(resolved.join(prefix.strip_prefix(above).ok()?)));
    // Without the slash that joining an empty path leaves at the end.
    resolved.map_or_else(|| prefix.to_owned(), |path| path.components().collect())
}

/// The variables of ranks that use LLNL's library. Writes the configuration file, if one is needed.
pub(super) fn library_variables(
    spec: &JobSpec,
    step: &Step,
    prefix: &Path,
    allocation: &dyn Allocation,
) -> Result<BTreeMap<String, String>, RunError> {
    let job = LibraryJob {
        name: &spec.job,
        id: allocation.job_id(),
        user: allocation.user(),
        nodes: allocation.nodes(),
        prefix,
    };
    let (mut variables, lists) = library_parameters::of_job(job, &spec.settings, step);
    if let Some(lists) = lists {
        let not_written = RunError::io("write the configuration file of the SCR library");
        // What the user's own file sets is kept; its lists are those of the job already.
        let own = env::var_os(library_parameters::USER_FILE).map(std::fs::read_to_string);
        let own = own.transpose().map_err(RunError::io("read the file that SCR_CONF_FILE names"))?.unwrap_or_default();
        let is_list = |line: &str| {
            let line = line.trim_start().to_uppercase();
            line.starts_with("CACHEDESC") || line.starts_with("CKPTDESC")
        };
        let mut text: String = own.lines().filter(|line| !is_list(line)).flat_map(|line| [line, "\n"]).collect();
        text += &lists;
        let path = StateDirectory::below(prefix).join("scr.conf");
        state_files::replace(&path, text.as_bytes()).map_err(|error| not_written(error.into()))?;
        variables.insert(library_parameters::USER_FILE.to_owned(), path.to_string_lossy().into_owned());
    }
    Ok(variables)
}

/// The request for the nodes of a job.
pub(super) fn allocation_request<'a>(
    spec: &'a JobSpec,
    steps: &[&'a Prepared],
    prefix: &'a Path,
) -> AllocationRequest<'a> {
    AllocationRequest {
        spec: &spec.allocation,
        job_id: spec.identity.job_id.clone().unwrap_or_else(new_job_id),
        user: spec.identity.user.clone().unwrap_or_else(user_name),
        given_user: spec.identity.user.clone(),
        needed: nodes_needed(spec),
        prefix,
        state: StateDirectory::below(prefix).path().to_owned(),
        logs: StateDirectory::below(prefix).join("agents"),
        programs: steps.iter().map(|step| step.program.as_path()).collect(),
        working_directories: steps.iter().map(|step| step.working_directory.as_path()).collect(),
    }
}

/// The nodes that the first launch of the largest step needs.
pub(super) fn nodes_needed(spec: &JobSpec) -> u32 {
    let needed = spec.steps.iter().map(|step| step.relaunch.min_nodes.unwrap_or(step.run.nodes));
    needed.max().unwrap_or(1)
}

/// Checks that the nodes are enough for every step.
pub(super) fn check_size(spec: &JobSpec, allocation: &dyn Allocation) -> Result<(), RunError> {
    let (nodes, needed) = (allocation.nodes(), nodes_needed(spec));
    let have = nodes.iter().filter(|node| !spec.allocation.is_excluded(node)).count();
    let excluded = nodes.len() - have;
    if have < needed as usize { Err(RunError::TooFewNodes { have, excluded, needed }) } else { Ok(()) }
}

/// Begins a job: creates its certificate and its state on disk. `earlier` is the last generation of an earlier
/// allocation with the same id. If it fails, the caller releases the nodes.
pub(super) fn begin(
    spec: &JobSpec,
    step: &Step,
    (prefix, job_prefix): (&Path, &Path),
    (choices, ignored): (&RunChoices, BTreeSet<String>),
    allocation: &Arc<dyn Allocation>,
    earlier: Option<Generation>,
    reporter: &mut Reporter,
) -> Result<JobState, RunError> {
    set_old_generations_aside(prefix);
    command_record::begin(job_prefix, &allocation.allocation_id(), choices.again).map_err(StateError::from)?;
    let template = template(spec, step, &**allocation)?;
    let mut state = state_of_step(spec, step, choices, allocation.record(), template);
    state.finished = earlier.unwrap_or(Generation::NONE);
    state.ignored = ignored;
    state.write(prefix)?;
    announce(&state, prefix, reporter);
    Ok(state)
}

/// New settings for the agents of a job.
fn template(spec: &JobSpec, step: &Step, allocation: &dyn Allocation) -> Result<AgentTemplate, RunError> {
    // The same control directory in all steps: see the spec's validation.
    let control = &step.checkpoint.control;
    let caches = spec.steps.iter().flat_map(|step| &step.checkpoint.cache);
    let prefixes = spec.steps.iter().map(|step| canonical(&step.prefix)).collect();
    Ok(AgentTemplate::new(
        &spec.job,
        prefixes,
        control,
        caches,
        spec.health.disk_timeout,
        allocation.identity(),
        trust::generate()?,
    ))
}

/// True if a run can continue in the nodes that the one before it left.
pub(super) fn continues(spec: &JobSpec, manager: &str, kept: &JobState) -> bool {
    let left = kept.snapshot.as_ref().map(Snapshot::nodes_left);
    let needed = nodes_needed(spec) as usize;
    left.is_some_and(|left| kept.allocation.continues(manager, &Continuation { spec: &spec.allocation, needed, left }))
}

/// Begins another run in the nodes that the one before it left: generations continue, and the caches are as they were.
/// Returns the old state instead if the agents would have other settings now.
pub(super) fn begin_next_run(
    spec: &JobSpec,
    step: &Step,
    (prefix, job_prefix): (&Path, &Path),
    choices: &RunChoices,
    allocation: &Arc<dyn Allocation>,
    kept: JobState,
    reporter: &mut Reporter,
) -> Result<Result<JobState, Box<JobState>>, RunError> {
    let template = template(spec, step, &**allocation)?;
    // Whether steps run side by side is decided when the nodes are open.
    let (disk_timeout, of_step) = (kept.agents.disk_timeout, kept.agents.step.clone());
    let agents = AgentSettings { disk_timeout, step: of_step.clone(), ..template.settings.clone() };
    if agents != kept.agents {
        return Ok(Err(Box::new(kept)));
    }
    command_record::begin(job_prefix, &allocation.allocation_id(), choices.again).map_err(StateError::from)?;
    let mut state = state_of_step(spec, step, choices, kept.allocation, template);
    state.agents.step = of_step;
    state.finished = kept.finished;
    state.first_launch_ms = kept.first_launch_ms;
    state.faults_injected = kept.faults_injected;
    state.ignored = kept.ignored;
    state.snapshot = kept.snapshot.as_ref().map(|snapshot| snapshot.next_run(step.run.ranks, step.run.nodes));
    state.write(prefix)?;
    announce(&state, prefix, reporter);
    reporter.emit(LogEvent::RunContinues { place: state.allocation.place(), after: state.generation() });
    Ok(Ok(state))
}

/// The state of a step that begins.
pub(super) fn state_of_step(
    spec: &JobSpec,
    step: &Step,
    choices: &RunChoices,
    allocation: AllocationRecord,
    template: AgentTemplate,
) -> JobState {
    let mut state = JobState::new(spec.job.clone(), allocation, template);
    state.job_prefix = (!spec.has_short_form()).then(|| canonical(&spec.prefix));
    state.command = Some(step.run.command.clone());
    state.source = Some(step.checkpoint.source.to_owned());
    (state.group_access, state.event_log) = (spec.group_access, spec.event_log);
    let copies = settings::copies(&step.checkpoint);
    (state.crc, state.copy_bytes, state.copy_threads) = (copies.crc, copies.buffer_bytes, copies.threads);
    state.container = copies.container;
    state.keep = copies.keep;
    state.requests_at_once = spec.health.requests;
    state.choices = choices.clone();
    state
}

/// Reports the beginning of a step.
pub(super) fn announce(state: &JobState, prefix: &Path, reporter: &mut Reporter) {
    reporter.emit(LogEvent::JobStarted {
        job_id: state.agents.job_id.clone(),
        nodes: state.allocation.nodes().to_vec(),
        prefix: prefix.to_owned(),
        virtual_nodes: state.allocation.has_virtual_nodes(),
    });
}

/// Renames the directory with the output of an earlier job's generations by that job's id.
pub(super) fn set_old_generations_aside(prefix: &Path) {
    let earlier = JobState::read(prefix).ok().flatten().map(|state| state.agents.job_id);
    set_aside(prefix, "generations", earlier.as_deref());
}

/// Renames a directory of the state directory by the id of the earlier job that it belongs to.
pub(super) fn set_aside(prefix: &Path, name: &str, earlier: Option<&str>) {
    let state = StateDirectory::below(prefix);
    if !state.join(name).is_dir() {
        return;
    }
    let aside = format!("{name}.{}", earlier.unwrap_or("earlier").replace('/', "_"));
    if let Err(error) = state.existing().and_then(|own| own.rename(name, &aside)) {
        tracing::warn!(%error, "the output of an earlier job cannot be renamed; that of this job is added to it");
    }
}

/// Unique on this machine: the time and the process id, and a counter if one process starts several jobs.
fn new_job_id() -> String {
    static EARLIER: AtomicU32 = AtomicU32::new(0);
    let count = match EARLIER.fetch_add(1, Ordering::Relaxed) {
        0 => String::new(),
        earlier => format!("-{}", earlier + 1),
    };
    format!("{}-{}{count}", LocalTime::now().format("%Y%m%d%H%M%S"), std::process::id())
}
