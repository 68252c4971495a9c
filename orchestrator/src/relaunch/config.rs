//! The configuration of the relaunch loop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_model::{Generation, NodeName, RankEnd};

use super::classify::ActiveGeneration;
use super::exclusion::Exclusion;
use crate::events::EndCause;
use crate::spec::ExitAction;

/// Launches after a crash in the start of MPI that do not count, in an allocation.
pub(super) const MPI_START_RETRIES: u32 = 3;
/// A crash later than this is none of the start.
const MPI_START: Duration = Duration::from_secs(60);
/// SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV.
const CRASHES: [i32; 5] = [4, 6, 7, 8, 11];

/// A node of the allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedNode {
    pub name: NodeName,
    /// Nodes with the same failure domain fail together; the node's own name unless the spec sets another.
    pub failure_domain: String,
}

/// The configuration of the loop. Times are durations, except [`started`](Self::started) and
/// [`allocation_end`](Self::allocation_end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The nodes of the allocation, in its order.
    pub nodes: Vec<AllocatedNode>,
    /// The node that the orchestrator runs on, if it is one of them: when it is down the loop stops.
    pub own_node: Option<NodeName>,
    /// Nodes that the run uses; the others are spares.
    pub nodes_needed: u32,
    /// The fewest healthy nodes for a launch. With fewer than [`nodes_needed`](Self::nodes_needed) but as many as
    /// this, the ranks of the lost nodes are spread over the others.
    pub min_nodes: u32,
    pub ranks: u32,
    /// Ranks of a node; the last one may have fewer.
    pub ranks_per_node: u32,
    /// Ranks of a node, at most, if fewer than [`nodes_needed`](Self::nodes_needed) nodes are left.
    pub max_ranks_per_node: Option<u32>,
    /// Nodes that the user excludes.
    pub excluded: BTreeMap<NodeName, Exclusion>,
    /// In a job whose steps run side by side, the nodes that are lent to this one when it begins, and it may borrow
    /// others when it has too few. `None`: it has all nodes of the allocation.
    pub lent: Option<BTreeSet<NodeName>>,
    /// There are commands to be run before the first launch.
    pub before: bool,
    /// Launches after the first one, at most.
    pub attempts: u32,
    /// Stop when this many generations in a row ended without progress.
    pub no_progress_limit: u32,
    /// The ranks join when MPI has started, before they do any work: see [`Self::is_crash_of_mpi_start`].
    pub mpi_start: bool,
    /// Report it when, so long after a launch, no rank has called the checkpoint API; `None`: the ranks need not.
    pub silent_api_after: Option<Duration>,
    /// Report it when ranks have waited so long in a call for others; `None`: never.
    pub waiting_after: Option<Duration>,
    /// Newer checkpoints show progress. Without this and other sources, nothing is known about it, and
    /// [`no_progress_limit`](Self::no_progress_limit) does not apply.
    pub source_reports_progress: bool,
    /// Besides newer checkpoints there are other sources of progress, which are checked when a generation has ended.
    pub checks_progress: bool,
    /// Wait between the end of a generation and the next launch.
    pub settle: Duration,
    /// How long an agent may delay the answer to a poll.
    pub poll: Duration,
    /// An agent that is silent for this long is suspected, at least: see `contacts`. Its node is down if the machine
    /// does not answer either, or the agent has ended and cannot be restarted.
    pub down_after: Duration,
    /// A suspected agent whose process exists is replaced after this long.
    pub replace_after: Duration,
    /// One whose process has stopped, as other agents find too, is replaced as soon as that is known.
    pub replaces_stopped: bool,
    /// Agents that are being restarted at a time, at most.
    pub restarts_at_once: u32,
    /// The application hangs when nothing has moved in any rank for this long: see `watchdog`. `None`: never.
    pub hang_after: Option<Duration>,
    /// As `hang_after`, for ranks that compute but neither call nor print. `None`: computing is always progress.
    pub busy_hang_after: Option<Duration>,
    /// The time limit of an agent's first start. A restart has [`restart_within`](Self::restart_within).
    pub start_within: Duration,
    /// The time limit of an agent's restart.
    pub restart_within: Duration,
    /// Restarts of one node's agent, at most; then the node counts as down.
    pub agent_restarts: u32,
    /// The actions for exit codes; [`ExitAction::Relaunch`] for all others.
    pub exit_codes: BTreeMap<i32, ExitAction>,
    /// The last generation of an earlier allocation with the same job id, as after `scontrol requeue`: generations
    /// continue after it, and its remains on the nodes are removed. None for other jobs.
    pub finished: Generation,
    /// When the loop began, seconds since the epoch: zero on the scale of all `now`. An orchestrator that takes over
    /// uses [`Snapshot::started`](super::Snapshot::started).
    pub started: i64,
    /// When the allocation ends, seconds since the epoch, if that is known.
    pub allocation_end: Option<i64>,
    /// Nothing is launched later than this before the end of the allocation. (The agents halt the ranks then: they have
    /// the same limit as `HaltSeconds`.)
    pub before_end: Duration,
    /// The ranks have ended this long before the end of the allocation, so that there is time for the drain. `None`: as
    /// long as the drain is expected to take, see `drain_estimate`.
    pub drain_reserve: Option<Duration>,
    /// How long ranks that are halted may take to their next checkpoint, and from SIGTERM to their end.
    pub halt_grace: Duration,
    /// The base of the control directory, if LLNL's library writes the checkpoints: ranks that leave nothing there are
    /// reported.
    pub library_control: Option<String>,
}

impl Config {
    /// A configuration with the defaults of the job spec for a run of `nodes_needed` nodes.
    pub fn new(nodes: Vec<AllocatedNode>, nodes_needed: u32, ranks_per_node: u32) -> Self {
        Config {
            nodes,
            own_node: None,
            nodes_needed,
            min_nodes: nodes_needed,
            ranks: nodes_needed.saturating_mul(ranks_per_node),
            ranks_per_node,
            max_ranks_per_node: None,
            excluded: BTreeMap::new(),
            lent: None,
            before: false,
            attempts: 5,
            no_progress_limit: 3,
            mpi_start: false,
            silent_api_after: None,
            waiting_after: None,
            source_reports_progress: true,
            checks_progress: false,
            settle: Duration::ZERO,
            poll: Duration::from_millis(250),
            down_after: Duration::from_millis(750),
            replace_after: Duration::from_secs(10),
            replaces_stopped: true,
            restarts_at_once: 8,
            hang_after: None,
            busy_hang_after: None,
            start_within: Duration::from_secs(60),
            restart_within: Duration::from_millis(750),
            agent_restarts: 20,
            exit_codes: BTreeMap::new(),
            finished: Generation::NONE,
            started: 0,
            allocation_end: None,
            before_end: Duration::ZERO,
            drain_reserve: None,
            halt_grace: Duration::from_secs(60),
            library_control: None,
        }
    }

    /// True if the step has the node when it begins.
    pub(super) fn lends(&self, node: &NodeName) -> bool {
        self.lent.as_ref().is_none_or(|lent| lent.contains(node))
    }

    /// True if anything shows whether a generation has made progress.
    pub fn observes_progress(&self) -> bool {
        self.source_reports_progress || self.checks_progress
    }

    /// True if ranks crashed as they do when MPI cannot start: by a signal, soon after the launch, and before they had
    /// joined. With some versions of MPI this happens by chance, and not again at the next launch.
    pub(super) fn is_crash_of_mpi_start(&self, active: &ActiveGeneration, cause: &EndCause, now: Duration) -> bool {
        let crashed = matches!(cause, EndCause::Application { end: RankEnd::Signal(signal), .. }
            if CRASHES.contains(signal));
        let at_start = now.saturating_sub(active.facts.launched) <= MPI_START;
        self.mpi_start && crashed && at_start && active.facts.started && !active.facts.joined
    }

    /// The nodes that a launch needs.
    pub(super) fn needed(&self) -> u32 {
        let fit = self.max_ranks_per_node.map_or(1, |most| self.ranks.div_ceil(most.max(1)));
        self.min_nodes.max(fit).max(1)
    }

    /// When the allocation ends, on the scale of `now`.
    pub(super) fn end(&self) -> Option<Duration> {
        let seconds = self.allocation_end?.saturating_sub(self.started);
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }
}
