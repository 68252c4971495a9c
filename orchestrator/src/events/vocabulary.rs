//! The events of a job: names and fields. State machine, driver, drain and agents emit them; the event log stores them,
//! and `docs/events.md` is generated from their declarations.
//!
//! The names and fields are a contract: within a major version of [the schema](super::log::SCHEMA) no name changes its
//! meaning, and no field is removed or changes its type. New events and new fields raise the minor version.

use std::fmt;
use std::path::PathBuf;

use holdfast_model::vocabulary::DeclaredEvent;
use holdfast_model::{CheckpointId, Generation, NodeName, Rank, RankEnd, vocabulary};
use holdfast_wire::agent::{AGENT_EVENTS, AgentEvent};
use serde::{Deserialize, Serialize};

use super::advice::IntervalAdvice;
use super::reason::{DownReason, DrainResult, EndCause, GenerationProgress, StopReason};
use super::wait::Wait;

/// The key of the spec that has a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKey {
    Before,
    After,
    /// `replication.reboot`.
    Reboot,
}

/// A setting of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingInForce {
    /// The key path: `checkpoint.redundancy[0].set_size`.
    pub key: String,
    /// In the syntax of a spec.
    pub value: String,
    /// `line 12` of the spec, the name of a parameter, `command line`, or `default`.
    pub origin: String,
}

impl SettingInForce {
    pub fn is_default(&self) -> bool {
        self.origin == "default"
    }
}

impl fmt::Display for CommandKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

vocabulary! {
    /// An event of a job.
    pub enum LogEvent, EVENTS;

    /// A job begins in an allocation.
    JobStarted {
        /// The job id, part of directory names.
        job_id: String,
        /// The nodes.
        nodes: Vec<NodeName>,
        /// The prefix directory.
        prefix: PathBuf,
        /// The nodes are processes on one machine. Since 1.11.
        #[serde(default)]
        virtual_nodes: bool,
    },
    /// The settings in force when an orchestrator begins a job or takes it over. Since 1.19.
    SettingsInForce {
        /// The version of Holdfast.
        version: String,
        /// Each with `key`, `value` and `origin`, as `check --explain` prints them; secrets are left out.
        settings: Vec<SettingInForce>,
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
        reason: String,
    },
    /// A job with pairs has ended before they were finished: what the next run goes on from.
    PairsSaved {
        /// The number of pairs whose newest checkpoints are in the prefix directory.
        pairs: usize,
        /// Pairs of which only an earlier run has saved one.
        older: Vec<String>,
        /// Pairs of which there is none.
        without: Vec<String>,
    },
    /// A command of `before:` or `after:` is started.
    SiteCommandStarted {
        /// `before`, `after` or `reboot`.
        key: CommandKey,
        program: String,
        nodes: Vec<NodeName>,
    },
    /// A command of `before:` or `after:` ended.
    SiteCommand {
        /// `before`, `after` or `reboot`; absent in logs of version 1.0.
        #[serde(default)]
        key: Option<CommandKey>,
        program: String,
        nodes: Vec<NodeName>,
        /// The node on which it failed, and how; absent if it succeeded.
        failure: Option<String>,
        /// The directory with the output of the commands; absent in logs of versions before 1.2.
        #[serde(default)]
        output: Option<PathBuf>,
    },
    /// An agent is up.
    AgentReady {
        node: NodeName,
        /// True if the node had an agent before.
        again: bool,
    },
    /// An agent was lost and is restarted.
    AgentLost {
        node: NodeName,
        /// How it was lost.
        reason: String,
    },
    /// An agent does not answer. It is being checked, and is not replaced while its process exists.
    AgentSilent {
        node: NodeName,
        /// For how long it did not answer, in milliseconds in which the orchestrator ran.
        millis: u64,
    },
    /// An agent that did not answer does so again.
    AgentAnswers {
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
        node: NodeName,
        reason: String,
    },
    /// A node's clock differs from the orchestrator's by more than is tolerated.
    ClockSkew {
        node: NodeName,
        /// Milliseconds by which its clock is ahead; negative if it is behind.
        ahead_ms: i64,
    },
    /// A node is down for the rest of the allocation.
    NodeDown {
        node: NodeName,
        /// `why`, and its fields.
        #[serde(flatten)]
        reason: DownReason,
        /// The ranks on the node.
        ranks: Vec<Rank>,
    },
    /// The user excluded a node: no more ranks are placed on it.
    NodeExcluded {
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
    /// The job, whose steps run side by side, lends a step more of its nodes. Since 1.20.
    NodesLent {
        /// Their names.
        nodes: Vec<NodeName>,
    },
    /// A step has too few nodes, and waits for those of other steps. Since 1.20.
    NodesAwaited {
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
        generation: Generation,
        /// Relaunches so far.
        relaunches: u32,
    },
    /// The resource manager cannot start the ranks yet; the launch is retried.
    LaunchDelayed {
        generation: Generation,
        /// The message of the resource manager.
        reason: String,
    },
    /// A process of the application ended with an error.
    RankFailed {
        generation: Generation,
        rank: Rank,
        /// Its node; absent in logs before 1.9.
        #[serde(default)]
        node: Option<NodeName>,
        /// `{"code": …}`, `{"signal": …}` or `"unknown"`.
        end: RankEnd,
    },
    /// A process ended with an error while its generation was being ended, or in an unknown way. Not every end is seen.
    RankEnded {
        generation: Generation,
        rank: Rank,
        /// Its node.
        node: Option<NodeName>,
        /// As of `rank_failed`.
        end: RankEnd,
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
    /// A generation crashed before its ranks had joined, as when MPI cannot start. The next launch is no attempt.
    MpiStartCrashed {
        generation: Generation,
        /// Such crashes so far.
        crashes: u32,
        /// Crashes that do not count for `relaunch.attempts` and `relaunch.no_progress_limit`, at most.
        limit: u32,
    },
    /// Nodes were lost, or launches refused, each within 30 s of the one before: the next launch waits.
    LaunchSpaced {
        generation: Generation,
        /// The node losses and refused launches of the series so far.
        disturbances: u32,
        /// How long the next launch waits.
        millis: u64,
        /// The generation counts for `relaunch.attempts` and `relaunch.no_progress_limit`.
        counts: bool,
    },
    /// The resource manager answered twice that the allocation does not exist. While agents answer, the ranks go on.
    AllocationDenied {
        /// Its words.
        reason: String,
    },
    /// Directories of an earlier job with the same id are kept on the node: not all is in its prefix directory.
    DirectoryKept {
        node: NodeName,
        /// Its control directory, as the node sees it.
        path: String,
        /// The prefix directory of that job.
        prefix: PathBuf,
    },
    /// A generation started from the beginning, although it is not the first one or checkpoints were found. Since 1.11.
    FromBeginning {
        generation: Generation,
        /// Why the newest checkpoint was not used.
        reason: String,
    },
    /// What is lost at once, where that is not a node (`allocation.failure_domain`). Since 1.12.
    FailureDomains {
        /// `rack` or `switch`.
        kind: String,
        /// As many of them have nodes of the allocation.
        number: usize,
        /// Nodes in none of them: each counts as one of its own.
        without: Vec<NodeName>,
    },
    /// Once: checkpoints have blocked the ranks for more than the share of the time that `every: auto` allows. Since
    /// 1.11.
    CheckpointsBlock {
        /// Their part of the time, in percent.
        percent: String,
        /// The share, in percent.
        limit: u8,
        /// The time between two checkpoints that would have kept it, milliseconds.
        every_ms: u64,
    },
    /// How often something is expected to fail in a generation, by `health.mtbf` or by the failures of the job. Since
    /// 1.12.
    FailuresExpected {
        generation: Generation,
        /// The mean time between two failures, milliseconds.
        mtbf_ms: u64,
        /// `health.mtbf` gives it; otherwise it was observed.
        given: bool,
        /// The interval between checkpoints is chosen for it (`every: auto`).
        auto: bool,
    },
    /// LLNL's library was to write checkpoints, and there are no SCR control files in the control directory.
    LibraryLeftNothing {
        generation: Generation,
        /// The base of the control directory.
        base: String,
    },
    /// A fault of the spec was injected.
    FaultInjected {
        /// The node.
        node: NodeName,
        /// True if only its agent is killed.
        agent_only: bool,
        /// As in the spec: `kill`, `kill-agent`, `kill-rank`, `pause` or `fill-cache`; absent in logs before 1.11.
        #[serde(default)]
        action: Option<String>,
        /// The rank that is killed; absent for other actions.
        #[serde(default)]
        rank: Option<Rank>,
    },
    /// A fault of the spec was injected: Holdfast's own calls on the prefix directory wait.
    PrefixStalled {
        /// For how long, milliseconds.
        millis: u64,
    },
    /// At the end of a job: a fault of the spec was not injected.
    FaultNotInjected {
        /// Its action and its moment.
        fault: String,
        reason: String,
    },
    /// The generation seems to hang: the stacks of these ranks are being saved.
    HangSuspected {
        generation: Generation,
        /// The ranks that are in their own code; the others wait for them.
        ranks: Vec<Rank>,
        /// What was observed.
        reason: String,
    },
    /// No rank of the generation has called the checkpoint API since its launch (`health.silent_api_after`).
    ApiNotCalled {
        generation: Generation,
        /// Ranks of earlier generations have; if not, nothing is protected. Since 1.18.
        #[serde(default)]
        called_before: bool,
    },
    /// Ranks have waited for `health.waiting_after` in a call that other ranks have not made. Since 1.16.
    RanksWait {
        generation: Generation,
        /// `call`, `rank`, `waiting`, `missing`, `missing_count`, `have_ended`, `millis`: see `docs/libscr.md`.
        #[serde(flatten)]
        wait: Wait,
    },
    /// There was progress while the stacks were being saved: the generation continues.
    HangDismissed {
        generation: Generation,
    },
    /// The generation hangs: it is stopped, and the application is relaunched.
    Hang {
        generation: Generation,
        /// The ranks that are in their own code; their stacks are in `generations/<generation>/rank_<rank>.stack`.
        ranks: Vec<Rank>,
        /// What was observed.
        reason: String,
    },
    /// Stacks of ranks that hang could not be saved.
    StacksNotSaved {
        generation: Generation,
        reason: String,
    },
    /// A generation is being stopped: its ranks are killed.
    GenerationEnding {
        generation: Generation,
        /// What was observed first.
        seen: String,
    },
    /// A generation ended.
    GenerationEnded {
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
    /// Why a generation failed, and what that cost: when the next one runs, or the job stops. Since 1.15.
    FailureExplained {
        generation: Generation,
        /// What failed first, and how.
        cause: String,
        /// Where it failed, if that is known.
        node: Option<NodeName>,
        /// The rank that failed first, if it was one.
        rank: Option<Rank>,
        /// Other ranks that ended with an error in consequence.
        ranks_followed: u32,
        /// Other nodes that went down.
        nodes_followed: u32,
        /// From the first sign of the failure until its generation was ended, milliseconds.
        detection_ms: u64,
        /// From then until the ranks had their files again, milliseconds; absent if they never had.
        restart_ms: Option<u64>,
        /// The work that has to be done again, milliseconds; absent if that is not known.
        lost_work_ms: Option<u64>,
        /// What was done.
        then: String,
        /// All of it as one line.
        line: String,
    },
    /// It could not be found out whether a generation made progress. It does not count for `no_progress_limit`.
    ProgressUnknown {
        generation: Generation,
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
        generation: Generation,
        /// The halt condition, the signal, or the end of the allocation.
        reason: String,
        /// After this time, milliseconds, they are sent SIGTERM.
        within_ms: u64,
    },
    /// The ranks were sent SIGTERM.
    RanksTerminated {
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
    /// Superseded directories could not be recorded. Unless a later attempt succeeds, the drain continues none.
    SupersededNotRecorded {
        /// The checkpoint of the restart; absent if the application started from the beginning.
        checkpoint: Option<CheckpointId>,
        reason: String,
    },
    /// The drain could not read a state file of a node.
    InventoryFault {
        node: NodeName,
        /// The file, and what is wrong with it.
        fault: String,
    },
    /// A dataset was skipped by the drain.
    DrainSkipped {
        /// The dataset.
        checkpoint: CheckpointId,
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
        directory: String,
    },
    /// A dataset is being copied.
    DrainStarted {
        /// The dataset.
        checkpoint: CheckpointId,
        directory: String,
        /// True if this continues an earlier drain or flush.
        resumed: bool,
    },
    /// A round of copies ended on a node.
    Copied {
        /// The round, 1 or 2.
        round: u8,
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
        /// The best interval between checkpoints, as in `holdfast status`; absent if not known. Since 1.14.
        #[serde(default)]
        interval: Option<IntervalAdvice>,
    },
    ;

    /// An event that an agent reported; written and read by [`fields`](super::fields).
    #[serde(skip)]
    Agent(AgentReport)
}
/// What an agent reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentReport {
    /// The node of the agent: of the leader, for what concerns all nodes. `None` if the orchestrator reports in the
    /// place of agents, because it drains.
    #[serde(default)]
    pub node: Option<NodeName>,
    #[serde(flatten)]
    pub event: AgentEvent,
}

/// The field that the log adds to the events of agents.
const AGENT_NODE: (&str, &str) =
    ("node", "The node of the agent: of the leader for what concerns all nodes; absent if the orchestrator drains.");

impl LogEvent {
    /// An event that the agent of a node reports.
    pub fn of_agent(node: &NodeName, event: AgentEvent) -> LogEvent {
        LogEvent::Agent(AgentReport { node: Some(node.clone()), event })
    }

    /// An event of agents that the orchestrator reports itself.
    pub fn of_drain(event: AgentEvent) -> LogEvent {
        LogEvent::Agent(AgentReport { node: None, event })
    }

    /// The event if an agent reported it.
    pub fn agent_event(&self) -> Option<&AgentEvent> {
        match self {
            LogEvent::Agent(report) => Some(&report.event),
            _ => None,
        }
    }
}

/// True if this version knows an event of this name.
pub(super) fn is_known(name: &str) -> bool {
    declared().any(|event| event.is_named(name))
}

/// The meaning of fields whose name is enough.
const MEANINGS: [(&str, &str); 10] = [
    ("generation", "The generation."),
    ("checkpoint", "The checkpoint."),
    ("node", "The node."),
    ("nodes", "On which nodes."),
    ("rank", "The rank."),
    ("pid", "The process id."),
    ("scheme", "The redundancy scheme."),
    ("directory", "The directory's name below the prefix."),
    ("program", "The program."),
    ("reason", "Why."),
];

/// The fields of an event as a line of the log has them, with their meanings in Markdown.
pub fn fields(event: &'static DeclaredEvent) -> Vec<(&'static str, &'static str)> {
    let is_agents = AGENT_EVENTS.iter().any(|of_agents| of_agents.variant == event.variant);
    let fields = is_agents.then_some(&AGENT_NODE).into_iter().chain(event.fields);
    let described = fields.map(|(field, meaning)| {
        let by_name = MEANINGS.iter().find(|(name, _)| meaning.is_empty() && name == field);
        let meaning = by_name.map_or(*meaning, |(_, meaning)| meaning).trim();
        // A flattened value is in the line by its tag, not under the name of the field.
        let tag = meaning.strip_prefix('`').and_then(|rest| rest.strip_suffix("`, and its fields."));
        tag.map_or((*field, meaning), |tag| (tag, "Which kind it is; each kind has fields of its own."))
    });
    described.collect()
}

/// The events of the orchestrator, then those of agents, in the order of their declarations.
pub fn declared() -> impl Iterator<Item = &'static DeclaredEvent> {
    EVENTS.iter().chain(AGENT_EVENTS)
}
