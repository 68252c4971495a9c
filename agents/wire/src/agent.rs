//! The orchestrator's requests to an agent, in JSON: HTTPS on the agent's port, each with the job's token as
//! `Authorization: Bearer <base64>`, or several at a time over one connection ([`channel`](crate::channel)).
//!
//! | request | path | body → answer |
//! |---|---|---|
//! | POST | [`POLL`] | [`PollRequest`] → [`PollReply`], or 204 if nothing changed; held up to `wait_ms` |
//! | POST | [`RUN`] | [`RunRequest`](crate::plan::RunRequest) → [`RunAccepted`] |
//! | POST | [`KILL`] | [`KillRequest`] → [`KillReply`] |
//! | POST | [`HALT_RANKS`] | [`HaltRequest`] → [`Empty`] |
//! | POST | [`TERMINATE`] | [`TerminateRequest`] → [`TerminateReply`] |
//! | POST | [`INJECT_FAULT`] | [`FaultRequest`] → [`Empty`]; none if the agent is killed |
//! | POST | [`STACK`] | [`StackRequest`] → [`StackReply`] |
//! | POST | [`PULSE`] | [`PulseRequest`] → [`PulseReply`] |
//! | POST | [`PEERS`] | [`PeersUpdate`] → [`Empty`] |
//! | POST | [`END_RUN`] | [`EndRunRequest`] → [`Empty`] |
//! | GET | [`INVENTORY`] | → [`Inventory`](holdfast_model::Inventory) |
//! | POST | [`HALT`] | [`HaltChange`](holdfast_model::HaltChange) → [`HaltState`](holdfast_model::HaltState) |
//! | POST | [`CHECKPOINT`] | [`CheckpointRequest`] → [`CheckpointReply`] |
//! | POST | [`COPY`] | [`CopyRequest`] → [`CopyReply`] |
//! | POST | [`REBUILD`] | [`RebuildRequest`] → [`RebuildReply`] |
//! | POST | [`VERIFY`] | [`VerifyRequest`] → [`VerifyReply`] |
//! | POST | [`FLUSHED`] | [`FlushedNote`] → [`Empty`] |
//! | POST | [`STOP`] | [`StopRequest`] → [`Empty`] |
//!
//! A request that fails answers with a status of 4xx or 5xx and a [`Failure`](holdfast_model::Failure).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use holdfast_model::pair::PairChange;
use holdfast_model::{
    CheckpointId, ContainerPlaces, Generation, Location, NodeName, OutputPath, PackedRank, Progress, Rank,
    RestartSource, Scheme, Timestamp, vocabulary,
};

use crate::pairs;

/// The largest body of any request that an agent accepts, bytes; the run plan of 100,000 nodes with a million ranks,
/// which the leader's agent gets, is about a third of it.
pub const LARGEST_REQUEST: usize = 64 << 20;
/// The largest answer that is accepted, bytes; an inventory of a thousand ranks is a few megabytes.
pub const LARGEST_ANSWER: usize = 64 << 20;
/// The largest body of a request that lists nodes or ranks.
const LARGEST_LIST: usize = 16 << 20;
/// The largest body of the other requests.
const LARGEST_SMALL: usize = 64 << 10;

/// The largest body of a request to this path that an agent accepts, bytes. A client does not send a larger one.
pub fn largest_request(path: &str) -> usize {
    match path {
        RUN | VERIFY => LARGEST_REQUEST,
        PEERS | STACK | COPY | REBUILD | pairs::PLAN | pairs::SYNC => LARGEST_LIST,
        _ => LARGEST_SMALL,
    }
}

/// The header of requests of a user's command, with the value [`OF_USER`]: they are no contact with the orchestrator,
/// whose silence decides whether the agent obeys SIGTERM, and whether it is still needed.
pub const REQUEST_OF: &str = "holdfast-request-of";
/// The value of [`REQUEST_OF`].
pub const OF_USER: &str = "user";

/// Long poll: events since the last one, and the health of the node.
pub const POLL: &str = "/v1/poll";
/// The plan of a generation: the agent kills older ranks and serves this one.
pub const RUN: &str = "/v1/run";
/// Kill the node's ranks.
pub const KILL: &str = "/v1/kill";
/// Halt the ranks of the run at their next checkpoint; sent to the leader.
pub const HALT_RANKS: &str = "/v1/halt_ranks";
/// Send SIGTERM to the node's ranks.
pub const TERMINATE: &str = "/v1/terminate";
/// Inject a fault of the job's spec on this node.
pub const INJECT_FAULT: &str = "/v1/inject_fault";
/// The stacks of ranks that make no progress.
pub const STACK: &str = "/v1/stack";
pub const PULSE: &str = "/v1/pulse";
/// An agent of the run was restarted and listens elsewhere.
pub const PEERS: &str = "/v1/peers";
/// Drain: end the run, so that its flushes stop.
pub const END_RUN: &str = "/v1/end_run";
/// What the node holds.
pub const INVENTORY: &str = "/v1/inventory";
/// Reads or changes the halt conditions.
pub const HALT: &str = "/v1/halt";
/// Have the ranks save a checkpoint as soon as they can.
pub const CHECKPOINT: &str = "/v1/checkpoint";
/// The next step of the job begins: forget the datasets and halt conditions of the finished ones.
pub const FORGET: &str = "/v1/forget";
/// Drain: copy this node's files of a dataset to the prefix directory.
pub const COPY: &str = "/v1/copy";
/// Drain: rebuild one redundancy set in the prefix directory.
pub const REBUILD: &str = "/v1/rebuild";
/// Drain: check files in the prefix directory against their checksums.
pub const VERIFY: &str = "/v1/verify";
/// Drain: the dataset has reached the prefix directory.
pub const FLUSHED: &str = "/v1/flushed";
pub const STOP: &str = "/v1/stop";

/// An answer without content.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Empty {}

/// Has an agent inject a fault that the job's spec requests. It signals only processes that were started for this job,
/// and writes and removes only below directories that have the job's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRequest {
    pub fault: NodeFault,
}

/// What an agent does to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NodeFault {
    /// The processes of the ranks are killed (SIGKILL), the job's control and cache directories removed, the agent
    /// killed.
    LoseNode,
    /// The agent is killed (SIGKILL).
    KillAgent,
    /// The processes of a rank are killed (SIGKILL).
    KillRank { rank: Rank },
    /// The processes of the ranks and the agent are stopped (SIGSTOP) and continued after this time, milliseconds.
    Pause { millis: u64 },
    /// A file is written to each cache directory until they have this many bytes together, or a file system is full.
    FillCache { bytes: u64 },
    /// The agent's calls on the prefix directory wait until this time is over, milliseconds.
    StallPrefix { millis: u64 },
}

/// Has an agent forget the datasets and halt conditions of finished steps of the job, all of which are drained, and the
/// halt conditions of earlier runs in the allocation. Repeated, also to an agent that was restarted meanwhile, it
/// changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetRequest {
    /// The last generation of those steps.
    pub finished: Generation,
    /// The number of those runs.
    #[serde(default)]
    pub earlier_runs: u32,
}

impl ForgetRequest {
    /// True if nothing is to be forgotten.
    pub fn is_empty(&self) -> bool {
        self.finished == Generation::NONE && self.earlier_runs == 0
    }
}

/// Has an agent end its part in a run, before a drain. Answered when its orders have ended. Repeated, also to an agent
/// that was restarted meanwhile, it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRunRequest {
    /// A newer run is not ended: the request may be late.
    pub generation: Generation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollRequest {
    /// The highest event number already seen, 0 at first.
    pub after: u64,
    /// How long to wait for an event before answering without one, milliseconds. Over a channel, the answer does not
    /// wait longer than for the next poll with such a time.
    pub wait_ms: u64,
    /// When the allocation ends, seconds since the epoch: it may have changed since the run began. Absent: nothing new.
    pub allocation_end: Option<i64>,
    /// The health report that the orchestrator has. If it is current, and there are no events, the answer has no
    /// content.
    pub known: Option<KnownHealth>,
}

impl PollRequest {
    /// Requests the node's health only; answered at once.
    pub const HEALTH_ONLY: PollRequest = PollRequest { after: u64::MAX, wait_ms: 0, allocation_end: None, known: None };
}

/// A health report that was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownHealth {
    /// [`PollReply::instance`] of the agent that sent it.
    pub instance: u64,
    /// [`PollReply::health_version`] of the report.
    pub version: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PollReply {
    /// Chosen at random when the agent starts: when it changes, events count from 1 again.
    pub instance: u64,
    /// Counts the reports of one instance that differ by more than noise: of memory, load and free space, only changes
    /// that matter count.
    #[serde(default)]
    pub health_version: u64,
    pub health: Health,
    /// What happened since, oldest first.
    pub events: Vec<NumberedEvent>,
    /// The progress of long operations, for progress bars.
    pub progress: Vec<Progress>,
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    pub node: NodeName,
    /// The run it serves.
    pub generation: Generation,
    /// Ranks that are connected and alive.
    pub ranks: Vec<Rank>,
    /// Memory of the machine, bytes.
    pub memory_total: u64,
    /// Memory that could be used now, bytes.
    pub memory_available: u64,
    pub load: f64,
    /// Control and cache directories.
    pub directories: Vec<DirectoryHealth>,
    /// Control directories of jobs in earlier allocations, with datasets that are not on their prefix directories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptDirectory>,
    /// Connections refused because they had no token, or no TLS, since the agent started.
    pub unauthenticated: u64,
    /// The newest checkpoint that is complete in cache here.
    pub newest: Option<CheckpointId>,
    /// The agent's own resident memory, bytes.
    pub agent_memory: u64,
    /// Ranks of the run without progress for the time that its [`Watchdog`](crate::run::Watchdog) sets; always empty
    /// without one.
    #[serde(default)]
    pub quiet: Vec<QuietRank>,
    /// Ranks that wait in a call that all ranks make together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingRanks>,
    /// The halt condition that holds here, unless it is that the application is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<HaltReport>,
}

/// The control directory of a job in an earlier allocation with the same id, under another name. An agent of that job
/// renames it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptDirectory {
    /// As the node sees it.
    pub path: String,
    /// The prefix directory of that job.
    pub prefix: PathBuf,
}

/// A halt condition that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltReport {
    pub reason: String,
    /// The ranks are to be killed without a checkpoint.
    pub immediate: bool,
    /// The time that the condition is about: the end of the allocation, or the time before which to halt; seconds since
    /// the epoch.
    pub ends: Option<i64>,
}

/// A rank without progress for a long time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuietRank {
    pub rank: Rank,
    /// The call of the API that it waits in; `None` in its own code.
    pub waiting_in: Option<String>,
    /// Since its last call of the API began or ended.
    #[serde(with = "holdfast_model::time::millis")]
    pub quiet_for: Duration,
    /// For so long, not more than `quiet_for`, its processes have also used no processor and moved no data.
    #[serde(with = "holdfast_model::time::millis")]
    pub idle_for: Duration,
}

/// Ranks of a node that wait in a call that all ranks of the run make together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingRanks {
    /// The name of the call.
    pub call: String,
    /// Ascending.
    pub ranks: Vec<Rank>,
    /// How long the first of them has waited.
    #[serde(with = "holdfast_model::time::millis")]
    pub waits_for: Duration,
}

impl WaitingRanks {
    /// Ranks make each call one after the other: they wait for less time without a reason.
    pub const LONG: Duration = Duration::from_secs(1);

    pub fn is_long(&self) -> bool {
        self.waits_for >= Self::LONG
    }
}

/// One of a node's directories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectoryHealth {
    /// The path as the node sees it.
    pub path: String,
    /// What is wrong with it: not writable, too small; `None` if all is well.
    pub fault: Option<String>,
    /// Why nothing could be written although the file system works: no space, a quota, a limit. A fault before the
    /// first launch only: later the job's own files use the space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
    /// Size of its file system, bytes.
    pub total: u64,
    /// Free for this user, bytes.
    pub available: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NumberedEvent {
    /// Counts up from 1 in one instance of an agent.
    pub number: u64,
    pub event: AgentEvent,
}

vocabulary! {
    /// What an agent reports. Events about the run come from the leader only. They are in the event log as they are:
    /// a field is never removed, and never changes its type or meaning.
    pub enum AgentEvent, AGENT_EVENTS;

    /// A process of a rank connected to its agent.
    RankConnected {
        generation: Generation,
        rank: Rank,
        pid: u32,
    },
    /// An agent refused a process for what the job or the program is: another launch would be refused too. Since 1.11.
    RankRefused {
        generation: Generation,
        rank: Rank,
        /// Why, and what to do.
        reason: String,
    },
    /// The system killed processes for lack of memory while a process of a rank ran, which has ended. Since 1.17.
    MemoryExhausted {
        generation: Generation,
        rank: Rank,
        pid: u32,
        /// How many.
        killed: u64,
        /// True if they were in the memory control group of the process; otherwise they were on its node.
        of_group: bool,
    },
    /// The kernel reported what explains a failure while a process of a rank ran, which has ended. Since 1.19.
    KernelReported {
        generation: Generation,
        rank: Rank,
        pid: u32,
        /// The message, as dmesg prints it; the first one.
        message: String,
    },
    /// A connected process of a rank ended.
    RankGone {
        generation: Generation,
        rank: Rank,
        pid: u32,
    },
    /// A connected process of a rank ends with exit code 0 and has written no checkpoint file; another one may connect.
    RankLeft {
        generation: Generation,
        rank: Rank,
        pid: u32,
    },
    /// A checkpoint cannot be used for a restart.
    RestartAttempt {
        generation: Generation,
        checkpoint: CheckpointId,
        /// Where it is: `cache` or `parallel_file_system`.
        from: Location,
        /// Why it cannot be used.
        reason: String,
    },
    /// No restart is possible, but no checkpoint is at fault. A faulty node gets no more ranks; its cache stays used.
    RestartPrevented {
        generation: Generation,
        /// The node that cannot use its own directories; absent if the prefix directory cannot be used.
        faulty: Option<NodeName>,
        /// What failed.
        reason: String,
    },
    /// Lost files are being rebuilt in cache.
    RebuildStarted {
        generation: Generation,
        checkpoint: CheckpointId,
        /// The ranks whose files are rebuilt.
        ranks: Vec<Rank>,
    },
    /// All ranks have joined. Programs that do not use the API start after this, and have not read their files yet.
    Restarted {
        generation: Generation,
        /// The checkpoint that they start from; absent if they start from the beginning.
        checkpoint: Option<CheckpointId>,
        /// True if it survives the loss of a node; absent if they start from the beginning, and before 1.7.
        protected: Option<bool>,
        /// Where it came from: `cache`, `rebuilt`, `fetched` or `fresh`.
        source: RestartSource,
        /// The number of ranks that wrote it, if the run has another one. Since 1.13.
        written_by: Option<u32>,
        /// Ranks whose files were rebuilt.
        rebuilt: Vec<Rank>,
        /// Ranks whose files were moved to another node.
        moved: Vec<Rank>,
        /// How long it took, milliseconds.
        millis: u64,
    },
    /// A checkpoint begins.
    CheckpointStarted {
        generation: Generation,
        checkpoint: CheckpointId,
    },
    /// The redundancy data of a checkpoint are being computed.
    EncodeStarted {
        generation: Generation,
        checkpoint: CheckpointId,
    },
    /// A checkpoint is complete: all ranks have written their files.
    CheckpointComplete {
        generation: Generation,
        checkpoint: CheckpointId,
        scheme: Scheme,
        /// Its entry in `checkpoint.redundancy`, from 0, if there are several; absent for variables. Since 1.14.
        descriptor: Option<u32>,
        /// The level of a checkpoint of variables, 1 to 4; absent for others.
        level: Option<u32>,
        /// True if the scheme protects it from the loss of a node: `checkpoint_protected` follows.
        protected: bool,
        /// Total size of the files of all ranks, bytes.
        bytes: u64,
        /// How long it took until all files were complete, milliseconds.
        millis: u64,
    },
    /// The redundancy of a checkpoint is complete: it survives the loss of a node.
    CheckpointProtected {
        generation: Generation,
        checkpoint: CheckpointId,
        scheme: Scheme,
        /// As in `checkpoint_complete`.
        descriptor: Option<u32>,
        /// How many nodes can be lost at once, whichever they are; absent if that is not known. Since 1.14.
        survives: Option<u32>,
        /// Milliseconds from the same time as in `checkpoint_complete`; with `async: true`, of the redundancy alone.
        millis: u64,
    },
    /// The redundancy of a checkpoint could not be made while the application went on: the loss of a node costs it.
    /// Since 1.13.
    ProtectionFailed {
        generation: Generation,
        checkpoint: CheckpointId,
        reason: String,
    },
    /// A checkpoint was dropped.
    CheckpointFailed {
        generation: Generation,
        checkpoint: CheckpointId,
        reason: String,
        /// True if the programs of all ranks ended while it was made: nothing was lost; absent before 1.7.
        #[serde(default)]
        ended: bool,
    },
    /// The ranks go on after a dataset, kept or dropped. Since 1.11.
    RanksBlocked {
        generation: Generation,
        checkpoint: CheckpointId,
        /// Milliseconds from the start call to the end of the complete call, with a flush that they wait for.
        millis: u64,
        /// Of these, for its redundancy. Since 1.14.
        #[serde(default)]
        redundancy_millis: u64,
        /// Of these, for that of the one before, which was made behind them. Since 1.14.
        #[serde(default)]
        earlier_redundancy_millis: u64,
        /// Of these, for flushes: of this dataset, and of one that is evicted for it. Since 1.14.
        #[serde(default)]
        flush_millis: u64,
    },
    /// A flush in the background was requested; those that were requested before are first. Since 1.13.
    FlushRequested {
        generation: Generation,
        checkpoint: CheckpointId,
    },
    /// A checkpoint was flushed to the prefix directory.
    Flushed {
        generation: Generation,
        checkpoint: CheckpointId,
        directory: String,
        /// How long it took, milliseconds.
        millis: u64,
    },
    /// Files that were to be in a container are plain files: it cannot be created or written.
    PlainFilesKept {
        checkpoint: CheckpointId,
        /// Its directory below the prefix.
        directory: String,
        reason: String,
    },
    /// Files of a complete output stay in its directory: something else is at their paths. Since 1.8.
    OutputNotPlaced {
        checkpoint: CheckpointId,
        /// Its directory below the prefix.
        directory: String,
        /// The first of the paths, below the prefix.
        path: OutputPath,
        /// The number of files.
        files: u64,
    },
    /// A checkpoint was deleted from the prefix directory: `checkpoint.flush.keep` keeps newer ones only. Since 1.12.
    PrefixDeleted {
        checkpoint: CheckpointId,
        /// Its directory below the prefix.
        directory: String,
        /// The number of newer checkpoints there, all complete and verified.
        keep: u32,
    },
    /// A checkpoint stays in the prefix directory though it is older than those that `checkpoint.flush.keep` keeps.
    /// Since 1.12.
    PrefixNotDeleted {
        checkpoint: CheckpointId,
        /// Its directory below the prefix.
        directory: String,
        reason: String,
    },
    /// A checkpoint was read after its flush and is damaged: older ones stay in the prefix directory. Since 1.12.
    FlushDamaged {
        checkpoint: CheckpointId,
        /// Its directory below the prefix.
        directory: String,
        reason: String,
    },
    /// A flush failed; the checkpoint is still in cache.
    FlushFailed {
        generation: Generation,
        checkpoint: CheckpointId,
        reason: String,
    },
    /// A halt condition is met; the ranks are being halted.
    Halting {
        generation: Generation,
        /// The condition.
        reason: String,
    },
    /// The application called finalize.
    Finalized {
        generation: Generation,
    },
    /// LLNL's library has begun to initialise the ranks (`checkpoint: {source: scr-files}`).
    LibraryStarted {
        generation: Generation,
    },
    /// An agent refused a connection without the job's token or certificate.
    UnauthenticatedConnection {
        /// The address of the peer.
        peer: String,
        /// Why it was refused.
        reason: String,
    },
    /// A pair of main and replica changed, or a non-critical job.
    Pair {
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
        /// The text.
        message: String,
    },
}

/// The generation is prepared: ranks of older ones have ended, and the socket serves the new ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunAccepted {
    /// The socket of this node's agent, as a path that a process on this machine can open.
    pub socket: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KillRequest {
    /// Ranks of this generation and older ones.
    pub generation: Generation,
    /// Why, for the log.
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KillReply {
    /// The processes.
    pub killed: Vec<u32>,
    /// False if, after that, no halt condition holds on the node: the next launch need not ask for them.
    pub may_halt: bool,
}

/// Has the leader halt the ranks of a generation at their next checkpoint. Not recorded: an agent that is restarted has
/// to be asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltRequest {
    pub generation: Generation,
    /// `None`: the ranks need not halt any more.
    pub reason: Option<String>,
}

/// Requests a checkpoint of the run. Repeated with the id of the first answer, it returns what became of it, and
/// requests it again if a relaunch or a restart of the agent has ended the request. Agents that do not lead the run do
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRequest {
    /// A checkpoint with a larger id is requested; `None` in the first request: one that has not begun yet.
    pub after: Option<CheckpointId>,
}

/// The answer to a [`CheckpointRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReply {
    /// `None` from an agent that does not lead a run.
    pub requested: Option<RequestedCheckpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedCheckpoint {
    /// Its id is larger.
    pub after: CheckpointId,
    pub state: RequestState,
}

/// What became of a requested checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RequestState {
    /// Checkpoints of this job cannot be requested.
    Refused { reason: String },
    /// The ranks have not begun it.
    Waiting,
    /// The ranks write it, or its redundancy is being made.
    Begun { checkpoint: CheckpointId },
    /// It is complete in cache.
    Complete { checkpoint: CheckpointId },
    /// It was dropped, or could not be begun.
    Dropped { checkpoint: CheckpointId, reason: String },
}

/// Sends SIGTERM to the ranks of a generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TerminateRequest {
    pub generation: Generation,
    /// Why, for the log.
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TerminateReply {
    /// The processes that got the signal.
    pub terminated: Vec<u32>,
}

/// Requests the stacks of ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StackRequest {
    pub generation: Generation,
    /// The ranks; those of other nodes are left out.
    pub ranks: Vec<Rank>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StackReply {
    /// The stacks of all threads of each rank, from the kernel and a debugger, as text for the user.
    pub stacks: BTreeMap<Rank, String>,
}

/// Asks an agent what it finds of another one (module `pulse`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulseRequest {
    /// Of the other agent: that of its pulse, if it has one.
    pub address: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulseReply {
    pub found: Pulse,
}

/// What is found at the address of a pulse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pulse {
    /// A process that closes connections, or uses them.
    Runs,
    /// A connection is accepted, and is then neither closed nor used for as long as `PULSE_WITHIN`.
    Stopped,
    /// The machine answers, and no process listens.
    Ended,
    /// The machine does not answer.
    NoAnswer,
}

/// Where agents of the run listen now. All changes are sent to the leader's agent; the others only need the leader's
/// address, and get those of their peers with the leader's orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeersUpdate {
    pub generation: Generation,
    /// Larger than in updates and plans that were sent before: requests may overtake each other.
    pub issued: u64,
    pub addresses: BTreeMap<NodeName, SocketAddr>,
    /// Nodes without ranks that are down: they are not waited for.
    #[serde(default)]
    pub down: Vec<NodeName>,
}

/// Copies this node's files of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyRequest {
    pub checkpoint: CheckpointId,
    /// The checkpoint directory on the parallel file system, absolute.
    pub directory: PathBuf,
    /// Compute CRC32 while copying, and record it in the meta files here and there.
    pub crc: bool,
    /// Nodes whose files their partners copy (round 1: known down; round 2: failed).
    pub on_behalf_of: Vec<NodeName>,
    /// Round 2: only partner copies.
    pub partners_only: bool,
    pub buffer_bytes: usize,
    /// Files that are copied at a time; absent: as many as suit the node's processors.
    pub threads: Option<u32>,
    /// The places in a container of the ranks that this node packs; it copies the others as plain files.
    pub container: Option<ContainerPlaces>,
}

/// How the copy went, rank by rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CopyReply {
    /// Owners whose partner copies this node holds for the dataset: owner's node per rank.
    pub partners: BTreeMap<Rank, NodeName>,
    /// Ranks that were copied (or were there already, verified), with bytes.
    pub copied: BTreeMap<Rank, u64>,
    /// Ranks that were not, and why, naming the file.
    pub failed: BTreeMap<Rank, String>,
    /// Those of them whose files could not be written.
    #[serde(default)]
    pub unwritable: BTreeSet<Rank>,
    /// What was written to the container, also of ranks that were not copied completely.
    #[serde(default)]
    pub packed: BTreeMap<Rank, PackedRank>,
}

/// Computes the lost members of one redundancy set in a checkpoint directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildRequest {
    /// The checkpoint directory on the parallel file system, absolute.
    pub directory: PathBuf,
    pub checkpoint: CheckpointId,
    pub scheme: Scheme,
    pub group_id: u32,
    pub members: u32,
    /// The missing members, from 0, ascending.
    pub missing: Vec<u32>,
    pub ranks: Vec<Rank>,
}

/// The members were rebuilt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildReply {
    pub ranks: Vec<Rank>,
    /// Files written, base names.
    pub files: Vec<String>,
    pub bytes: u64,
}

/// Checks files of a checkpoint directory against the CRC32 in their meta files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyRequest {
    /// The checkpoint directory, absolute.
    pub directory: PathBuf,
    pub files: Vec<String>,
    /// Files that are read at a time, as in [`CopyRequest`].
    pub threads: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyReply {
    /// Damaged files and what is wrong with each.
    pub damaged: BTreeMap<String, String>,
}

/// A dataset reached the prefix directory: to be recorded in the node's flush file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlushedNote {
    pub checkpoint: CheckpointId,
    /// Where it is complete.
    pub prefix: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopRequest {
    /// Also remove the job's control and cache directories on this node.
    pub remove: bool,
}
