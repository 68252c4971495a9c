//! What the relaunch loop wants done.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_model::{Generation, NodeName, Placement, Rank};

use super::outcome::Outcome;
use crate::events::LogEvent;
use crate::events::StopReason;

/// Something to do. None of them blocks the machine: the driver begins them in order, and their ends come back as
/// events. All but [`Launch`](Self::Launch) may be repeated without harm, and are, after a take-over. Those that wait
/// for the journal ([`may_precede_journal`](Self::may_precede_journal)) are begun after later ones that do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the agent of a node, or start it again; an agent of this node that is still there, but does not answer,
    /// is to be killed first. Ends as `AgentReady` or `AgentStartFailed`.
    StartAgent { node: NodeName },
    /// Ask all agents for their halt condition. Ends as `HaltAnswered`, always: agents that do not answer are left out.
    AskHalt,
    /// Make a generation known to agents. Each ends as `RunPrepared`, `RunRefused`, or with the loss of the agent.
    Prepare {
        generation: Generation,
        /// Who runs where; with the settings it makes the `RunPlan`.
        placement: Arc<Placement>,
        /// The agents to send it to.
        to: Vec<NodeName>,
    },
    /// Launch the ranks. Ends as `StepStarted` or `LaunchFailed`; later `RankExited` and `StepEnded`.
    Launch {
        generation: Generation,
        /// Who runs where.
        placement: Arc<Placement>,
    },
    /// After a take-over: follow the step that an earlier orchestrator launched. Without an event it counts as
    /// followed; if that cannot be done, `StepLost`.
    FollowStep {
        generation: Generation,
        /// Who runs where.
        placement: Arc<Placement>,
    },
    /// Poll these agents now: a decision waits for a poll that is sent after this moment.
    PollNow { to: Vec<NodeName> },
    /// Save where the ranks are in their code, for people: the run seems to hang. Ends as `StacksSaved`, always and
    /// within seconds: what cannot be had is left out.
    SaveStacks {
        generation: Generation,
        /// The ranks, by the node whose agent is to be asked.
        ranks: BTreeMap<NodeName, Vec<Rank>>,
    },
    /// Have the ranks of this generation and of older ones killed, now. Each ends as `RanksKilled`, or with the loss
    /// of the agent.
    KillRanks {
        generation: Generation,
        to: Vec<NodeName>,
        /// Why, for their logs.
        reason: String,
    },
    /// Make sure that a node that went down cannot act for the job any more: nothing is sent to its agent but the end
    /// of it and of its ranks, as soon as it can be reached (a node may have been frozen, or cut off). Once with
    /// every verdict, before anything else follows from it; again when an agent reports from the node after all, and
    /// after a take-over. No event comes of it.
    FenceNode {
        node: NodeName,
        /// Where its agent listened last, if it was ever up.
        address: Option<SocketAddr>,
    },
    /// Cancel the launcher's step in the background; nothing waits for it.
    CancelStep { generation: Generation },
    /// Agents listen elsewhere: send that to the agents that need it. The leader needs all, the others the leader's address.
    UpdatePeers {
        generation: Generation,
        addresses: BTreeMap<NodeName, SocketAddr>,
        /// Nodes without ranks that are down: the run goes on without them.
        down: Vec<NodeName>,
        to: Vec<NodeName>,
    },
    /// Write a line to the event log; nothing else follows from it. What the agents report (checkpoints, restarts,
    /// flushes) is logged by the driver, with all its fields; here is only what the machine decided.
    Record(LogEvent),
    /// Drain and index. Ends as `Drained`.
    Drain {
        /// Why the loop stops.
        stop: StopReason,
        /// Nodes with an agent.
        healthy: Vec<NodeName>,
        /// Nodes without: round 2 copies on their behalf.
        down: Vec<NodeName>,
    },
    /// The agents are not needed any more: break off a drain that is under way, and end them unless the next step of
    /// the job uses them. The last but one action.
    StopAgents {
        /// Nodes with an agent, or with one that was being started.
        to: Vec<NodeName>,
    },
    /// The loop is over. The last action; exactly once.
    Finish(Outcome),
}

impl Action {
    /// True for what may be done before the decision that it follows from is on disk. An orchestrator that takes over
    /// and does not know of the decision finds it done, decides for itself and does no harm:
    ///
    /// * agents that were started are adopted or started again, in their place;
    /// * ranks that were killed end the generation that it believes to run, and the next one gets another number;
    /// * a node that was fenced is found without an agent, and judged anew;
    /// * questions, lines of the event log and stacks are repeated.
    ///
    /// The others are the steps that a successor must not take differently: which ranks run where in which
    /// generation, that it was launched, that no other follows, and that the agents are gone.
    pub fn may_precede_journal(&self) -> bool {
        match self {
            Action::Prepare { .. }
            | Action::Launch { .. }
            | Action::Drain { .. }
            | Action::StopAgents { .. }
            | Action::Finish(_) => false,
            Action::StartAgent { .. }
            | Action::AskHalt
            | Action::FollowStep { .. }
            | Action::PollNow { .. }
            | Action::SaveStacks { .. }
            | Action::KillRanks { .. }
            | Action::FenceNode { .. }
            | Action::CancelStep { .. }
            | Action::UpdatePeers { .. }
            | Action::Record(_) => true,
        }
    }
}
