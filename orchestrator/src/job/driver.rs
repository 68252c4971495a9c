//! The driver of a whole job: its lock, its screen and its signals; in it the steps, one after the other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::background::Background;
use super::drain_task::DrainTask;
use super::error::RunError;
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
use crate::events::{Journal, RunReport, Screen};
use crate::exit;
use crate::fleet::clock::unix_now;
use crate::fleet::{AgentClient, AgentSupervisor, Clock, FleetSettings};
use crate::relaunch::{Machine, Snapshot};
use crate::spec::{Chaos, JobSpec, Step};

/// Runs a job to its end: its steps one after the other, until one is not finished. The report of the last.
///
/// # Errors
/// What keeps a job from beginning. How it ends otherwise is in the report.
pub async fn run(options: &RunOptions) -> Result<RunReport, RunError> {
    let spec = &options.spec;
    // All steps are looked at before the first is begun.
    let prepared = spec.steps.iter().map(|step| preflight(spec, step)).collect::<Result<Vec<_>, _>>()?;
    let mut job = JobDriver {
        spec,
        screen: Screen::new(options.style),
        signals: Signals::new().map_err(RunError::io("listen for signals"))?,
        _lock: JobLock::take(&start::make_prefix(&spec.prefix)?)?,
    };
    let mut last = None;
    for (number, (step, prepared)) in spec.steps.iter().zip(prepared).enumerate() {
        let prefix = start::make_prefix(&step.prefix)?;
        if job.is_done(&prefix)? {
            tracing::info!(step = step.name, "finished in an earlier run");
            continue;
        }
        // Fault injections belong to the job; its virtual nodes are made anew for every step.
        let chaos = if number == 0 { spec.allocation.chaos.clone() } else { Vec::new() };
        let report = job.run_step(step, prepared, prefix, chaos).await?;
        let finished = report.exit_code == exit::FINISHED;
        last = Some(report);
        if !finished {
            break;
        }
    }
    job.screen.close();
    last.map_or_else(|| report::finished_before(spec), Ok)
}

/// What all steps of a job share.
struct JobDriver<'job> {
    spec: &'job JobSpec,
    screen: Screen,
    signals: Signals,
    /// Of the job's prefix directory.
    _lock: JobLock,
}

/// A step that is about to begin.
struct Opened {
    allocation: Arc<dyn Allocation>,
    state: JobState,
}

impl JobDriver<'_> {
    /// True if the step of this prefix directory was finished in an earlier run of a job of several steps.
    fn is_done(&self, prefix: &Path) -> Result<bool, RunError> {
        let finished = |state: JobState| matches!(state.stage, Stage::Finished { exit_code: exit::FINISHED, .. });
        Ok(self.spec.steps.len() > 1 && JobState::read(prefix)?.is_some_and(finished))
    }

    async fn run_step(
        &mut self,
        step: &Step,
        prepared: Prepared,
        prefix: PathBuf,
        chaos: Vec<Chaos>,
    ) -> Result<RunReport, RunError> {
        let (spec, began) = (self.spec, Instant::now());
        // A step of several has a directory of its own, in which its own commands look for a running job.
        let _lock = (self.spec.steps.len() > 1).then(|| JobLock::take(&prefix)).transpose()?;
        let journal =
            Journal::open(&state::directory(&prefix), &spec.job).map_err(RunError::io("open the event log"))?;
        let mut reporter = Reporter { journal: Some(journal), screen: &mut self.screen };
        let opened = open(spec, step, &prepared, &prefix, chaos, &mut reporter, &mut self.signals).await?;
        let Opened { allocation, state } = opened;
        let (have, needed) = (allocation.nodes().len(), step.run.nodes);
        if have < needed as usize {
            return Err(RunError::TooFewNodes { have, needed });
        }
        let started = state.snapshot.as_ref().map_or_else(unix_now, Snapshot::started);
        let end = allocation.end().map(settings::epoch);
        let mut config = settings::config(spec, step, allocation.nodes(), started, end);
        config.own_node = allocation.own_node();
        config.restart_within = allocation.restart_within().max(config.down_after);
        let machine = match &state.snapshot {
            Some(snapshot) => Machine::restore(config, snapshot.clone())?,
            None => Machine::new(config),
        };
        let clock = Clock::since(started);
        let fleet = FleetSettings {
            template: state.agents.clone(),
            poll_interval: spec.health.poll,
            poll_patience: spec.health.down_after,
            allocation_end: end,
            clock,
        };
        let client = AgentClient::new(&state.agents.trust, spec.health.requests)?;
        let launch = LaunchSettings {
            launcher: prepared.launcher,
            run: step.run.clone(),
            program: prepared.program,
            working_directory: prepared.working_directory.clone(),
            prefix: prefix.clone(),
        };
        let (background, inbox) = Background::channel();
        let mut driver = StepDriver {
            spec,
            step,
            clock,
            settings: settings::settings(spec, step, &prefix, end),
            machine,
            agents: AgentSupervisor::new(Arc::clone(&allocation), client, fleet),
            ranks: Ranks::new(launch, Arc::clone(&allocation)),
            commands: CommandContext {
                job_id: allocation.job_id().to_owned(),
                prefix: prefix.clone(),
                directory: prepared.working_directory,
                allocation: Arc::clone(&allocation),
            },
            record: JobRecord::new(state, prefix),
            reporter,
            signals: &mut self.signals,
            allocation,
            drain: DrainTask::default(),
            outcome: None,
            reported_down: BTreeSet::new(),
            background,
            inbox,
        };
        driver.run().await;
        driver.clean_up().await;
        Ok(report::of_step(&driver, began))
    }
}

/// The nodes and the state of a step: those of an orchestrator that died, or new ones.
async fn open(
    spec: &JobSpec,
    step: &Step,
    prepared: &Prepared,
    prefix: &Path,
    chaos: Vec<Chaos>,
    reporter: &mut Reporter<'_>,
    signals: &mut Signals,
) -> Result<Opened, RunError> {
    let mut previous = JobState::read(prefix)?.filter(JobState::has_nodes);
    if let Some(state) = previous.take_if(|state| matches!(state.stage, Stage::Undrained { .. })) {
        signals.or(start::finish_earlier(prefix, state, reporter.screen)).await?;
    }
    match previous.filter(|state| state.stage == Stage::Running) {
        Some(state) => {
            let logs = state::directory(prefix).join("agents");
            let allocation = signals.or(state.allocation.reopen(chaos, logs)).await?;
            Ok(Opened { allocation, state })
        }
        None => {
            let request = start::allocation_request(spec, step, prepared, chaos, prefix);
            let allocation = signals.or((prepared.manager.open)(request)).await?;
            let state = start::begin(spec, step, prefix, &allocation, reporter, signals).await?;
            Ok(Opened { allocation, state })
        }
    }
}
