//! The machine's memory, for an orchestrator that takes over after another one was killed.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName};
use serde::{Deserialize, Serialize};

use super::classify::Run;
use super::config::Config;
use super::nodes::Node;
use super::outcome::Outcome;
use crate::events::DrainResult;
use crate::events::{EndCause, StopReason, Verdict};

/// Everything that the machine knows, but for its configuration. Opaque: serialise it, keep it, restore it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) version: u32,
    pub(super) started: i64,
    /// Names of the allocation's nodes: the positions used everywhere else.
    pub(super) names: Vec<NodeName>,
    pub(super) nodes: Vec<Node>,
    pub(super) phase: Phase,
    /// The highest generation number that was ever seen.
    pub(super) generation: Generation,
    /// The last generation of the job's finished steps; none in the first.
    pub(super) finished_steps: Generation,
    /// The home of every rank in the last placement; empty before the first one.
    pub(super) homes: Vec<u32>,
    pub(super) run: Option<Run>,
    pub(super) launches: u32,
    pub(super) newest: Option<CheckpointId>,
    /// The newest checkpoint survives the loss of a node.
    pub(super) protected: bool,
    /// Generations in a row that ended without a newer checkpoint.
    pub(super) without_progress: u32,
    /// A halt condition that holds.
    pub(super) halt: Option<String>,
    /// The first signal.
    pub(super) signal: Option<String>,
    pub(super) history: Vec<PastGeneration>,
    pub(super) stop: Option<Verdict<StopReason>>,
    pub(super) drain: Option<DrainResult>,
    pub(super) outcome: Option<Outcome>,
    /// No node has anything due before this time.
    pub(super) next_check: Option<Duration>,
}

/// Where the loop is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub(super) enum Phase {
    /// Not begun.
    Fresh,
    /// Waiting until every agent is up or its node down.
    Gathering,
    /// Waiting for the word of the halt files.
    AskingHalt { before: Before },
    /// The settle delay.
    Settling { until: Duration },
    /// Waiting for these nodes to accept the generation.
    Preparing { waiting: BTreeSet<u32> },
    /// The ranks run.
    Running,
    /// The ranks are being killed.
    Ending {
        /// Since then.
        since: Duration,
        /// Nodes of the run that have not acknowledged yet.
        unkilled: BTreeSet<u32>,
        /// Nodes of the run that have not answered a poll sent after `since`.
        unheard: BTreeSet<u32>,
    },
    /// The loop is over; waiting for agents that are being restarted, so that the drain finds them.
    Stopping,
    /// The drain is under way.
    Draining,
    /// Over.
    Finished,
}

/// What the halt files are asked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Before {
    Settling,
    Launching,
}

/// A generation that was launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastGeneration {
    /// Its number.
    pub generation: Generation,
    /// What its ranks started from, once they did.
    pub from: Option<CheckpointId>,
    /// When it was launched.
    pub launched: Duration,
    /// Why and when it ended, if it did.
    pub ended: Option<Verdict<EndCause>>,
    /// The newest complete checkpoint at its end.
    pub newest: Option<CheckpointId>,
}

impl Snapshot {
    /// The version of its form.
    pub const VERSION: u32 = 3;

    pub(super) fn fresh(config: &Config) -> Self {
        Snapshot {
            version: Self::VERSION,
            started: config.started,
            names: config.nodes.iter().map(|node| node.name.clone()).collect(),
            nodes: config.nodes.iter().map(|_| Node::new()).collect(),
            phase: Phase::Fresh,
            generation: Generation::NONE,
            finished_steps: Generation::NONE,
            homes: Vec::new(),
            run: None,
            launches: 0,
            newest: None,
            protected: false,
            without_progress: 0,
            halt: None,
            signal: None,
            history: Vec::new(),
            stop: None,
            drain: None,
            outcome: None,
            next_check: None,
        }
    }

    /// The memory with which the next step of the job begins: the count of generations and the time go on, nodes that are
    /// down stay down, and whoever wants the job to end wants it of this step too.
    pub fn next_step(&self) -> Self {
        Snapshot {
            version: self.version,
            started: self.started,
            names: self.names.clone(),
            nodes: self.nodes.iter().map(Node::in_next_step).collect(),
            phase: Phase::Fresh,
            generation: self.generation,
            finished_steps: self.generation,
            homes: Vec::new(),
            run: None,
            launches: 0,
            newest: None,
            protected: false,
            without_progress: 0,
            halt: None,
            signal: self.signal.clone(),
            history: Vec::new(),
            stop: None,
            drain: None,
            outcome: None,
            next_check: None,
        }
    }

    /// The last generation of the job's finished steps; none in the first.
    pub fn finished_steps(&self) -> Generation {
        self.finished_steps
    }

    /// When the first orchestrator began, seconds since the epoch: zero on the scale of `now`.
    pub fn started(&self) -> i64 {
        self.started
    }

    /// Refuses what does not fit the configuration: the file may be of another job, or damaged.
    pub(super) fn check(&self, config: &Config) -> Result<(), RestoreError> {
        if self.version != Self::VERSION {
            return Err(RestoreError::Version { found: self.version, known: Self::VERSION });
        }
        let mismatch = |what: &str| Err(RestoreError::Mismatch { what: what.to_owned() });
        if !self.names.iter().eq(config.nodes.iter().map(|node| &node.name)) || self.nodes.len() != self.names.len() {
            return mismatch("it is about other nodes");
        }
        let count = self.nodes.len() as u32;
        let fits = |set: &BTreeSet<u32>| set.last().is_none_or(|last| *last < count);
        let positions = match &self.phase {
            Phase::Preparing { waiting } => fits(waiting),
            Phase::Ending { unkilled, unheard, .. } => fits(unkilled) && fits(unheard),
            _ => true,
        };
        if !positions || self.homes.iter().any(|home| *home >= count) {
            return mismatch("it names nodes that it does not list");
        }
        if !self.homes.is_empty() && self.homes.len() != config.ranks as usize {
            return mismatch("it is about another number of ranks");
        }
        let placed = matches!(self.phase, Phase::Preparing { .. } | Phase::Running | Phase::Ending { .. });
        let runs = matches!(self.phase, Phase::Running | Phase::Ending { .. });
        if placed && self.homes.is_empty() || runs && self.run.is_none() {
            return mismatch("it says that a generation is under way, but not which");
        }
        Ok(())
    }
}

/// Why a snapshot cannot be used. The remedy for all: start afresh, the agents keep what they hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Another version of Holdfast wrote it.
    #[error(
        "the state of the earlier orchestrator has version {found}, this one knows {known}: finish the job with the version that began it, or remove the state and run again"
    )]
    Version {
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// It is of another allocation or another run.
    #[error("the state of the earlier orchestrator does not fit this job: {what}; remove it and run again")]
    Mismatch {
        /// What differs.
        what: String,
    },
}
