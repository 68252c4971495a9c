//! The start of a job: its nodes, its state and its prefix directory; the dry run.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use chrono::Local as LocalTime;
use holdfast_core::durable::{self, CreationMode};
use holdfast_core::hostlist;
use holdfast_model::{Generation, NodeName, Rank};
use holdfast_wire::trust;
use rustix::fs::Access;
use rustix::io::Errno;

use super::error::RunError;
use super::preflight::{Prepared, preflight};
use super::replicated;
use super::reporter::Reporter;
use super::standalone;
use super::state::{JobLock, JobState, Stage, StateError};
use super::{command_record, settings, state};
use crate::allocation::{AgentSettings, AgentTemplate, Allocation, AllocationRecord, AllocationRequest, Continuation};
use crate::events::{DrainResult, LogEvent, Screen, ranks_text};
use crate::host::{own_files, user_name};
use crate::relaunch::Snapshot;
use crate::relaunch::placement::first_placement;
use crate::spec::library_parameters::{self, LibraryJob};
use crate::spec::{JobSpec, RunSpec, Step, virtual_node};

/// The options of `holdfast run`.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub spec: JobSpec,
    /// Repeat a job, or steps, that were finished in earlier runs.
    pub again: bool,
    /// The caller closes it.
    pub screen: Screen,
}

/// What `holdfast run --dry-run` shows.
#[derive(Debug, Default)]
pub struct Plan {
    /// What would be started where.
    pub text: String,
    /// Why a run would begin nothing.
    pub refusal: Option<RunError>,
}

/// The plan of a run. Changes nothing.
///
/// # Errors
/// Those of the preflight checks.
pub fn plan(spec: &JobSpec, again: bool) -> Result<Plan, RunError> {
    let mut plan = Plan::default();
    let here = env::current_dir().map_err(RunError::io("find the working directory"))?;
    let job_prefix = canonical(&here.join(&spec.prefix));
    plan.refuse(check_prefix(&job_prefix));
    if let Some(pairs) = &spec.replicated {
        let of_pairs = replicated::plan(spec, pairs, &job_prefix)?;
        plan.text.push_str(&of_pairs.text);
        plan.refuse(of_pairs.refusal.map_or(Ok(()), Err));
    }
    for step in &spec.steps {
        let prepared = preflight(spec, step)?;
        let Prepared { program, working_directory, .. } = &prepared;
        let prefix = canonical(&here.join(&step.prefix));
        plan.line(format_args!("{}: {} {}", step.name, program.display(), step.run.command[1..].join(" ")));
        plan.line(format_args!("  in {}, prefix {}", working_directory.display(), prefix.display()));
        plan.nodes(spec, step);
        let request = allocation_request(spec, &[&prepared], Vec::new(), &job_prefix);
        let preview = (prepared.manager.preview)(&request)?;
        preview.lines.iter().for_each(|line| plan.line(format_args!("  {line}")));
        plan.refuse(preview.refusal.map_or(Ok(()), |refusal| Err(refusal.into())));
        if let Some(old) = JobState::read(&prefix)? {
            plan.earlier_job(&prefix, &old);
            if old.is_finished(spec, step) && !again {
                plan.line(format_args!("  was finished in an earlier run and would not run; `--again` repeats it"));
            }
        }
    }
    Ok(plan)
}

impl Plan {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// The ranks of each node.
    fn nodes(&mut self, spec: &JobSpec, step: &Step) {
        let name = |index: u32| {
            let host = spec.allocation.hosts.get(index as usize);
            host.map_or_else(|| virtual_node(index), |host| NodeName::new(host.name.clone()))
        };
        let nodes: Vec<NodeName> = (0..spec.allocation.nodes).map(name).collect();
        let usable: Vec<bool> = nodes.iter().map(|node| !spec.allocation.exclude.contains(node)).collect();
        let RunSpec { ranks, ranks_per_node, nodes: used, .. } = step.run;
        let homes = first_placement(ranks, ranks_per_node, used, &usable).unwrap_or_default();
        for ((index, node), usable) in (0u32..).zip(&nodes).zip(usable) {
            let ranks = (0u32..).zip(&homes).filter(|(_, home)| **home == index).map(|(rank, _)| Rank(rank));
            let ranks: Vec<Rank> = ranks.collect();
            match (usable, ranks.is_empty()) {
                (false, _) => self.line(format_args!("  {node}: excluded")),
                (true, true) => self.line(format_args!("  {node}: spare")),
                (true, false) => self.line(format_args!("  {node}: {}", ranks_text(&ranks))),
            }
        }
    }

    /// Keeps the first refusal.
    fn refuse(&mut self, checked: Result<(), RunError>) {
        self.refusal = self.refusal.take().or(checked.err());
    }

    /// The job whose state is in the prefix directory of a step.
    fn earlier_job(&mut self, prefix: &Path, old: &JobState) {
        let job_id = &old.agents.job_id;
        if JobLock::is_held(prefix) {
            let running = StateError::Running { prefix: prefix.to_owned(), pid: Some(old.orchestrator) };
            return self.refuse(Err(running.into()));
        }
        match &old.stage {
            Stage::Running if old.has_nodes() => {
                self.line(format_args!("  would take over job {job_id} in generation {}", old.generation()));
            }
            Stage::Undrained { reason } if old.has_nodes() => {
                self.line(format_args!("  would first drain job {job_id}: {reason}"));
            }
            Stage::Kept { .. } if old.has_nodes() => self.line(format_args!(
                "  would continue after generation {} with the caches that job {job_id} left in {}",
                old.generation(),
                old.allocation.place()
            )),
            Stage::Running | Stage::Undrained { .. } | Stage::Kept { .. } | Stage::Finished { .. } => {}
        }
    }
}

/// Checks that the prefix directory, or the directory in which it would be made, can be written to.
fn check_prefix(prefix: &Path) -> Result<(), RunError> {
    let existing = prefix.ancestors().find(|above| above.exists()).unwrap_or(prefix);
    let usable = match existing.is_dir() {
        true => rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK),
        false => Err(Errno::NOTDIR),
    };
    usable.map_err(|errno| RunError::PrefixUnusable { path: existing.to_owned(), source: errno.into() })
}

/// Creates the prefix directory if it does not exist.
pub(super) fn make_prefix(prefix: &Path) -> Result<PathBuf, RunError> {
    if !prefix.is_dir() {
        durable::create_directory(prefix, CreationMode::Umask)?;
    }
    prefix.canonicalize().map_err(RunError::io("find the prefix directory"))
}

/// The path that [`make_prefix`] will return for a prefix directory that may not exist yet: links are resolved as far
/// as it exists.
fn canonical(prefix: &Path) -> PathBuf {
    let existing = prefix.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let resolved = existing.and_then(|(above, resolved)| Some(resolved.join(prefix.strip_prefix(above).ok()?)));
    // Without the slash that joining an empty path leaves at the end.
    resolved.map_or_else(|| prefix.to_owned(), |path| path.components().collect())
}

/// Drains what an earlier job could not drain, before a new one begins.
pub(super) async fn finish_earlier(prefix: &Path, state: JobState, screen: &Screen) -> Result<(), RunError> {
    let report = standalone::of_state(prefix, state, None, screen).await.map_err(Box::new)?;
    match report.result {
        DrainResult::Nothing | DrainResult::Complete { .. } => Ok(()),
        DrainResult::Incomplete { .. } if !report.retry_may_help => Ok(()),
        DrainResult::Incomplete { reason, unwritable, .. } | DrainResult::Failed { reason, unwritable } => {
            Err(RunError::Undrained { reason, unwritable })
        }
    }
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
        before_end: spec.halt.before_end,
    };
    let (mut variables, lists) = library_parameters::of_job(job, &step.checkpoint);
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
        let path = state::directory(prefix).join("scr.conf");
        own_files::replace(&path, text.as_bytes()).map_err(|error| not_written(error.into()))?;
        variables.insert(library_parameters::USER_FILE.to_owned(), path.to_string_lossy().into_owned());
    }
    Ok(variables)
}

/// The request for the nodes of a job.
pub(super) fn allocation_request<'a>(
    spec: &'a JobSpec,
    steps: &[&'a Prepared],
    faults: Vec<crate::spec::InjectedFault>,
    prefix: &'a Path,
) -> AllocationRequest<'a> {
    AllocationRequest {
        spec: &spec.allocation,
        job_id: spec.identity.job_id.clone().unwrap_or_else(new_job_id),
        user: spec.identity.user.clone().unwrap_or_else(user_name),
        given_user: spec.identity.user.clone(),
        needed: nodes_needed(spec),
        faults,
        prefix,
        state: state::directory(prefix),
        logs: state::directory(prefix).join("agents"),
        programs: steps.iter().map(|step| step.program.as_path()).collect(),
        working_directories: steps.iter().map(|step| step.working_directory.as_path()).collect(),
    }
}

/// The nodes that the first launch of the largest step needs.
pub(super) fn nodes_needed(spec: &JobSpec) -> u32 {
    let most = spec.steps.iter().map(|step| step.run.nodes).max().unwrap_or(1);
    spec.relaunch.min_nodes.unwrap_or(most)
}

/// Checks that the nodes are enough for every step.
pub(super) fn check_size(spec: &JobSpec, allocation: &dyn Allocation) -> Result<(), RunError> {
    let (nodes, needed) = (allocation.nodes(), nodes_needed(spec));
    let have = hostlist::subtract(nodes, &spec.allocation.exclude).len();
    let excluded = nodes.len() - have;
    if have < needed as usize { Err(RunError::TooFewNodes { have, excluded, needed }) } else { Ok(()) }
}

/// Begins a job: creates its certificate and its state on disk. `earlier` is the last generation of an earlier
/// allocation with the same id.
pub(super) fn begin(
    spec: &JobSpec,
    step: &Step,
    (prefix, job_prefix): (&Path, &Path),
    again: bool,
    allocation: &Arc<dyn Allocation>,
    earlier: Option<Generation>,
    reporter: &mut Reporter,
) -> Result<JobState, RunError> {
    set_old_generations_aside(prefix);
    let begun = command_record::begin(job_prefix, &allocation.allocation_id(), again).map_err(StateError::from);
    // From here on, the nodes are released if something fails.
    let state = begun.map_err(RunError::from).and_then(|()| begin_state(spec, step, prefix, &**allocation, earlier));
    let state = state.inspect_err(|_| {
        let _ = allocation.release();
    })?;
    announce(&state, prefix, reporter);
    Ok(state)
}

fn begin_state(
    spec: &JobSpec,
    step: &Step,
    prefix: &Path,
    allocation: &dyn Allocation,
    earlier: Option<Generation>,
) -> Result<JobState, RunError> {
    let template = template(spec, step, allocation)?;
    let mut state = state_of_step(spec, step, allocation.record(), template);
    state.finished = earlier.unwrap_or(Generation::NONE);
    state.write(prefix)?;
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
        allocation,
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
    again: bool,
    allocation: &Arc<dyn Allocation>,
    kept: JobState,
    reporter: &mut Reporter,
) -> Result<Result<JobState, Box<JobState>>, RunError> {
    let template = template(spec, step, &**allocation)?;
    let agents = AgentSettings { disk_timeout: kept.agents.disk_timeout, ..template.settings.clone() };
    if agents != kept.agents {
        return Ok(Err(Box::new(kept)));
    }
    command_record::begin(job_prefix, &allocation.allocation_id(), again).map_err(StateError::from)?;
    let mut state = state_of_step(spec, step, kept.allocation, template);
    state.finished = kept.finished;
    state.first_launch_ms = kept.first_launch_ms;
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
    allocation: AllocationRecord,
    template: AgentTemplate,
) -> JobState {
    let mut state = JobState::new(spec.job.clone(), allocation, template);
    state.command = Some(step.run.command.clone());
    state.group_access = spec.group_access;
    let copies = settings::copies(&step.checkpoint);
    (state.crc, state.copy_bytes, state.copy_threads) = (copies.crc, copies.buffer_bytes, copies.threads);
    state.container = copies.container;
    state.requests_at_once = spec.health.requests;
    state
}

/// Reports the beginning of a step.
pub(super) fn announce(state: &JobState, prefix: &Path, reporter: &mut Reporter) {
    reporter.emit(LogEvent::JobStarted {
        job_id: state.agents.job_id.clone(),
        nodes: state.allocation.nodes().to_vec(),
        prefix: prefix.to_owned(),
    });
}

/// Renames the directory with the output of an earlier job's generations by that job's id.
pub(super) fn set_old_generations_aside(prefix: &Path) {
    let generations = state::directory(prefix).join("generations");
    if !generations.is_dir() {
        return;
    }
    let old = JobState::read(prefix).ok().flatten().map_or_else(|| "earlier".to_owned(), |state| state.agents.job_id);
    let aside = format!("generations.{}", old.replace('/', "_"));
    let renamed = state::open_directory(prefix).map_err(|error| error.to_string()).and_then(|own| match own {
        Some(own) => own.rename("generations", &aside).map_err(|error| error.to_string()),
        None => Ok(()),
    });
    if let Err(error) = renamed {
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
