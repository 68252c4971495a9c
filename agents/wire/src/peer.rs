//! The messages between agents.
//!
//! A connection begins with [`PeerHello`]. A *link* then carries the collectives: a member's ranks' calls to the
//! leader, the leader's orders and results back, one frame each. A *stream* carries one body of raw bytes: the
//! pieces of a ring, or the files of a rank.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use holdfast_model::pair::MirroredCheckpoint;
use holdfast_model::{
    CheckpointId, ContainerPlaces, Dataset, Failure, Generation, HaltState, Inventory, Locations, NodeName, OutputPath,
    PackedRank, Rank, RankDescriptor, Scheme,
};

use crate::bytes::Base64;
use crate::frame::Limit;
use crate::payload::Payload;
use crate::rank::{Call, LARGEST_GATHERED, Reply};

/// What travels on a link, each way: a gathered result, or the inventory, the files or the orders of one node.
pub const LINK: Limit =
    Limit { what: "a message between a member and its leader", bytes: LARGEST_GATHERED + (64 << 20) };
/// A checkpoint of a pair.
pub const MIRROR: Limit =
    Limit { what: "a checkpoint of a pair", bytes: (crate::pairs::LARGEST_MIRRORED as usize) + (64 << 10) };
/// The names and meta data of one rank's files, before the files themselves.
pub const FILES: Limit = Limit { what: "the list of a rank's files", bytes: 64 << 20 };
/// The payloads of the calls that a member sends in one message: those of more ranks are sent in several.
pub const CALLS_BYTES: usize = 4 << 20;

/// First frame of a connection between agents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerHello {
    /// [`crate::VERSION`].
    pub version: u32,
    pub token: Base64,
    pub job: String,
    /// The run; an older one than the receiver's is refused.
    pub generation: Generation,
    pub node: NodeName,
    pub purpose: Purpose,
    /// How the bytes of a stream are protected that follow the answer; absent: by TLS, as the hello.
    pub records: Option<RecordProtection>,
}

/// The protection of the bytes of a stream that are not sent over TLS, up to the next hello on the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordProtection {
    pub checksum: RecordChecksum,
    /// [`RECORD_KEY`] random bytes, of this stream only.
    pub key: Base64,
}

/// What each record of a stream ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordChecksum {
    /// AEGIS-128X2 as a message authentication code, 16 bytes.
    Keyed,
    /// CRC32C, which begins with a number from the key.
    Crc32c,
}

/// Bytes of [`RecordProtection::key`].
pub const RECORD_KEY: usize = 16;

/// What a connection between agents is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Member to leader, for the entire run.
    Link,
    /// Messages of one member of a group to another.
    Group(GroupKey),
    Files(FilesKey),
    /// Checkpoints of pairs of main and replica, from the node of the copy that is awake: [`ToMirror`].
    Mirror,
}

/// Which group and members a stream belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupKey {
    /// The order that it carries out.
    pub order: u64,
    pub group_id: u32,
    /// The member that sends, from 0.
    pub from_member: u32,
    /// The member that receives.
    pub to_member: u32,
}

/// Which transfer a stream belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FilesKey {
    /// The order that it carries out.
    pub order: u64,
    /// The rank whose files these are.
    pub rank: Rank,
}

/// To the agent of a pair's other copy. Each is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToMirror {
    Checkpoint {
        pair: u32,
        checkpoint: MirroredCheckpoint,
        /// What the program gave with it.
        tag: i64,
        bytes: Payload,
        /// It is from the receiving node, which may have lost it since.
        returned: bool,
    },
    /// There was nothing to send for a while.
    Idle,
}

/// The answer to [`ToMirror`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MirrorAnswer {
    /// The checkpoint is in the registry of the node.
    Done,
    /// It is not used; it may be later, when the node has its plan, or the turn has passed.
    Refused { reason: String },
}

/// The answer to [`PeerHello`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerWelcome {
    /// The connection is accepted.
    Welcome,
    /// The connection is refused.
    Refused(Failure),
}

/// From a member to the leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToLeader {
    /// Ranks of this node made a collective call.
    Calls {
        /// Number of the collective, the same on all ranks.
        seq: u64,
        /// The calls, by rank.
        calls: Vec<(Rank, Call)>,
    },
    /// An order was carried out, or could not be.
    Done { order: u64, result: Result<OrderResult, Failure> },
    /// The ranks of this node are sent SIGTERM because the run is halted. Calls after this may be made because of it.
    Terminated,
}

/// What a collective gives back.
pub type Outcome = Result<Reply, Failure>;

/// From the leader to a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToMember {
    /// Do this; answer with [`ToLeader::Done`]. An order that was carried out already is carried out again.
    Order {
        /// Its number, unique in a generation.
        order: u64,
        what: Order,
    },
    /// Stop working on this order: another member failed. Answer it all the same.
    Cancel { order: u64 },
    /// Something waits for the end of this order: its limits do not apply any more.
    LiftLimits { order: u64 },
    /// A collective ended. Sent once a node: all ranks get the same, and their agent adds what is local (paths, file
    /// names).
    Results { seq: u64, outcome: Outcome },
}

/// Where an agent listens, and how new that is: of two, the one with the larger number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub address: SocketAddr,
    /// As in the [`PeersUpdate`](crate::agent::PeersUpdate), or the plan, that it is from.
    pub issued: u64,
}

/// A message to a member as it travels on a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delivery {
    /// Where the peers listen that the message concerns, as far as that was not sent on this link before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<(NodeName, Endpoint)>,
    pub message: ToMember,
}

/// Which CRCs an [`Order::Seal`] records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SealCrc {
    None,
    /// Those that the meta files have already, of files that were fetched.
    Keep,
    /// Each file is read.
    Compute,
}

/// One step of a collective, carried out by every agent that it names. All orders can be repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Report what the node holds.
    Inventory,
    /// Delete these datasets from cache; with `all_but`, every other one.
    Delete {
        checkpoints: Vec<CheckpointId>,
        /// Delete all but these.
        all_but: Option<BTreeSet<CheckpointId>>,
    },
    /// Make room, record descriptors, make the directories of a new dataset.
    Prepare {
        checkpoint: CheckpointId,
        /// Datasets to delete first.
        delete: Vec<CheckpointId>,
        /// Each local rank's descriptor.
        members: Vec<Member>,
    },
    /// Check the ranks' files, write their meta files, report sizes.
    Seal {
        checkpoint: CheckpointId,
        ranks: u32,
        /// The CRCs in the meta files.
        crc: SealCrc,
    },
    /// Computes and stores the redundancy of a checkpoint.
    Encode {
        checkpoint: CheckpointId,
        /// The local ranks' groups.
        groups: Vec<GroupWork>,
        /// Compute the CRCs of all files that are read or written for it, and record them.
        crc: bool,
        /// Only the redundancy of these ranks' files is made (again).
        only: Option<Vec<Rank>>,
        limits: CopyLimits,
    },
    /// The dataset is complete: set the expected counts, note it in the flush file.
    Commit {
        checkpoint: CheckpointId,
    },
    /// Delete what is left here of these ranks' files of a dataset.
    Discard {
        checkpoint: CheckpointId,
        ranks: Vec<Rank>,
    },
    /// Send and receive files of ranks that have moved. The sender keeps its files.
    Transfer {
        checkpoint: CheckpointId,
        /// Ranks whose files go to another node.
        outgoing: Vec<RankTransfer>,
        /// Ranks whose files come here.
        incoming: Vec<Member>,
    },
    /// Record the local ranks' descriptors for a dataset that was found in cache.
    Adopt {
        checkpoint: CheckpointId,
        /// Each local rank's descriptor.
        members: Vec<Member>,
        /// The ranks restart from it; otherwise it stays in cache beside the one that they restart from.
        restart: bool,
    },
    /// Compare the application's files of these ranks with the recorded CRCs.
    Verify {
        checkpoint: CheckpointId,
        ranks: Vec<Rank>,
    },
    /// Rebuild lost members; survivors send, the new home of the lost one receives.
    Rebuild {
        checkpoint: CheckpointId,
        /// The groups with a local member.
        groups: Vec<GroupRebuild>,
    },
    /// Read a dataset from the prefix directory.
    Fetch {
        checkpoint: CheckpointId,
        /// Its directory, absolute.
        directory: PathBuf,
        /// Each local rank's descriptor and files.
        ranks: Vec<FetchRank>,
        total_ranks: u32,
        /// Files that the node copies at a time at most.
        width: u32,
    },
    /// Copy a dataset to the prefix directory.
    Flush {
        checkpoint: CheckpointId,
        /// Its directory, absolute.
        directory: PathBuf,
        limits: CopyLimits,
        /// The ranks do not wait for it: it is recorded in the transfer file.
        #[serde(default)]
        background: bool,
        /// Compute CRCs.
        crc: bool,
        /// The places of the node's ranks in a container; without it the files are copied as they are.
        container: Option<ContainerPlaces>,
    },
    /// Read files of a dataset in the prefix directory, and compare them with what was recorded. Answered with
    /// [`OrderResult::Verified`].
    VerifyStored {
        checkpoint: CheckpointId,
        /// Its directory, absolute.
        directory: PathBuf,
        /// The files of some of its ranks, not those of the node.
        files: BTreeMap<Rank, Vec<DatasetFile>>,
        limits: CopyLimits,
    },
    /// Record what the application declared about a dataset.
    Describe {
        checkpoint: CheckpointId,
        /// Its name, and what it is for.
        dataset: Dataset,
    },
    /// The ranks write the files of a new dataset into this directory themselves.
    OpenDirect {
        checkpoint: CheckpointId,
        /// Its directory below the prefix, absolute.
        directory: PathBuf,
    },
    /// Report what the ranks have written into that directory; answered with [`OrderResult::Flushed`].
    SealDirect {
        checkpoint: CheckpointId,
    },
    /// The ranks have written it: the dataset is closed.
    CloseDirect {
        checkpoint: CheckpointId,
    },
    /// The ranks read the files of the dataset that they restart from in this directory.
    ReadDirect {
        checkpoint: CheckpointId,
        /// Its directory below the prefix, absolute.
        directory: PathBuf,
        /// Each rank's files, in routing order. If another number of ranks wrote them: those whose presence this node
        /// verifies, by the rank that wrote them.
        files: BTreeMap<Rank, Vec<DatasetFile>>,
        /// The number of ranks that wrote the dataset, if it is another one than this run's: each rank reads any file.
        written_by: Option<u32>,
    },
    Note {
        checkpoint: CheckpointId,
        locations: Locations,
    },
    /// Take over the halt conditions as the leader has them, except for those that were changed here since the last
    /// time.
    Halt {
        state: HaltState,
    },
}

impl Order {
    /// True if agents carry it out together, so that none can repeat it alone.
    pub fn is_joint(&self) -> bool {
        matches!(self, Order::Encode { .. } | Order::Transfer { .. } | Order::Rebuild { .. })
    }

    /// The limits of an order that is carried out beside the work of the ranks.
    pub fn limits_mut(&mut self) -> Option<&mut CopyLimits> {
        match self {
            Order::Flush { limits, .. } | Order::Encode { limits, .. } | Order::VerifyStored { limits, .. } => {
                Some(limits)
            }
            _ => None,
        }
    }

    /// The nodes to which an agent may have to connect in order to carry it out.
    pub fn peers(&self) -> BTreeSet<&NodeName> {
        fn members(group: &GroupWork) -> impl Iterator<Item = &NodeName> {
            group.members.iter().map(|(_, node)| node)
        }
        match self {
            Order::Encode { groups, .. } => groups.iter().flat_map(members).collect(),
            Order::Rebuild { groups, .. } => groups.iter().flat_map(|rebuild| members(&rebuild.group)).collect(),
            Order::Transfer { outgoing, .. } => outgoing.iter().map(|step| &step.to).collect(),
            _ => BTreeSet::new(),
        }
    }
}

/// Limits of what a node copies or encodes for an order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyLimits {
    /// Files that are copied at a time at most.
    pub width: u32,
    /// Bytes per second at most; 0 is no limit.
    pub bandwidth: u64,
    /// Percentage of a processor at most; 0 is no limit.
    pub percent: f64,
}

impl CopyLimits {
    /// No limit.
    pub const NONE: CopyLimits = CopyLimits { width: u32::MAX, bandwidth: 0, percent: 0.0 };

    /// Removes the limits of bandwidth and of the processors' time; true if there was one.
    pub fn lift(&mut self) -> bool {
        let limited = self.bandwidth > 0 || self.percent > 0.0;
        *self = CopyLimits { width: self.width, ..CopyLimits::NONE };
        limited
    }
}

/// A rank whose files are sent to the node where it now runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankTransfer {
    pub rank: Rank,
    /// The node where it runs.
    pub to: NodeName,
}

/// A rank and its redundancy descriptor for a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    pub rank: Rank,
    pub descriptor: RankDescriptor,
}

/// One group, from the view of one of its members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupWork {
    pub scheme: Scheme,
    pub group_id: u32,
    /// Its members in order, and the node of each.
    pub members: Vec<(Rank, NodeName)>,
    /// The local member, from 0.
    pub member: u32,
    pub left: u32,
    pub right: u32,
    /// Bytes of the application's files of the largest member.
    pub largest: u64,
}

/// One group that lost members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRebuild {
    /// The group, as the local member sees it; `largest` is not used.
    pub group: GroupWork,
    /// The lost members, ascending.
    pub missing: Vec<u32>,
    /// The local member's descriptor, which a lost member has no other source for.
    pub descriptor: RankDescriptor,
}

/// A rank whose files are fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchRank {
    /// The rank and its descriptor.
    pub member: Member,
    pub files: Vec<DatasetFile>,
}

/// A file of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetFile {
    /// Its base name.
    pub name: String,
    pub size: u64,
    /// If it is known.
    pub crc: Option<u32>,
    /// Where a file of an output belongs below the prefix directory.
    pub output_path: Option<OutputPath>,
}

/// The files of a rank that a seal found written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedFiles {
    /// Bytes of all of them.
    pub bytes: u64,
    /// Their base names.
    pub names: Vec<String>,
}

/// What an order returned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderResult {
    /// Without a result.
    Done,
    /// To [`Order::Inventory`].
    Inventory(Inventory),
    /// To [`Order::Seal`]: what each local rank wrote.
    Sealed(BTreeMap<Rank, SealedFiles>),
    /// To [`Order::Verify`] and [`Order::VerifyStored`]: the ranks of which a file is damaged, and how.
    Verified(BTreeMap<Rank, String>),
    /// To [`Order::Flush`] and [`Order::SealDirect`]: each rank's files.
    Flushed(BTreeMap<Rank, Vec<DatasetFile>>),
    /// To [`Order::Flush`] into a container: each rank's files, and what was written.
    Packed { files: BTreeMap<Rank, Vec<DatasetFile>>, packed: BTreeMap<Rank, PackedRank> },
    /// To [`Order::Commit`], [`Order::Fetch`], [`Order::Transfer`]…: each local rank's files in routing order.
    Files(BTreeMap<Rank, Vec<String>>),
}
