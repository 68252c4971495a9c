//! The machine's state, for an orchestrator that takes over after another one was killed.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName, Rank};
use serde::{Deserialize, Serialize};

use super::classify::ActiveGeneration;
use super::config::Config;
use super::disturbances::Disturbances;
use super::drain_estimate::DrainEstimate;
use super::node_state::NodeState;
use super::outcome::{DatasetTally, Outcome};
use super::superseding::Superseding;
use super::tracked::{TrackedSet, TrackedVec};
use crate::events::DrainResult;
use crate::events::{EndCause, GenerationProgress, StopReason, TimedReason};

/// The state of the machine, without its configuration, the times of the last answers of the nodes and the observations
/// of the watchdog. To be serialised, updated with [`Changes`](super::Changes), and restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) version: u32,
    pub started: i64,
    /// The last generation of the job's finished steps; none in the first.
    pub finished_steps: Generation,
    /// Runs in this allocation that ended before this one, and left the job unfinished.
    #[serde(default)]
    pub(super) earlier_runs: u32,
    /// The allocation's nodes, by the positions that are used everywhere else.
    pub(super) names: Vec<NodeName>,
    pub(super) head: Head,
    pub(super) nodes: TrackedVec<NodeState>,
    /// The node of every rank in the last placement; empty before the first one.
    pub(super) homes: TrackedVec<u32>,
    #[serde(rename = "run")]
    pub(super) active: Option<ActiveGeneration>,
    pub(super) history: TrackedVec<PastGeneration>,
    /// While a generation is prepared: nodes that have not accepted it yet.
    pub(super) waiting: TrackedSet,
    /// While a generation ends: its nodes that have not acknowledged that their ranks are killed.
    pub(super) unkilled: TrackedSet,
    /// While a generation ends: its nodes that have not answered a poll sent after the end was observed. Also the nodes
    /// on which a command of `before:` failed.
    pub(super) unanswered: TrackedSet,
}

/// The part of the snapshot whose size does not depend on nodes and ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    #[serde(flatten)]
    pub phase: Phase,
    /// The highest generation number so far.
    pub generation: Generation,
    pub launches: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<CheckpointId>,
    /// The newest checkpoint that was protected from the loss of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<CheckpointId>,
    /// The newest checkpoint that has all the protection of its scheme: what counts as progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secured: Option<CheckpointId>,
    /// The checkpoint that the run restarted from, and the number of ranks that wrote it, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_other_ranks: Option<(CheckpointId, u32)>,
    /// Launches that are not attempts: they followed an exclusion by the user, or a crash in the start of MPI.
    #[serde(default, alias = "after_exclusions")]
    pub uncounted_launches: u32,
    /// Crashes in the start of MPI that did not count.
    #[serde(default)]
    pub mpi_start_crashes: u32,
    /// Generations in a row that ended without progress.
    pub without_progress: u32,
    #[serde(default, skip_serializing_if = "Disturbances::is_none")]
    pub disturbances: Disturbances,
    /// A rank of this run has called the checkpoint API.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub api_called: bool,
    /// The last generation of which it was reported that no rank has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_reported_in: Option<Generation>,
    /// A generation of this run made progress, in this step or in an earlier one.
    #[serde(default)]
    pub made_progress: bool,
    /// What became of the application's datasets in this run.
    #[serde(default)]
    pub datasets: DatasetTally,
    /// A halt condition that holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The commands of `before:` succeeded in this allocation.
    #[serde(default)]
    pub before_done: bool,
    /// How a command of `before:` failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_failure: Option<String>,
    /// Why a rank was refused for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Why the generation does not start from the newest checkpoint that was found. The restart begins before the
    /// generation is launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// The number of signals that this orchestrator received, at most one in former steps.
    #[serde(default)]
    pub signals: u32,
    #[serde(default)]
    pub drain_estimate: DrainEstimate,
    #[serde(default)]
    pub superseding: Superseding,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<TimedReason<StopReason>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

impl Head {
    fn fresh(generation: Generation, signal: Option<String>) -> Self {
        Head { generation, signals: u32::from(signal.is_some()), signal, ..Head::default() }
    }
}

/// The phase of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub(super) enum Phase {
    #[default]
    Fresh,
    /// Waiting until every agent is up or its node is down.
    Gathering,
    /// Waiting for the halt conditions.
    AskingHalt {
        before: HaltCheckBefore,
    },
    /// A launch was refused because the allocation does not exist, or no agent answers: waiting for the word of the
    /// resource manager.
    CheckingAllocation,
    /// Too few nodes are left, and the job may lend others: waiting for them.
    AwaitingNodes,
    /// The delay between two generations.
    Settling {
        until: Duration,
    },
    /// Waiting for [`Snapshot::waiting`] to accept the generation.
    Preparing,
    /// The commands of `before:` run.
    RunningBefore {
        /// When one failed. The nodes on which it failed are in [`Snapshot::unanswered`]: one that is down explains it.
        failed: Option<Duration>,
    },
    Running,
    /// The ranks are being killed: see [`Snapshot::unkilled`] and [`Snapshot::unanswered`].
    Ending {
        since: Duration,
    },
    /// The ranks have ended, and the cause is decided; waiting for the result of the check for progress.
    CheckingProgress,
    /// The loop is over; waiting for agents that are being restarted, so that the drain finds them.
    Stopping,
    /// The drain is under way.
    Draining,
    Finished,
}

/// What follows if no halt condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HaltCheckBefore {
    Settling,
    Launching,
}

/// A generation that was launched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastGeneration {
    /// Its number.
    pub generation: Generation,
    /// The checkpoint that its ranks restarted from, once they did.
    pub from: Option<CheckpointId>,
    /// Its ranks have joined: they know from which checkpoint they go on.
    #[serde(default)]
    pub joined: bool,
    /// Why it started from the beginning, if it did and is not the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beginning: Option<String>,
    /// When it was launched.
    pub launched: Duration,
    /// Why and when it ended, if it did.
    pub ended: Option<TimedReason<EndCause>>,
    /// The newest complete checkpoint at its end.
    pub newest: Option<CheckpointId>,
    /// The progress that it made, if it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<GenerationProgress>,
}

impl Snapshot {
    /// The version of the serialised form.
    pub const VERSION: u32 = 5;

    /// How the loop ended, if it did.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.head.outcome.as_ref()
    }

    pub(super) fn fresh(config: &Config) -> Self {
        Snapshot {
            version: Self::VERSION,
            started: config.started,
            finished_steps: config.finished,
            names: config.nodes.iter().map(|node| node.name.clone()).collect(),
            head: Head::fresh(config.finished, None),
            nodes: config
                .nodes
                .iter()
                .map(|node| NodeState::first(config.lends(&node.name)))
                .collect::<Vec<_>>()
                .into(),
            ..Snapshot::default()
        }
    }

    /// The state with which the next step of the job begins: generation numbers and time continue, nodes that are down
    /// stay down, and a signal that ends the job ends the next step too.
    pub fn next_step(&self) -> Self {
        Snapshot {
            version: self.version,
            started: self.started,
            finished_steps: self.head.generation,
            earlier_runs: self.earlier_runs,
            names: self.names.clone(),
            head: Head {
                made_progress: self.head.made_progress,
                before_done: self.head.before_done,
                disturbances: self.head.disturbances,
                drain_estimate: self.head.drain_estimate.in_next_step(),
                ..Head::fresh(self.head.generation, self.head.signal.clone())
            },
            nodes: self.nodes.iter().map(NodeState::in_next_step).collect::<Vec<_>>().into(),
            ..Snapshot::default()
        }
    }

    /// The state with which another run in the same allocation begins, after one that left the job unfinished:
    /// generation numbers and time continue, nodes that are down stay down, and all limits are counted from zero. Ranks
    /// keep their nodes if the run has as many `ranks` on as many `nodes` as before.
    pub fn next_run(&self, ranks: u32, nodes: u32) -> Self {
        let used: BTreeSet<u32> = self.homes.iter().copied().collect();
        let is_same = (self.homes.len(), used.len()) == (ranks as usize, nodes as usize);
        Snapshot {
            homes: if is_same { self.homes.clone() } else { TrackedVec::default() },
            finished_steps: self.finished_steps,
            earlier_runs: self.earlier_runs.saturating_add(1),
            head: Head { superseding: self.head.superseding, ..Head::fresh(self.head.generation, None) },
            nodes: self.nodes.iter().map(NodeState::in_next_run).collect::<Vec<_>>().into(),
            ..self.next_step()
        }
    }

    /// True if this rank of the generation under way has ended.
    pub fn has_ended(&self, rank: Rank) -> bool {
        self.active.as_ref().is_some_and(|active| active.ended.contains_key(&rank))
    }

    /// The number of ranks of the last placement; `None` before the first.
    pub fn ranks(&self) -> Option<u32> {
        u32::try_from(self.homes.len()).ok().filter(|ranks| *ranks > 0)
    }

    /// The newest complete checkpoint of the run.
    pub fn newest(&self) -> Option<CheckpointId> {
        self.head.newest
    }

    /// That checkpoint, and the number of ranks that wrote it.
    pub fn newest_written_by(&self) -> Option<(CheckpointId, u32)> {
        let newest = self.newest()?;
        let of_others = self.head.of_other_ranks.filter(|(checkpoint, _)| *checkpoint == newest);
        Some((newest, of_others.map(|(_, ranks)| ranks).or(self.ranks())?))
    }

    /// Nodes that are not down; those that were excluded before their agents were up may be included again.
    pub fn nodes_left(&self) -> usize {
        self.nodes.iter().filter(|node| !node.is_down() || node.has_no_agent()).count()
    }

    /// The nodes that the job has lent to this step, those that are down included.
    pub fn lent(&self) -> impl Iterator<Item = &NodeName> {
        self.names.iter().zip(&self.nodes).filter(|(_, node)| !node.is_not_lent()).map(|(name, _)| name)
    }

    /// True if the job has lent only some of its nodes to this step.
    pub fn has_some_nodes(&self) -> bool {
        self.nodes.iter().any(NodeState::is_not_lent)
    }

    /// Those of the lent nodes that another step can use, when the agents of the nodes in `stopped` have ended: they
    /// are not down, or have no agent because they are excluded.
    pub fn given_back(&self, stopped: &BTreeSet<NodeName>) -> BTreeSet<NodeName> {
        let nodes = self.names.iter().zip(&self.nodes).filter(|(name, node)| {
            let has_ended = node.address.is_none() || stopped.contains(*name);
            node.has_no_agent() || !node.is_out() && has_ended
        });
        nodes.map(|(name, _)| name.clone()).collect()
    }

    /// True if a drain may complete incomplete directories: those that restarts supersede are recorded.
    pub fn knows_superseded(&self) -> bool {
        self.head.superseding.is_complete()
    }

    /// The generation that is prepared, under way, or was last.
    pub fn generation(&self) -> Generation {
        self.active.as_ref().map_or(self.head.generation, |active| active.facts.generation)
    }

    /// Checks the state against the configuration: the file may belong to another job, or be damaged.
    pub(super) fn check(&self, config: &Config) -> Result<(), RestoreError> {
        if self.version != Self::VERSION {
            return Err(RestoreError::Version { found: self.version, known: Self::VERSION });
        }
        let mismatch = |what: &str| Err(RestoreError::Mismatch { what: what.to_owned() });
        if !self.names.iter().eq(config.nodes.iter().map(|node| &node.name)) || self.nodes.len() != self.names.len() {
            return mismatch("it has other nodes");
        }
        let count = self.nodes.len() as u32;
        let fits = |set: &TrackedSet| set.last().is_none_or(|last| *last < count);
        let down = self.active.as_ref().is_none_or(|active| fits(&active.down));
        let positions = fits(&self.waiting) && fits(&self.unkilled) && fits(&self.unanswered) && down;
        if !positions || self.homes.iter().any(|home| *home >= count) {
            return mismatch("it refers to nodes that it does not list");
        }
        let left = self.active.as_ref().and_then(|active| active.left.last());
        let is_other = left.is_some_and(|rank| *rank >= config.ranks);
        if is_other || !self.homes.is_empty() && self.homes.len() != config.ranks as usize {
            return mismatch("it has another number of ranks");
        }
        let runs = matches!(self.head.phase, Phase::Running | Phase::Ending { .. } | Phase::CheckingProgress);
        let placed = runs || self.head.phase == Phase::Preparing;
        if placed && self.homes.is_empty() || runs && self.active.is_none() {
            return mismatch("a generation is under way, but it is not recorded which");
        }
        Ok(())
    }
}

/// Why a snapshot cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Another version of Holdfast wrote it.
    #[error(
        "the state of the earlier orchestrator has version {found}, this build reads version {known}: finish the job \
         with the build that began it, or remove the state and run again"
    )]
    Version { found: u32, known: u32 },
    /// It belongs to another allocation or another job.
    #[error("the state of the earlier orchestrator does not fit this job: {what}; remove it and run again")]
    Mismatch { what: String },
}
