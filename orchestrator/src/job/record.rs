//! The job's state, and how much of it is on disk. The only writer of `job.json` while a job runs, whatever it runs.
//!
//! Changes are handed to the journal's thread by [`JobRecord::commit`]: at once if an action waits for them or they
//! have to survive a crash of the machine, and otherwise without a sync, at most every [`WRITTEN_EVERY`]. While the
//! thread writes, nothing more is handed over: all changes meanwhile become one entry. A relaunch thus costs one sync
//! for each decision that must be on disk, whatever the number of nodes and ranks.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use holdfast_model::NodeName;
use tokio::time::MissedTickBehavior;

use super::claim::Claim;
use super::journal::JournalWriter;
use super::prefix_wait::{PrefixWait, PrefixWaitStep};
use super::signals::Signals;
use super::state::{JobState, Progress, StateChanges};
use crate::events::Screen;
use crate::fleet::{AgentRecord, AgentSupervisor};
use crate::relaunch::Changes;

/// Changes for which nothing waits are written no more often than this.
const WRITTEN_EVERY: Duration = Duration::from_millis(100);
/// How often it is checked at the end whether the wait for the last state is to be shown or given up.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// The number of the last commit.
const LAST: u64 = u64::MAX;

pub(super) struct JobRecord {
    /// Without `running` and `snapshot`, which the agents' supervisor and the machine have.
    pub(super) state: JobState,
    prefix: PathBuf,
    /// The progress that was handed over last.
    handed_over: Progress,
    /// Agents whose records have changed since.
    agents: BTreeSet<NodeName>,
    /// A change since then has to survive a crash of the machine.
    durable: bool,
    writer: JournalWriter,
    /// The number of the last commit.
    commit: u64,
    /// The last commit is not written yet.
    under_way: bool,
    handed_over_at: Instant,
    /// The last state is on disk, or cannot be written.
    complete: bool,
    prefix_wait: PrefixWait,
}

impl JobRecord {
    /// The record of a job or step that begins or is taken over. The thread first writes the complete state. With a
    /// `claim`, nothing is written when another orchestrator has claimed the job.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn new(mut state: JobState, prefix: PathBuf, claim: Option<Claim>) -> std::io::Result<Self> {
        state.orchestrator = std::process::id();
        let writer = JournalWriter::start(prefix.clone(), state.clone(), claim)?;
        Ok(JobRecord {
            handed_over: state.progress(),
            state,
            prefix,
            agents: BTreeSet::new(),
            durable: false,
            writer,
            commit: 0,
            under_way: false,
            handed_over_at: Instant::now(),
            complete: false,
            prefix_wait: PrefixWait::default(),
        })
    }

    /// Notes that the record of an agent changed.
    pub(super) fn agent_changed(&mut self, node: &NodeName) {
        if !self.agents.contains(node) {
            self.agents.insert(node.clone());
        }
    }

    /// The present changes have to survive a crash of the machine, though nothing waits for them.
    pub(super) fn make_durable(&mut self) {
        self.durable = true;
    }

    /// The number of the next commit.
    pub(super) fn next_commit(&self) -> u64 {
        self.commit + 1
    }

    /// Hands the changes over, if something `waits` for them or the last commit is long enough ago.
    pub(super) fn commit(&mut self, waits: bool, agents: &AgentSupervisor, memory: impl FnOnce() -> Changes) {
        let sync = waits || self.durable;
        if self.under_way || !(sync || self.handed_over_at.elapsed() >= WRITTEN_EVERY) {
            return;
        }
        let progress = self.state.progress();
        let progress = (progress != self.handed_over).then(|| {
            self.handed_over = progress.clone();
            progress
        });
        let changed = std::mem::take(&mut self.agents).into_iter();
        let changed = changed.map(|node| {
            let record = agents.record(&node);
            (node, record)
        });
        let changes = StateChanges { progress, agents: changed.collect(), memory: memory() };
        self.durable = false;
        if waits || !changes.is_empty() {
            (self.commit, self.under_way, self.handed_over_at) = (self.commit + 1, true, Instant::now());
            self.writer.write(self.commit, changes, sync);
        }
    }

    /// Waits for the journal's thread. Returns the number of a commit that is written. Cancel safe.
    pub(super) async fn written(&mut self) -> u64 {
        let written = self.writer.next().await;
        self.under_way = self.under_way && written.commit != self.commit;
        self.complete = self.complete || written.commit == LAST;
        written.commit
    }

    /// Hands the last state over, and waits until it is on disk. The wait is limited, shown to the user, and then ended
    /// by a signal.
    pub(super) async fn finish(
        &mut self,
        memory: Changes,
        agents: Vec<(NodeName, Option<AgentRecord>)>,
        (signals, screen): (&mut Signals, &Screen),
    ) {
        self.complete = false;
        self.writer.write_last(LAST, StateChanges { progress: Some(self.state.progress()), agents, memory });
        let mut check = tokio::time::interval(CHECK_EVERY);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.complete {
            tokio::select! {
                _ = self.written() => {}
                // One before the wait is shown was about the job.
                _ = signals.next() => if self.prefix_wait.is_shown() { break },
                _ = check.tick() => if self.gives_up(screen) { break },
            }
        }
        if !self.complete {
            tracing::warn!("the prefix directory does not answer; the end of the job is not recorded there");
        }
    }

    /// To be called again and again while only the journal is waited for. Shows the wait to the user when it is long;
    /// true if it is too long.
    pub(super) fn gives_up(&mut self, screen: &Screen) -> bool {
        let step = self.prefix_wait.check();
        if step == PrefixWaitStep::Show {
            let prefix = self.prefix.display();
            screen.line(&format!("waiting for the prefix directory {prefix}; Ctrl-C ends the wait"));
        }
        step == PrefixWaitStep::GiveUp
    }
}
