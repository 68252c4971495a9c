//! The decisions of the loop with their reasons and times, for `holdfast status` and the report.

use std::fmt;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName};
use serde::{Deserialize, Serialize};

use super::exclusion::Exclusion;
use super::machine::Machine;
use super::node_state::NodeStatus;
pub use super::snapshot::PastGeneration;
use super::snapshot::{Phase, Snapshot};
use crate::events::{DownReason, StopReason, TimedReason, View};

/// The decisions of the loop so far, with their reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub phase: Activity,
    /// The generation that is prepared, under way, or was last.
    pub generation: Generation,
    /// All nodes in allocation order.
    pub nodes: Vec<NodeExplanation>,
    /// All generations that were launched.
    pub generations: Vec<PastGeneration>,
    /// The newest complete checkpoint.
    pub newest: Option<CheckpointId>,
    /// The newest checkpoint that was protected from the loss of a node.
    pub protected: Option<CheckpointId>,
    /// Generations in a row that ended without progress.
    pub without_progress: u32,
    /// The halt condition that holds, or why the ranks are being halted.
    pub halt: Option<String>,
    /// Why the loop stopped, if it did.
    pub stop: Option<TimedReason<StopReason>>,
}

/// The present condition of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeExplanation {
    pub node: NodeName,
    /// It has ranks in the present placement.
    pub used: bool,
    /// How often its agent was restarted.
    pub restarts: u32,
    /// Its agent is suspected because it does not answer.
    #[serde(default)]
    pub silent: bool,
    /// The user's exclusion, if it is excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded: Option<Exclusion>,
    /// Its ranks were to be moved at once, and go on to the end of the generation: too few other nodes are left.
    #[serde(default)]
    pub keeps_ranks: bool,
    #[serde(flatten)]
    pub condition: NodeCondition,
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "condition", rename_all = "snake_case")]
pub enum NodeCondition {
    /// Its agent is being started, or started again.
    Starting {
        since: Duration,
        /// Why it was lost, if it was up before.
        lost: Option<String>,
    },
    Healthy,
    Down(TimedReason<DownReason>),
}

/// The phase of the loop, as `status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    #[serde(rename = "fresh")]
    Fresh,
    /// Waits until every agent is up or its node is down.
    #[serde(rename = "gathering agents")]
    Gathering,
    /// Reads the halt conditions.
    #[serde(rename = "asking for halt conditions")]
    AskingHalt,
    /// Runs the commands of `before:`.
    #[serde(rename = "running before commands")]
    RunningBefore,
    /// Asks whether the allocation still exists.
    #[serde(rename = "checking the allocation")]
    CheckingAllocation,
    /// Too few nodes are left: waits for those of other steps of the job.
    #[serde(rename = "waiting for nodes")]
    AwaitingNodes,
    /// Waits between two generations.
    #[serde(rename = "settling")]
    Settling,
    /// Sends the plan of the next generation to the agents.
    #[serde(rename = "preparing")]
    Preparing,
    #[serde(rename = "running")]
    Running,
    /// The ranks are being killed.
    #[serde(rename = "ending the generation")]
    Ending,
    /// Checks whether the generation made progress.
    #[serde(rename = "checking progress")]
    CheckingProgress,
    /// Waits for agents that the drain needs.
    #[serde(rename = "stopping")]
    Stopping,
    #[serde(rename = "draining")]
    Draining,
    #[serde(rename = "finished")]
    Finished,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl From<Phase> for Activity {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Fresh => Activity::Fresh,
            Phase::Gathering => Activity::Gathering,
            Phase::AskingHalt { .. } => Activity::AskingHalt,
            Phase::RunningBefore { .. } => Activity::RunningBefore,
            Phase::CheckingAllocation => Activity::CheckingAllocation,
            Phase::AwaitingNodes => Activity::AwaitingNodes,
            Phase::Settling { .. } => Activity::Settling,
            Phase::Preparing => Activity::Preparing,
            Phase::Running => Activity::Running,
            Phase::Ending { .. } => Activity::Ending,
            Phase::CheckingProgress => Activity::CheckingProgress,
            Phase::Stopping => Activity::Stopping,
            Phase::Draining => Activity::Draining,
            Phase::Finished => Activity::Finished,
        }
    }
}

impl Snapshot {
    /// The decisions of the loop so far, with their reasons.
    pub fn explain(&self) -> Explanation {
        let mut used = vec![false; self.nodes.len()];
        for home in &self.homes {
            if let Some(used) = used.get_mut(*home as usize) {
                *used = true;
            }
        }
        let nodes = self.names.iter().zip(&self.nodes).zip(used).filter_map(|((name, node), used)| {
            let condition = match &node.status {
                NodeStatus::Healthy => NodeCondition::Healthy,
                NodeStatus::Down { cause } => NodeCondition::Down(cause.clone()),
                NodeStatus::Starting(starting) => NodeCondition::Starting {
                    since: starting.asked,
                    lost: starting.lost.as_ref().map(|lost| lost.reason.clone()),
                },
                NodeStatus::NotLent => return None,
            };
            Some(NodeExplanation {
                node: name.clone(),
                used,
                restarts: node.restarts,
                silent: node.silent_since.is_some(),
                excluded: node.excluded.as_ref().map(|excluded| excluded.reason.clone()).or_else(|| {
                    let unfit = node.unfit.as_ref()?.reason.reason.clone();
                    Some(Exclusion { reason: unfit, now: true })
                }),
                keeps_ranks: used && node.keeps_ranks,
                condition,
            })
        });
        let halting = || self.active.as_ref().and_then(|active| Some(active.facts.halt.as_ref()?.reason.clone()));
        Explanation {
            phase: self.head.phase.into(),
            generation: self.generation(),
            nodes: nodes.collect(),
            generations: self.history.to_vec(),
            newest: self.head.newest,
            protected: self.head.protected,
            without_progress: self.head.without_progress,
            halt: self.head.halt.clone().or_else(halting),
            stop: self.head.stop.clone(),
        }
    }
}

impl Machine {
    /// The decisions of the loop so far, with their reasons.
    pub fn explain(&self) -> Explanation {
        self.state.explain()
    }

    /// The explanation in a line, for the live view; its cost does not depend on the number of nodes.
    pub fn summary(&self) -> View {
        let (generation, head) = (self.generation(), &self.state.head);
        let nodes = self.state.nodes.len() - self.count.not_lent as usize;
        let up = (self.count.starting + self.count.healthy) as usize;
        let used = self.count.used as usize;
        View {
            phase: Activity::from(head.phase).to_string(),
            generation: (generation > Generation::NONE).then_some(generation),
            used,
            spare: up - used - (self.count.excluded - self.count.excluded_used) as usize,
            excluded: (self.count.all_excluded - self.count.excluded_used) as usize,
            down: nodes - up - (self.count.all_excluded - self.count.excluded) as usize,
            newest: head.newest.map(|newest| (newest, head.protected == Some(newest))),
            pairs: None,
        }
    }
}
