//! The job's state on disk, and the actions that wait until it is written.
//!
//! Every batch of events ends with [`JobRecord::commit`]. If an action waits, the changes are handed to the journal's
//! thread to be synchronised; otherwise they are handed over to be written without a sync, at most every
//! [`WRITTEN_EVERY`]. While the thread writes, nothing more is handed over: all changes meanwhile become one entry. A
//! relaunch thus costs one sync for each decision that must be on disk, whatever the number of nodes and ranks.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use holdfast_model::NodeName;

use super::journal::JournalWriter;
use super::state::{JobState, Progress, StateChanges};
use crate::fleet::{AgentRecord, AgentSupervisor};
use crate::relaunch::{Action, HeldActions, Machine};

/// Changes without waiting actions are written no more often than this.
const WRITTEN_EVERY: Duration = Duration::from_millis(100);

/// The state of the job, and how much of it is on disk.
pub(super) struct JobRecord {
    /// Without `running` and `snapshot`, which the agents' supervisor and the machine have.
    pub(super) state: JobState,
    /// The progress that was handed over last.
    handed_over: Progress,
    /// Agents whose records have changed since.
    agents: BTreeSet<NodeName>,
    held: HeldActions,
    writer: JournalWriter,
    /// The number of the last commit.
    commit: u64,
    /// The last commit is not written yet.
    under_way: bool,
    handed_over_at: Instant,
    /// The last state is on disk, or cannot be written.
    complete: bool,
}

impl JobRecord {
    /// The record of a step that begins or is taken over. The thread first writes the complete state.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn new(mut state: JobState, prefix: PathBuf, machine: &Machine) -> std::io::Result<Self> {
        state.orchestrator = std::process::id();
        state.snapshot = Some(machine.snapshot());
        let handed_over = state.progress();
        let writer = JournalWriter::start(prefix, state.clone())?;
        Ok(JobRecord {
            held: HeldActions::new(machine.generation()),
            state,
            handed_over,
            agents: BTreeSet::new(),
            writer,
            commit: 0,
            under_way: false,
            handed_over_at: Instant::now(),
            complete: false,
        })
    }

    /// Notes that the record of an agent changed.
    pub(super) fn agent_changed(&mut self, node: &NodeName) {
        if !self.agents.contains(node) {
            self.agents.insert(node.clone());
        }
    }

    /// Adds the actions of a batch of events. Returns those that may be performed now; the others wait for the next
    /// [`commit`](Self::commit).
    pub(super) fn admit(&mut self, actions: Vec<Action>) -> Vec<Action> {
        self.held.admit(self.commit + 1, actions)
    }

    /// Hands the changes over, if an action waits for them or the last commit is long enough ago.
    pub(super) fn commit(&mut self, machine: &mut Machine, agents: &AgentSupervisor) {
        let is_time = self.handed_over_at.elapsed() >= WRITTEN_EVERY;
        if self.under_way || !(self.held.waits() || is_time) {
            return;
        }
        let changes = self.take_changes(machine, agents);
        let sync = self.held.waits();
        if sync || !changes.is_empty() {
            (self.commit, self.under_way, self.handed_over_at) = (self.commit + 1, true, Instant::now());
            self.writer.write(self.commit, changes, sync);
        }
    }

    fn take_changes(&mut self, machine: &mut Machine, agents: &AgentSupervisor) -> StateChanges {
        let progress = self.state.progress();
        let progress = (progress != self.handed_over).then(|| {
            self.handed_over = progress.clone();
            progress
        });
        let changed = std::mem::take(&mut self.agents);
        let agents = changed.into_iter().map(|node| {
            let record = agents.record(&node);
            (node, record)
        });
        StateChanges { progress, agents: agents.collect(), memory: machine.take_changes() }
    }

    /// Waits for the journal's thread. Returns the actions that may be performed now. Cancel safe.
    pub(super) async fn released(&mut self, machine: &Machine) -> Vec<Action> {
        let written = self.writer.next().await;
        self.under_way = self.under_way && written.commit != self.commit;
        self.complete = self.complete || written.commit == LAST;
        self.held.release(written.commit, machine)
    }

    /// Gives up waiting for the journal. Returns the actions that waited for it.
    pub(super) fn release_all(&mut self, machine: &Machine) -> Vec<Action> {
        self.held.release(u64::MAX, machine)
    }

    /// True if an action waits for the journal.
    pub(super) fn waits(&self) -> bool {
        self.held.waits()
    }

    /// Hands the last state of the step over. [`is_complete`](Self::is_complete) is true when it is on disk.
    pub(super) fn finish(
        &mut self,
        machine: &mut Machine,
        nodes: &[NodeName],
        agent: impl Fn(&NodeName) -> Option<AgentRecord>,
    ) {
        let progress = Some(self.state.progress());
        let agents = nodes.iter().map(|node| (node.clone(), agent(node))).collect();
        self.complete = false;
        self.writer.write_last(LAST, StateChanges { progress, agents, memory: machine.take_changes() });
    }

    /// The last state is on disk, or cannot be written.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }
}

/// The number of the last commit.
const LAST: u64 = u64::MAX;
