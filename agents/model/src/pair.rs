//! Main and replica: two copies of one program, of which one is awake. The other one waits, without processor time,
//! until it takes over from the newest checkpoint in shared memory.
//!
//! After the Fault-tolerant Scheme for Multiple Jobs on a Single Xavier; what differs is in `docs/pairs.md`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rank_end::RankEnd;
use crate::time::micros;

/// The most pairs of a job.
pub const MOST_PAIRS: u32 = 1024;
/// Checkpoints of a pair that are kept in shared memory: one each 10 ms, in rounds of 100 ms.
pub const CHECKPOINT_RING: u32 = 10;

/// One of the two copies of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Main,
    Replica,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::Main, Side::Replica];

    /// The one of the two that belongs to the side.
    pub fn select<T>(self, main: T, replica: T) -> T {
        match self {
            Side::Main => main,
            Side::Replica => replica,
        }
    }

    /// The position of the side in tables of both.
    pub const fn index(self) -> usize {
        self as usize
    }

    pub fn other(self) -> Side {
        self.select(Side::Replica, Side::Main)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How a copy that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartBackOff {
    /// Before the first restart; doubled with each failure that follows.
    #[serde(with = "micros")]
    pub first: Duration,
    /// The longest time before a restart. A copy that was up for so long has no failures behind it.
    #[serde(with = "micros")]
    pub most: Duration,
    /// Failures one after the other after which a copy is given up; `None`: never.
    pub attempts: Option<u32>,
}

/// What a job asks for a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairConfig {
    /// `{index}` in the spec: the number of the pair among those of its element.
    pub spec_index: u32,
    pub name: String,
    /// The command of the main.
    pub main: Vec<String>,
    /// The command of the replica.
    pub replica: Vec<String>,
    /// The time between two heartbeats of the copy that is awake.
    #[serde(with = "micros")]
    pub period: Duration,
    /// A copy without a heartbeat for so many periods has failed.
    pub misses: u32,
    /// The largest checkpoint, bytes.
    pub checkpoint_bytes: u64,
    /// The time between two checkpoints: within it, a new one is mirrored to the other node.
    #[serde(with = "micros")]
    pub checkpoint_period: Duration,
    pub restart: RestartBackOff,
    /// From the request to end to SIGKILL.
    #[serde(with = "micros")]
    pub stop_grace: Duration,
    /// A copy that does not register within this time after its start has failed.
    #[serde(with = "micros")]
    pub start_within: Duration,
    /// The jobs that are suspended while the replica is awake on another node than the main's; `None`: all of the node.
    pub suspends: Option<Vec<String>>,
}

/// The state of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// Not started, or ended; it may be started again after a pause.
    #[default]
    Absent,
    /// Started, not registered yet.
    Starting,
    /// Registered; waits for its turn.
    Asleep,
    Awake,
    /// Told to stop.
    Ending,
    /// Ended with success: the work of the pair is done.
    Finished,
    /// Failed too often: not started again without a command.
    GivenUp,
}

impl fmt::Display for CopyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CopyState::Absent => "absent",
            CopyState::Starting => "starting",
            CopyState::Asleep => "asleep",
            CopyState::Awake => "awake",
            CopyState::Ending => "ending",
            CopyState::Finished => "finished",
            CopyState::GivenUp => "given up",
        })
    }
}

/// The state of one copy, for users and for the orchestrator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyStatus {
    pub state: CopyState,
    pub pid: Option<u32>,
    /// Counts the starts of this side.
    pub incarnation: u64,
    /// Failures, one after the other, since it was last up for long.
    pub failures: u32,
    /// Heartbeats since this copy was woken.
    pub beats: u64,
    /// Periods without a heartbeat, counted since this copy was woken, whether or not they were a failure.
    pub missed: u64,
}

/// The state of a pair on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairStatus {
    pub pair: u32,
    pub name: String,
    /// The copies of this node; `None` for one that belongs to another node.
    pub main: Option<CopyStatus>,
    pub replica: Option<CopyStatus>,
    /// The sequence number of the newest checkpoint in this node's shared memory; 0: none.
    pub checkpoint: u64,
    /// Milliseconds since that was stored in this node's shared memory; `None`: there is none.
    pub checkpoint_age_ms: Option<u64>,
    /// Periods without a heartbeat of all copies of this node, as far as its present agent has watched them.
    #[serde(default)]
    pub missed: u64,
    pub fail_overs: u64,
    pub fail_backs: u64,
    /// Of a pair whose copies are on two nodes: what this node holds, and what it gave back.
    pub lease: Option<LeaseStatus>,
}

impl PairStatus {
    pub fn copy(&self, side: Side) -> Option<&CopyStatus> {
        side.select(&self.main, &self.replica).as_ref()
    }

    /// The copy of this node that is awake.
    pub fn awake(&self) -> Option<Side> {
        Side::BOTH.into_iter().find(|side| self.copy(*side).is_some_and(|copy| copy.state == CopyState::Awake))
    }
}

/// A time in which one node may have its copy of a pair awake. A renewal extends it; another node, or the same node
/// later, gets a later term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Term {
    /// The orchestrator that began it: each has a higher epoch than those before it.
    pub epoch: u64,
    pub number: u64,
}

/// A checkpoint that one node has from another. Those of a later term come later, whatever their sequence numbers:
/// after a partition, the copy of the earlier term may have made checkpoints that nobody goes on from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MirroredCheckpoint {
    /// The term of the node that sent it.
    pub term: Term,
    pub sequence: u64,
}

/// The permission to have a copy awake, for pairs whose copies are on two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub pair: u32,
    pub term: Term,
    /// By the clock of the agent to which it is sent.
    #[serde(with = "micros")]
    pub until: Duration,
    /// The copy is woken when this node has this checkpoint, or a second later without it.
    pub after: Option<MirroredCheckpoint>,
    /// Why the copy of the other node is no longer awake.
    pub cause: Option<FailureCause>,
}

/// The end of a term: the copy is ended, and the lease released. Repeated until [`LeaseStatus::released`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    pub pair: u32,
    pub term: Term,
}

/// What a node holds of a pair's lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// The term that the node holds.
    pub held: Option<Term>,
    /// This term and all before it are over on this node: no copy is awake by them, now or later.
    pub released: Term,
    /// Why the copy of the released term is no longer awake.
    pub cause: Option<FailureCause>,
    /// The newest checkpoint that the node has from the other one.
    #[serde(default)]
    pub mirrored: MirroredCheckpoint,
    /// The newest checkpoint in this node's shared memory, if a copy of this node stored it: it is sent to the other
    /// node under the term that is held, or was held last. 0: there is none, or it came from the other node.
    #[serde(default)]
    pub own_newest: u64,
    /// The term of that checkpoint: the one under which a copy of this node worked last.
    #[serde(default)]
    pub own_term: Term,
}

/// A non-critical job of a node, which may be suspended for a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobConfig {
    pub name: String,
    pub command: Vec<String>,
    /// Jobs with a smaller number are suspended first, and resumed last.
    pub order: u32,
    pub restart: RestartBackOff,
}

/// The state of a non-critical job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobRunState {
    #[default]
    Absent,
    Running,
    Suspended,
    /// Ended with success.
    Finished,
    GivenUp,
}

/// The state of one non-critical job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    pub name: String,
    pub state: JobRunState,
    pub pid: Option<u32>,
    pub failures: u32,
}

/// What a user requests for a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairCommand {
    /// The main is ended, the replica woken. The main is not woken before [`PairCommand::FailBack`], or before the
    /// replica fails.
    FailOver,
    /// The replica is ended, the main woken.
    FailBack,
    /// The copy is ended and started again, also one that was given up. A main that is awake is ended as in a failure.
    Restart(Side),
}

/// Why a copy failed, or was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum FailureCause {
    /// Its process ended; with success only if the pair had not finished.
    #[error("{end}{}", if *end == RankEnd::SUCCESS { " without tag_job_end" } else { "" })]
    Exit { end: RankEnd },
    /// No heartbeat for so many periods.
    #[error("{misses} heartbeats missed")]
    Hang { misses: u32 },
    #[error("not registered in time")]
    NotRegistered,
    /// Its process could not be started.
    #[error("not started: {reason}")]
    NotStarted { reason: String },
    /// A user requested it.
    #[error("requested")]
    Command,
    /// The lease ran out, or was given to the other node.
    #[error("lease ended")]
    Lease,
    /// Its node, or the agent there, does not answer.
    #[error("node lost")]
    NodeLost,
}

/// A change in the life of a pair, for events and `holdfast pairs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum PairChange {
    /// A copy was started.
    Started {
        side: Side,
        pid: u32,
        incarnation: u64,
    },
    /// A copy was found running by an agent that was restarted.
    Adopted {
        side: Side,
        pid: u32,
        incarnation: u64,
        state: CopyState,
    },
    /// A copy waits for its turn.
    Asleep {
        side: Side,
    },
    /// The first copy of the pair, or the first after a time without one, was woken.
    Awake {
        side: Side,
        checkpoint: u64,
    },
    /// A copy failed in this state.
    Failed {
        side: Side,
        state: CopyState,
        #[serde(flatten)]
        cause: FailureCause,
    },
    /// The replica was woken in place of the main.
    FailOver {
        #[serde(flatten)]
        cause: FailureCause,
        checkpoint: u64,
        /// From the detection to the moment at which the replica was woken, microseconds.
        micros: u64,
    },
    /// The main was woken in place of the replica.
    FailBack {
        checkpoint: u64,
        /// From the main's registration to the moment at which it was woken, microseconds.
        micros: u64,
    },
    /// A copy failed too often.
    GivenUp {
        side: Side,
        failures: u32,
    },
    /// A copy ended with success, and with it the pair.
    Finished {
        side: Side,
    },
    /// The lease ran out: the copy that was awake was killed.
    LeaseExpired {
        side: Side,
    },
    /// The pair goes on from this checkpoint, which an earlier run of the job has saved.
    Restored {
        checkpoint: u64,
        /// What the program gave with it, such as a step.
        tag: i64,
    },
    /// What an earlier run has saved cannot be used: an older one is, or the pair begins from the start.
    NotRestored {
        reason: String,
    },
    /// The newest checkpoint was written to the prefix directory, because the job ends before the pair is finished.
    Saved {
        checkpoint: u64,
        tag: i64,
    },
    /// The newest checkpoint could not be written there.
    NotSaved {
        reason: String,
    },
    /// The registry could not be used any more: its copies were killed, and the checkpoints in it are lost.
    RegistryReplaced {
        reason: String,
    },
    JobStarted {
        pid: u32,
    },
    /// A job was found running by an agent that was restarted.
    JobAdopted {
        pid: u32,
    },
    JobFailed {
        end: RankEnd,
    },
    JobFinished,
    JobGivenUp {
        failures: u32,
    },
    /// For the replica of this pair.
    JobSuspended {
        pair: String,
        freezer: bool,
    },
    JobResumed,
}
