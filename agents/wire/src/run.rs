//! A run: which rank runs on which node, and the settings in force; and how an agent is started.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use holdfast_model::time::millis;
use holdfast_model::{
    CheckpointId, CrcPolicy, DataPlane, Descriptor, FlushPolicy, Generation, LevelPolicy, NeedPolicy, NodeName,
    RestartPolicy, RunNode, VariablesPolicy,
};

/// The complete plan of a run, for the agent that leads it. Members have [`MemberPlan`](crate::plan::MemberPlan).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// This launch. Anything older is over: its ranks are killed, its messages refused.
    pub generation: Generation,
    /// Every healthy node, spares included, in allocation order.
    pub nodes: Vec<RunNode>,
    /// The agent where collectives gather: that of the run's first node.
    pub leader: NodeName,
    pub settings: Settings,
}

impl RunPlan {
    /// The number of ranks of the run.
    pub fn ranks(&self) -> u32 {
        self.nodes.iter().map(|node| node.ranks.len() as u32).sum()
    }

    pub fn node(&self, name: &NodeName) -> Option<&RunNode> {
        self.nodes.iter().find(|node| node.name == *name)
    }
}

/// The checkpoint settings of a job, resolved from the spec and the SCR_* parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The prefix directory, absolute; the same on all nodes.
    pub prefix: PathBuf,
    /// Cache bases and how many checkpoints each keeps.
    pub caches: Vec<Cache>,
    /// The redundancy descriptors, index 0 first.
    pub descriptors: Vec<Descriptor>,
    /// What some of them ask for beside scheme and groups, by index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<u32, LevelPolicy>,
    /// Where to look for a checkpoint to continue from.
    pub restart: RestartPolicy,
    /// The flush to the prefix directory while the job runs.
    pub flush: FlushPolicy,
    /// When checksums are computed.
    pub crc: CrcPolicy,
    /// What produces checkpoint files.
    pub source: SourceName,
    /// When [`crate::rank::Call::Need`] answers yes.
    pub need: NeedPolicy,
    /// When [`crate::rank::Call::Await`] returns; absent for sources whose ranks do not make that call.
    pub schedule: Option<CheckpointSchedule>,
    /// The mean time between failures, given or observed, if checkpoints are as far apart as is best for it (`every:
    /// auto`).
    pub mtbf: Option<Duration>,
    /// Layout and intervals of checkpoints of variables.
    #[serde(default)]
    pub variables: VariablesPolicy,
    /// Halt when less than this is left (SCR_HALT_SECONDS); zero is never.
    pub halt_seconds: u64,
    /// When the allocation ends, seconds since the epoch, if that is known.
    pub allocation_end: Option<i64>,
    /// Size of the pieces in which redundancy is computed, bytes.
    pub piece_bytes: usize,
    /// Size of the buffers in which files are copied, bytes.
    pub copy_bytes: usize,
    /// Files that an agent copies or checks at a time; absent: see [`CopyRequest`](crate::agent::CopyRequest).
    pub copy_threads: Option<u32>,
    /// Ranks of a node whose redundancy is computed, or whose files move to or from another node, at a time.
    pub redundancy_width: u32,
    /// How long a stream between two agents may carry no data.
    #[serde(with = "millis")]
    pub stream_timeout: Duration,
    /// What protects the data of these streams.
    #[serde(default)]
    pub data_plane: DataPlane,
    /// When a rank is reported as quiet; absent if never.
    pub watchdog: Option<Watchdog>,
    /// The newest checkpoint that earlier generations completed.
    pub newest: Option<CheckpointId>,
    /// Directories below the prefix that no restart takes: a run from the beginning does not use what was there before.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ignored: BTreeSet<String>,
}

impl Settings {
    /// The settings as one node has them: its name in the bases of its directories.
    pub fn for_node(mut self, node: &NodeName) -> Settings {
        let named = |base: &mut String| *base = base.replace(NODE_PLACEHOLDER, node.as_str());
        self.caches.iter_mut().for_each(|cache| named(&mut cache.base));
        self.descriptors.iter_mut().for_each(|descriptor| named(&mut descriptor.base));
        self
    }
}

/// When a rank is reported as [quiet](crate::agent::QuietRank). Whether the run hangs, the orchestrator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watchdog {
    /// It has waited in one call for so long, or has neither called nor worked.
    #[serde(with = "millis")]
    pub hang_after: Duration,
    /// It has not called for so long, whether it works or not; absent: work is always progress.
    pub busy_hang_after: Option<Duration>,
}

/// When the checkpoints of programs are due for which rank processes make the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointSchedule {
    /// So long after the end of the last one, and before a halt.
    Every(#[serde(with = "millis")] Duration),
    /// As soon as the checkpoints take at most this percentage of the time, and before a halt.
    Share(u8),
    /// When every program has written the files of its next checkpoint.
    WhenReady,
}

/// The name of a checkpoint source, as in `checkpoint.source` of a job spec; the agent has the list of sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceName(pub String);

impl std::fmt::Display for SourceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The base directory, as the node sees it.
    pub base: String,
    /// How many checkpoints to keep in it.
    pub keep: u32,
}

/// The agent's identity and settings: one JSON line on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentStart {
    /// [`crate::VERSION`] of the orchestrator.
    pub version: u32,
    /// The job's name in the spec, for messages.
    pub job: String,
    /// The job id, part of directory names (`scr.<id>`).
    pub job_id: String,
    /// The step whose ranks the node gets, where several run side by side: processes of other steps are left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// A token of the allocation, which no other one with the same job id has; `None` where ids are not given again.
    pub allocation: Option<String>,
    /// The user name, part of directory names.
    pub user: String,
    /// This node's name; empty with [`shared`](Self::shared).
    pub node: NodeName,
    /// If one start message goes to the agents of many nodes: how each finds what the message cannot contain.
    pub shared: Option<SharedStart>,
    /// Put in front of every node path: a virtual node's root directory.
    pub root: Option<PathBuf>,
    /// The prefix directories of the job's steps, absolute: the agent writes below these and nowhere else outside of
    /// its control and cache directories.
    #[serde(default)]
    pub prefixes: Vec<PathBuf>,
    /// The directories of another job on the node are left, also if its datasets are on its prefix directory: nothing
    /// of this job replaces them.
    #[serde(default)]
    pub drains_only: bool,
    /// Base of the control directory.
    pub control_base: String,
    /// Bases of the cache directories, with the capacity that is expected of each, bytes.
    pub cache_bases: BTreeMap<String, Option<u64>>,
    /// The capacity that is expected of the control directory, bytes.
    pub control_bytes: Option<u64>,
    /// A file system of these directories that does not respond for this long is faulty.
    #[serde(with = "millis")]
    pub disk_timeout: Duration,
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The job's certificate, key and token.
    pub trust: TrustMaterial,
    /// End by itself after this long without orchestrator and without ranks.
    #[serde(with = "millis")]
    pub abandon_after: Duration,
    /// The umask of the orchestrator: what the agent writes to the prefix directory has the same mode as what the
    /// orchestrator writes there. Without it, the agent keeps its own.
    pub umask: Option<u32>,
    /// Faults that this virtual node injects into itself (`allocation.faults`).
    #[serde(default)]
    pub fault_injections: Vec<FaultInjection>,
}

/// How the agents of one step find what a start message to all of them cannot contain: their resource manager declares
/// it. Each also puts its node's name in place of [`NODE_PLACEHOLDER`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedStart {
    /// The node's name.
    pub node: Lookup,
    /// The address of the machine from which the step was started. The agent listens at the address that leads there.
    pub toward: Lookup,
    /// The directory for the log `<node>.log`. All agents have one standard error.
    pub logs: PathBuf,
    /// The manager sends SIGTERM to all processes of a job that ends, the orchestrator included: the agent leaves it to
    /// the orchestrator while there is one.
    pub is_signalled_with_job: bool,
}

/// Where an agent finds a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookup {
    /// In this variable of its environment.
    Variable(String),
    /// In the first line that this command prints.
    Command(Vec<String>),
}

/// Is replaced by the node's name in the base of a control or cache directory.
pub const NODE_PLACEHOLDER: &str = "{node}";

/// A fault that a virtual node injects into itself: at the named point the agent sends SIGKILL to its ranks (unless
/// only the agent is to die) and to itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultInjection {
    pub point: FaultPoint,
    /// For which dataset; any if absent.
    pub checkpoint: Option<CheckpointId>,
    /// Only the agent dies; its ranks keep running.
    pub agent_only: bool,
}

/// The points at which a fault can be injected, each in the middle of the work that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultPoint {
    /// A rank routed its first file of a checkpoint.
    Write,
    /// The redundancy of a checkpoint is half made.
    Encode,
    /// Lost files are half rebuilt in cache.
    Rebuild,
    /// Round 1 or 2 of the drain has begun to copy.
    Copy,
}

impl AgentStart {
    /// The control directory as the node sees it (`docs/scr-files.md` §2).
    pub fn control_directory(&self) -> String {
        job_directory(&self.control_base, &self.user, &self.job_id)
    }
}

/// `<base>/<user>/scr.<job id>`: the job's directory below a control or cache base.
pub fn job_directory(base: &str, user: &str, job_id: &str) -> String {
    format!("{}/{user}/scr.{job_id}", base.trim_end_matches('/'))
}

/// The agent's first line on standard output: it is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentReady {
    /// [`crate::VERSION`] of the agent.
    pub version: u32,
    pub node: NodeName,
    pub address: SocketAddr,
    pub pid: u32,
    /// The generation whose state it found in the control directory.
    pub adopted: Option<Generation>,
    /// The node's clock at this moment, milliseconds since the epoch.
    pub clock_ms: Option<u64>,
    /// The port at which a thread of its own shows that the process runs (module `pulse`).
    pub pulse: Option<u16>,
}

/// The certificate and token of a job, as they travel on standard input and lie (mode 0600) in the job's state.
#[derive(Clone, Serialize, Deserialize)]
pub struct TrustMaterial {
    /// The job's certificate, DER.
    pub certificate: crate::bytes::Base64,
    /// Its private key, PKCS#8 DER.
    pub key: crate::bytes::Base64,
    /// The job's token, 32 bytes.
    pub token: crate::bytes::Base64,
}

impl std::fmt::Debug for TrustMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TrustMaterial(…)")
    }
}
