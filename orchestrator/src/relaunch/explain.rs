//! Every verdict of the loop, with its reason and time: what `holdfast status` and the report show.

use std::time::Duration;

use holdfast_wire::{CheckpointId, Generation, NodeName};
use serde::Serialize;

use super::machine::Machine;
use super::nodes::Status;
use super::reason::{DownReason, StopReason, Verdict};
pub use super::snapshot::PastGeneration;
use super::snapshot::Phase;

/// What the loop decided so far, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What it does now.
    pub phase: &'static str,
    /// The generation that is prepared, under way, or was last.
    pub generation: Generation,
    /// All nodes in allocation order.
    pub nodes: Vec<NodeExplanation>,
    /// All generations that were launched.
    pub generations: Vec<PastGeneration>,
    /// The newest complete checkpoint.
    pub newest: Option<CheckpointId>,
    /// Generations in a row that ended without a newer one.
    pub without_progress: u32,
    /// The halt condition that holds.
    pub halt: Option<String>,
    /// Why the loop stopped, if it did.
    pub stop: Option<Verdict<StopReason>>,
}

/// A node and the last word on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeExplanation {
    /// The node.
    pub node: NodeName,
    /// It has ranks in the present placement.
    pub used: bool,
    /// How often its agent was restarted.
    pub restarts: u32,
    /// How it is.
    #[serde(flatten)]
    pub condition: Condition,
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "condition", rename_all = "snake_case")]
pub enum Condition {
    /// Its agent is being started, or started again.
    Starting {
        /// Asked for at this time.
        since: Duration,
        /// How it was lost, if it was up before.
        lost: Option<String>,
    },
    /// Its agent is up.
    Healthy {
        /// The last sign of life.
        heard: Duration,
    },
    /// It is down.
    Down(Verdict<DownReason>),
}

impl Machine {
    /// What the loop decided so far, and why.
    pub fn explain(&self) -> Explanation {
        let nodes = self.state.names.iter().zip(&self.state.nodes).zip(&self.used);
        let nodes = nodes.map(|((name, node), used)| NodeExplanation {
            node: name.clone(),
            used: *used,
            restarts: node.restarts,
            condition: match &node.status {
                Status::Healthy { heard } => Condition::Healthy { heard: *heard },
                Status::Down { verdict, .. } => Condition::Down(verdict.clone()),
                Status::Starting(starting) => Condition::Starting {
                    since: starting.asked,
                    lost: starting.lost.as_ref().map(|lost| lost.reason.clone()),
                },
            },
        });
        Explanation {
            phase: match &self.state.phase {
                Phase::Fresh => "fresh",
                Phase::Gathering => "gathering agents",
                Phase::AskingHalt { .. } => "asking for halt conditions",
                Phase::Settling { .. } => "settling",
                Phase::Preparing { .. } => "preparing",
                Phase::Running => "running",
                Phase::Ending { .. } => "ending the generation",
                Phase::Stopping => "stopping",
                Phase::Draining => "draining",
                Phase::Finished => "finished",
            },
            generation: self.generation(),
            nodes: nodes.collect(),
            generations: self.state.history.clone(),
            newest: self.state.newest,
            without_progress: self.state.without_progress,
            halt: self.state.halt.clone(),
            stop: self.state.stop.clone(),
        }
    }
}
