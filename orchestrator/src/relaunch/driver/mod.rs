//! The driver: feeds the relaunch machine with what happens, and does what it says.
//!
//! | file | subject |
//! |---|---|
//! | [`start`] | from a spec to a running loop: preflight, lock, take-over; and from its end to the report |
//! | `preflight` | what can be known to be wrong before anything is started |
//! | [`state`] | `job.json` and the lock |
//! | [`settings`] | the spec in the terms of the loop and the agents |
//! | `agents` | starting, adopting, polling and losing agents |
//! | `actions` | what the machine wants done |
//! | `news` | what agents, ranks and the drain tell, as events for the machine |
//! | `stacks` | where ranks that hang are in their code |
//! | [`running_step`] | the step that runs |
//! | [`site`] | commands of the user and the site |
//! | `ending` | nothing is left running |
//!
//! Nothing here blocks the loop: requests are tasks with time limits whose ends come back through a channel.

mod actions;
mod agents;
mod ending;
mod news;
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

use chrono::DateTime;
use holdfast_core::ids::{CheckpointId, Generation, NodeName};
use holdfast_wire::run::Settings;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::allocation::Allocation;
use crate::drain::DrainReport;
use crate::events::{Entry, Journal, OwnEvent, Screen, View};
use crate::fleet::{AgentClient, AgentTemplate, Clock, PollNews, Roster};
use crate::launch::Launcher;
use crate::relaunch::{Action, DownReason, Event, Machine, Outcome};
use crate::spec::{JobSpec, Step};
use agents::{Adopted, AgentHandle};
use news::Effect;
use running_step::{RunningStep, StepNews};
use state::JobState;

pub use preflight::PreflightError;
pub use start::{RunError, RunOptions, plan_text, run};

/// How often the resource manager and the rehearsed failures are asked.
const LOOK_AROUND_EVERY: Duration = Duration::from_millis(100);
/// Batches of lines that wait to be shown; an application that prints faster waits in its files.
const WAITING_OUTPUT: usize = 64;

/// What the driver of one step needs to begin.
struct Parts {
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
    parts: Parts,
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
    told_down: BTreeSet<NodeName>,
    newest: Option<(CheckpointId, bool)>,
    first_launch: Option<Duration>,
    /// The generation whose ranks are being killed.
    ending: Option<Generation>,
    outcome: Option<Outcome>,
    written_revision: Option<u64>,
    /// When the allocation ends, for those who talk to the agents.
    end: watch::Sender<Option<i64>>,
    /// Tasks that end what may still run on nodes that are down; they end with the driver.
    fences: JoinSet<()>,
    effects: Sender<Effect>,
    polls: Sender<PollNews>,
    entries: Sender<Entry>,
    steps: mpsc::Sender<StepNews>,
}

type Sender<T> = mpsc::UnboundedSender<T>;

/// The ends of the channels at which the loop listens.
struct Ears {
    effects: mpsc::UnboundedReceiver<Effect>,
    polls: mpsc::UnboundedReceiver<PollNews>,
    entries: mpsc::UnboundedReceiver<Entry>,
    steps: mpsc::Receiver<StepNews>,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// What batch scripts ask Slurm for as a warning before the end.
    warning: [Signal; 2],
}

impl Driver {
    fn new(parts: Parts) -> std::io::Result<(Self, Ears)> {
        let (effects, effects_ear) = mpsc::unbounded_channel();
        let (polls, polls_ear) = mpsc::unbounded_channel();
        let (entries, entries_ear) = mpsc::unbounded_channel();
        let (steps, steps_ear) = mpsc::channel(WAITING_OUTPUT);
        let ears = Ears {
            effects: effects_ear,
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
            start_permits: Arc::new(Semaphore::new(parts.allocation.starts_at_once())),
            starting: JoinSet::new(),
            running: None,
            drain: None,
            drained: None,
            told_down: BTreeSet::new(),
            newest: None,
            first_launch: parts.state.first_launch_ms.map(Duration::from_millis),
            ending: None,
            outcome: None,
            written_revision: None,
            end: watch::Sender::new(parts.settings.allocation_end),
            fences: JoinSet::new(),
            effects,
            polls,
            entries,
            steps,
            parts,
        };
        Ok((driver, ears))
    }

    /// The loop, to its end.
    async fn drive(&mut self, ears: &mut Ears) -> Option<Outcome> {
        for (node, record) in &self.parts.state.running {
            self.parts.allocation.adopt_agent(node, record.pid);
        }
        let mut around = tokio::time::interval(LOOK_AROUND_EVERY);
        around.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let [warning1, warning2] = &mut ears.warning;
        self.adopt_agents().await;
        let actions = self.parts.machine.begin(self.parts.clock.now());
        self.carry_out(actions).await;
        self.tell_adopted().await;
        while self.outcome.is_none() {
            self.show();
            let deadline = self.parts.machine.deadline().map(|at| self.parts.clock.until(at));
            tokio::select! {
                // Signals before anything else, then what is known before what time alone tells.
                biased;
                Some(()) = ears.interrupt.recv() => self.signal("SIGINT").await,
                Some(()) = ears.terminate.recv() => self.signal("SIGTERM").await,
                Some(()) = ears.hangup.recv() => self.signal("SIGHUP").await,
                Some(()) = warning1.recv() => self.signal("SIGUSR1").await,
                Some(()) = warning2.recv() => self.signal("SIGUSR2").await,
                Some(effect) = ears.effects.recv() => self.effect(effect).await,
                Some(news) = ears.polls.recv() => self.poll_news(news).await,
                Some(news) = ears.steps.recv() => self.step_news(news).await,
                Some(entry) = ears.entries.recv() => self.tell(entry),
                () = sleep(deadline) => self.feed(Event::Tick).await,
                _ = around.tick() => self.look_around().await,
            }
        }
        while let Ok(entry) = ears.entries.try_recv() {
            self.tell(entry);
        }
        self.outcome.clone()
    }

    /// Gives the machine an event, and does what it says.
    async fn feed(&mut self, event: Event) {
        tracing::debug!(?event, "event");
        let actions = self.parts.machine.handle(self.parts.clock.now(), event);
        self.carry_out(actions).await;
    }

    async fn carry_out(&mut self, actions: Vec<Action>) {
        // What is going to be done is on disk before it is done: whoever takes over asks for it again.
        if self.written_revision != Some(self.parts.machine.revision()) {
            self.write_state();
        }
        for action in actions {
            tracing::debug!(?action, "action");
            self.perform(action).await;
        }
    }

    /// A state that cannot be written (prefix full) must not stop the job: only a take-over would miss it.
    fn write_state(&mut self) {
        let parts = &mut self.parts;
        self.written_revision = Some(parts.machine.revision());
        parts.state.snapshot = Some(parts.machine.snapshot());
        parts.state.explanation = serde_json::to_value(parts.machine.explain()).unwrap_or_default();
        parts.state.protected = self.newest.is_some_and(|newest| newest.1);
        parts.state.orchestrator = std::process::id();
        let written = tokio::task::block_in_place(|| parts.state.write(&parts.prefix));
        if let Err(error) = written {
            tracing::warn!(%error, "the job's state could not be written; it could not be taken over now");
        }
    }

    async fn signal(&mut self, name: &str) {
        self.feed(Event::Signal { name: name.to_owned() }).await;
    }

    /// What nobody tells by itself: the resource manager's word, and rehearsed failures whose time has come.
    async fn look_around(&mut self) {
        for (node, state) in self.parts.allocation.down_nodes() {
            if self.told_down.insert(node.clone()) {
                self.feed(Event::NodeDown { node, reason: DownReason::ResourceManager { state } }).await;
            }
        }
        let end = self.parts.allocation.end().map(settings::epoch);
        if self.end.send_if_modified(|known| std::mem::replace(known, end) != end) {
            self.parts.settings.allocation_end = end;
            let local = |end: i64| DateTime::from_timestamp(end, 0).map(|at| at.with_timezone(&chrono::Local));
            self.remark(match end.and_then(local) {
                Some(at) => format!("the allocation now ends at {}", at.format("%Y-%m-%d %H:%M:%S")),
                None => "the allocation has no end now".to_owned(),
            });
            self.feed(Event::AllocationEnd { end }).await;
        }
        if let Some(first) = self.first_launch {
            let since = self.parts.clock.now().saturating_sub(first);
            self.observe(crate::allocation::Observation::SinceLaunch(since));
        }
    }

    /// Shows and logs an event.
    fn tell(&mut self, entry: Entry) {
        self.parts.journal.write(&entry);
        self.parts.screen.event(&entry);
    }

    fn remark(&mut self, message: impl Into<String>) {
        self.tell(Entry::Own(OwnEvent::Remark { message: message.into() }));
    }

    fn show(&mut self) {
        if !self.parts.screen.is_live() {
            return;
        }
        let explanation = self.parts.machine.explain();
        let mut view = View {
            phase: explanation.phase.to_owned(),
            generation: (explanation.generation > Generation::NONE).then_some(explanation.generation),
            newest: self.newest,
            ..View::default()
        };
        for node in &explanation.nodes {
            match &node.condition {
                super::explain::Condition::Down(_) => view.down += 1,
                _ if node.used => view.used += 1,
                _ => view.spare += 1,
            }
        }
        self.parts.screen.show(&view);
    }
}

/// Never ends without a deadline.
async fn sleep(until: Option<Duration>) {
    match until {
        Some(until) => tokio::time::sleep(until).await,
        None => std::future::pending().await,
    }
}
