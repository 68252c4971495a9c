//! What a job asks for its checkpoints. The orchestrator reads these from the job spec, where each field is a key, and
//! the agents act on them: the structs travel as they are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::container::ContainerPolicy;
use crate::level::Level;
use crate::time::millis;

/// Copies to the prefix directory while the application runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlushPolicy {
    /// Flush every n-th checkpoint id; 0 never, not even at the end.
    pub every: u64,
    /// Whether the application waits.
    pub mode: FlushMode,
    /// Synchronous: ranks whose files are copied at a time, in the entire run (`SCR_FLUSH_WIDTH`).
    pub width: u32,
    /// Asynchronous: bytes a second of all nodes together at most; 0 is no limit (`SCR_FLUSH_ASYNC_BW`).
    pub bandwidth: u64,
    /// Asynchronous: percentage of a processor that the copies of a node may use; 0 is no limit
    /// (`SCR_FLUSH_ASYNC_PERCENT`).
    pub percent: f64,
    /// Flush what a run was restarted from (`SCR_FLUSH_ON_RESTART`).
    pub on_restart: bool,
    /// Complete and verified checkpoints of the job that stay on the prefix directory; older ones are deleted. 0 is all
    /// (`SCR_PREFIX_SIZE`).
    #[serde(default)]
    pub keep: u32,
    /// Pack checkpoints into containers.
    pub container: Option<ContainerPolicy>,
}

/// Whether the application waits for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlushMode {
    Sync,
    Async,
}

/// What a redundancy descriptor asks for beside its scheme and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelPolicy {
    /// Its redundancy is made while the application goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<AsyncRedundancy>,
    /// Its checkpoints are counted by themselves, and so many are kept. Otherwise those of the cache are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
}

/// Redundancy that is made while the application goes on: the limits of each node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AsyncRedundancy {
    /// Bytes of checkpoint files a second at most; 0 is no limit.
    pub bandwidth: u64,
    /// Percentage of a processor at most; 0 is no limit.
    pub percent: f64,
}

/// Where a run looks for a checkpoint to continue from: first in the caches, then on the prefix directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartPolicy {
    /// In the caches: move and rebuild files (`SCR_DISTRIBUTE`).
    pub distribute: bool,
    /// On the prefix directory (`SCR_FETCH`).
    pub fetch: bool,
    /// Ranks whose files are fetched at a time, in the entire run (`SCR_FETCH_WIDTH`).
    pub fetch_width: u32,
    /// The ranks read from the prefix directory itself; a checkpoint in the caches is flushed first
    /// (`SCR_GLOBAL_RESTART`).
    #[serde(default)]
    pub from_prefix: bool,
    /// Whether a checkpoint that another number of ranks wrote can be used.
    #[serde(default)]
    pub ranks: RestartRanks,
}

/// The checkpoints that a run can restart from, by the number of ranks that wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartRanks {
    /// Those of as many ranks as the run has.
    #[default]
    Same,
    /// All. The files of another number of ranks are read in the prefix directory itself, each by any rank.
    Any,
}

/// When CRC32s are computed. A recorded one is compared whenever the file is copied or a rebuild reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrcPolicy {
    /// When a dataset is completed, and when a file is copied between nodes (`SCR_CRC_ON_COPY`).
    pub on_copy: CrcOnCopy,
    /// When a file is flushed or drained (`SCR_CRC_ON_FLUSH`).
    pub on_flush: bool,
    /// Compare the files in cache that a run restarts from, those included that stay where they are.
    pub on_restart: bool,
    /// Compare the files in cache before they are deleted, and report those that differ (`SCR_CRC_ON_DELETE`).
    #[serde(default)]
    pub on_delete: bool,
}

/// Of which files of a dataset the CRC32 is computed when it is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrcOnCopy {
    Never,
    /// Of those that are read anyway: to encode them or to send them to a partner.
    WithRedundancy,
    /// Of all; each is read for it before redundancy is made.
    Always,
}

/// What protects the data of checkpoints between agents. Everything else that they send is always sent over TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPlane {
    /// TLS.
    #[default]
    Encrypted,
    /// A keyed checksum for each piece: a change is detected.
    Authenticated,
    /// A CRC32C for each piece: damage is detected, an attacker is not.
    Plain,
}

/// When a checkpoint is due (SCR manual §11.5): when any of these holds; always, if all are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NeedPolicy {
    /// Every so many calls (`SCR_CHECKPOINT_INTERVAL`).
    pub interval: u32,
    /// So long after the end of the last checkpoint, or of init (`SCR_CHECKPOINT_SECONDS`).
    pub time: Duration,
    /// As often as checkpoints take at most this percentage of the time (`SCR_CHECKPOINT_OVERHEAD`).
    pub overhead: f64,
}

/// When checkpoints of variables in memory are due, by level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariablesPolicy {
    /// How the ranks write their files.
    pub layout: VariablesLayout,
    /// The time between two checkpoints of a level that snapshots take; zero is never.
    pub snapshots: SnapshotIntervals,
}

impl Default for VariablesPolicy {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let [local, partner, parity, prefix] = [3, 5, 7, 11].map(minutes);
        let snapshots = SnapshotIntervals { local, partner, parity, prefix };
        VariablesPolicy { layout: VariablesLayout::default(), snapshots }
    }
}

/// The time between two snapshots of each level; zero is never. The defaults are FTI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotIntervals {
    #[serde(with = "millis")]
    pub local: Duration,
    #[serde(with = "millis")]
    pub partner: Duration,
    #[serde(with = "millis")]
    pub parity: Duration,
    #[serde(with = "millis")]
    pub prefix: Duration,
}

impl SnapshotIntervals {
    pub fn of(&self, level: Level) -> Duration {
        match level {
            Level::Local => self.local,
            Level::Partner => self.partner,
            Level::Parity => self.parity,
            Level::Prefix => self.prefix,
        }
    }
}

/// The layout of FTI-FF in which variables are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariablesLayout {
    /// That of FTI's document (FTI 1.1): the checksum covers every byte of the file.
    #[default]
    Document,
    /// That of FTI after 1.6, in containers of limited size: the checksum covers the hashes of the containers, so that
    /// unchanged ones need not be read.
    Chunked,
}
