//! What a drain wants done.

use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_core::prefix::DirectoryName;
use holdfast_core::prefix::inspect::{Inspection, SetRebuild};
use holdfast_core::prefix::scan::Scan;
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_model::{CheckpointId, NodeName};

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

/// Something to do, to be begun at once and in this order.
///
/// Every action with a `request` ends as [`Answered`](super::DrainEvent::Answered) or
/// [`Failed`](super::DrainEvent::Failed) with that number, unless it is cancelled. No more of them are under way at a
/// time than [`DrainConfig::requests_at_once`](super::DrainConfig::requests_at_once).
#[derive(Clone, Debug)]
pub enum DrainAction {
    /// Ask an agent what its node holds. Ends as [`Answer::Inventory`](super::Answer::Inventory).
    TakeInventory { request: RequestId, agent: AgentAt },
    /// Find the directory that an earlier drain of the dataset left incomplete, or create one, and note durably that
    /// this drain writes to it. Ends as [`Answer::DirectoryOpened`](super::Answer::DirectoryOpened); if it fails, so does the
    /// drain.
    OpenDirectory { request: RequestId, checkpoint: CheckpointId },
    /// Have an agent copy files of the dataset to the directory. Ends as [`Answer::Copied`](super::Answer::Copied).
    Copy {
        request: RequestId,
        agent: AgentAt,
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: DirectoryName,
        order: CopyOrder,
    },
    /// Read what is in the directory. Ends as [`Answer::Scanned`](super::Answer::Scanned); if it fails, so does the
    /// drain.
    Scan {
        request: RequestId,
        /// The directory's name below the prefix.
        directory: DirectoryName,
    },
    /// Compare files with their checksums. Ends as [`Answer::Verified`](super::Answer::Verified). What fails at an
    /// agent is done by the orchestrator; if that fails, so does the drain.
    Verify {
        request: RequestId,
        /// The agent; the orchestrator itself if `None`.
        agent: Option<AgentAt>,
        /// The directory's name below the prefix.
        directory: DirectoryName,
        files: Arc<[VerifyUnit]>,
    },
    /// Compute the missing members of a redundancy set. Ends as [`Answer::Rebuilt`](super::Answer::Rebuilt). What fails
    /// at an agent is done by the orchestrator; if that fails, the dataset is incomplete.
    Rebuild {
        request: RequestId,
        /// The agent; the orchestrator itself if `None`.
        agent: Option<AgentAt>,
        checkpoint: CheckpointId,
        /// The directory's name below the prefix.
        directory: DirectoryName,
        set: SetRebuild,
    },
    /// Write the summary, the index entry and, for a complete dataset that restarts are to take, the link. Ends as
    /// [`Answer::Published`](super::Answer::Published); if it fails, so does the drain.
    Publish { request: RequestId, findings: Box<Findings> },
    /// Remove the note of [`OpenDirectory`](Self::OpenDirectory): the dataset is complete. Ends as
    /// [`Answer::DirectoryClosed`](super::Answer::DirectoryClosed); if it fails, so does the drain.
    CloseDirectory { request: RequestId },
    /// Have an agent record in its flush file that the dataset is on the prefix directory. Ends as
    /// [`Answer::FlushNoted`](super::Answer::FlushNoted). If it fails, a later drain may copy the
    /// dataset again.
    NoteFlushed { request: RequestId, agent: AgentAt, checkpoint: CheckpointId },
    /// The answer to this request is not waited for any more.
    Cancel { request: RequestId },
    /// Log and show an event.
    Emit(LogEvent),
    /// The drain is over. The last action; exactly once.
    Finish(Box<DrainEnd>),
}

impl DrainAction {
    /// The request, for actions that are answered.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            DrainAction::TakeInventory { request, .. }
            | DrainAction::OpenDirectory { request, .. }
            | DrainAction::Copy { request, .. }
            | DrainAction::Scan { request, .. }
            | DrainAction::Verify { request, .. }
            | DrainAction::Rebuild { request, .. }
            | DrainAction::Publish { request, .. }
            | DrainAction::CloseDirectory { request }
            | DrainAction::NoteFlushed { request, .. } => Some(*request),
            DrainAction::Cancel { .. } | DrainAction::Emit(_) | DrainAction::Finish(_) => None,
        }
    }
}

/// What a directory holds after the copies, checks and rebuilds.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The directory's name below the prefix.
    pub directory: DirectoryName,
    /// The content, without the files that failed their checksum.
    pub scan: Scan,
    /// Whether that is complete.
    pub inspection: Inspection,
    /// Restarts are to take the dataset, if it is complete.
    pub make_current: bool,
}
