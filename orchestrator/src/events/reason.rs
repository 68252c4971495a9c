//! Typed reasons: why a node is down, why a generation ended, why the loop stopped. Each is displayed as a sentence.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{CheckpointId, NodeName, Rank, RankEnd};
use serde::{Deserialize, Serialize};

/// Why a node is down. A down node is not used again in this allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum DownReason {
    /// The resource manager reports the node as down.
    #[error("the resource manager reports the node as down: {state}")]
    ResourceManager {
        /// The state and reason as the resource manager reports them.
        state: String,
    },
    /// The agent was never started.
    #[error("its agent could not be started: {reason}")]
    AgentNotStarted { reason: String },
    /// The agent stopped answering and could not be restarted.
    #[error("its agent does not answer ({reason}) and could not be restarted: {restart}")]
    AgentSilent {
        /// How the agent was lost.
        reason: String,
        /// Why the restart failed.
        restart: String,
    },
    /// The agent was lost repeatedly.
    #[error("its agent was restarted {restarts} times and lost again: {reason}")]
    AgentUnstable {
        restarts: u32,
        /// How it was lost the last time.
        reason: String,
    },
    /// A health test failed.
    #[error("a health test failed: {fault}")]
    Health { fault: String },
    /// The agent refused a generation.
    #[error("its agent refused the generation: {reason}")]
    Refused { reason: String },
    /// The user excluded the node before its agent was up.
    #[error("excluded: {reason}")]
    Excluded { reason: String },
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum EndCause {
    /// The application called finalize and all ranks ended with exit code 0.
    #[error("the application is finished")]
    Finalized,
    /// All ranks ended with exit code 0 and never used the checkpoint API, or only read checkpoint files.
    #[error("all ranks ended with exit code 0")]
    ExitedWell,
    /// All ranks ended with exit code 0 and had used the checkpoint API, but without finalize and without a halt.
    #[error("all ranks ended with exit code 0 without calling finalize")]
    WithoutFinalize,
    /// A halt condition was met.
    #[error("halted: {reason}")]
    Halted { reason: String },
    /// Nodes of the run went down.
    #[error("node failure{}: {}", if nodes.len() == 1 { "" } else { "s" }, nodes_text(nodes))]
    NodeFailure { nodes: Vec<NodeName> },
    /// No restart was possible, but neither a checkpoint nor the application is at fault.
    #[error("the restart failed: {reason}")]
    RestartPrevented {
        /// The nodes that could not use their own directories; none if it was the prefix directory.
        nodes: Vec<NodeName>,
        reason: String,
    },
    /// The user excluded nodes of the run, and wanted their ranks moved at once.
    #[error("excluded by the user: {}", nodes_text(nodes))]
    Excluded { nodes: Vec<NodeName> },
    #[error("{} failed with {end}", culprit(*rank))]
    Application {
        /// The first rank that failed, if the launcher reports it.
        rank: Option<Rank>,
        end: RankEnd,
    },
    /// The watchdog detected a hang.
    #[error("the application hangs: {what}")]
    Hang { what: String },
    #[error("the allocation is about to end")]
    TimeLimit,
    /// The ranks could not be started.
    #[error("the launch failed: {reason}")]
    LaunchFailed { reason: String },
    /// An orchestrator that took over cannot follow the step of its predecessor.
    #[error("the ranks cannot be followed any more: {reason}")]
    StepLost { reason: String },
}

/// The progress that a generation made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum GenerationProgress {
    /// A newer complete checkpoint.
    Checkpoint { checkpoint: CheckpointId },
    /// `progress.files`: this file is new or was changed.
    Files { file: PathBuf },
    /// `progress.output`: this rank printed this line.
    Output { rank: Rank, line: String },
}

impl GenerationProgress {
    /// `None` for a newer checkpoint, which is shown elsewhere.
    pub fn beyond_checkpoints(&self) -> Option<&Self> {
        match self {
            GenerationProgress::Checkpoint { .. } => None,
            GenerationProgress::Files { .. } | GenerationProgress::Output { .. } => Some(self),
        }
    }
}

impl fmt::Display for GenerationProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GenerationProgress::Checkpoint { checkpoint } => write!(f, "checkpoint {checkpoint}"),
            GenerationProgress::Files { file } => write!(f, "{} was written", file.display()),
            GenerationProgress::Output { rank, line } => write!(f, "rank {rank} printed {line:?}"),
        }
    }
}

impl EndCause {
    /// True if the job is finished.
    pub fn is_finished(&self) -> bool {
        matches!(self, EndCause::Finalized | EndCause::ExitedWell)
    }

    /// True if the job is finished, or the generation ended because the user or the time limit wanted it to.
    pub fn is_wanted(&self) -> bool {
        self.is_finished() || matches!(self, EndCause::Halted { .. } | EndCause::TimeLimit | EndCause::Excluded { .. })
    }

    /// False if the generation does not count for the limits of relaunches: the user decided it, or a node was taken
    /// out before the ranks could do anything. Both come to an end with the nodes.
    pub fn counts(&self) -> bool {
        !matches!(self, EndCause::Excluded { .. } | EndCause::RestartPrevented { .. })
    }
}

/// Why the loop stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "stop", rename_all = "snake_case")]
pub enum StopReason {
    #[error("the job is finished")]
    Finished,
    /// A halt condition is met.
    #[error("halted: {reason}")]
    Halted { reason: String },
    #[error("halted by {name}")]
    Signal { name: String },
    #[error("too little time is left in the allocation")]
    TimeLimit,
    #[error("too few healthy nodes: {healthy} left, {needed} needed")]
    TooFewNodes { healthy: u32, needed: u32 },
    /// The resource manager does not know the allocation any more.
    #[error("the allocation is lost: the resource manager does not know it any more ({reason})")]
    AllocationLost {
        /// Its words.
        reason: String,
    },
    #[error("the node of the orchestrator, {node}, is down")]
    OwnNodeDown { node: NodeName },
    /// All relaunches are used.
    #[error(
        "gave up after {attempts} {} (relaunch.attempts): {last}",
        if *attempts == 1 { "relaunch" } else { "relaunches" }
    )]
    AttemptsUsed {
        attempts: u32,
        /// How the last generation ended.
        last: EndCause,
    },
    /// Too many generations in a row without a newer complete checkpoint.
    #[error(
        "no progress: {generations} generations in a row (relaunch.no_progress_limit) ended without {}{}; \
         the last one: {last}",
        checkpoint.map_or_else(|| "a complete checkpoint".to_owned(), |id| format!("a checkpoint newer than {id}")),
        if *other_sources { ", and nothing that `progress` names has changed" } else { "" }
    )]
    NoProgress {
        generations: u32,
        /// The newest complete checkpoint, from which all of them started.
        checkpoint: Option<CheckpointId>,
        /// `progress` in the spec had other sources of progress; none of them had any.
        #[serde(default)]
        other_sources: bool,
        /// How the last generation ended.
        last: EndCause,
    },
    /// Another launch would end in the same way: the program does not fit the job, or cannot be started. Since 1.11.
    #[error("not relaunched, because another launch would end in the same way: {reason}")]
    Incurable { reason: String },
    /// The application ended with an exit code for which the policy excludes a relaunch.
    #[error("{} failed with {end}, for which relaunch.on_exit_code excludes a relaunch", culprit(*rank))]
    ApplicationError {
        /// The rank, if known.
        rank: Option<Rank>,
        end: RankEnd,
    },
    /// The application failed after it had called finalize: a relaunch would have nothing to do.
    #[error("{} failed with {end} after the application had called finalize", culprit(*rank))]
    FailedAfterFinalize {
        /// The rank, if known.
        rank: Option<Rank>,
        end: RankEnd,
    },
    /// No generation could start, for a reason that would also exist in another allocation.
    #[error("no generation could start; {node} is down: {reason}")]
    CannotBegin {
        /// The first node that cannot be used for this reason.
        node: NodeName,
        reason: String,
    },
    /// The prefix directory cannot be used for a restart. Nothing of it was changed.
    #[error("{reason}; correct this, then run the job again")]
    CannotRestart { reason: String },
    /// A command of `before:` failed.
    #[error("{reason}; nothing was launched")]
    BeforeFailed {
        /// The command, the node and the error.
        reason: String,
    },
    #[error("no agent could be started on any node: {reason}")]
    NoAgents {
        /// Why the first one failed.
        reason: String,
    },
}

impl StopReason {
    /// True if it concerns the job or its allocation, and not only the step that was under way.
    pub fn ends_job(&self) -> bool {
        match self {
            StopReason::Halted { .. }
            | StopReason::Signal { .. }
            | StopReason::TimeLimit
            | StopReason::OwnNodeDown { .. }
            | StopReason::AllocationLost { .. }
            | StopReason::BeforeFailed { .. }
            | StopReason::CannotRestart { .. }
            | StopReason::NoAgents { .. } => true,
            StopReason::Finished
            | StopReason::TooFewNodes { .. }
            | StopReason::AttemptsUsed { .. }
            | StopReason::NoProgress { .. }
            | StopReason::ApplicationError { .. }
            | StopReason::FailedAfterFinalize { .. }
            | StopReason::CannotBegin { .. }
            | StopReason::Incurable { .. } => false,
        }
    }
}

/// The result of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "drain", rename_all = "snake_case")]
pub enum DrainResult {
    /// There was nothing to drain: no dataset in cache, or all are in the prefix directory.
    #[default]
    Nothing,
    /// A dataset is complete in the prefix directory, and current.
    Complete { checkpoint: CheckpointId },
    /// No dataset could be completed. This one is recorded as incomplete; an older one, if any, stays current.
    Incomplete {
        checkpoint: CheckpointId,
        reason: String,
        /// Files could not be written to the prefix directory: another drain can complete the dataset when the cause is
        /// corrected.
        #[serde(default)]
        unwritable: bool,
        /// The older checkpoint in the prefix directory that a restart takes instead, if nothing more can be saved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        older: Option<CheckpointId>,
    },
    /// The drain could not be carried out.
    Failed {
        reason: String,
        /// As above.
        #[serde(default)]
        unwritable: bool,
    },
}

impl DrainResult {
    /// What a user is to do after a drain that could not write.
    pub const MEND: &'static str = "correct this, then run `holdfast drain` again";

    /// True if data is not saved because it could not be written to the prefix directory.
    pub fn is_unwritable(&self) -> bool {
        matches!(self, DrainResult::Incomplete { unwritable: true, .. } | DrainResult::Failed { unwritable: true, .. })
    }
}

/// A reason with the time at which it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedReason<R> {
    pub reason: R,
    pub at: Duration,
}

fn culprit(rank: Option<Rank>) -> String {
    rank.map_or_else(|| "the application".to_owned(), |rank| format!("rank {rank}"))
}

/// `n3 n5`, of many the first eight.
pub fn nodes_text(nodes: &[NodeName]) -> String {
    const NAMED: usize = 8;
    let named: Vec<&str> = nodes.iter().take(NAMED).map(NodeName::as_str).collect();
    match nodes.len().saturating_sub(NAMED) {
        0 => named.join(" "),
        more => format!("{} and {more} more", named.join(" ")),
    }
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
