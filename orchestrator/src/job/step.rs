//! The driver of one step: passes events to the relaunch machine and performs its actions.
//!
//! Each subject has a type of its own: the agents ([`AgentSupervisor`]), the ranks ([`Ranks`]), the drain
//! ([`DrainTask`]), the state on disk ([`JobRecord`]), log and screen ([`Reporter`]). The driver connects them, and
//! acts only on actions of the machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{Generation, NodeName};
use holdfast_wire::run::Settings;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::DropGuard;

use super::background::{Background, Inbox};
use super::drain_task::DrainTask;
use super::error::RunError;
use super::excluded_nodes::ExcludedNodes;
use super::fault_schedule::FaultSchedule;
use super::node_pool::StepNodes;
use super::progress::ProgressSources;
use super::ranks::Ranks;
use super::record::JobRecord;
use super::reporter::Reporter;
use super::schedule::Follows;
use super::signals::Signals;
use super::site::{CommandCancellation, CommandContext, SiteCommands};
use super::{manager_poll, site};
use crate::allocation::Allocation;
use crate::events::{CommandKey, LogEvent};
use crate::fleet::{AgentSupervisor, Clock};
use crate::relaunch::{Action, Event, HeldActions, Machine, Outcome};
use crate::spec::{JobSpec, Step};

/// How often the loop checks for injected faults that are due and for changes to be written.
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The events of all inputs that are ready now.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    /// One of the events ends the generation, as far as is known before the machine has handled it.
    pub(super) ends_run: bool,
}

/// The driver of one step of a job.
pub(super) struct StepDriver<'job> {
    pub(super) spec: &'job JobSpec,
    pub(super) step: &'job Step,
    /// Whether another step of the job follows.
    pub(super) follows: Follows,
    pub(super) allocation: Arc<dyn Allocation>,
    pub(super) clock: Clock,
    pub(super) settings: Settings,
    pub(super) machine: Machine,
    pub(super) agents: &'job mut AgentSupervisor,
    pub(super) ranks: Ranks,
    /// The faults of the job.
    pub(super) faults: Arc<Mutex<FaultSchedule>>,
    /// Where steps run side by side: the nodes of the job.
    pub(super) nodes: Option<StepNodes>,
    /// Reads the output of the generation for a line that a fault waits for.
    pub(super) output_watch: Option<DropGuard>,
    pub(super) progress: ProgressSources,
    pub(super) drain: DrainTask,
    pub(super) record: JobRecord,
    /// The actions that wait until the decision behind them is on disk.
    pub(super) held: HeldActions,
    pub(super) reporter: Reporter,
    /// Where the health test runs.
    pub(super) commands: CommandContext,
    pub(super) excluded: ExcludedNodes,
    /// The prefix directory of the job, in which a step has its own.
    pub(super) job_prefix: PathBuf,
    /// Ends when no command of the user or the site runs.
    pub(super) commands_running: mpsc::Receiver<()>,
    /// The commands of `before:`, while they run.
    pub(super) before: Option<CommandCancellation>,
    pub(super) outcome: Option<Outcome>,
    pub(super) signals: &'job mut Signals,
    /// The agents' sockets for the ranks of the generation.
    pub(super) sockets: (Generation, BTreeMap<NodeName, PathBuf>),
    pub(super) batch: Batch,
    pub(super) background: Background,
    pub(super) inbox: Inbox,
}

impl StepDriver<'_> {
    /// The loop. It never waits for a file system or a command: such work runs in threads and tasks that report to it.
    pub(super) async fn run(&mut self) {
        let _manager_poll = manager_poll::start(Arc::clone(&self.allocation), self.background.clone());
        let known = self.machine.config().excluded.clone();
        let _excluded_watch = self.excluded.clone().watch(known, self.background.clone());
        let unknown = self.excluded.unknown(self.allocation.nodes());
        if !unknown.is_empty() {
            self.reporter.emit(LogEvent::UnknownNodesExcluded { nodes: unknown });
        }
        let mut check = tokio::time::interval(CHECK_EVERY);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Before the first actions: requests to agents that are not adopted would be lost.
        self.agents.adopt(&self.record.state.running).await;
        let actions = self.machine.begin(self.clock.now());
        self.perform_or_hold(actions);
        while self.outcome.is_none() {
            self.reporter.refresh(&self.machine);
            let deadline = self.clock.reach(self.machine.deadline());
            let first = tokio::select! {
                // Inputs before deadlines.
                biased;
                input = self.next_input() => Some(input),
                () = deadline => None,
                _ = check.tick() => None,
            };
            // All inputs that are ready together: one decision, one entry of the journal.
            if let Some(first) = first {
                self.receive_ready(first);
            }
            self.inject_due_faults();
            let Batch { events, .. } = std::mem::take(&mut self.batch);
            tracing::debug!(?events, "events");
            let actions = self.machine.handle_all(self.clock.now(), events);
            self.perform_or_hold(actions);
            self.wait_for_prefix();
        }
        while let Ok(event) = self.inbox.events.try_recv() {
            self.reporter.emit(event);
        }
        self.end_ranks().await;
    }

    /// Adds an event to the batch for the machine.
    pub(super) fn feed(&mut self, event: Event) {
        self.batch.events.push(event);
    }

    /// Performs the actions that need not wait for the journal; the others follow when the decision behind them is on
    /// disk, because an orchestrator that takes over repeats them. The journal's thread is never awaited here: a file
    /// system that hangs must not look like silent agents.
    fn perform_or_hold(&mut self, actions: Vec<Action>) {
        for action in self.held.admit(self.record.next_commit(), actions) {
            self.perform(action);
        }
        let machine = &mut self.machine;
        self.record.commit(self.held.waits(), self.agents, || machine.take_changes());
    }

    pub(super) fn signal(&mut self, name: &'static str) {
        if self.machine.is_finished() {
            // The job only waits for the journal.
            return self.give_up_prefix();
        }
        self.feed(Event::Signal { name: name.to_owned() });
    }

    /// At the end, when only actions that wait for the journal are left.
    fn wait_for_prefix(&mut self) {
        if self.machine.is_finished() && self.held.waits() && self.record.gives_up(&self.reporter.screen) {
            self.give_up_prefix();
        }
    }

    fn give_up_prefix(&mut self) {
        tracing::warn!("the prefix directory does not answer; the end of the job is not recorded there yet");
        for action in self.held.release(u64::MAX, &self.machine) {
            self.perform(action);
        }
    }

    /// The nodes whose agents are up.
    pub(super) fn nodes_up(&self) -> Vec<NodeName> {
        self.agents.roster().agents().into_keys().collect()
    }

    /// The commands of `before:` or `after:`, to be run on these nodes, which are healthy.
    pub(super) fn site_commands(&self, key: CommandKey, nodes: Vec<NodeName>) -> std::io::Result<SiteCommands> {
        let commands = match key {
            CommandKey::Before => self.spec.before.clone(),
            CommandKey::After => self.spec.after.clone(),
            // Of jobs with pairs, which run it elsewhere.
            CommandKey::Reboot => Vec::new(),
        };
        let directory = site::working_directory(None)?;
        let context = CommandContext { prefix: self.job_prefix.clone(), directory, ..self.commands.clone() };
        let cancellation = CommandCancellation::new(&nodes);
        Ok(SiteCommands { key, commands, nodes, context, cancellation })
    }

    /// Runs the commands of `after:` because no other step can begin, although one should.
    pub(super) async fn run_after(&mut self) {
        let after = match self.site_commands(CommandKey::After, self.nodes_up()) {
            Ok(after) => after,
            Err(error) => return tracing::warn!(%error, "the commands of `after` cannot be run"),
        };
        let StepDriver { signals, reporter, .. } = self;
        // What fails is reported as an event.
        let _ = signals.or(async { Ok::<_, RunError>(after.run(|event| reporter.emit(event)).await) }).await;
    }

    /// The site's health test, if there is one, and where it runs.
    pub(super) fn health_test(&self) -> Option<(Vec<String>, site::CommandContext)> {
        // Not waited for at the end: its processes end with this one.
        let (running, _) = mpsc::channel(1);
        Some((self.spec.health.command.clone()?, CommandContext { running, ..self.commands.clone() }))
    }
}
