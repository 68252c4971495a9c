//! From a spec to a running loop, and from its end to the report.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use chrono::Local as LocalTime;
use holdfast_core::durable::{self, DurableError};
use holdfast_core::prefix::Prefix;
use holdfast_model::NodeName;
use holdfast_wire::trust::{self, TrustError};

use super::preflight::{PreflightError, Prepared, preflight};
use super::state::{JobLock, JobState, Stage, StateError};
use super::{Driver, StepContext, settings, site, state};
use crate::allocation::{AgentTemplate, Allocation, AllocationError, AllocationRequest};
use crate::drain::standalone::{self, StandaloneError};
use crate::events::report::GenerationReport;
use crate::events::{DrainResult, EndCause, Journal, LogEvent, RunReport, Screen, ScreenStyle};
use crate::exit;
use crate::fleet::clock::unix_now;
use crate::fleet::{AgentClient, Clock, FleetError};
use crate::host::program::ProgramError;
use crate::host::user_name;
use crate::launch::LaunchError;
use crate::relaunch::snapshot::RestoreError;
use crate::relaunch::{Machine, Outcome};
use crate::spec::{JobSpec, Step, virtual_node};

/// What `holdfast run` is to do.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The job.
    pub spec: JobSpec,
    /// What people see.
    pub style: ScreenStyle,
}

/// Why a job could not be begun, or ended in a way that is nobody's verdict.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command or its directory.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The nodes.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// The job's state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The state does not fit the spec.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The connections to the agents.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// No certificate.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The prefix directory.
    #[error("the prefix directory cannot be used: {0}; make it, or give another `prefix`")]
    Prefix(#[from] DurableError),
    /// Another file or the signals.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something is missing here.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// The allocation is too small.
    #[error("the allocation has {have} nodes, and `run.nodes` asks for {needed}")]
    TooFewNodes {
        /// Nodes.
        have: usize,
        /// Wanted.
        needed: u32,
    },
    /// A command of `before:`.
    #[error("{0}; nothing was launched")]
    Before(String),
    /// An earlier run left something that could not be drained, and still cannot.
    #[error("an earlier run of this prefix directory left a checkpoint in its nodes that cannot be drained: {0}")]
    Undrained(String),
    /// Draining what an earlier run left.
    #[error(transparent)]
    Standalone(#[from] Box<StandaloneError>),
}

impl RunError {
    /// The exit code: see [`crate::exit`].
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Launch(
                LaunchError::Program(ProgramError::Missing { .. } | ProgramError::NotExecutable { .. })
                | LaunchError::NoDirectory { .. }
                | LaunchError::Unsuitable { .. },
            )
            | RunError::TooFewNodes { .. }
            | RunError::Allocation(
                AllocationError::UnknownManager { .. }
                | AllocationError::Name { .. }
                | AllocationError::Outside { .. }
                | AllocationError::NoSsh,
            ) => exit::CONFIGURATION,
            RunError::Undrained(_) => exit::DAMAGED_DATA,
            RunError::Fleet(_) | RunError::Trust(_) => exit::INTERNAL,
            RunError::Standalone(error) => error.exit_code(),
            _ => exit::UNAVAILABLE,
        }
    }

    pub(super) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| RunError::Io { action, source }
    }
}

/// What would be started where: `holdfast run --dry-run`. Changes nothing.
///
/// # Errors
/// What preflight finds.
pub fn plan_text(spec: &JobSpec) -> Result<String, RunError> {
    let mut text = String::new();
    for step in &spec.steps {
        let prepared = preflight(spec, step)?;
        let Prepared { program, working_directory, .. } = &prepared;
        let here = env::current_dir().map_err(RunError::io("find the working directory"))?;
        let prefix = here.join(&step.prefix);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {} {}", step.name, program.display(), step.run.command[1..].join(" "));
        let _ = writeln!(text, "  in {}, prefix {}", working_directory.display(), prefix.display());
        let mut next = 0;
        for index in 0..spec.allocation.nodes {
            let count = if index < step.run.nodes { step.run.ranks_on(index) } else { 0 };
            let ranks = match count {
                0 => "spare".to_owned(),
                1 => format!("rank {next}"),
                _ => format!("ranks {next}-{}", next + count - 1),
            };
            let node = spec.allocation.hosts.get(index as usize);
            let node = node.map_or_else(|| virtual_node(index), |host| NodeName::new(host.name.clone()));
            let _ = writeln!(text, "  {node}: {ranks}");
            next += count;
        }
        let request = allocation_request(spec, step, &prepared, Vec::new(), &prefix);
        for line in (prepared.manager.preview)(&request)? {
            let _ = writeln!(text, "  {line}");
        }
        match JobState::read(&prefix)? {
            Some(old) if JobLock::is_held(&prefix) => {
                let _ = writeln!(text, "  refused: process {} runs a job there", old.orchestrator);
            }
            Some(old) if old.stage == Stage::Running && old.has_nodes() => {
                let _ = writeln!(text, "  would take over job {} in generation {}", old.agents.job_id, old.generation);
            }
            _ => {}
        }
    }
    Ok(text)
}

/// Runs a job to its end: its steps one after the other, until one is not finished. The report of the last.
///
/// # Errors
/// What keeps a job from beginning. How it ends otherwise is in the report.
pub async fn run(options: &RunOptions) -> Result<RunReport, RunError> {
    let spec = &options.spec;
    // All steps are looked at before the first is begun.
    let prepared = spec.steps.iter().map(|step| preflight(spec, step)).collect::<Result<Vec<_>, _>>()?;
    let several = spec.steps.len() > 1;
    let mut last = None;
    for (number, (step, prepared)) in spec.steps.iter().zip(prepared).enumerate() {
        let prefix = make_prefix(&step.prefix)?;
        let done = several
            && JobState::read(&prefix)?
                .is_some_and(|state| matches!(state.stage, Stage::Finished { exit_code: exit::FINISHED, .. }));
        if done {
            tracing::info!(step = step.name, "finished in an earlier run");
            continue;
        }
        // Rehearsed failures belong to the job; its virtual nodes are made anew for every step.
        let chaos = if number == 0 { spec.allocation.chaos.clone() } else { Vec::new() };
        let report = run_step(options, step, prepared, prefix, chaos).await?;
        let finished = report.exit_code == exit::FINISHED;
        last = Some(report);
        if !finished {
            break;
        }
    }
    match last {
        Some(report) => Ok(report),
        None => finished_before(spec),
    }
}

/// Every step was finished in earlier runs.
fn finished_before(spec: &JobSpec) -> Result<RunReport, RunError> {
    let prefix = make_prefix(&spec.prefix)?;
    Ok(RunReport {
        job: spec.job.clone(),
        job_id: String::new(),
        outcome: "every step was finished before".to_owned(),
        exit_code: exit::FINISHED,
        generations: Vec::new(),
        nodes_down: Vec::new(),
        checkpoint: None,
        checkpoint_directory: None,
        complete: None,
        output: None,
        events: state::directory(&prefix).join(crate::events::log::FILE),
        prefix,
        took: std::time::Duration::ZERO,
    })
}

fn make_prefix(prefix: &Path) -> Result<PathBuf, RunError> {
    if !prefix.is_dir() {
        durable::create_directory(prefix, 0o755)?;
    }
    prefix.canonicalize().map_err(RunError::io("find the prefix directory"))
}

async fn run_step(
    options: &RunOptions,
    step: &Step,
    prepared: Prepared,
    prefix: PathBuf,
    chaos: Vec<crate::spec::Chaos>,
) -> Result<RunReport, RunError> {
    let (spec, began) = (&options.spec, Instant::now());
    let lock = JobLock::take(&prefix)?;
    let mut previous = JobState::read(&prefix)?.filter(JobState::has_nodes);
    if let Some(Stage::Undrained { .. }) = previous.as_ref().map(|state| &state.stage) {
        let state = previous.take();
        finish_earlier(&prefix, state, options.style).await?;
    }
    let previous = previous.filter(|state| state.stage == Stage::Running);
    let logs = state::directory(&prefix).join("agents");
    let mut journal =
        Journal::open(&state::directory(&prefix), &spec.job).map_err(RunError::io("open the event log"))?;
    let screen = Screen::new(options.style);
    let (allocation, state) = match previous {
        Some(state) => (state.allocation.reopen(chaos, logs).await?, state),
        None => {
            let request = allocation_request(spec, step, &prepared, chaos, &prefix);
            let allocation = (prepared.manager.open)(request).await?;
            let state = begin(spec, step, &prefix, &allocation, &mut journal, &screen).await?;
            (allocation, state)
        }
    };
    let (have, needed) = (allocation.nodes().len(), step.run.nodes);
    if have < needed as usize {
        return Err(RunError::TooFewNodes { have, needed });
    }
    let started = state.snapshot.as_ref().map_or_else(unix_now, crate::relaunch::Snapshot::started);
    let end = allocation.end().map(settings::epoch);
    let mut config = settings::config(spec, step, allocation.nodes(), started, end);
    config.own_node = allocation.own_node();
    config.restart_within = allocation.restart_within().max(config.down_after);
    let machine = match &state.snapshot {
        Some(snapshot) => Machine::restore(config, snapshot.clone())?,
        None => Machine::new(config),
    };
    let context = StepContext {
        client: AgentClient::new(&state.agents.trust)?,
        template: state.agents.clone(),
        settings: settings::settings(spec, step, &prefix, end),
        clock: Clock::since(started),
        spec: spec.clone(),
        step: step.clone(),
        program: prepared.program,
        working_directory: prepared.working_directory,
        allocation,
        launcher: prepared.launcher,
        machine,
        state,
        journal,
        screen,
        prefix,
    };
    let (mut driver, mut sources) = Driver::new(context).map_err(RunError::io("listen for signals"))?;
    let outcome = driver.drive(&mut sources).await;
    driver.clean_up(outcome.as_ref()).await;
    driver.context.screen.close();
    let report = driver.report(outcome.as_ref(), began);
    drop(lock);
    Ok(report)
}

/// What an earlier run could not drain is drained before a new one begins: the new one would not see it.
async fn finish_earlier(prefix: &Path, state: Option<JobState>, style: ScreenStyle) -> Result<(), RunError> {
    let Some(state) = state else { return Ok(()) };
    let report = standalone::of_state(prefix, state, None, style).await.map_err(Box::new)?;
    match report.result {
        DrainResult::Nothing | DrainResult::Complete { .. } => Ok(()),
        DrainResult::Incomplete { .. } if !report.retry_may_help => Ok(()),
        DrainResult::Incomplete { reason, .. } | DrainResult::Failed { reason } => Err(RunError::Undrained(reason)),
    }
}

/// What the nodes of a job that begins are opened for.
fn allocation_request<'a>(
    spec: &'a JobSpec,
    step: &Step,
    prepared: &'a Prepared,
    chaos: Vec<crate::spec::Chaos>,
    prefix: &'a Path,
) -> AllocationRequest<'a> {
    AllocationRequest {
        spec: &spec.allocation,
        job_id: new_job_id(),
        user: user_name(),
        needed: step.run.nodes,
        chaos,
        prefix,
        state: state::directory(prefix),
        logs: state::directory(prefix).join("agents"),
        program: &prepared.program,
        working_directory: &prepared.working_directory,
    }
}

/// A job begins: its certificate, its state on disk; then the commands of `before:`.
async fn begin(
    spec: &JobSpec,
    step: &Step,
    prefix: &Path,
    allocation: &Arc<dyn Allocation>,
    journal: &mut Journal,
    screen: &Screen,
) -> Result<JobState, RunError> {
    set_old_generations_aside(prefix);
    // From here on there is something to give back.
    let state = begin_state(spec, step, prefix, &**allocation).inspect_err(|_| {
        let _ = allocation.release();
    })?;
    let mut tell = |event: LogEvent| {
        journal.write(&event);
        screen.event(&event);
    };
    tell(LogEvent::JobStarted {
        job_id: allocation.job_id().to_owned(),
        nodes: allocation.nodes().to_vec(),
        prefix: prefix.to_owned(),
    });
    let directory = site::working_directory(None).map_err(RunError::io("find the working directory"))?;
    let context = site::CommandContext {
        job_id: allocation.job_id().to_owned(),
        prefix: prefix.to_owned(),
        directory,
        allocation: Arc::clone(allocation),
    };
    if let Err(failure) = site::run_all(&spec.before, allocation.nodes(), &context, tell).await {
        let _ = allocation.release();
        return Err(RunError::Before(failure));
    }
    Ok(state)
}

fn begin_state(spec: &JobSpec, step: &Step, prefix: &Path, allocation: &dyn Allocation) -> Result<JobState, RunError> {
    let template = AgentTemplate::new(&spec.job, &step.checkpoint, allocation, trust::generate()?);
    let mut state = JobState::new(spec.job.clone(), allocation.record(), template);
    state.crc = step.checkpoint.crc.on_flush;
    state.copy_bytes = settings::COPY_BYTES;
    state.write(prefix)?;
    Ok(state)
}

/// The output of an earlier job's generations keeps its place, under that job's id.
fn set_old_generations_aside(prefix: &Path) {
    let generations = state::directory(prefix).join("generations");
    if !generations.is_dir() {
        return;
    }
    let old = JobState::read(prefix).ok().flatten().map_or_else(|| "earlier".to_owned(), |state| state.agents.job_id);
    let aside = generations.with_file_name(format!("generations.{}", old.replace('/', "_")));
    if let Err(error) = std::fs::rename(&generations, &aside) {
        tracing::warn!(%error, "the output of an earlier job's generations is in the way");
    }
}

/// Unique on this machine, and readable: when, and which process; steps of one second are counted.
fn new_job_id() -> String {
    static EARLIER: AtomicU32 = AtomicU32::new(0);
    let count = match EARLIER.fetch_add(1, Ordering::Relaxed) {
        0 => String::new(),
        earlier => format!("-{}", earlier + 1),
    };
    format!("{}-{}{count}", LocalTime::now().format("%Y%m%d%H%M%S"), std::process::id())
}

impl Driver {
    fn report(&self, outcome: Option<&Outcome>, began: Instant) -> RunReport {
        let context = &self.context;
        let explanation = context.machine.explain();
        let generations = explanation.generations.iter().map(|past| GenerationReport {
            generation: past.generation,
            from: context.state.restarted_from.get(&past.generation).copied().flatten(),
            launched: !past.ended.as_ref().is_some_and(|ended| matches!(ended.reason, EndCause::LaunchFailed { .. })),
            ended: past.ended.as_ref().map_or_else(|| "still running".to_owned(), |ended| ended.reason.to_string()),
            newest: past.newest,
        });
        let down = explanation.nodes.iter().filter_map(|node| match &node.condition {
            crate::relaunch::explain::Condition::Down(verdict) => Some((node.node.clone(), verdict.reason.to_string())),
            _ => None,
        });
        let (drained, complete) = match outcome.and_then(|outcome| outcome.drain.as_ref()) {
            Some(DrainResult::Complete { checkpoint }) => (Some(*checkpoint), Some(true)),
            Some(DrainResult::Incomplete { .. } | DrainResult::Failed { .. }) => (None, Some(false)),
            Some(DrainResult::Nothing) | None => (None, None),
        };
        let current = Prefix::open(&context.prefix).ok().and_then(|prefix| {
            let directory = prefix.current().ok().flatten()?;
            Some((directory.parts().map(|parts| parts.id), prefix.checkpoint_path(&directory)))
        });
        let last =
            explanation.generations.last().map(|past| state::generation_directory(&context.prefix, past.generation));
        RunReport {
            job: context.spec.job.clone(),
            job_id: context.allocation.job_id().to_owned(),
            outcome: outcome.map_or_else(|| "the loop broke off".to_owned(), ToString::to_string),
            exit_code: outcome.map_or(exit::INTERNAL, Outcome::exit_code),
            generations: generations.collect(),
            nodes_down: down.collect(),
            checkpoint: current.as_ref().and_then(|current| current.0).or(drained),
            checkpoint_directory: current.map(|current| current.1),
            complete,
            prefix: context.prefix.clone(),
            output: last,
            events: context.journal.path().to_owned(),
            took: began.elapsed(),
        }
    }
}
