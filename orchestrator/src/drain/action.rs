//! The actions of a drain.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_core::prefix::inspect::{Inspection, SetRebuild};
use holdfast_core::prefix::scan::Scan;
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, ContainerPlaces, ContainerRequest, NodeName, PackedRank, Rank};

use super::event::RequestId;
use super::report::DrainEnd;
use super::rounds::CopyOrder;
use crate::events::LogEvent;

/// An agent that a request is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAt {
    pub node: NodeName,
    pub address: SocketAddr,
}

/// An action, to be begun at once and in order.
#[derive(Clone, Debug)]
pub enum DrainAction {
    /// Begin a request. It ends as [`Answered`](super::DrainEvent::Answered) or [`Failed`](super::DrainEvent::Failed)
    /// with this number, unless it is cancelled. No more of them are under way at a time than
    /// [`DrainConfig::requests_at_once`](super::DrainConfig::requests_at_once).
    Request(RequestId, DrainRequest),
    /// Cancel a request: its answer is ignored.
    Cancel { request: RequestId },
    /// Log and show an event.
    Emit(LogEvent),
    /// The drain is over. The last action; exactly once.
    Finish(Box<DrainEnd>),
}

/// What is requested of an agent, or of the orchestrator itself.
#[derive(Clone, Debug)]
pub enum DrainRequest {
    /// Request the inventory of a node. Ends as [`Answer::Inventory`](super::Answer::Inventory).
    TakeInventory {
        agent: AgentAt,
        /// First have the agent end its part in the run: no flush of the run writes to the prefix directory after that.
        end_run: bool,
    },
    /// Examine, without reading the content, whether a dataset that was flushed is still in the prefix directory. Ends
    /// as [`Answer::FlushedExamined`](super::Answer::FlushedExamined). If it fails and nothing else can be drained, the
    /// drain fails.
    ExamineFlushed { checkpoint: CheckpointId },
    /// Find the directory that an earlier drain or a flush of the dataset left incomplete, or create one, and record
    /// durably that this drain writes to it. Ends as [`Answer::DirectoryOpened`](super::Answer::DirectoryOpened); if it
    /// fails, so does the drain.
    OpenDirectory {
        checkpoint: CheckpointId,
        /// The application's name for it.
        name: Option<String>,
        /// Create a container for its files.
        container: Option<Box<ContainerRequest>>,
    },
    /// Copy files of the dataset from an agent to the directory. Ends as [`Answer::Copied`](super::Answer::Copied).
    Copy {
        agent: AgentAt,
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: DirectoryName,
        /// Where the agent packs files of the ranks that are listed.
        container: Option<Box<ContainerPlaces>>,
        order: CopyOrder,
    },
    /// Complete the container of [`OpenDirectory`](Self::OpenDirectory) with what the agents packed. Ends as
    /// [`Answer::ContainerCommitted`](super::Answer::ContainerCommitted); if it fails, so does the drain.
    CommitContainer {
        /// The directory's name below the prefix.
        directory: DirectoryName,
        packed: BTreeMap<Rank, PackedRank>,
    },
    /// Move plain files of ranks, with their meta files and file maps, into another container. Ends as
    /// [`Answer::ContainerCommitted`](super::Answer::ContainerCommitted); if it fails, they stay plain files.
    Repack {
        /// The directory's name below the prefix.
        directory: DirectoryName,
        container: Box<ContainerRequest>,
        /// The files of each rank, without meta files and file maps.
        files: BTreeMap<Rank, Vec<String>>,
    },
    /// Read what is in the directory. Ends as [`Answer::Scanned`](super::Answer::Scanned); if it fails, so does the
    /// drain.
    Scan {
        /// The directory's name below the prefix.
        directory: DirectoryName,
    },
    /// Compare files with their checksums. Ends as [`Answer::Verified`](super::Answer::Verified). If an agent fails,
    /// the orchestrator repeats the work; if that fails, so does the drain.
    Verify {
        /// The agent; the orchestrator itself if `None`.
        agent: Option<AgentAt>,
        /// The directory's name below the prefix.
        directory: DirectoryName,
        files: Arc<[VerifyUnit]>,
    },
    /// Compute the missing members of a redundancy set. Ends as [`Answer::Rebuilt`](super::Answer::Rebuilt). If an
    /// agent fails, the orchestrator repeats the work; if that fails, the dataset is incomplete.
    Rebuild {
        /// The agent; the orchestrator itself if `None`.
        agent: Option<AgentAt>,
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: DirectoryName,
        set: SetRebuild,
    },
    /// Write the summary, the index entry and, for a complete checkpoint, the link to it. Ends as
    /// [`Answer::Published`](super::Answer::Published); if it fails, so does the drain.
    Publish { findings: Box<Findings> },
    /// Remove the record of [`OpenDirectory`](Self::OpenDirectory): the dataset is complete. Ends as
    /// [`Answer::DirectoryClosed`](super::Answer::DirectoryClosed); if it fails, so does the drain.
    CloseDirectory,
    /// Record in an agent's flush file that the dataset is in the prefix directory. Ends as
    /// [`Answer::FlushNoted`](super::Answer::FlushNoted). If it fails, a later drain may copy the
    /// dataset again.
    NoteFlushed { agent: AgentAt, checkpoint: CheckpointId },
    /// Remove the directories of flushes that did not end and that this drain has not completed. Ends as
    /// [`Answer::FlushesAbandoned`](super::Answer::FlushesAbandoned). If it fails, they stay.
    AbandonFlushes,
    /// Delete the checkpoints of the job that are older than those that stay. Ends as
    /// [`Answer::WindowKept`](super::Answer::WindowKept). If it fails, they stay.
    KeepWindow {
        /// So many stay.
        keep: u32,
    },
    /// Find the checkpoint that a restart takes from the prefix directory, because no dataset of the nodes could be
    /// completed. Ends as [`Answer::OlderFound`](super::Answer::OlderFound). If it fails, none is known.
    FindOlder,
}

/// The content of a directory after the copies, checks and rebuilds.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The directory's name below the prefix.
    pub directory: DirectoryName,
    /// The content, without the files that failed their checksum.
    pub scan: Scan,
    /// Whether that is complete.
    pub inspection: Inspection,
    /// If the dataset is complete, applications are to restart from it.
    pub make_current: bool,
}
