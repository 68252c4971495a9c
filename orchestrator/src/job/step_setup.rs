//! Makes the driver of a step: its machine, its ranks, its record.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::environment;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::background::Background;
use super::drain_task::DrainTask;
use super::error::RunError;
use super::excluded_nodes::ExcludedNodes;
use super::fault_schedule::FaultSchedule;
use super::hand_over::OpenedStep;
use super::node_pool::StepNodes;
use super::progress::ProgressSources;
use super::ranks::{LaunchSettings, Ranks};
use super::record::JobRecord;
use super::schedule::Follows;
use super::signals::Signals;
use super::site::CommandContext;
use super::state_file::JobLock;
use super::step::{Batch, StepDriver};
use super::{failure_domains, settings, settings_in_force, start};
use crate::allocation::Allocation;
use crate::events::Screen;
use crate::fleet::{AgentSupervisor, Clock};
use crate::relaunch::{HeldActions, Machine};
use crate::spec::{JobSpec, SHARE, Step, library_parameters};

/// What a step gets from its job.
pub(super) struct StepSetup<'a> {
    pub(super) spec: &'a JobSpec,
    /// The prefix directory of the job.
    pub(super) job_prefix: &'a Path,
    pub(super) screen: &'a Screen,
    pub(super) allocation: &'a Arc<dyn Allocation>,
    /// When the job began, seconds since the epoch.
    pub(super) started: i64,
    pub(super) clock: Clock,
    /// The faults of the job.
    pub(super) faults: &'a Arc<Mutex<FaultSchedule>>,
    pub(super) follows: Follows,
    /// Where steps run side by side; otherwise the step has all nodes.
    pub(super) nodes: Option<StepNodes>,
}

impl<'a> StepSetup<'a> {
    /// The driver, and the lock of the step's own prefix directory. `lent`: the nodes with which the step begins, where
    /// steps run side by side.
    pub(super) async fn driver(
        self,
        opened: OpenedStep<'a>,
        lent: Option<BTreeSet<NodeName>>,
        agents: &'a mut AgentSupervisor,
        signals: &'a mut Signals,
    ) -> Result<(StepDriver<'a>, Option<JobLock>), RunError> {
        let StepSetup { spec, job_prefix, screen, allocation, started, clock, faults, follows, nodes } = self;
        let OpenedStep { at: _, step, prepared, prefix, lock, mut reporter, mut state } = opened;
        reporter.share = share_limit(step);
        reporter.log(&settings_in_force::event(spec, Some(step)));
        let end = allocation.end().map(settings::epoch);
        state.allocation_end = end;
        let domains = failure_domains::of(spec, &**allocation, state.snapshot.is_some()).await?;
        if let Some(event) = failure_domains::event(&domains, allocation.nodes()) {
            reporter.emit(event);
        }
        let mut config = settings::config(spec, step, allocation.nodes(), &domains, started, end);
        config.mpi_start &= prepared.launcher.starts_mpi();
        let excluded = ExcludedNodes::new(spec, job_prefix.to_owned(), allocation.job_id(), allocation.nodes());
        config.excluded = excluded.read()?;
        config.lent = lent;
        config.own_node = allocation.own_node();
        config.finished = state.finished;
        config.restart_within = allocation.restart_within().max(config.down_after);
        let starts_at_once = u32::try_from(allocation.starts_at_once()).unwrap_or(u32::MAX);
        config.restarts_at_once = starts_at_once.min(spec.health.requests).max(1);
        let machine = match &state.snapshot {
            Some(snapshot) => Machine::restore(config, snapshot.clone())?,
            None => Machine::new(config),
        };
        let progress = ProgressSources::new(&spec.progress, &prefix, &prepared.working_directory, step.run.ranks);
        let source = &step.source.facts;
        let mut variables = BTreeMap::new();
        // The mark of its ranks and its launcher, as its agents know it.
        variables.extend(state.agents.step.clone().map(|step| (environment::STEP.to_owned(), step)));
        if source.can_be_interposed {
            variables.extend(prepared.interposition.clone());
        }
        if source.agent.is_library {
            variables.extend(start::library_variables(spec, step, &prefix, &**allocation)?);
            variables.extend(library_parameters::without_fetch().filter(|_| !state.ignored.is_empty()));
        }
        let launch = LaunchSettings {
            launcher: prepared.launcher,
            run: step.run.clone(),
            variables,
            rank_settings: settings::rank_settings(spec, step),
            program: prepared.program,
            supervisor: prepared.supervisor.clone(),
            working_directory: prepared.working_directory.clone(),
            prefix: prefix.clone(),
            progress: progress.clone(),
        };
        let (running, commands_running) = mpsc::channel(1);
        let (background, inbox) = Background::channel();
        let mut agent_settings = settings::settings(spec, step, &prefix, end);
        agent_settings.ignored = state.ignored.clone();
        state.snapshot = Some(machine.snapshot());
        let record = JobRecord::new(state, prefix.clone(), None);
        let record = record.map_err(RunError::io("start the thread of the journal"))?;
        let driver = StepDriver {
            spec,
            step,
            follows,
            clock,
            settings: agent_settings,
            held: HeldActions::new(machine.generation()),
            machine,
            agents,
            progress,
            faults: Arc::clone(faults),
            nodes,
            output_watch: None,
            ranks: Ranks::new(launch, Arc::clone(allocation), screen.clone()),
            commands: CommandContext {
                job_id: allocation.job_id().to_owned(),
                prefix: prefix.clone(),
                directory: prepared.working_directory,
                supervisor: prepared.supervisor.clone(),
                allocation: Arc::clone(allocation),
                running,
            },
            excluded,
            job_prefix: job_prefix.to_owned(),
            commands_running,
            before: None,
            record,
            reporter,
            signals,
            allocation: Arc::clone(allocation),
            drain: DrainTask::default(),
            outcome: None,
            sockets: (Generation::NONE, BTreeMap::new()),
            batch: Batch::default(),
            background,
            inbox,
        };
        Ok((driver, lock))
    }
}

/// The percentage of the time above which blocked ranks are a warning: not where they are as often as that allows.
fn share_limit(step: &Step) -> Option<u8> {
    (!step.is_auto()).then_some(SHARE)
}
