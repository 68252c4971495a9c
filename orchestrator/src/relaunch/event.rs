//! The events of the relaunch loop.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd, RestartSource, Unplaced};
use holdfast_wire::agent::{AgentEvent, QuietRank, WaitingRanks};
use serde::{Deserialize, Serialize};

use super::exclusion::Exclusion;
use crate::allocation::AgentPresence;
use crate::events::DownReason;
use crate::events::DrainResult;
use crate::events::GenerationProgress;
use crate::launch::Obstacle;

/// An event. Events may arrive in any order, twice, or too late: those of an older generation, of a node that is down,
/// or of an unknown node are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An agent printed its first line. Also sent for an agent that an earlier orchestrator started and that answers.
    AgentReady {
        node: NodeName,
        address: SocketAddr,
        /// The generation whose state it found in its control directory.
        adopted: Option<Generation>,
    },
    /// As `AgentReady`, but the first health report shows that the node is not fit.
    AgentUnfit { node: NodeName, address: SocketAddr, fault: String },
    /// [`Action::StartAgent`](super::Action::StartAgent) failed, or the agent ended before its first line.
    AgentStartFailed {
        node: NodeName,
        reason: String,
        /// Another attempt cannot succeed: the node does not exist any more, its root directory is removed, or the
        /// resource manager refuses it.
        node_lost: bool,
    },
    /// The agent's process ended, its connection broke, or it did not answer a request. The machine restarts it.
    AgentLost { node: NodeName, reason: String },
    PollAnswered {
        node: NodeName,
        /// When the poll was *sent*: an answer proves that the agent was alive after this moment.
        sent: Duration,
        /// The fault in the health report, if there is one: a directory that is not writable or too small, too little
        /// memory.
        fault: Option<String>,
    },
    /// The poller ran. To be passed at least every tenth of `down_after`, after the answers that it received before.
    PollsRan {
        /// The time in which it verifiably ran since the loop began, on the scale of `now`: `now` without the time in
        /// which this process was stopped or did not get a processor.
        ran: Duration,
    },
    /// The answer to [`Action::CheckAgent`](super::Action::CheckAgent).
    AgentChecked { node: NodeName, presence: AgentPresence },
    /// The resource manager reports that the node is down.
    NodeDown { node: NodeName, reason: DownReason },
    /// The user changed which nodes are excluded. The list is complete.
    ExclusionsChanged { excluded: BTreeMap<NodeName, Exclusion> },
    /// The answer to [`Action::BorrowNodes`](super::Action::BorrowNodes), and again whenever the job has more.
    NodesLent {
        nodes: Vec<NodeName>,
        /// Other steps may give nodes back.
        more_later: bool,
    },
    /// A health test failed, for example one of the site. The node is down from now on, until the drain.
    HealthFault { node: NodeName, fault: String },
    /// The answer to [`Action::AskHalt`](super::Action::AskHalt).
    HaltAnswered {
        /// The first condition that holds.
        met: Option<String>,
        /// Nodes whose agents did not answer: they are asked again, unless a condition holds.
        silent: Vec<NodeName>,
    },
    /// A halt condition holds on the node of the leader.
    HaltSet {
        reason: String,
        /// The ranks are to be killed without a checkpoint.
        immediate: bool,
        /// The time that the condition is about: the end of the allocation, or a time set by the user; seconds since
        /// the epoch. Until shortly before it, the ranks may take their last checkpoint.
        ends: Option<i64>,
    },
    /// [`Action::RunBefore`](super::Action::RunBefore) ended.
    BeforeEnded {
        /// `None` if all commands succeeded, now or earlier in this allocation.
        failure: Option<BeforeFailure>,
    },
    /// No halt condition holds any more.
    HaltCleared,
    /// An agent accepted the generation: its older ranks have ended, its socket serves the new ones.
    RunPrepared { node: NodeName, generation: Generation },
    /// An agent refused the generation. The node is down from now on.
    RunRefused { node: NodeName, generation: Generation, reason: String },
    /// The launcher runs.
    StepStarted { generation: Generation },
    /// The launcher could not be started, or was refused: no rank runs.
    LaunchFailed { generation: Generation, reason: String, obstacle: Obstacle },
    /// A rank's process ended, if the launcher reports single ranks.
    RankExited { generation: Generation, rank: Rank, end: RankEnd },
    /// The launcher ended: no rank runs any more.
    StepEnded {
        generation: Generation,
        /// Its exit status; used for the application if no end of a single rank was reported.
        end: RankEnd,
    },
    /// The step of the generation cannot be followed any more, or after a take-over not at all
    /// ([`Action::FollowStep`](super::Action::FollowStep)).
    StepLost { generation: Generation, reason: String },
    /// A rank printed a line.
    Printed { generation: Generation },
    /// An agent reports its quiet ranks. The list is complete: ranks that were listed before and are not now have
    /// moved.
    RanksQuiet { node: NodeName, generation: Generation, ranks: Vec<QuietRank> },
    /// An agent reports which of its ranks wait in a call.
    RanksWait { node: NodeName, generation: Generation, waiting: Option<WaitingRanks> },
    /// [`Action::SaveStacks`](super::Action::SaveStacks) ended, with or without success.
    StacksSaved { generation: Generation },
    /// Reported by the leader: all ranks are initialised.
    Restarted {
        generation: Generation,
        /// The checkpoint that they restart from.
        from: Option<CheckpointId>,
        /// It survives the loss of a node.
        protected: bool,
        /// If it was fetched from the prefix directory: how long that took.
        fetched_in: Option<Duration>,
        /// The number of ranks that wrote it, if the run has another one.
        written_by: Option<u32>,
    },
    /// Reported by the leader: a checkpoint cannot be used.
    CheckpointUnusable { generation: Generation, checkpoint: CheckpointId, reason: String },
    /// Reported by the leader: no restart is possible, whatever the checkpoints contain.
    RestartPrevented {
        generation: Generation,
        /// The node that cannot use its own directories; `None` if the prefix directory cannot be used.
        faulty: Option<NodeName>,
        reason: String,
    },
    /// LLNL's library has begun to initialise the ranks.
    LibraryStarted { generation: Generation },
    /// Reported by the leader: all ranks have written a checkpoint.
    CheckpointComplete {
        generation: Generation,
        checkpoint: CheckpointId,
        /// Its scheme protects it from the loss of a node: [`Event::CheckpointProtected`] follows.
        protected: bool,
        /// Of all ranks.
        bytes: u64,
    },
    /// Reported by the leader: a checkpoint survives the loss of a node from now on.
    CheckpointProtected { generation: Generation, checkpoint: CheckpointId },
    /// Reported by the leader: the redundancy of a checkpoint could not be made, and it stays as it is.
    ProtectionFailed { generation: Generation, checkpoint: CheckpointId },
    /// Reported by the leader: a dataset was dropped.
    DatasetDropped { generation: Generation, checkpoint: CheckpointId, reason: String },
    /// Reported by the leader: a checkpoint was copied to the prefix directory in this time.
    Flushed { generation: Generation, took: Duration },
    /// Reported by the leader: a halt condition holds, and the ranks end.
    Halting { generation: Generation, reason: String },
    /// A process of the rank connected to its agent.
    RankConnected { generation: Generation, rank: Rank },
    /// An agent refused a process of the rank because of what the job or the program is.
    RankRefused { generation: Generation, rank: Rank, reason: String },
    /// The connected process of the rank ends with exit code 0, and has written nothing.
    RankLeft { generation: Generation, rank: Rank },
    /// Reported by the leader: the application called finalize.
    Finalized { generation: Generation },
    /// [`Action::KillRanks`](super::Action::KillRanks) was carried out by this node's agent.
    RanksKilled {
        node: NodeName,
        /// The generation of the request.
        generation: Generation,
        /// False if no halt condition holds on the node.
        may_halt: bool,
    },
    /// [`Action::CheckProgress`](super::Action::CheckProgress) ended.
    ProgressChecked { generation: Generation, found: ProgressFound },
    /// [`Action::Supersede`](super::Action::Supersede) ended.
    Superseded {
        from: Option<CheckpointId>,
        /// Why the directories could not be recorded; `None` if they are.
        failure: Option<String>,
    },
    /// [`Action::Drain`](super::Action::Drain) ended.
    Drained {
        result: DrainResult,
        /// The complete outputs of the job with files that are not at their paths.
        unplaced: Vec<Unplaced>,
    },
    /// The answer to [`Action::CheckAllocation`](super::Action::CheckAllocation).
    AllocationChecked {
        /// The words with which the resource manager denied twice that the allocation exists; `None` if it did not, or
        /// did not answer.
        denial: Option<String>,
    },
    /// The end of the allocation changed.
    AllocationEnd {
        /// Seconds since the epoch, if it ends.
        end: Option<i64>,
    },
    /// SIGTERM, SIGINT or the resource manager's warning. The first one halts and drains, the second kills the ranks at
    /// once and drains, the third ends everything at once.
    Signal { name: String },
    /// Time has passed: to be sent when [`Machine::deadline`](super::Machine::deadline) is reached.
    Tick,
}

impl Event {
    /// What the report of an agent means for the job; `None` for those that are only logged.
    pub fn of_agent(reported: AgentEvent) -> Option<Event> {
        Some(match reported {
            AgentEvent::Restarted { generation, checkpoint, protected, source, written_by, millis, .. } => {
                let fetched_in = (source == RestartSource::Fetched).then(|| Duration::from_millis(millis));
                let protected = protected.unwrap_or_default();
                Event::Restarted { generation, from: checkpoint, protected, fetched_in, written_by }
            }
            AgentEvent::RestartAttempt { generation, checkpoint, reason, .. } => {
                Event::CheckpointUnusable { generation, checkpoint, reason }
            }
            AgentEvent::RestartPrevented { generation, faulty, reason } => {
                Event::RestartPrevented { generation, faulty, reason }
            }
            AgentEvent::CheckpointComplete { generation, checkpoint, protected, bytes, .. } => {
                Event::CheckpointComplete { generation, checkpoint, protected, bytes }
            }
            AgentEvent::CheckpointProtected { generation, checkpoint, .. } => {
                Event::CheckpointProtected { generation, checkpoint }
            }
            AgentEvent::ProtectionFailed { generation, checkpoint, .. } => {
                Event::ProtectionFailed { generation, checkpoint }
            }
            // One that only recorded the end of all programs is no dataset that was lost.
            AgentEvent::CheckpointFailed { generation, checkpoint, reason, ended: false } => {
                Event::DatasetDropped { generation, checkpoint, reason }
            }
            AgentEvent::Flushed { generation, millis, .. } => {
                Event::Flushed { generation, took: Duration::from_millis(millis) }
            }
            AgentEvent::Halting { generation, reason } => Event::Halting { generation, reason },
            AgentEvent::RankConnected { generation, rank, .. } => Event::RankConnected { generation, rank },
            AgentEvent::RankRefused { generation, rank, reason } => Event::RankRefused { generation, rank, reason },
            AgentEvent::RankLeft { generation, rank, .. } => Event::RankLeft { generation, rank },
            AgentEvent::Finalized { generation } => Event::Finalized { generation },
            AgentEvent::LibraryStarted { generation } => Event::LibraryStarted { generation },
            _ => return None,
        })
    }
}

/// The result of a check for progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgressFound {
    Progress(GenerationProgress),
    NoProgress,
    /// Nothing would show it.
    NotObserved,
    /// It could not be found out.
    Unknown {
        reason: String,
    },
}

/// Why the commands of `before:` did not all succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeforeFailure {
    /// The nodes on which the command failed; none if it could not be run anywhere.
    pub nodes: Vec<NodeName>,
    /// The command, the first node and the error.
    pub reason: String,
}
