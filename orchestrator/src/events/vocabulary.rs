//! The events of a job: names and fields. State machine, driver, drain and agents emit them; the event log stores them,
//! and `docs/events.md` is generated from their declarations.
//!
//! The names and fields are a contract: within a major version of [the schema](super::log::SCHEMA) no name changes its
//! meaning, and no field is removed or changes its type. New events and new fields raise the minor version.

use std::fmt;
use std::path::PathBuf;

use holdfast_core::redundancy::registry;
use holdfast_model::pair::{PairChange, PairEvent};
use holdfast_model::{CheckpointId, Generation, Level, NodeName, Rank, RankEnd, RestartSource, Timestamp};
use holdfast_wire::agent::AgentEvent;
use serde::{Deserialize, Serialize};

use super::reason::{DownReason, DrainResult, EndCause, GenerationProgress, StopReason};

/// A declared event: its variant's name and, for the documentation, its meaning and its fields with their meanings.
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

/// Declares the enum, and the list of events for the documentation and the reader.
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

        /// All events in the order of their declaration.
        pub(super) const EVENTS: &[DeclaredEvent] = &[$(DeclaredEvent {
            variant: stringify!($event),
            #[cfg(test)]
            documentation: concat!($($documentation),+),
            #[cfg(test)]
            fields: &[$($((stringify!($field), concat!($($field_documentation),+))),+)?],
        }),+];
    };
}

/// The key of the spec that has a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKey {
    Before,
    After,
}

impl fmt::Display for CommandKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CommandKey::Before => "before",
            CommandKey::After => "after",
        })
    }
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
    /// As `took_over`, of a job with pairs of main and replica, whose copies went on meanwhile.
    PairsTakenOver {
        /// Counts the orchestrators of the job.
        epoch: u64,
    },
    /// All copies and non-critical jobs of a job with pairs are being ended.
    PairsEnding {
        /// Why.
        reason: String,
    },
    /// A command of `before:` or `after:` is started.
    SiteCommandStarted {
        /// `before` or `after`.
        key: CommandKey,
        /// The program.
        program: String,
        /// On which nodes.
        nodes: Vec<NodeName>,
    },
    /// A command of `before:` or `after:` ended.
    SiteCommand {
        /// `before` or `after`; absent in logs of version 1.0.
        #[serde(default)]
        key: Option<CommandKey>,
        /// The program.
        program: String,
        /// On which nodes.
        nodes: Vec<NodeName>,
        /// The node on which it failed, and how; absent if it succeeded.
        failure: Option<String>,
        /// The directory with the output of the commands; absent in logs of versions before 1.2.
        #[serde(default)]
        output: Option<PathBuf>,
    },
    /// An agent is up.
    AgentReady {
        /// Its node.
        node: NodeName,
        /// True if the node had an agent before.
        again: bool,
    },
    /// An agent was lost and is restarted.
    AgentLost {
        /// Its node.
        node: NodeName,
        /// How it was lost.
        reason: String,
    },
    /// An agent does not answer. It is being checked, and is not replaced while its process exists.
    AgentSilent {
        /// Its node.
        node: NodeName,
        /// For how long it did not answer, in milliseconds in which the orchestrator ran.
        millis: u64,
    },
    /// An agent that did not answer does so again.
    AgentAnswers {
        /// Its node.
        node: NodeName,
        /// For how long it did not answer, in milliseconds in which the orchestrator ran.
        millis: u64,
    },
    /// Most agents do not answer, probably because of the orchestrator's machine. None that may be alive is replaced.
    MostAgentsSilent {
        /// Agents that do not answer.
        silent: u32,
        /// Agents that are up.
        agents: u32,
    },
    /// The orchestrator did not run for a time: it was stopped, or got no processor. All agents are asked again.
    OrchestratorStalled {
        /// For how long, in milliseconds.
        millis: u64,
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
        /// `why`, and its fields.
        #[serde(flatten)]
        reason: DownReason,
        /// The ranks on the node.
        ranks: Vec<Rank>,
    },
    /// The user excluded a node: no more ranks are placed on it.
    NodeExcluded {
        /// The node.
        node: NodeName,
        /// The reason that the user gave, or where the exclusion is written.
        reason: String,
        /// Ranks that are on the node now.
        ranks: Vec<Rank>,
        /// True if these ranks are to be relaunched on other nodes now, not after the end of their generation.
        now: bool,
    },
    /// The user made an excluded node available again.
    NodeIncluded {
        /// The node.
        node: NodeName,
    },
    /// Ranks on excluded nodes go on, because too few other nodes are left for a relaunch.
    ExclusionDelayed {
        /// The excluded nodes.
        nodes: Vec<NodeName>,
        /// Nodes that are left.
        left: u32,
        /// Nodes that a launch needs.
        needed: u32,
    },
    /// The user excluded nodes that are not in the allocation.
    UnknownNodesExcluded {
        /// Their names.
        nodes: Vec<NodeName>,
    },
    /// The resource manager changed the end of the allocation.
    AllocationEndChanged {
        /// The new end, seconds since the epoch; absent if there is no end.
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
        /// Ranks that run on another node than before.
        moved: Vec<Rank>,
    },
    /// A generation was launched.
    GenerationLaunched {
        /// The generation.
        generation: Generation,
        /// Relaunches so far.
        relaunches: u32,
    },
    /// The resource manager cannot start the ranks yet; the launch is retried.
    LaunchDelayed {
        /// The generation.
        generation: Generation,
        /// The message of the resource manager.
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
    /// A connected process of a rank ended.
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
    /// A connected process of a rank ends with exit code 0 and has written no checkpoint file; another one may connect.
    RankLeft {
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
    /// A checkpoint cannot be used for a restart.
    RestartAttempt {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Where it is: `cache` or `parallel_file_system`.
        from: holdfast_model::Location,
        /// Why it cannot be used.
        reason: String,
    },
    /// No restart is possible, but no checkpoint is at fault. A faulty node gets no more ranks; its cache stays used.
    RestartPrevented {
        /// The node of the leader.
        node: NodeName,
        /// The generation.
        generation: Generation,
        /// The node that cannot use its own directories; absent if the prefix directory cannot be used.
        faulty: Option<NodeName>,
        /// What failed.
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
    /// All ranks have joined. Programs that do not use the API start after this, and have not read their files yet.
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
    /// The redundancy data of a checkpoint are being computed.
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
        /// The level of a checkpoint of variables, 1 to 4; absent for others.
        #[serde(default)]
        level: Option<u32>,
        /// True if it survives the loss of a node.
        protected: bool,
        /// Total size of the files of all ranks, bytes.
        bytes: u64,
        /// Duration of the call, milliseconds.
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
    /// At the end of a run: the application wrote datasets, and every one of them was dropped.
    AllDatasetsDropped {
        /// Their number.
        count: u64,
        /// The last one.
        checkpoint: CheckpointId,
        /// Why it was dropped.
        reason: String,
    },
    /// A checkpoint was flushed to the prefix directory.
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
    /// Files that were to be in a container are plain files: it cannot be created or written.
    PlainFilesKept {
        /// The node of the leader; absent if the orchestrator drains.
        #[serde(default)]
        node: Option<NodeName>,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Its directory below the prefix.
        directory: String,
        /// Why.
        reason: String,
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
    /// A halt condition is met; the ranks are being halted.
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
    /// LLNL's library has begun to initialise the ranks (`checkpoint: {source: scr-files}`).
    LibraryStarted {
        /// The node of rank 0.
        node: NodeName,
        /// The generation.
        generation: Generation,
    },
    /// LLNL's library was to write checkpoints, and the ranks left nothing in the control directory.
    LibraryLeftNothing {
        /// The generation.
        generation: Generation,
        /// The base of the control directory.
        base: String,
    },
    /// An agent refused a connection without the job's token or certificate.
    UnauthenticatedConnection {
        /// The node.
        node: NodeName,
        /// The address of the peer.
        peer: String,
        /// Why it was refused.
        reason: String,
    },
    /// A pair of main and replica changed, or a non-critical job.
    Pair {
        /// The node.
        node: NodeName,
        /// The pair's name, or the job's.
        name: String,
        /// When it happened, milliseconds since the epoch, in the node's clock.
        at: Timestamp,
        /// `change`, and its fields.
        #[serde(flatten)]
        change: PairChange,
    },
    /// A message from an agent.
    Notice {
        /// The node.
        node: NodeName,
        /// The text.
        message: String,
    },
    /// A fault of the spec was injected.
    FaultInjected {
        /// The virtual node.
        node: NodeName,
        /// True if only its agent is killed.
        agent_only: bool,
    },
    /// The generation seems to hang: the stacks of these ranks are being saved.
    HangSuspected {
        /// The generation.
        generation: Generation,
        /// The ranks that are in their own code; the others wait for them.
        ranks: Vec<Rank>,
        /// What was observed.
        reason: String,
    },
    /// There was progress while the stacks were being saved: the generation continues.
    HangDismissed {
        /// The generation.
        generation: Generation,
    },
    /// The generation hangs: it is stopped, and the application is relaunched.
    Hang {
        /// The generation.
        generation: Generation,
        /// The ranks that are in their own code; their stacks are in `generations/<generation>/rank_<rank>.stack`.
        ranks: Vec<Rank>,
        /// What was observed.
        reason: String,
    },
    /// Stacks of ranks that hang could not be saved.
    StacksNotSaved {
        /// The generation.
        generation: Generation,
        /// Why.
        reason: String,
    },
    /// A generation is being stopped: its ranks are killed.
    GenerationEnding {
        /// The generation.
        generation: Generation,
        /// What was observed first.
        seen: String,
    },
    /// A generation ended.
    GenerationEnded {
        /// The generation.
        generation: Generation,
        /// `cause`, and its fields.
        #[serde(flatten)]
        cause: EndCause,
        /// The newest complete checkpoint.
        newest: Option<CheckpointId>,
        /// Number of generations in a row that ended without progress.
        without_progress: u32,
        /// Its progress: `source`, and `checkpoint`, `file`, or `rank` and `line`; absent in logs before 1.3.
        #[serde(default)]
        progress: Option<GenerationProgress>,
    },
    /// It could not be found out whether a generation made progress. It does not count for `no_progress_limit`.
    ProgressUnknown {
        /// The generation.
        generation: Generation,
        /// Why.
        reason: String,
    },
    /// A halt condition is met.
    HaltSet {
        /// The condition.
        reason: String,
    },
    /// The halt condition is not met any more.
    HaltCleared,
    /// The ranks are to end at their next checkpoint.
    HaltRequested {
        /// The generation.
        generation: Generation,
        /// The halt condition, the signal, or the end of the allocation.
        reason: String,
        /// After this time, milliseconds, they are sent SIGTERM.
        within_ms: u64,
    },
    /// The ranks were sent SIGTERM.
    RanksTerminated {
        /// The generation.
        generation: Generation,
        /// The halt condition, the signal, or the end of the allocation.
        reason: String,
        /// After this time, milliseconds, they are killed.
        within_ms: u64,
    },
    /// The orchestrator received a signal.
    Signal {
        /// Its name.
        name: String,
        /// 1 halts the ranks, 2 kills the ranks, 3 ends the job without a drain; 0 in older logs.
        #[serde(default)]
        number: u32,
        /// True if the job ends without a drain.
        at_once: bool,
    },
    /// The relaunch loop stops; the drain follows.
    Stopping {
        /// `stop`, and its fields.
        #[serde(flatten)]
        reason: StopReason,
    },
    /// The drain could not read a state file of a node.
    InventoryFault {
        /// The node.
        node: NodeName,
        /// The file, and what is wrong with it.
        fault: String,
    },
    /// A dataset was skipped by the drain.
    DrainSkipped {
        /// The dataset.
        checkpoint: CheckpointId,
        /// Why.
        reason: String,
    },
    /// The copy of a flushed dataset cannot be used any more: the drain copies it again if the nodes have it.
    FlushedCopyDamaged {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The directory or file, and what is wrong with it.
        reason: String,
    },
    /// A flush that did not end was removed: its dataset is not in the caches any more.
    FlushAbandoned {
        /// The directory's name below the prefix.
        directory: String,
    },
    /// A dataset is being copied.
    DrainStarted {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: String,
        /// True if this continues an earlier drain or flush.
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
        /// Number of bytes copied.
        bytes: u64,
        /// What failed; absent if nothing failed.
        failure: Option<String>,
    },
    /// Lost files were rebuilt in the prefix directory.
    RebuiltInPrefix {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The rank.
        rank: Rank,
    },
    /// A file in the prefix directory is damaged and not used.
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
        /// `drain`, and its fields.
        #[serde(flatten)]
        result: DrainResult,
    },
    /// Datasets that could not be drained are kept on the nodes.
    DataKept {
        /// Where.
        place: String,
        /// The prefix directory, with which the drain can be repeated.
        prefix: PathBuf,
    },
    /// The job is not finished; control directories and caches stay on the nodes for another run in the allocation.
    CacheKept {
        /// Where.
        place: String,
    },
    /// A run begins in an allocation in which an earlier one left the job unfinished: it restarts from the caches.
    RunContinues {
        /// Where they are.
        place: String,
        /// The last generation of the earlier run.
        after: Generation,
    },
    /// At the end of the program, standard output or standard error did not accept all output of the ranks.
    OutputNotShown {
        /// The bytes that are only in files. If the files cannot be read, those that are known.
        bytes: u64,
        /// The directories of the files.
        directories: Vec<PathBuf>,
    },
    /// The next allocation was submitted (`requeue`).
    Requeued {
        /// The command.
        command: String,
        /// The last line that it printed.
        message: String,
        /// Allocations in a row, up to this one, without progress; absent in logs before 1.3.
        #[serde(default)]
        without_progress: u32,
    },
    /// The next allocation was not submitted: too many in a row made no progress (`requeue.no_progress_limit`).
    RequeueEnded {
        /// Their number.
        allocations: u32,
    },
    /// The next allocation was not submitted: an earlier run in this allocation did so, or was about to.
    RequeueSkipped,
    /// The next allocation could not be submitted.
    RequeueFailed {
        /// The command, and why it failed.
        reason: String,
    },
    /// The allocation could not be released completely.
    ReleaseFailed {
        /// What remains.
        reason: String,
    },
    /// A script called `scr_log_event`.
    ScriptEvent {
        /// The kind of event (`-T`).
        kind: String,
        /// The note (`-N`); absent if the script gave none.
        note: Option<String>,
        /// The checkpoint (`-C`); absent if the script gave none.
        checkpoint: Option<CheckpointId>,
        /// When it began (`-S`), in seconds since 1970; absent if the script gave none.
        begun: Option<u64>,
        /// How long it took (`-D`), in seconds; absent if the script gave none.
        seconds: Option<u64>,
    },
    /// The job ended in this allocation. Only what becomes of the caches and of the next allocation may follow.
    Finished {
        /// The exit code.
        exit_code: u8,
        /// The outcome as a sentence.
        message: String,
    },
}

impl LogEvent {
    /// An event that the agent of a node reports.
    pub fn of_agent(node: &NodeName, event: AgentEvent) -> LogEvent {
        let node = node.clone();
        match event {
            AgentEvent::RankConnected { generation, rank, pid } => {
                LogEvent::RankConnected { node, generation, rank, pid }
            }
            AgentEvent::RankGone { generation, rank, pid } => LogEvent::RankGone { node, generation, rank, pid },
            AgentEvent::RankLeft { generation, rank, pid } => LogEvent::RankLeft { node, generation, rank, pid },
            AgentEvent::RestartAttempt { generation, checkpoint, from, reason } => {
                LogEvent::RestartAttempt { node, generation, checkpoint, from, reason }
            }
            AgentEvent::RestartPrevented { generation, faulty, reason } => {
                LogEvent::RestartPrevented { node, generation, faulty, reason }
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
            AgentEvent::CheckpointComplete { generation, checkpoint, scheme, level, bytes, millis } => {
                let (protected, level) = (!registry::is_unprotected(scheme), level.map(Level::number));
                LogEvent::CheckpointComplete { node, generation, checkpoint, scheme, level, protected, bytes, millis }
            }
            AgentEvent::CheckpointFailed { generation, checkpoint, reason, .. } => {
                LogEvent::CheckpointFailed { node, generation, checkpoint, reason }
            }
            AgentEvent::Flushed { generation, checkpoint, directory, millis } => {
                LogEvent::Flushed { node, generation, checkpoint, directory, millis }
            }
            AgentEvent::PlainFilesKept { checkpoint, directory, reason } => {
                LogEvent::PlainFilesKept { node: Some(node), checkpoint, directory, reason }
            }
            AgentEvent::FlushFailed { generation, checkpoint, reason } => {
                LogEvent::FlushFailed { node, generation, checkpoint, reason }
            }
            AgentEvent::Halting { generation, reason } => LogEvent::Halting { node, generation, reason },
            AgentEvent::Finalized { generation } => LogEvent::Finalized { node, generation },
            AgentEvent::UnauthenticatedConnection { peer, reason } => {
                LogEvent::UnauthenticatedConnection { node, peer, reason }
            }
            AgentEvent::LibraryStarted { generation } => LogEvent::LibraryStarted { node, generation },
            AgentEvent::Pair(PairEvent { name, at, change }) => LogEvent::Pair { node, name, at, change },
            AgentEvent::Notice { message } => LogEvent::Notice { node, message },
        }
    }
}
