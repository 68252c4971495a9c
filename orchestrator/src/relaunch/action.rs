//! The actions of the relaunch loop.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_model::{CheckpointId, Generation, NodeName, Placement, Rank};

use super::outcome::Outcome;
use crate::events::LogEvent;
use crate::events::StopReason;

/// An action. The driver begins actions in order without waiting for their ends, which come back as events. All but
/// [`Launch`](Self::Launch) may be repeated without harm, and are repeated after a take-over. Those that wait for the
/// journal ([`may_precede_journal`](Self::may_precede_journal)) are begun after later ones that do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start or restart the agent of a node; an agent of this node that still runs, but does not answer, is to be
    /// killed first. Ends as `AgentReady` or `AgentStartFailed`.
    StartAgent { node: NodeName },
    /// Read the halt conditions of all agents but those of nodes where, as reported just now, none holds. Always ends
    /// as `HaltAnswered`, within seconds.
    AskHalt { except: Vec<NodeName> },
    /// Run the commands of `before:` on these nodes, which are healthy; those that succeeded earlier in this allocation
    /// are left out. Ends as `BeforeEnded`, unless it is cancelled. On a node that is fenced, its commands are ended.
    RunBefore { on: Vec<NodeName> },
    /// End the commands of `before:` that run. Has no event.
    CancelBefore,
    /// Send the plan of a generation to agents. Each ends as `RunPrepared`, `RunRefused`, or with the loss of the
    /// agent.
    Prepare {
        generation: Generation,
        /// Which ranks run on which node; together with the settings, the `RunPlan`.
        placement: Arc<Placement>,
        to: Vec<NodeName>,
    },
    /// Launch the ranks. Ends as `StepStarted` or `LaunchFailed`; later `RankExited` and `StepEnded`.
    Launch { generation: Generation, placement: Arc<Placement> },
    /// After a take-over: follow the ranks that an earlier orchestrator launched. Ends as `StepLost` if that is not
    /// possible; success has no event.
    FollowStep { generation: Generation, placement: Arc<Placement> },
    /// Poll these agents now: a decision waits for a poll that is sent after this moment.
    PollNow { to: Vec<NodeName> },
    /// Find out whether the process of an agent that does not answer still exists, and poll it over another connection.
    /// Ends as `AgentChecked`, unless the agent answers.
    CheckAgent { node: NodeName },
    /// Save the stacks of ranks for the user, because the application seems to hang. Always ends as `StacksSaved`,
    /// within seconds: stacks that cannot be read are left out.
    SaveStacks {
        generation: Generation,
        /// The ranks, by node.
        ranks: BTreeMap<NodeName, Vec<Rank>>,
    },
    /// Kill the ranks of this generation and of older ones. Each ends as `RanksKilled`, or with the loss of the agent.
    KillRanks {
        generation: Generation,
        to: Vec<NodeName>,
        /// The reason, for the agents' logs.
        reason: String,
    },
    /// Have the leader halt the ranks of this generation at their next checkpoint; without a reason: not any more. Has
    /// no event: ranks that do not end are terminated later.
    RequestHalt { generation: Generation, to: NodeName, reason: Option<String> },
    /// Send SIGTERM to the ranks of this generation on these nodes. Has no event: ranks that do not end are killed
    /// later.
    TerminateRanks {
        generation: Generation,
        to: Vec<NodeName>,
        /// The reason, for the agents' logs.
        reason: String,
    },
    /// Make sure that a node that went down cannot act for the job any more: its agent and its ranks are ended as soon
    /// as they can be reached (a node may have been frozen, or cut off from the network). Requested when a node goes
    /// down, before anything else follows from that; again when an agent reports from the node after all, and after a
    /// take-over. Has no event.
    FenceNode {
        node: NodeName,
        /// The last address of its agent, if it was ever up.
        address: Option<SocketAddr>,
    },
    /// Cancel the launcher's step in the background. Has no event.
    CancelStep { generation: Generation },
    /// Find out whether a generation whose ranks have ended made progress that the machine does not see: see
    /// `progress` in the spec. Always ends as `ProgressChecked`, within a time limit.
    CheckProgress { generation: Generation },
    /// Agents have new addresses: send them to the agents that need them. The leader needs all, the others the
    /// leader's.
    UpdatePeers {
        generation: Generation,
        addresses: BTreeMap<NodeName, SocketAddr>,
        /// Nodes without ranks that are down: the generation goes on without them.
        down: Vec<NodeName>,
        to: Vec<NodeName>,
    },
    /// Ask the resource manager whether the allocation exists, and again some seconds later if it does not: a launch
    /// was refused for that reason, or no agent answers. Ends as `AllocationChecked`.
    CheckAllocation,
    /// Too few nodes are left, or fewer than the run uses: ask the job for this many more. Ends as `NodesLent`.
    BorrowNodes {
        wanted: u32,
        /// Nothing can be launched without them.
        waits: bool,
    },
    /// Write a decision of the machine to the event log; nothing else follows from it. The driver itself logs what the
    /// agents report (checkpoints, restarts, flushes).
    Record(LogEvent),
    /// The application restarted from this checkpoint, or from none: record that drains do not continue the present
    /// directories of newer datasets, which it writes again. Always ends as `Superseded`.
    Supersede { from: Option<CheckpointId> },
    /// Drain and index. Ends as `Drained`.
    Drain {
        /// Why the loop stops.
        stop: StopReason,
        /// Nodes with an agent.
        healthy: Vec<NodeName>,
        /// Nodes whose agent is lost and is being started again: they are waited for, for a limited time.
        starting: Vec<NodeName>,
        /// Nodes without an agent: round 2 copies on their behalf.
        down: Vec<NodeName>,
        /// Incomplete directories may be completed; otherwise it is not known which of them are superseded.
        continues: bool,
    },
    /// The agents are not needed any more: cancel a drain that is under way, and end the agents unless the next step of
    /// the job uses them. The last but one action.
    StopAgents {
        /// Nodes with an agent, or with one that is being started.
        to: Vec<NodeName>,
    },
    /// The loop is over. The last action; exactly once.
    Finish(Outcome),
}

impl Action {
    /// True if the action may be performed before the decision behind it is on disk. An orchestrator that takes over
    /// without knowing of the decision then finds the action performed, and can make its own decision without harm:
    ///
    /// * agents that were started are adopted, or replaced by new ones;
    /// * ranks that were halted, terminated or killed end the generation that it follows, and the next one gets another
    ///   number;
    /// * a node that was fenced has no agent, and is found to be down again;
    /// * commands of `before:` that did not succeed are run again;
    /// * the progress of a generation is checked again, with the same result, and so is the allocation;
    /// * directories that are recorded as superseded are recorded again;
    /// * nodes that were lent and are not in the state are asked for again;
    /// * requests, lines of the event log and stacks are repeated.
    ///
    /// The others are decisions that must not be made again with another result: which ranks run on which node in which
    /// generation, that it was launched, that no other follows, and that the agents are ended.
    pub fn may_precede_journal(&self) -> bool {
        match self {
            Action::Prepare { .. }
            | Action::Launch { .. }
            | Action::Drain { .. }
            | Action::StopAgents { .. }
            | Action::Finish(_) => false,
            Action::StartAgent { .. }
            | Action::AskHalt { .. }
            | Action::RunBefore { .. }
            | Action::CancelBefore
            | Action::FollowStep { .. }
            | Action::PollNow { .. }
            | Action::CheckAgent { .. }
            | Action::SaveStacks { .. }
            | Action::RequestHalt { .. }
            | Action::TerminateRanks { .. }
            | Action::KillRanks { .. }
            | Action::FenceNode { .. }
            | Action::CancelStep { .. }
            | Action::CheckProgress { .. }
            | Action::CheckAllocation
            | Action::BorrowNodes { .. }
            | Action::UpdatePeers { .. }
            | Action::Supersede { .. }
            | Action::Record(_) => true,
        }
    }
}
