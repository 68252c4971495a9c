//! The facts about the generation under way, and the cause of its end.

use std::time::Duration;

use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd};
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::disturbances;
use super::running_halt::RunningHalt;
use super::tracked::{AppendOnlyMap, TrackedSet};
use crate::events::EndCause;
use crate::launch::Obstacle;
use crate::spec::ExitAction;

/// SIGKILL and SIGTERM, with which resource managers end processes.
const KILLED: i32 = 9;
const TERMINATED: i32 = 15;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ActiveGeneration {
    pub facts: GenerationFacts,
    /// Ranks that ended before the generation was ended.
    pub ended: AppendOnlyMap<Rank, RankEnd>,
    /// Nodes with ranks that went down before the cause was decided, by position.
    pub down: TrackedSet,
    /// Ranks whose last process ended with exit code 0, and only read checkpoint files.
    #[serde(default)]
    pub left: TrackedSet,
}

/// The facts about a generation, without its ranks and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GenerationFacts {
    pub generation: Generation,
    pub launched: Duration,
    /// The newest checkpoint at the launch that counts as progress.
    pub newest_before: Option<CheckpointId>,
    /// The launcher is known to run.
    pub started: bool,
    /// A rank has called the checkpoint API.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connected: bool,
    /// The ranks joined through the checkpoint API.
    pub joined: bool,
    pub finalized: bool,
    /// The halt condition for which the leader ended the ranks.
    pub halting: Option<String>,
    pub failure: Option<(Option<Rank>, RankEnd)>,
    /// A rank ended and its exit status is unknown; a poll of the leader that is sent after this time decides.
    #[serde(rename = "doubt")]
    pub unknown_end_since: Option<Duration>,
    pub step_ended: Option<RankEnd>,
    pub launch_failed: Option<String>,
    /// Why the launch failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
    /// When the agent of a node with ranks ended, the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_ended: Option<Duration>,
    pub step_lost: Option<String>,
    pub hang: Option<String>,
    pub signal: Option<String>,
    /// Nodes that the user excluded, for which the generation is ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<NodeName>,
    /// Why no restart was possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prevented: Option<Prevented>,
    /// The ranks are being halted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<RunningHalt>,
    /// Why it ended, while its progress is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<EndCause>,
}

/// Why no restart was possible, and the nodes that could not use their own directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Prevented {
    pub nodes: Vec<NodeName>,
    pub reason: String,
}

impl ActiveGeneration {
    pub fn new(generation: Generation, launched: Duration, newest_before: Option<CheckpointId>) -> Self {
        let facts = GenerationFacts { generation, launched, newest_before, ..GenerationFacts::default() };
        ActiveGeneration { facts, ..ActiveGeneration::default() }
    }

    /// True if the ranks are expected to end by themselves.
    pub fn expects_end(&self) -> bool {
        self.facts.finalized || self.facts.halting.is_some() || self.is_terminated()
    }

    /// True if the ranks were sent SIGTERM or SIGKILL because of a halt.
    pub fn is_terminated(&self) -> bool {
        self.facts.halt.as_ref().is_some_and(RunningHalt::is_terminated)
    }

    /// True if all ranks ended, as far as known.
    pub fn all_ended(&self, config: &Config) -> bool {
        self.facts.step_ended.is_some() || self.ended.len() >= config.ranks as usize
    }

    /// True if the generation ended by a cause outside of the application: nodes were lost, the launch was refused, or
    /// the processes on a node, its agent too, were killed.
    pub fn is_disturbance(&self, cause: &EndCause, now: Duration) -> bool {
        match cause {
            EndCause::NodeFailure { .. } => true,
            EndCause::LaunchFailed { .. } => self.facts.obstacle.is_some_and(|obstacle| obstacle != Obstacle::Job),
            EndCause::Application { end: RankEnd::Signal(KILLED | TERMINATED) | RankEnd::Unknown, .. } => {
                self.facts.agent_ended.is_some_and(|ended| now.saturating_sub(ended) <= disturbances::WITHIN)
            }
            _ => false,
        }
    }

    /// True if all ranks ended without failure.
    fn ended_well(&self, config: &Config) -> bool {
        let unseen =
            self.facts.step_ended == Some(RankEnd::Unknown) || self.ended.values().any(|end| *end == RankEnd::Unknown);
        self.facts.failure.is_none() && self.all_ended(config) && (!unseen || self.expects_end())
    }

    fn nodes_down(&self, config: &Config) -> Vec<NodeName> {
        let names = self.down.iter().filter_map(|position| config.nodes.get(*position as usize));
        names.map(|node| node.name.clone()).collect()
    }

    /// Why the generation ended. To be called when each of its nodes has answered a poll that was sent after the end
    /// was observed, or is down: before that, a rank may have failed because of a node that is not known to be down
    /// yet, and the leader's report that the application is finished may still be on its way.
    pub fn cause(&self, config: &Config) -> EndCause {
        if self.ended_well(config) {
            if self.facts.finalized {
                return EndCause::Finalized;
            }
            if let Some(reason) = &self.facts.halting {
                return match &self.facts.halt {
                    Some(halt) => halt.end_cause(),
                    None => EndCause::Halted { reason: reason.clone() },
                };
            }
            // A program that handles SIGTERM may end with exit code 0 and is not finished.
            let is_unused = !self.facts.joined || self.left.len() >= config.ranks as usize;
            if is_unused && !self.is_terminated() {
                return EndCause::ExitedWell;
            }
        }
        if let Some(name) = &self.facts.signal {
            return EndCause::Halted { reason: name.clone() };
        }
        if let Some(halt) = self.facts.halt.as_ref().filter(|halt| halt.is_terminated()) {
            return halt.end_cause();
        }
        if let Some(Prevented { nodes, reason }) = self.facts.prevented.clone() {
            return EndCause::RestartPrevented { nodes, reason };
        }
        if !self.down.is_empty() {
            // All ranks called finalize before the node failed: nothing is left to do.
            return match self.facts.finalized {
                true => EndCause::Finalized,
                false => EndCause::NodeFailure { nodes: self.nodes_down(config) },
            };
        }
        if !self.facts.excluded.is_empty() {
            return match self.facts.finalized {
                true => EndCause::Finalized,
                false => EndCause::Excluded { nodes: self.facts.excluded.clone() },
            };
        }
        if self.ended_well(config) {
            return EndCause::WithoutFinalize;
        }
        if let Some(reason) = &self.facts.launch_failed {
            return EndCause::LaunchFailed { reason: reason.clone() };
        }
        if let Some((rank, end)) = self.facts.failure {
            return EndCause::Application { rank, end };
        }
        if let Some(what) = &self.facts.hang {
            // After finalize a hang costs nothing.
            return match self.facts.finalized {
                true => EndCause::Finalized,
                false => EndCause::Hang { what: what.clone() },
            };
        }
        if let Some(reason) = &self.facts.step_lost {
            return match self.facts.finalized {
                true => EndCause::Finalized,
                false => EndCause::StepLost { reason: reason.clone() },
            };
        }
        let rank = self.ended.iter().find(|(_, end)| **end == RankEnd::Unknown).map(|(rank, _)| *rank);
        EndCause::Application { rank, end: RankEnd::Unknown }
    }
}

impl Config {
    /// The action that the policy has for the end of a process that failed.
    pub(super) fn action_after(&self, end: RankEnd) -> ExitAction {
        match end {
            RankEnd::Code(code) => self.exit_codes.get(&code).copied().unwrap_or(ExitAction::Relaunch),
            RankEnd::Signal(_) | RankEnd::Unknown => ExitAction::Relaunch,
        }
    }
}
