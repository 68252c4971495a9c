//! What the machine writes to the event log: its decisions, each with a stable name and fields.

use holdfast_wire::{CheckpointId, Generation, NodeName, Rank};
use serde::{Deserialize, Serialize};

use super::outcome::{DrainResult, Outcome};
use super::reason::{DownReason, EndCause, StopReason};

/// A line of the event log. The names (`event`) and fields are a contract; the driver adds the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LogEvent {
    /// An agent is up.
    AgentReady {
        /// Its node.
        node: NodeName,
        /// True if it was up before.
        again: bool,
    },
    /// An agent was lost and is started again.
    AgentLost {
        /// Its node.
        node: NodeName,
        /// What was seen.
        reason: String,
    },
    /// A node is down for the rest of the allocation.
    NodeDown {
        /// The node.
        node: NodeName,
        /// Why.
        #[serde(flatten)]
        reason: DownReason,
        /// The ranks that it had.
        ranks: Vec<Rank>,
    },
    /// A generation was placed.
    GenerationPlaced {
        /// It.
        generation: Generation,
        /// Nodes with ranks, in allocation order.
        nodes: Vec<NodeName>,
        /// Healthy nodes without.
        spares: u32,
        /// Ranks that run elsewhere than before.
        moved: Vec<Rank>,
    },
    /// A generation was launched.
    GenerationLaunched {
        /// It.
        generation: Generation,
        /// Relaunches so far.
        relaunches: u32,
    },
    /// The run seems to hang: the stacks of these ranks are being saved.
    HangSuspected {
        /// The generation.
        generation: Generation,
        /// The ranks in their own code; the others wait for them.
        ranks: Vec<Rank>,
        /// What was seen.
        reason: String,
    },
    /// Something moved while the stacks were being saved: the run goes on.
    HangDismissed {
        /// The generation.
        generation: Generation,
    },
    /// The run hangs: it is ended, and launched again.
    Hang {
        /// The generation.
        generation: Generation,
        /// The ranks in their own code; `generations/<generation>/rank_<rank>.stack` says where.
        ranks: Vec<Rank>,
        /// What was seen.
        reason: String,
    },
    /// A generation is being ended: its ranks are killed.
    GenerationEnding {
        /// It.
        generation: Generation,
        /// What was seen first.
        seen: String,
    },
    /// A generation ended.
    GenerationEnded {
        /// It.
        generation: Generation,
        /// Why.
        #[serde(flatten)]
        cause: EndCause,
        /// The newest complete checkpoint.
        newest: Option<CheckpointId>,
        /// Generations in a row without a newer one.
        without_progress: u32,
    },
    /// A halt condition holds.
    HaltSet {
        /// It.
        reason: String,
    },
    /// It does not hold any more.
    HaltCleared,
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// The second one: everything ends at once.
        at_once: bool,
    },
    /// The loop took over from an orchestrator that died.
    TookOver {
        /// The generation at the time.
        generation: Generation,
    },
    /// The loop stops; the drain comes next.
    Stopping {
        /// Why.
        #[serde(flatten)]
        reason: StopReason,
    },
    /// The drain ended.
    Drained {
        /// How.
        #[serde(flatten)]
        result: DrainResult,
    },
    /// The last line.
    Finished {
        /// The exit code.
        exit_code: u8,
        /// In words.
        message: String,
    },
}

impl LogEvent {
    /// The line for the end.
    pub fn finished(outcome: &Outcome) -> Self {
        LogEvent::Finished { exit_code: outcome.exit_code(), message: outcome.to_string() }
    }
}
