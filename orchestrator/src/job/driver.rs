//! The driver of a job of steps: its nodes and their agents; and its steps, one after the other or
//! [side by side](super::side_by_side).

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use holdfast_core::state_directory::StateDirectory;
use parking_lot::Mutex;

use super::earlier_steps::EarlierSteps;
use super::error::RunError;
use super::excluded_nodes::ExcludedNodes;
use super::fault_schedule::FaultSchedule;
use super::hand_over::{NextStep, OpenedStep, hand_over};
use super::lending::StepAt;
use super::metrics::MetricsService;
use super::preflight::{Prepared, machines_with_faults, preflight};
use super::release::release;
use super::reporter::Reporter;
use super::restart_choice::{RestartChoice, RunChoices};
use super::schedule::Schedule;
use super::shell::{JobShell, RunOptions};
use super::signals::Signals;
use super::state::{JobState, Stage};
use super::state_file::JobLock;
use super::step_setup::StepSetup;
use super::{replicated, report, restart_choice, side_by_side, standalone, start, step_names};
use crate::allocation::Allocation;
use crate::events::RunReport;
use crate::exit;
use crate::fleet::clock::unix_now;
use crate::fleet::{AgentSupervisor, Clock};
use crate::spec::{JobSpec, Step};

/// Runs the steps of a job: see [`Schedule`]. Returns the report of all.
///
/// # Errors
/// Why the job could not begin. Later failures are in the report.
pub async fn run(options: &RunOptions) -> Result<RunReport, RunError> {
    let spec = &options.spec;
    if let Some(pairs) = &spec.replicated {
        return replicated::run(options, pairs).await;
    }
    if let Some(manager) = machines_with_faults(spec)?.filter(|_| !options.allows_faults) {
        return Err(RunError::FaultsNotAllowed { manager });
    }
    // All steps are checked before the first begins.
    let prepared = spec.steps.iter().map(|step| preflight(spec, step)).collect::<Result<Vec<_>, _>>()?;
    run_on(options, prepared).await
}

/// As [`run`], but with a manager and a launcher for each step, which need not be registered.
///
/// # Errors
/// As [`run`].
pub async fn run_on(options: &RunOptions, prepared: Vec<Prepared>) -> Result<RunReport, RunError> {
    let began = Instant::now();
    let mut shell = JobShell::begin(options)?;
    let spec = shell.spec;
    shell.observers.metrics = MetricsService::start(&spec.job, &spec.metrics).await?;
    restart_choice::check(spec, &options.choices)?;
    // It is read when there are nodes; one that cannot be read is refused before there are.
    ExcludedNodes::of_spec(spec, &shell.prefix).read()?;
    step_names::write(spec, &shell.prefix)?;
    let earlier = EarlierSteps::read(spec, &options.choices)?;
    shell.choices = earlier.choices.clone();
    let steps = spec.steps.iter().zip(prepared).enumerate();
    let mut job = JobDriver {
        schedule: earlier.schedule(spec),
        pending: steps.map(|(at, (step, prepared))| (at, NextStep { at, step, prepared })).collect(),
        reports: BTreeMap::new(),
        faults: Arc::new(Mutex::new(FaultSchedule::new(&spec.allocation.faults, &[], &BTreeSet::new()))),
        shell,
    };
    let ended = job.run_steps(&earlier).await;
    let faults = job.faults.lock().report();
    let ended = ended.map(|()| {
        let report = report::of_job(spec, &job.schedule, job.reports, &earlier, began.elapsed());
        RunReport { faults, ..report }
    });
    job.shell.end(ended).await
}

/// The state that all steps of a job share.
pub(super) struct JobDriver<'job> {
    pub(super) shell: JobShell<'job>,
    pub(super) schedule: Schedule,
    /// Steps that have not begun, by their positions.
    pub(super) pending: BTreeMap<StepAt, NextStep<'job>>,
    /// Of steps that have ended, by their positions.
    pub(super) reports: BTreeMap<StepAt, RunReport>,
    pub(super) faults: Arc<Mutex<FaultSchedule>>,
}

/// The nodes of the job and their agents, from the first step that runs to the last.
pub(super) struct JobNodes {
    pub(super) allocation: Arc<dyn Allocation>,
    /// Those of the first step.
    pub(super) agents: AgentSupervisor,
    /// Seconds since the epoch.
    pub(super) started: i64,
    pub(super) clock: Clock,
}

impl<'job> JobDriver<'job> {
    async fn run_steps(&mut self, earlier: &EarlierSteps) -> Result<(), RunError> {
        // Steps whose nodes still exist are continued first.
        let mut continued = earlier.continued();
        let first = continued.next().or_else(|| self.schedule.begin_next());
        let Some(first) = first.and_then(|first| self.pending.remove(&first)) else { return Ok(()) };
        let (mut nodes, mut opened) = self.open(first).await?;
        let continued: Vec<StepAt> = continued.collect();
        if side_by_side::is_possible(self.shell.spec, &self.schedule, &*nodes.allocation, &opened, &continued) {
            return side_by_side::run(self, nodes, opened, continued).await;
        }
        while let Some(next) = self.run_step(&mut nodes, opened).await? {
            opened = next;
        }
        Ok(())
    }

    /// Opens the nodes and the first step that runs: those of an orchestrator that died, or new ones.
    async fn open(&mut self, first: NextStep<'job>) -> Result<(JobNodes, OpenedStep<'job>), RunError> {
        let (spec, NextStep { at, step, prepared }) = (self.shell.spec, first);
        let prefix = start::make_prefix(&step.prefix)?;
        // In a job of several steps, each has a prefix directory of its own, and commands find the job by its lock.
        let lock = (spec.steps.len() > 1).then(|| JobLock::take(&prefix, spec.group_access)).transpose()?;
        let mut reporter = self.shell.reporter(&prefix, Some(step))?;
        let all: Vec<&Prepared> =
            iter::once(&prepared).chain(self.pending.values().map(|step| &step.prepared)).collect();
        let opening = Opening { spec, step, choices: &self.shell.choices, prefix: &prefix };
        let opened = opening.nodes((&prepared, &all), &mut reporter, &mut self.shell.signals).await;
        let (allocation, state) = opened?;
        self.shell.allocation_id = Some(allocation.allocation_id());
        start::check_size(spec, &*allocation)?;
        let started = state.snapshot.as_ref().map_or_else(unix_now, |snapshot| snapshot.started);
        let clock = Clock::since(started);
        let mut agents = self.shell.supervisor(&allocation, &state, clock)?;
        let faults = FaultSchedule::new(&spec.allocation.faults, allocation.nodes(), &state.faults_injected);
        faults.lost_nodes().into_iter().for_each(|node| agents.node_lost(node));
        *self.faults.lock() = faults;
        let nodes = JobNodes { allocation, agents, started, clock };
        Ok((nodes, OpenedStep { at, step, prepared, prefix, lock, reporter, state }))
    }

    /// Runs a step to its end. If another one follows, the agents are handed over to it, and it is returned; otherwise
    /// the agents are ended and the nodes released.
    async fn run_step(
        &mut self,
        nodes: &mut JobNodes,
        opened: OpenedStep<'job>,
    ) -> Result<Option<OpenedStep<'job>>, RunError> {
        let (began, at) = (Instant::now(), opened.at);
        let setup = StepSetup {
            spec: self.shell.spec,
            job_prefix: &self.shell.prefix,
            screen: &self.shell.screen,
            allocation: &nodes.allocation,
            started: nodes.started,
            clock: nodes.clock,
            faults: &self.faults,
            follows: self.schedule.follows(at),
            nodes: None,
        };
        let (mut driver, _lock) = setup.driver(opened, None, &mut nodes.agents, &mut self.shell.signals).await?;
        driver.run().await;
        self.shell.made_progress |= driver.machine.may_have_made_progress();
        if driver.exit_code() != exit::NOT_FINISHED {
            driver.progress.forget().await;
        }
        self.schedule.ended(at, driver.exit_code());
        let next = match driver.ends_job() {
            true => None,
            false => self.schedule.begin_next().and_then(|next| self.pending.remove(&next)),
        };
        let next = match next {
            Some(next) => hand_over(&mut driver, next, &self.shell.choices, &self.shell.observers).await.map(Some),
            None => Ok(None),
        };
        match &next {
            Ok(Some(_)) => driver.leave_agents().await,
            Ok(None) | Err(_) => {
                if next.is_err() {
                    driver.run_after().await;
                }
                driver.report_missed_faults();
                driver.end_job().await;
            }
        }
        self.reports.insert(at, report::of_step(&driver, began).await);
        next
    }
}

/// The first step that runs, whose nodes are opened.
struct Opening<'a> {
    spec: &'a JobSpec,
    step: &'a Step,
    choices: &'a RunChoices,
    prefix: &'a Path,
}

impl Opening<'_> {
    /// The nodes and the state of the step: those of an orchestrator that died or of an earlier run, or new ones.
    async fn nodes(
        &self,
        (prepared, all): (&Prepared, &[&Prepared]),
        reporter: &mut Reporter,
        signals: &mut Signals,
    ) -> Result<(Arc<dyn Allocation>, JobState), RunError> {
        let Opening { spec, step, choices, prefix } = *self;
        let previous = JobState::read(prefix)?;
        if let Some(end) = JobState::end_by_other_version(prefix)? {
            tracing::warn!("another version of Holdfast ran a job here, which has ended ({end}): a new job begins");
        }
        let earlier = previous.as_ref().map(|state| (state.agents.job_id.clone(), state.generation()));
        let mut previous = previous.filter(JobState::has_nodes);
        if previous.as_ref().is_some_and(JobState::has_pairs) {
            return Err(RunError::OtherKind { prefix: prefix.to_owned(), running: "replicated" });
        }
        let manager = prepared.manager.facts.name;
        let job_prefix = start::make_prefix(&spec.prefix)?;
        let logs = StateDirectory::below(&job_prefix).join("agents");
        if let Some(kept) = previous.take_if(|state| matches!(state.stage, Stage::Kept { .. })) {
            // Otherwise its caches are drained: only what is below the prefix can be chosen.
            let fits = choices.restart == RestartChoice::Newest && !restart_choice::is_drained_for(step, &kept);
            if fits && start::continues(spec, manager, &kept) {
                let allocation = signals.or(kept.allocation.reopen(Some(&spec.allocation), logs.clone())).await?;
                match start::begin_next_run(spec, step, (prefix, &job_prefix), choices, &allocation, kept, reporter)? {
                    Ok(state) => return Ok((allocation, state)),
                    Err(kept) => previous = Some(*kept),
                }
            } else {
                previous = Some(kept);
            }
        }
        let is_left = |state: &mut JobState| matches!(state.stage, Stage::Undrained { .. } | Stage::Kept { .. });
        if let Some(state) = previous.take_if(is_left) {
            signals.or(standalone::finish_earlier(spec, prefix, state, &reporter.screen)).await?;
        }
        match previous.filter(|state| state.stage == Stage::Running) {
            Some(state) => Ok((signals.or(state.allocation.reopen(Some(&spec.allocation), logs)).await?, state)),
            None => {
                let request = start::allocation_request(spec, all, &job_prefix);
                let allocation = signals.or((prepared.manager.open)(request)).await?;
                // Nodes of an earlier allocation with the same id may have its files.
                let earlier =
                    earlier.filter(|(job_id, _)| job_id == allocation.job_id()).map(|(_, generation)| generation);
                let begun = start::check_size(spec, &*allocation).and_then(|()| {
                    let ignored = restart_choice::apply(&choices.restart, prefix)?;
                    start::begin(spec, step, (prefix, &job_prefix), (choices, ignored), &allocation, earlier, reporter)
                });
                match begun {
                    Ok(state) => Ok((allocation, state)),
                    Err(error) => {
                        release(allocation, reporter).await;
                        Err(error)
                    }
                }
            }
        }
    }
}
