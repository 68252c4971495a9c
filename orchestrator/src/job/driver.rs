//! The driver of a job: its lock, its screen, its signals, its nodes and their agents; and its steps, one after the
//! other.

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use holdfast_model::Generation;
use tokio::sync::mpsc;

use super::background::Background;
use super::drain_task::DrainTask;
use super::error::RunError;
use super::hand_over::{OpenedStep, hand_over};
use super::inbox::Batch;
use super::prefix_wait::PrefixWait;
use super::preflight::{Prepared, preflight};
use super::ranks::{LaunchSettings, Ranks};
use super::record::JobRecord;
use super::report;
use super::reporter::Reporter;
use super::settings;
use super::signals::Signals;
use super::site::CommandContext;
use super::start::{self, RunOptions};
use super::state::{self, JobLock, JobState, Stage};
use super::step::StepDriver;
use crate::allocation::Allocation;
use crate::events::{EventLog, RunReport, Screen};
use crate::exit;
use crate::fleet::clock::unix_now;
use crate::fleet::{AgentClient, AgentSupervisor, Clock, FleetSettings};
use crate::relaunch::{Machine, Snapshot};
use crate::spec::{JobSpec, Step};

/// Runs the steps of a job one after the other, until one is not finished. Returns the report of the last one.
///
/// # Errors
/// Why the job could not begin. Later failures are in the report.
pub async fn run(options: &RunOptions) -> Result<RunReport, RunError> {
    let spec = &options.spec;
    // All steps are checked before the first begins.
    let prepared = spec.steps.iter().map(|step| preflight(spec, step)).collect::<Result<Vec<_>, _>>()?;
    run_on(options, prepared).await
}

/// As [`run`], but with a manager and a launcher for each step, which need not be registered.
///
/// # Errors
/// As [`run`].
pub async fn run_on(options: &RunOptions, prepared: Vec<Prepared>) -> Result<RunReport, RunError> {
    let spec = &options.spec;
    let mut job = JobDriver {
        spec,
        screen: options.screen.clone(),
        signals: Signals::new().map_err(RunError::io("listen for signals"))?,
        _lock: JobLock::take(&start::make_prefix(&spec.prefix)?, spec.group_access)?,
    };
    let mut steps = Vec::new();
    for (step, prepared) in spec.steps.iter().zip(prepared) {
        if job.is_done(&step.prefix)? {
            tracing::info!(step = step.name, "finished in an earlier run");
        } else {
            steps.push(NextStep { step, prepared });
        }
    }
    let last = job.run_steps(steps).await?;
    last.map_or_else(|| report::finished_before(spec), Ok)
}

/// A step that has not run yet.
pub(super) struct NextStep<'job> {
    pub(super) step: &'job Step,
    pub(super) prepared: Prepared,
}

/// The state that all steps of a job share.
struct JobDriver<'job> {
    spec: &'job JobSpec,
    screen: Screen,
    signals: Signals,
    /// The lock of the job's prefix directory.
    _lock: JobLock,
}

/// The nodes of the job and their agents, from the first step that runs to the last.
struct JobNodes {
    allocation: Arc<dyn Allocation>,
    agents: AgentSupervisor,
    /// Seconds since the epoch.
    started: i64,
    clock: Clock,
}

impl<'job> JobDriver<'job> {
    /// True if the step of this prefix directory was finished in an earlier run of a job of several steps.
    fn is_done(&self, prefix: &Path) -> Result<bool, RunError> {
        let finished = |state: JobState| matches!(state.stage, Stage::Finished { exit_code: exit::FINISHED, .. });
        Ok(self.spec.steps.len() > 1 && JobState::read(prefix)?.is_some_and(finished))
    }

    async fn run_steps(&mut self, steps: Vec<NextStep<'job>>) -> Result<Option<RunReport>, RunError> {
        let mut steps = VecDeque::from(steps);
        let Some(first) = steps.pop_front() else { return Ok(None) };
        let (mut nodes, mut opened) = self.open(first, &steps).await?;
        loop {
            let (report, next) = self.run_step(&mut nodes, opened, steps.pop_front()).await?;
            match next {
                Some(next) => opened = next,
                None => return Ok(Some(report)),
            }
        }
    }

    /// Opens the nodes and the first step that runs: those of an orchestrator that died, or new ones.
    async fn open(
        &mut self,
        first: NextStep<'job>,
        later: &VecDeque<NextStep<'job>>,
    ) -> Result<(JobNodes, OpenedStep<'job>), RunError> {
        let (spec, NextStep { step, prepared }) = (self.spec, first);
        let prefix = start::make_prefix(&step.prefix)?;
        // In a job of several steps, each has a prefix directory of its own, and commands find the job by its lock.
        let lock = (spec.steps.len() > 1).then(|| JobLock::take(&prefix, spec.group_access)).transpose()?;
        let event_log = EventLog::open(&state::directory(&prefix), &spec.job, spec.group_access.access())
            .map_err(RunError::io("open the event log"))?;
        let mut reporter = Reporter { event_log: Some(event_log), screen: self.screen.clone() };
        let all: Vec<&Prepared> = iter::once(&prepared).chain(later.iter().map(|step| &step.prepared)).collect();
        let (allocation, state) =
            open_nodes(spec, step, (&prepared, &all), &prefix, &mut reporter, &mut self.signals).await?;
        let event_log = reporter.event_log;
        start::check_size(spec, &*allocation)?;
        let started = state.snapshot.as_ref().map_or_else(unix_now, Snapshot::started);
        let clock = Clock::since(started);
        let fleet = FleetSettings {
            template: state.template()?,
            poll_interval: spec.health.poll,
            poll_patience: spec.health.down_after,
            allocation_end: allocation.end().map(settings::epoch),
            clock,
        };
        let client =
            AgentClient::new(&fleet.template.trust, spec.health.requests)?.for_agents(allocation.nodes().len());
        let agents = AgentSupervisor::new(Arc::clone(&allocation), client, fleet);
        let nodes = JobNodes { allocation, agents, started, clock };
        Ok((nodes, OpenedStep { step, prepared, prefix, lock, event_log, state }))
    }

    /// Runs a step to its end. If it is finished, the agents are handed over to the next step, which is returned;
    /// otherwise the agents are ended and the nodes released.
    async fn run_step(
        &mut self,
        nodes: &mut JobNodes,
        opened: OpenedStep<'job>,
        next: Option<NextStep<'job>>,
    ) -> Result<(RunReport, Option<OpenedStep<'job>>), RunError> {
        let (spec, began) = (self.spec, Instant::now());
        let JobNodes { allocation, agents, started, clock } = nodes;
        let OpenedStep { step, prepared, prefix, lock: _lock, event_log, state } = opened;
        let end = allocation.end().map(settings::epoch);
        let mut config = settings::config(spec, step, allocation.nodes(), *started, end);
        config.own_node = allocation.own_node();
        config.finished = state.finished;
        config.restart_within = allocation.restart_within().max(config.down_after);
        let starts_at_once = u32::try_from(allocation.starts_at_once()).unwrap_or(u32::MAX);
        config.restarts_at_once = starts_at_once.min(spec.health.requests).max(1);
        let machine = match &state.snapshot {
            Some(snapshot) => Machine::restore(config, snapshot.clone())?,
            None => Machine::new(config),
        };
        let launch = LaunchSettings {
            launcher: prepared.launcher,
            run: step.run.clone(),
            program: prepared.program,
            supervisor: prepared.supervisor.clone(),
            working_directory: prepared.working_directory.clone(),
            prefix: prefix.clone(),
        };
        let (running, commands_running) = mpsc::channel(1);
        let job_prefix = start::make_prefix(&spec.prefix)?;
        let (background, inbox) = Background::channel();
        let record =
            JobRecord::new(state, prefix.clone(), &machine).map_err(RunError::io("start the thread of the journal"))?;
        let mut driver = StepDriver {
            spec,
            step,
            is_last: next.is_none(),
            clock: *clock,
            settings: settings::settings(spec, step, &prefix, end),
            machine,
            agents,
            ranks: Ranks::new(launch, Arc::clone(allocation), self.screen.clone()),
            commands: CommandContext {
                job_id: allocation.job_id().to_owned(),
                prefix: prefix.clone(),
                directory: prepared.working_directory,
                supervisor: prepared.supervisor.clone(),
                allocation: Arc::clone(allocation),
                running,
            },
            job_prefix,
            commands_running,
            before: None,
            record,
            reporter: Reporter { event_log, screen: self.screen.clone() },
            signals: &mut self.signals,
            allocation: Arc::clone(allocation),
            drain: DrainTask::default(),
            outcome: None,
            sockets: (Generation::NONE, BTreeMap::new()),
            batch: Batch::default(),
            prefix_wait: PrefixWait::default(),
            background,
            inbox,
        };
        driver.run().await;
        let next = match next.filter(|_| driver.is_finished()) {
            Some(next) => hand_over(&mut driver, next).await.map(Some),
            None => Ok(None),
        };
        match &next {
            Ok(Some(_)) => driver.leave_agents().await,
            Ok(None) | Err(_) => driver.end_job().await,
        }
        Ok((report::of_step(&driver, began).await, next?))
    }
}

/// Opens the nodes and the state of the first step that runs: those of an orchestrator that died, or new ones.
async fn open_nodes(
    spec: &JobSpec,
    step: &Step,
    (prepared, all): (&Prepared, &[&Prepared]),
    prefix: &Path,
    reporter: &mut Reporter,
    signals: &mut Signals,
) -> Result<(Arc<dyn Allocation>, JobState), RunError> {
    let previous = JobState::read(prefix)?;
    let earlier = previous.as_ref().map(|state| (state.agents.job_id.clone(), state.generation()));
    let mut previous = previous.filter(JobState::has_nodes);
    let manager = prepared.manager.facts.name;
    let job_prefix = start::make_prefix(&spec.prefix)?;
    let faults = spec.allocation.faults.clone();
    let logs = state::directory(&job_prefix).join("agents");
    if let Some(kept) = previous.take_if(|state| matches!(state.stage, Stage::Kept { .. })) {
        if start::continues(spec, manager, &kept) {
            let allocation = signals.or(kept.allocation.reopen(faults.clone(), logs.clone())).await?;
            match start::begin_next_run(spec, step, (prefix, &job_prefix), &allocation, kept, reporter)? {
                Ok(state) => return Ok((allocation, state)),
                Err(kept) => previous = Some(*kept),
            }
        } else {
            previous = Some(kept);
        }
    }
    let is_left = |state: &mut JobState| matches!(state.stage, Stage::Undrained { .. } | Stage::Kept { .. });
    if let Some(state) = previous.take_if(is_left) {
        signals.or(start::finish_earlier(prefix, state, &reporter.screen)).await?;
    }
    match previous.filter(|state| state.stage == Stage::Running) {
        Some(state) => Ok((signals.or(state.allocation.reopen(faults, logs)).await?, state)),
        None => {
            let request = start::allocation_request(spec, all, faults, &job_prefix);
            let allocation = signals.or((prepared.manager.open)(request)).await?;
            start::check_size(spec, &*allocation).inspect_err(|_| {
                let _ = allocation.release();
            })?;
            // Nodes of an earlier allocation with the same id may have its files.
            let earlier = earlier.filter(|(job_id, _)| job_id == allocation.job_id()).map(|(_, generation)| generation);
            let state = start::begin(spec, step, (prefix, &job_prefix), &allocation, earlier, reporter)?;
            Ok((allocation, state))
        }
    }
}
