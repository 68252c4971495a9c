//! What an event of a job is: one name and its fields. Machine, driver, drain and agents use these; the event log holds
//! them, and `docs/events.md` is written from their declarations.
//!
//! The names and fields are a contract: a name is never used for something else, and a field is never removed or given
//! another type within a major version of [the schema](super::log::SCHEMA). New events and new fields raise its minor
//! version.

use std::path::PathBuf;

use holdfast_core::redundancy::registry;
use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd, RestartSource};
use holdfast_wire::agent::AgentEvent;
use serde::{Deserialize, Serialize};

use super::reason::{DownReason, DrainResult, EndCause, StopReason};

/// A declared event: its variant's name; for the documentation, what it means, and its fields with what they mean.
pub(super) struct DeclaredEvent {
    variant: &'static str,
    #[cfg(test)]
    pub(super) documentation: &'static str,
    #[cfg(test)]
    pub(super) fields: &'static [(&'static str, &'static str)],
}

impl DeclaredEvent {
    /// The event's name in the log.
    pub(super) fn name(&self) -> String {
        let mut name = String::new();
        for character in self.variant.chars() {
            if character.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(character.to_ascii_lowercase());
        }
        name
    }
}

/// Declares the enum, and the same for the documentation and the reader.
macro_rules! vocabulary {
    ($(
        $(#[doc = $documentation:literal])+
        $event:ident $({ $(
            $(#[doc = $field_documentation:literal])+
            $(#[serde($attribute:ident)])?
            $field:ident: $type:ty,
        )+ })?,
    )+) => {
        /// An event of a job.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "event", rename_all = "snake_case")]
        pub enum LogEvent {
            $(
                $(#[doc = $documentation])+
                $event $({ $($(#[doc = $field_documentation])+ $(#[serde($attribute)])? $field: $type,)+ })?,
            )+
        }

        /// All events, in the order of their declaration.
        pub(super) const EVENTS: &[DeclaredEvent] = &[$(DeclaredEvent {
            variant: stringify!($event),
            #[cfg(test)]
            documentation: concat!($($documentation),+),
            #[cfg(test)]
            fields: &[$($((stringify!($field), concat!($($field_documentation),+))),+)?],
        }),+];
    };
}

vocabulary! {
    /// A job begins in an allocation.
    JobStarted {
        /// The job id, part of directory names.
        job_id: String,
        /// The nodes.
        nodes: Vec<NodeName>,
        /// The prefix directory.
        prefix: PathBuf,
    },
    /// An orchestrator took over from one that died.
    TookOver {
        /// The generation at the time.
        generation: Generation,
    },
    /// A command of `before:` or `after:` was run.
    SiteCommand {
        /// The program.
        program: String,
        /// On which nodes.
        nodes: Vec<NodeName>,
        /// The node on which it failed and how; absent if it did not.
        failure: Option<String>,
    },
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
    /// An agent that a drain needs could not be started.
    AgentNotStarted {
        /// Its node.
        node: NodeName,
        /// Why.
        reason: String,
    },
    /// A node's clock differs from the orchestrator's by more than is tolerated.
    ClockSkew {
        /// The node.
        node: NodeName,
        /// Milliseconds by which its clock is ahead; negative if it is behind.
        ahead_ms: i64,
    },
    /// A node is down for the rest of the allocation.
    NodeDown {
        /// The node.
        node: NodeName,
        /// `why`, and the fields that belong to it.
        #[serde(flatten)]
        reason: DownReason,
        /// The ranks that it had.
        ranks: Vec<Rank>,
    },
    /// The resource manager changed the end of the allocation.
    AllocationEndChanged {
        /// The new end, seconds since the epoch; absent if it has none now.
        end: Option<i64>,
    },
    /// A generation was placed.
    GenerationPlaced {
        /// The generation.
        generation: Generation,
        /// Nodes with ranks, in allocation order.
        nodes: Vec<NodeName>,
        /// The number of healthy nodes without ranks.
        spares: u32,
        /// Ranks that run elsewhere than before.
        moved: Vec<Rank>,
    },
    /// A generation was launched.
    GenerationLaunched {
        /// The generation.
        generation: Generation,
        /// Relaunches so far.
        relaunches: u32,
    },
    /// The resource manager does not start the ranks yet; it is asked again.
    LaunchDelayed {
        /// The generation.
        generation: Generation,
        /// The resource manager's words.
        reason: String,
    },
    /// A process of a rank connected to its agent.
    RankConnected {
        /// The node.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The rank.
        rank: Rank,
        /// The process id.
        pid: u32,
    },
    /// A process of a rank that was connected is gone.
    RankGone {
        /// The node.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The rank.
        rank: Rank,
        /// The process id.
        pid: u32,
    },
    /// A process of the application ended with an error.
    RankFailed {
        /// The generation.
        generation: Generation,
        /// The rank.
        rank: Rank,
        /// `{"code": …}`, `{"signal": …}` or `"unknown"`.
        end: RankEnd,
    },
    /// A checkpoint was tried for a restart and cannot be used.
    RestartAttempt {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Where it was looked for: `cache` or `parallel_file_system`.
        from: holdfast_model::Location,
        /// Why it cannot be used.
        reason: String,
    },
    /// Lost files are being rebuilt in cache.
    RebuildStarted {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The ranks whose files are rebuilt.
        ranks: Vec<Rank>,
    },
    /// All ranks are initialised.
    Restarted {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint that they start from; absent if they start from the beginning.
        checkpoint: Option<CheckpointId>,
        /// Where it came from: `cache`, `rebuilt`, `fetched` or `fresh`.
        source: RestartSource,
        /// Ranks whose files were rebuilt.
        rebuilt: Vec<Rank>,
        /// Ranks whose files were moved to another node.
        moved: Vec<Rank>,
        /// How long it took, milliseconds.
        millis: u64,
    },
    /// A checkpoint begins.
    CheckpointStarted {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The redundancy of a checkpoint is being made.
    EncodeStarted {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A checkpoint is complete.
    CheckpointComplete {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The redundancy scheme.
        scheme: holdfast_model::Scheme,
        /// True if it survives the loss of a node.
        protected: bool,
        /// Bytes of all ranks' files.
        bytes: u64,
        /// From the call to its end, milliseconds.
        millis: u64,
    },
    /// A checkpoint was dropped.
    CheckpointFailed {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// A checkpoint reached the prefix directory.
    Flushed {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: String,
        /// How long it took, milliseconds.
        millis: u64,
    },
    /// A flush failed; the checkpoint is still in cache.
    FlushFailed {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// A halt condition holds; the ranks were told to stop.
    Halting {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The condition.
        reason: String,
    },
    /// The application called finalize.
    Finalized {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
    },
    /// An agent refused a connection without the job's token or certificate.
    UnauthenticatedConnection {
        /// The node.
        node: NodeName,
        /// From where it came.
        peer: String,
        /// What was wrong with it.
        reason: String,
    },
    /// An agent has something for people to read.
    Notice {
        /// The node.
        node: NodeName,
        /// The text.
        message: String,
    },
    /// A failure that the spec orders was injected.
    FaultInjected {
        /// The virtual node.
        node: NodeName,
        /// True if only its agent dies.
        agent_only: bool,
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
    /// Something moved while the stacks were being saved: the run continues.
    HangDismissed {
        /// The generation.
        generation: Generation,
    },
    /// The run hangs: it is ended, and launched again.
    Hang {
        /// The generation.
        generation: Generation,
        /// The ranks in their own code; `generations/<generation>/rank_<rank>.stack` shows where.
        ranks: Vec<Rank>,
        /// What was seen.
        reason: String,
    },
    /// Stacks of ranks that hang could not be saved.
    StacksNotSaved {
        /// The generation.
        generation: Generation,
        /// Why.
        reason: String,
    },
    /// A generation is being ended: its ranks are killed.
    GenerationEnding {
        /// The generation.
        generation: Generation,
        /// What was seen first.
        seen: String,
    },
    /// A generation ended.
    GenerationEnded {
        /// The generation.
        generation: Generation,
        /// `cause`, and the fields that belong to it.
        #[serde(flatten)]
        cause: EndCause,
        /// The newest complete checkpoint.
        newest: Option<CheckpointId>,
        /// Generations in a row that ended without a newer one.
        without_progress: u32,
    },
    /// A halt condition holds.
    HaltSet {
        /// The condition.
        reason: String,
    },
    /// The halt condition does not hold any more.
    HaltCleared,
    /// The orchestrator received a signal.
    Signal {
        /// Its name.
        name: String,
        /// True for the second one: everything ends at once.
        at_once: bool,
    },
    /// The loop stops; the drain comes next.
    Stopping {
        /// `stop`, and the fields that belong to it.
        #[serde(flatten)]
        reason: StopReason,
    },
    /// A state file of a node could not be read by the drain.
    InventoryFault {
        /// The node.
        node: NodeName,
        /// Which file, and what is wrong with it.
        fault: String,
    },
    /// A dataset cannot be drained, or was passed over.
    DrainSkipped {
        /// The dataset.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// A dataset is being copied.
    DrainStarted {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: String,
        /// True if an earlier drain of it is continued.
        resumed: bool,
    },
    /// A round of copies ended on a node.
    Copied {
        /// The round, 1 or 2.
        round: u8,
        /// The node.
        node: NodeName,
        /// Ranks whose files were copied.
        ranks: Vec<Rank>,
        /// Bytes that were copied.
        bytes: u64,
        /// What failed; absent if nothing did.
        failure: Option<String>,
    },
    /// Lost files were rebuilt in the prefix directory.
    RebuiltInPrefix {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The rank whose files they are.
        rank: Rank,
    },
    /// A file in the prefix directory does not count.
    DamagedInPrefix {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The file, and what is wrong with it.
        file: String,
    },
    /// The index was written.
    Indexed {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: String,
        /// True if the dataset is complete, and current now.
        complete: bool,
    },
    /// The drain ended.
    Drained {
        /// `drain`, and the fields that belong to it.
        #[serde(flatten)]
        result: DrainResult,
    },
    /// The nodes keep what could not be drained.
    DataKept {
        /// Where.
        place: String,
        /// The prefix directory of the drain that tries again.
        prefix: PathBuf,
    },
    /// The allocation could not be given back in full.
    ReleaseFailed {
        /// What was left.
        reason: String,
    },
    /// The last event of a job in an allocation.
    Finished {
        /// The exit code.
        exit_code: u8,
        /// The outcome as a sentence.
        message: String,
    },
}

impl LogEvent {
    /// What the agent of a node reports.
    pub fn of_agent(node: &NodeName, event: AgentEvent) -> LogEvent {
        let node = node.clone();
        match event {
            AgentEvent::RankConnected { generation, rank, pid } => {
                LogEvent::RankConnected { node, generation, rank, pid }
            }
            AgentEvent::RankGone { generation, rank, pid } => LogEvent::RankGone { node, generation, rank, pid },
            AgentEvent::RestartAttempt { generation, checkpoint, from, reason } => {
                LogEvent::RestartAttempt { node, generation, checkpoint, from, reason }
            }
            AgentEvent::Restarted { generation, checkpoint, source, rebuilt, moved, millis } => {
                LogEvent::Restarted { node, generation, checkpoint, source, rebuilt, moved, millis }
            }
            AgentEvent::CheckpointStarted { generation, checkpoint } => {
                LogEvent::CheckpointStarted { node, generation, checkpoint }
            }
            AgentEvent::EncodeStarted { generation, checkpoint } => {
                LogEvent::EncodeStarted { node, generation, checkpoint }
            }
            AgentEvent::RebuildStarted { generation, checkpoint, ranks } => {
                LogEvent::RebuildStarted { node, generation, checkpoint, ranks }
            }
            AgentEvent::CheckpointComplete { generation, checkpoint, scheme, bytes, millis } => {
                let protected = !registry::is_unprotected(scheme);
                LogEvent::CheckpointComplete { node, generation, checkpoint, scheme, protected, bytes, millis }
            }
            AgentEvent::CheckpointFailed { generation, checkpoint, reason } => {
                LogEvent::CheckpointFailed { node, generation, checkpoint, reason }
            }
            AgentEvent::Flushed { generation, checkpoint, directory, millis } => {
                LogEvent::Flushed { node, generation, checkpoint, directory, millis }
            }
            AgentEvent::FlushFailed { generation, checkpoint, reason } => {
                LogEvent::FlushFailed { node, generation, checkpoint, reason }
            }
            AgentEvent::Halting { generation, reason } => LogEvent::Halting { node, generation, reason },
            AgentEvent::Finalized { generation } => LogEvent::Finalized { node, generation },
            AgentEvent::UnauthenticatedConnection { peer, reason } => {
                LogEvent::UnauthenticatedConnection { node, peer, reason }
            }
            AgentEvent::Notice { message } => LogEvent::Notice { node, message },
        }
    }
}
