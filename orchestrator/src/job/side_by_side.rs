//! Runs the steps of a job side by side, each on nodes of its own: see [`lending`](super::lending).
//!
//! Each step has a driver, a prefix directory, a state and agents of its own, as the only step of a job has. They share
//! the allocation and the faults of the spec. A step ends its agents when it ends: the next one on these nodes starts
//! its own.
//!
//! After a signal, a halt, or another end of a step that ends the job, no further step begins; those under way go on to
//! their own ends (each gets the signal too).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use holdfast_model::{Generation, NodeName};
use parking_lot::Mutex;

use super::driver::{JobDriver, JobNodes};
use super::error::RunError;
use super::excluded_nodes::ExcludedNodes;
use super::fault_schedule::FaultSchedule;
use super::hand_over::{NextStep, OpenedPrefix, OpenedStep, on_thread, record_begin};
use super::lending::{Lending, Need, StepAt};
use super::node_pool::NodePool;
use super::release::{keep, release};
use super::restart_choice::{self, RestartChoice};
use super::schedule::{Follows, Schedule, StepState};
use super::shell::JobShell;
use super::signals::Signals;
use super::state::{JobState, Stage};
use super::step_setup::StepSetup;
use super::{failure_domains, fault_injection, report, standalone, start};
use crate::allocation::Allocation;
use crate::events::RunReport;
use crate::exit;
use crate::fleet::{AgentSupervisor, Clock};
use crate::relaunch::Snapshot;
use crate::relaunch::placement::numbered;
use crate::spec::{JobSpec, Step};

/// A step that has ended, or could not begin.
type Ended = (StepAt, Result<EndedStep, RunError>);
type Running<'a> = FuturesUnordered<LocalBoxFuture<'a, Ended>>;

/// What is left of a step that has ended.
struct EndedStep {
    exit_code: u8,
    /// No other step may begin.
    ends_job: bool,
    made_progress: bool,
    /// Its nodes still hold files of it.
    keeps: bool,
    /// The nodes that others can use.
    free: BTreeSet<NodeName>,
    report: RunReport,
}

/// How a step begins.
enum Beginning<'job> {
    /// It is the first one, whose nodes were opened for it.
    Opened(Box<(OpenedStep<'job>, AgentSupervisor)>),
    Next(NextStep<'job>),
}

/// What the steps share.
struct SideBySide<'a, 'job> {
    shell: &'a JobShell<'job>,
    allocation: Arc<dyn Allocation>,
    started: i64,
    clock: Clock,
    faults: &'a Arc<Mutex<FaultSchedule>>,
    pool: NodePool,
    /// The state of the first step: the others get the same certificate and key.
    first: JobState,
    /// The highest generation of a step that has ended: those of the next one on its nodes are higher.
    highest: AtomicU64,
}

/// True if steps of the job may run side by side: none of them needs the other, and the nodes are enough for both; or
/// if an earlier orchestrator ran some so. The commands of `before` and `after` are run around all steps, on all nodes.
pub(super) fn is_possible(
    spec: &JobSpec,
    schedule: &Schedule,
    allocation: &dyn Allocation,
    first: &OpenedStep<'_>,
    continued: &[StepAt],
) -> bool {
    let has_some = first.state.snapshot.as_ref().is_some_and(Snapshot::has_some_nodes);
    if has_some || !continued.is_empty() {
        return true;
    }
    if !spec.before.is_empty() || !spec.after.is_empty() {
        return false;
    }
    let usable = allocation.nodes().iter().filter(|node| !spec.allocation.is_excluded(node)).count();
    let is_left = |at: &StepAt| matches!(schedule.state(*at), StepState::Waiting | StepState::Running);
    let nodes = |at: StepAt| spec.steps[at].run.nodes as usize;
    let fits = |at: StepAt| schedule.beside(at).any(|other| nodes(at) + nodes(other) <= usable);
    (0..spec.steps.len()).filter(is_left).any(fits)
}

/// Runs the steps of a job from the first one, which is opened, and those that an earlier orchestrator or run left.
///
/// # Errors
/// Why a step could not begin. The others have ended by then.
pub(super) async fn run<'job>(
    job: &mut JobDriver<'job>,
    nodes: JobNodes,
    first: OpenedStep<'job>,
    continued: Vec<StepAt>,
) -> Result<(), RunError> {
    let JobDriver { shell, schedule, pending, reports, faults } = job;
    let JobNodes { allocation, agents, started, clock } = nodes;
    let mut signals = Signals::new().map_err(RunError::io("listen for signals"))?;
    let spec = shell.spec;
    let of_nodes = failure_domains::of(spec, &*allocation, first.state.snapshot.is_some()).await?;
    let domains = numbered(allocation.nodes().iter().map(|node| of_nodes.of(node)));
    let lending = Lending::new(allocation.nodes(), domains);
    let excluded = ExcludedNodes::new(spec, shell.prefix.clone(), allocation.job_id(), allocation.nodes());
    let steps = SideBySide {
        shell,
        started,
        clock,
        faults,
        pool: NodePool::new(lending, excluded, Arc::clone(&allocation)),
        first: first.state.clone(),
        highest: AtomicU64::new(first.state.finished.0),
        allocation,
    };
    let (mut running, mut ended, mut outcome) = (Running::new(), Vec::new(), Outcome::default());
    let begun: Vec<NextStep<'job>> = continued.iter().filter_map(|at| pending.remove(at)).collect();
    // Before any step is lent others.
    let mut known = vec![(first.at, first.state.snapshot.clone())];
    for next in &begun {
        let state = JobState::read(&next.step.prefix)?;
        if let Some(state) = &state {
            faults.lock().note_earlier(&state.faults_injected, state.first_launch_ms);
        }
        known.push((next.at, state.and_then(|state| state.snapshot)));
    }
    for (at, snapshot) in known.iter().filter_map(|(at, snapshot)| Some((*at, snapshot.as_ref()?))) {
        steps.pool.has(at, snapshot.lent());
    }
    let lent = match &first.state.snapshot {
        Some(snapshot) => Some(snapshot.lent().cloned().collect()),
        None => steps.pool.begin(first.at, &need(spec, schedule, first.at)).await,
    };
    let lent = lent.unwrap_or_else(|| steps.allocation.nodes().iter().cloned().collect());
    running.push(steps.run_step(first.at, Beginning::Opened(Box::new((first, agents))), lent)?);
    for (next, (_, snapshot)) in begun.into_iter().zip(known.into_iter().skip(1)) {
        let lent = snapshot.iter().flat_map(Snapshot::lent).cloned().collect();
        running.push(steps.run_step(next.at, Beginning::Next(next), lent)?);
    }
    loop {
        if !outcome.is_over {
            for at in schedule.ready() {
                let need = need(spec, schedule, at);
                let lent = meanwhile(&mut running, &mut ended, steps.pool.begin(at, &need)).await;
                if let Some((lent, next)) = lent.and_then(|lent| Some((lent, pending.remove(&at)?))) {
                    schedule.begin(at);
                    running.push(steps.run_step(at, Beginning::Next(next), lent)?);
                }
            }
        }
        if ended.is_empty() {
            tokio::select! {
                biased;
                _ = signals.next(), if !outcome.is_over => outcome.is_over = true,
                step = running.next() => match step {
                    Some(step) => ended.push(step),
                    None => break,
                },
            }
        }
        for (at, step) in std::mem::take(&mut ended) {
            let (free, keeps) = outcome.take(at, step, schedule, reports);
            meanwhile(&mut running, &mut ended, steps.pool.end(at, &free, keeps)).await;
        }
    }
    drop(running);
    let (allocation, first_state) = (steps.allocation, steps.first);
    shell.made_progress |= outcome.made_progress;
    let mut reporter = shell.reporter(&shell.prefix, None)?;
    fault_injection::report_missed(&mut faults.lock(), &*allocation, &mut reporter);
    // Also those of a step that could not be continued.
    let has_nodes = |step: &Step| standalone::has_nodes_of(&step.prefix, &first_state);
    if outcome.keeps || spec.steps.iter().any(has_nodes) {
        keep(&*allocation);
    } else {
        release(allocation, &mut reporter).await;
    }
    outcome.failed.map_or(Ok(()), Err)
}

/// Waits for `work`, while the steps go on.
async fn meanwhile<T>(running: &mut Running<'_>, ended: &mut Vec<Ended>, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            Some(step) = running.next(), if !running.is_empty() => ended.push(step),
        }
    }
}

/// What follows from the steps that have ended.
#[derive(Default)]
struct Outcome {
    /// No further step begins.
    is_over: bool,
    made_progress: bool,
    /// The nodes of a step still hold files of it.
    keeps: bool,
    failed: Option<RunError>,
}

impl Outcome {
    /// The end of a step: the nodes that others can use, and whether it keeps its own.
    fn take(
        &mut self,
        at: StepAt,
        step: Result<EndedStep, RunError>,
        schedule: &mut Schedule,
        reports: &mut BTreeMap<StepAt, RunReport>,
    ) -> (BTreeSet<NodeName>, bool) {
        match step {
            Ok(step) => {
                schedule.ended(at, step.exit_code);
                reports.insert(at, step.report);
                self.is_over |= step.ends_job;
                self.made_progress |= step.made_progress;
                self.keeps |= step.keeps;
                (step.free, step.keeps)
            }
            Err(error) => {
                self.is_over = true;
                schedule.ended(at, error.exit_code());
                self.failed.get_or_insert(error);
                (BTreeSet::new(), false)
            }
        }
    }
}

/// What the step needs, and what may run beside it.
fn need(spec: &JobSpec, schedule: &Schedule, at: StepAt) -> Need {
    let run = &spec.steps[at].run;
    let beside = schedule.beside(at).map(|other| spec.steps[other].run.nodes).min();
    Need { nodes: run.nodes, ranks: run.ranks, ranks_per_node: run.ranks_per_node, beside }
}

impl<'job> SideBySide<'_, 'job> {
    /// A step from its beginning to its end, on these nodes. It gets all signals from now on.
    fn run_step<'a>(
        &'a self,
        at: StepAt,
        beginning: Beginning<'job>,
        lent: BTreeSet<NodeName>,
    ) -> Result<LocalBoxFuture<'a, Ended>, RunError>
    where
        'job: 'a,
    {
        let signals = Signals::new().map_err(RunError::io("listen for signals"))?;
        Ok(Box::pin(async move { (at, self.run_to_end(beginning, lent, signals).await) }))
    }

    async fn run_to_end(
        &self,
        beginning: Beginning<'job>,
        lent: BTreeSet<NodeName>,
        mut signals: Signals,
    ) -> Result<EndedStep, RunError> {
        let (began, shell) = (Instant::now(), self.shell);
        let is_first = matches!(beginning, Beginning::Opened(_));
        let (mut opened, mut agents) = match beginning {
            Beginning::Opened(opened) => *opened,
            Beginning::Next(next) => {
                let opened = self.open(next, &mut signals).await?;
                let mut agents = shell.supervisor(&self.allocation, &opened.state, self.clock)?;
                self.faults.lock().lost_nodes().into_iter().for_each(|node| agents.node_lost(node));
                (opened, agents)
            }
        };
        let screen = shell.screen.of_step(&opened.step.name);
        // That of the first step was made before it was known that others run beside it.
        if is_first {
            if opened.state.running.is_empty() {
                // No agent was started yet.
                opened.state.agents.step = Some(opened.step.name.clone());
                agents = shell.supervisor(&self.allocation, &opened.state, self.clock)?;
                self.faults.lock().lost_nodes().into_iter().for_each(|node| agents.node_lost(node));
            }
            opened.reporter.screen = screen.clone();
        }
        let setup = StepSetup {
            spec: shell.spec,
            job_prefix: &shell.prefix,
            screen: &screen,
            allocation: &self.allocation,
            started: self.started,
            clock: self.clock,
            faults: self.faults,
            follows: Follows::default(),
            nodes: Some(self.pool.of(opened.at)),
        };
        let (mut driver, _lock) = setup.driver(opened, Some(lent), &mut agents, &mut signals).await?;
        driver.run().await;
        let exit_code = driver.exit_code();
        if exit_code != exit::NOT_FINISHED {
            driver.progress.forget().await;
        }
        let (free, keeps) = driver.end_beside().await;
        self.highest.fetch_max(driver.machine.generation().0, Ordering::Relaxed);
        screen.step_ended();
        Ok(EndedStep {
            exit_code,
            ends_job: driver.ends_job(),
            made_progress: driver.machine.may_have_made_progress(),
            keeps,
            free,
            report: report::of_step(&driver, began).await,
        })
    }

    /// Opens the prefix directory of a step: its state is that of an orchestrator that died or of an earlier run in the
    /// same nodes, or new.
    async fn open(&self, next: NextStep<'job>, signals: &mut Signals) -> Result<OpenedStep<'job>, RunError> {
        let NextStep { at, step, prepared } = next;
        let (shell, spec, allocation) = (self.shell, self.shell.spec, &self.allocation);
        let (path, job, group_access, log) =
            (step.prefix.clone(), spec.job.clone(), spec.group_access, spec.log_access());
        let opened = on_thread(move || OpenedPrefix::open(&path, &job, group_access, log));
        let OpenedPrefix { prefix, lock, event_log, mut left } = signals.or(opened).await?;
        let mut reporter = shell.observers.reporter(event_log, shell.screen.of_step(&step.name), Some(step));
        let fits = shell.choices.restart == RestartChoice::Newest;
        if let Some(kept) =
            left.take_if(|state| matches!(state.stage, Stage::Kept { .. }) && state.has_same_nodes(&self.first))
        {
            let continues = fits
                && !restart_choice::is_drained_for(step, &kept)
                && start::continues(spec, allocation.manager(), &kept);
            let prefixes = (&*prefix, &*shell.prefix);
            left = match continues {
                true => {
                    match start::begin_next_run(spec, step, prefixes, &shell.choices, allocation, kept, &mut reporter)?
                    {
                        Ok(state) => {
                            return Ok(OpenedStep { at, step, prepared, prefix, lock: Some(lock), reporter, state });
                        }
                        Err(kept) => Some(*kept),
                    }
                }
                false => Some(kept),
            };
        }
        let state = match left {
            Some(state) if state.stage == Stage::Running && state.has_same_nodes(&self.first) => state,
            left => {
                if let Some(left) = left {
                    signals.or(standalone::finish_earlier(spec, &prefix, left, &reporter.screen)).await?;
                }
                let mut state =
                    start::state_of_step(spec, step, &shell.choices, allocation.record(), self.first.template()?);
                state.agents.step = Some(step.name.clone());
                state.finished = Generation(self.highest.load(Ordering::Relaxed));
                (state.first_launch_ms, state.faults_injected) = {
                    let faults = self.faults.lock();
                    (faults.first_launch_ms(), faults.injected())
                };
                let (choice, to) = (shell.choices.restart.clone(), prefix.clone());
                state.ignored = signals.or(on_thread(move || restart_choice::apply(&choice, &to))).await?;
                let (written, to) = (state.clone(), prefix.clone());
                signals.or(on_thread(move || record_begin(&written, &to))).await?;
                start::announce(&state, &prefix, &mut reporter);
                state
            }
        };
        Ok(OpenedStep { at, step, prepared, prefix, lock: Some(lock), reporter, state })
    }
}
