//! The driver of a job: feeds the relaunch machine with events and performs its actions.
//!
//! | file | subject |
//! |---|---|
//! | [`start`] | from a spec to a running loop: preflight, lock, take-over; and from its end to the report |
//! | `preflight` | what can be known to be wrong before anything is started |
//! | [`state`] | `job.json` and the lock |
//! | [`settings`] | the spec in the terms of the loop and the agents |
//! | `agents` | starting, adopting, polling and losing agents |
//! | `actions` | what the machine wants done |
//! | `inputs` | what agents, ranks and the drain tell, as events for the machine |
//! | `stacks` | where ranks that hang are in their code |
//! | [`running_step`] | the step that runs |
//! | [`site`] | commands of the user and the site |
//! | `ending` | nothing is left running |
//!
//! Nothing here blocks the loop: requests are tasks with time limits whose ends come back through a channel.

mod actions;
mod agents;
mod ending;
mod inputs;
mod preflight;
pub mod running_step;
pub mod settings;
pub mod site;
mod stacks;
pub mod start;
pub mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::run::Settings;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::allocation::{AgentTemplate, Allocation};
use crate::drain::DrainReport;
use crate::events::{DownReason, Journal, LogEvent, Screen, View};
use crate::fleet::{AgentClient, Clock, PollNews, Roster};
use crate::launch::Launcher;
use crate::relaunch::{Action, Event, Machine, Outcome};
use crate::spec::{JobSpec, Step};
use agents::{Adopted, AgentHandle};
use inputs::TaskResult;
use running_step::{RunningStep, StepUpdate};
use state::JobState;

pub use preflight::PreflightError;
pub use start::{RunError, RunOptions, plan_text, run};

/// How often the resource manager and the rehearsed failures are asked.
const RESOURCE_MANAGER_POLL: Duration = Duration::from_millis(100);
/// Batches of lines that wait to be shown; an application that prints faster waits in its files.
const WAITING_OUTPUT: usize = 64;

/// What the driver of one step needs to begin.
struct StepContext {
    spec: JobSpec,
    step: Step,
    prefix: PathBuf,
    program: PathBuf,
    working_directory: PathBuf,
    allocation: Arc<dyn Allocation>,
    launcher: Box<dyn Launcher>,
    client: AgentClient,
    template: AgentTemplate,
    settings: Settings,
    machine: Machine,
    clock: Clock,
    state: JobState,
    journal: Journal,
    screen: Screen,
}

/// The driver of one step of a job.
struct Driver {
    context: StepContext,
    roster: Roster,
    agents: BTreeMap<NodeName, AgentHandle>,
    /// Agents of an earlier orchestrator that the machine has not been told of.
    adopted: BTreeMap<NodeName, Adopted>,
    starts: u64,
    start_permits: Arc<Semaphore>,
    /// Agents that are being started.
    starting: JoinSet<()>,
    running: Option<RunningStep>,
    drain: Option<JoinHandle<()>>,
    drained: Option<DrainReport>,
    reported_down: BTreeSet<NodeName>,
    first_launch: Option<Duration>,
    outcome: Option<Outcome>,
    /// The agents were ended; what is left of any was killed.
    agents_stopped: bool,
    written_revision: Option<u64>,
    /// When the allocation ends, for those who talk to the agents.
    end: watch::Sender<Option<i64>>,
    /// Tasks that end what may still run on nodes that are down; they end with the driver.
    fences: JoinSet<()>,
    results: Sender<TaskResult>,
    polls: Sender<PollNews>,
    entries: Sender<LogEvent>,
    steps: mpsc::Sender<StepUpdate>,
}

type Sender<T> = mpsc::UnboundedSender<T>;

/// The receivers of everything that becomes an event of the machine.
struct EventSources {
    results: mpsc::UnboundedReceiver<TaskResult>,
    polls: mpsc::UnboundedReceiver<PollNews>,
    entries: mpsc::UnboundedReceiver<LogEvent>,
    steps: mpsc::Receiver<StepUpdate>,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// What batch scripts ask Slurm for as a warning before the end.
    warning: [Signal; 2],
}

impl Driver {
    fn new(context: StepContext) -> std::io::Result<(Self, EventSources)> {
        let (results, effects_ear) = mpsc::unbounded_channel();
        let (polls, polls_ear) = mpsc::unbounded_channel();
        let (entries, entries_ear) = mpsc::unbounded_channel();
        let (steps, steps_ear) = mpsc::channel(WAITING_OUTPUT);
        let sources = EventSources {
            results: effects_ear,
            polls: polls_ear,
            entries: entries_ear,
            steps: steps_ear,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            warning: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
        };
        let driver = Driver {
            roster: Roster::default(),
            agents: BTreeMap::new(),
            adopted: BTreeMap::new(),
            starts: 0,
            start_permits: Arc::new(Semaphore::new(context.allocation.starts_at_once())),
            starting: JoinSet::new(),
            running: None,
            drain: None,
            drained: None,
            reported_down: BTreeSet::new(),
            first_launch: context.state.first_launch_ms.map(Duration::from_millis),
            outcome: None,
            agents_stopped: false,
            written_revision: None,
            end: watch::Sender::new(context.settings.allocation_end),
            fences: JoinSet::new(),
            results,
            polls,
            entries,
            steps,
            context,
        };
        Ok((driver, sources))
    }

    /// The loop, to its end.
    async fn drive(&mut self, sources: &mut EventSources) -> Option<Outcome> {
        for (node, record) in &self.context.state.running {
            self.context.allocation.adopt_agent(node, record.pid);
        }
        let mut around = tokio::time::interval(RESOURCE_MANAGER_POLL);
        around.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let [warning1, warning2] = &mut sources.warning;
        self.adopt_agents().await;
        let actions = self.context.machine.begin(self.context.clock.now());
        self.perform_all(actions).await;
        self.report_adopted().await;
        while self.outcome.is_none() {
            self.show();
            let deadline = self.context.machine.deadline().map(|at| self.context.clock.until(at));
            tokio::select! {
                // Signals before anything else, then what is known before what time alone tells.
                biased;
                Some(()) = sources.interrupt.recv() => self.signal("SIGINT").await,
                Some(()) = sources.terminate.recv() => self.signal("SIGTERM").await,
                Some(()) = sources.hangup.recv() => self.signal("SIGHUP").await,
                Some(()) = warning1.recv() => self.signal("SIGUSR1").await,
                Some(()) = warning2.recv() => self.signal("SIGUSR2").await,
                Some(result) = sources.results.recv() => self.task_result(result).await,
                Some(news) = sources.polls.recv() => self.poll_result(news).await,
                Some(news) = sources.steps.recv() => self.step_update(news).await,
                Some(entry) = sources.entries.recv() => self.emit(entry),
                () = sleep(deadline) => self.feed(Event::Tick).await,
                _ = around.tick() => self.poll_resource_manager().await,
            }
        }
        while let Ok(entry) = sources.entries.try_recv() {
            self.emit(entry);
        }
        self.outcome.clone()
    }

    /// Gives the machine an event, and does what it says.
    async fn feed(&mut self, event: Event) {
        tracing::debug!(?event, "event");
        let actions = self.context.machine.handle(self.context.clock.now(), event);
        self.perform_all(actions).await;
    }

    async fn perform_all(&mut self, actions: Vec<Action>) {
        // What is going to be done is on disk before it is done: whoever takes over asks for it again.
        if self.written_revision != Some(self.context.machine.revision()) {
            self.write_state();
        }
        for action in actions {
            tracing::debug!(?action, "action");
            self.perform(action).await;
        }
    }

    /// A state that cannot be written (prefix full) must not stop the job: only a take-over would miss it.
    fn write_state(&mut self) {
        let context = &mut self.context;
        self.written_revision = Some(context.machine.revision());
        context.state.snapshot = Some(context.machine.snapshot());
        context.state.explanation = Some(context.machine.explain());
        context.state.orchestrator = std::process::id();
        let written = tokio::task::block_in_place(|| context.state.write(&context.prefix));
        if let Err(error) = written {
            tracing::warn!(%error, "the job's state could not be written; it could not be taken over now");
        }
    }

    async fn signal(&mut self, name: &str) {
        self.feed(Event::Signal { name: name.to_owned() }).await;
    }

    /// Polls the resource manager and fires due fault injections.
    async fn poll_resource_manager(&mut self) {
        for (node, state) in self.context.allocation.down_nodes() {
            if self.reported_down.insert(node.clone()) {
                self.feed(Event::NodeDown { node, reason: DownReason::ResourceManager { state } }).await;
            }
        }
        let end = self.context.allocation.end().map(settings::epoch);
        if self.end.send_if_modified(|known| std::mem::replace(known, end) != end) {
            self.context.settings.allocation_end = end;
            self.emit(LogEvent::AllocationEndChanged { end });
            self.feed(Event::AllocationEnd { end }).await;
        }
        if let Some(first) = self.first_launch {
            let since = self.context.clock.now().saturating_sub(first);
            self.observe(crate::allocation::Observation::SinceLaunch(since));
        }
    }

    /// Shows and logs an event.
    fn emit(&mut self, event: LogEvent) {
        self.context.journal.write(&event);
        self.context.screen.event(&event);
    }

    fn show(&mut self) {
        if !self.context.screen.is_live() {
            return;
        }
        let explanation = self.context.machine.explain();
        let mut view = View {
            phase: explanation.phase.to_string(),
            generation: (explanation.generation > Generation::NONE).then_some(explanation.generation),
            newest: explanation.newest.map(|newest| (newest, explanation.protected)),
            ..View::default()
        };
        for node in &explanation.nodes {
            match &node.condition {
                crate::relaunch::explain::Condition::Down(_) => view.down += 1,
                _ if node.used => view.used += 1,
                _ => view.spare += 1,
            }
        }
        self.context.screen.show(&view);
    }
}

/// Never ends without a deadline.
async fn sleep(until: Option<Duration>) {
    match until {
        Some(until) => tokio::time::sleep(until).await,
        None => std::future::pending().await,
    }
}
