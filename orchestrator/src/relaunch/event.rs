//! What happens to the relaunch loop.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd};
use holdfast_wire::agent::QuietRank;

use crate::events::DownReason;
use crate::events::DrainResult;

/// Something that happened. Events may come in any order, twice, or too late: what is of an older generation, of a node
/// that is down, or unknown, is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An agent printed its first line. Also sent for an agent that an earlier orchestrator started and that answers.
    AgentReady {
        node: NodeName,
        address: SocketAddr,
        /// The generation whose state it found in its control directory.
        adopted: Option<Generation>,
    },
    /// As `AgentReady`, but its first health report says that the node is not fit.
    AgentUnfit { node: NodeName, address: SocketAddr, fault: String },
    /// [`Action::StartAgent`](super::Action::StartAgent) failed, or the agent ended before its first line.
    AgentStartFailed {
        node: NodeName,
        reason: String,
        /// Surely not to be helped by trying again: the node does not exist any more, its root directory is gone, its
        /// resource manager refuses it.
        node_lost: bool,
    },
    /// The agent's process ended, its connection broke, or it missed polls. The machine asks for a restart.
    AgentLost { node: NodeName, reason: String },
    PollAnswered {
        /// By this node's agent.
        node: NodeName,
        /// When the poll was *sent*: an answer proves that the node lived after this moment.
        sent: Duration,
        /// What its health report says is wrong, if anything: a directory not writable or too small, no memory.
        fault: Option<String>,
    },
    /// The resource manager says that the node is down.
    NodeDown {
        node: NodeName,
        /// Who says so.
        reason: DownReason,
    },
    /// A health test failed (a site's own, say). The node is down from now on.
    HealthFault { node: NodeName, fault: String },
    /// The answer to [`Action::AskHalt`](super::Action::AskHalt).
    HaltAnswered {
        /// The first condition that holds; `None` also if no agent could say.
        met: Option<String>,
    },
    /// A halt condition was set by hand and holds.
    HaltSet { reason: String },
    /// No halt condition holds any more.
    HaltCleared,
    /// An agent accepted the generation: its older ranks are gone, its socket serves the new ones.
    RunPrepared { node: NodeName, generation: Generation },
    /// An agent refused the generation. The node is down from now on.
    RunRefused { node: NodeName, generation: Generation, reason: String },
    /// The launcher runs.
    StepStarted { generation: Generation },
    /// The launcher could not be started: no rank runs.
    LaunchFailed { generation: Generation, reason: String },
    /// A rank's process ended (as far as the launcher tells them apart).
    RankExited { generation: Generation, rank: Rank, end: RankEnd },
    /// The launcher ended: no rank is left, as far as it knows.
    StepEnded {
        generation: Generation,
        /// How; counts for the application if no rank's own end was told.
        end: RankEnd,
    },
    /// After a take-over: the step of the generation cannot be followed any more
    /// ([`Action::FollowStep`](super::Action::FollowStep)).
    StepLost { generation: Generation, reason: String },
    /// A rank printed a line.
    Printed { generation: Generation },
    /// An agent reports its ranks in which nothing has moved for long: all of them, so that the ones it named before
    /// and does not name now have moved.
    RanksQuiet { node: NodeName, generation: Generation, ranks: Vec<QuietRank> },
    /// [`Action::SaveStacks`](super::Action::SaveStacks) ended, well or not.
    StacksSaved { generation: Generation },
    /// Leader: all ranks are initialised.
    Restarted {
        generation: Generation,
        /// What they start from.
        from: Option<CheckpointId>,
    },
    /// Leader: a checkpoint is complete.
    CheckpointComplete {
        generation: Generation,
        checkpoint: CheckpointId,
        /// It survives the loss of a node.
        protected: bool,
    },
    /// Leader: a halt condition holds and the ranks were told to stop.
    Halting { generation: Generation, reason: String },
    /// Leader: the application called finalize.
    Finalized { generation: Generation },
    /// [`Action::KillRanks`](super::Action::KillRanks) was carried out by this node's agent.
    RanksKilled {
        node: NodeName,
        /// The generation of the request.
        generation: Generation,
    },
    /// [`Action::Drain`](super::Action::Drain) ended.
    Drained { result: DrainResult },
    /// The allocation ends at another time than was known.
    AllocationEnd {
        /// Seconds since the epoch, if it ends.
        end: Option<i64>,
    },
    /// SIGTERM, SIGINT or the resource manager's warning. The first means: halt, drain, report. The second: at once.
    Signal { name: String },
    /// Time passed: send it when [`Machine::deadline`](super::Machine::deadline) is reached.
    Tick,
}
