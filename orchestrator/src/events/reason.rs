//! Typed reasons: why a node is down, why a generation ended, why the loop stopped. Each reads as a sentence.

use std::fmt;
use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName, Rank, RankEnd};
use serde::{Deserialize, Serialize};

/// Why a node is down. Once down, down for the rest of the allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum DownReason {
    /// The resource manager says so.
    #[error("the resource manager says that the node is down: {state}")]
    ResourceManager {
        /// Its word for it.
        state: String,
    },
    /// Its agent could never be started.
    #[error("its agent could not be started: {reason}")]
    AgentNotStarted { reason: String },
    /// Its agent fell silent and did not come back.
    #[error("its agent is silent ({reason}) and could not be restarted: {restart}")]
    AgentSilent {
        /// How it was lost.
        reason: String,
        /// Why it could not be restarted.
        restart: String,
    },
    /// Its agent died again and again.
    #[error("its agent was restarted {restarts} times; last it was lost because: {reason}")]
    AgentUnstable {
        restarts: u32,
        /// How it was lost last.
        reason: String,
    },
    /// A health test failed.
    #[error("a health test failed: {fault}")]
    Health { fault: String },
    /// Its agent refused a run.
    #[error("its agent refused the run: {reason}")]
    Refused { reason: String },
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum EndCause {
    /// The application called finalize and its ranks ended well.
    Finalized,
    /// All ranks ended with 0 without ever using the checkpoint API.
    ExitedWell,
    /// All ranks ended with 0, had used the checkpoint API, but neither called finalize nor were told to halt.
    WithoutFinalize,
    /// A halt condition held.
    Halted { reason: String },
    /// Nodes of the run went down.
    NodeFailure { nodes: Vec<NodeName> },
    Application {
        /// The first rank that failed, if the launcher tells.
        rank: Option<Rank>,
        end: RankEnd,
    },
    /// The watchdog found no progress.
    Hang { what: String },
    /// The allocation is about to end.
    TimeLimit,
    /// The launcher could not be started.
    LaunchFailed { reason: String },
    /// An orchestrator that took over could not follow the step.
    StepLost { reason: String },
}

impl EndCause {
    /// True if the job is finished.
    pub fn is_finished(&self) -> bool {
        matches!(self, EndCause::Finalized | EndCause::ExitedWell)
    }
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndCause::Finalized => f.write_str("the application is finished"),
            EndCause::ExitedWell => f.write_str("all ranks ended well"),
            EndCause::WithoutFinalize => f.write_str("all ranks ended with exit code 0 without calling finalize"),
            EndCause::Halted { reason } => write!(f, "halted: {reason}"),
            EndCause::NodeFailure { nodes } => {
                f.write_str(if nodes.len() == 1 { "node failure:" } else { "failure of nodes:" })?;
                nodes.iter().take(8).try_for_each(|node| write!(f, " {node}"))?;
                match nodes.len() {
                    0..=8 => Ok(()),
                    more => write!(f, " and {} more", more - 8),
                }
            }
            EndCause::Application { rank: Some(rank), end } => write!(f, "rank {rank} failed with {end}"),
            EndCause::Application { rank: None, end } => {
                write!(f, "the application failed with {end}")
            }
            EndCause::Hang { what } => write!(f, "the application hangs: {what}"),
            EndCause::TimeLimit => f.write_str("the allocation is about to end"),
            EndCause::LaunchFailed { reason } => write!(f, "the launch failed: {reason}"),
            EndCause::StepLost { reason } => {
                write!(f, "the ranks of an earlier orchestrator cannot be followed: {reason}")
            }
        }
    }
}

/// Why the loop stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stop", rename_all = "snake_case")]
pub enum StopReason {
    /// The job is finished.
    Finished,
    /// A halt condition holds.
    Halted {
        reason: String,
    },
    Signal {
        name: String,
    },
    /// Too little is left of the allocation.
    TimeLimit,
    /// Too few healthy nodes.
    TooFewNodes {
        /// Those left.
        healthy: u32,
        needed: u32,
    },
    /// The node that the orchestrator runs on is down.
    OwnNodeDown {
        node: NodeName,
    },
    /// All relaunches are used.
    AttemptsUsed {
        attempts: u32,
        /// How the last generation ended.
        last: EndCause,
    },
    /// No newer complete checkpoint for too long.
    NoProgress {
        /// For so many generations in a row.
        generations: u32,
        /// The newest complete checkpoint, which all of them began with.
        checkpoint: Option<CheckpointId>,
        /// How the last generation ended.
        last: EndCause,
    },
    /// The application ended with a code that the policy says not to retry.
    ApplicationError {
        /// The rank, if known.
        rank: Option<Rank>,
        end: RankEnd,
    },
    /// The application failed after it had called finalize: it would not do anything new.
    FailedAfterFinalize {
        /// The rank, if known.
        rank: Option<Rank>,
        end: RankEnd,
    },
    /// No run could begin, for a reason that would be there in another allocation too.
    CannotBegin {
        /// The first node that it keeps from being used.
        node: NodeName,
        reason: String,
    },
    /// Not one agent could be started.
    NoAgents {
        /// Why the first one could not.
        reason: String,
    },
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Finished => f.write_str("the job is finished"),
            StopReason::Halted { reason } => write!(f, "halted: {reason}"),
            StopReason::Signal { name } => write!(f, "halted by {name}"),
            StopReason::TimeLimit => f.write_str("too little is left of the allocation"),
            StopReason::TooFewNodes { healthy, needed } => {
                write!(f, "too few healthy nodes: {healthy} left, {needed} needed")
            }
            StopReason::OwnNodeDown { node } => {
                write!(f, "{node}, the node that the orchestrator runs on, is down")
            }
            StopReason::AttemptsUsed { attempts, last } => {
                write!(f, "all {attempts} relaunches (relaunch.attempts) are used; last: {last}")
            }
            StopReason::NoProgress { generations, checkpoint, last } => {
                write!(f, "{generations} generations in a row (relaunch.no_progress_limit) ended without ")?;
                match checkpoint {
                    Some(id) => write!(f, "a checkpoint newer than {id}; last: {last}"),
                    None => write!(f, "any complete checkpoint; last: {last}"),
                }
            }
            StopReason::ApplicationError { rank: Some(rank), end } => {
                write!(f, "rank {rank} failed with {end}, which relaunch.on_exit_code says not to retry")
            }
            StopReason::ApplicationError { rank: None, end } => {
                write!(f, "the application failed with {end}, which relaunch.on_exit_code says not to retry")
            }
            StopReason::FailedAfterFinalize { rank: Some(rank), end } => {
                write!(f, "rank {rank} failed with {end} after the application had called finalize")
            }
            StopReason::FailedAfterFinalize { rank: None, end } => {
                write!(f, "the application failed with {end} after it had called finalize")
            }
            StopReason::CannotBegin { node, reason } => write!(f, "no run could begin; {node} is down: {reason}"),
            StopReason::NoAgents { reason } => {
                write!(f, "no agent could be started on any node: {reason}")
            }
        }
    }
}

/// How the drain went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "drain", rename_all = "snake_case")]
pub enum DrainResult {
    /// There was nothing to drain: no dataset in cache, or all are on the prefix directory.
    Nothing,
    /// A dataset is complete on the prefix directory and current.
    Complete { checkpoint: CheckpointId },
    /// No dataset could be completed; what there is of this one is recorded as incomplete, and an older one, if there is one,
    /// stays current.
    Incomplete { checkpoint: CheckpointId, reason: String },
    /// The drain could not be carried out.
    Failed { reason: String },
}

/// A reason and the time of the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedReason<R> {
    pub reason: R,
    /// When it was given.
    pub at: Duration,
}

/// `rank 3`, `ranks 0-3,7`.
pub fn ranks_text(ranks: &[Rank]) -> String {
    let mut sorted: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for rank in &sorted {
        match rows.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*rank) => *last = *rank,
            _ => rows.push((*rank, *rank)),
        }
    }
    let row = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let text: Vec<String> = rows.iter().map(row).collect();
    format!("{} {}", if sorted.len() == 1 { "rank" } else { "ranks" }, text.join(","))
}
