//! The actions of the leader's machine, and the file work among them.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_core::prefix::Summary;
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, ContainerRequest, Dataset, NodeName, PackedRank, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{Outcome, ToMember};

use super::memory::{LeaderMemory, UnfinishedFlushes};

/// One thing to do. Actions are performed in their order; file work may overlap with what follows it.
#[derive(Clone, Debug)]
pub enum LeaderAction {
    /// Send to a member over its newest link; dropped if there is none any more.
    Send { node: NodeName, message: ToMember },
    /// Send the results of a collective ([`ToMember::Results`]) to members: the same to all, so that it is not copied
    /// for each of them here.
    Answer { nodes: Vec<NodeName>, seq: u64, outcome: Arc<Outcome> },
    /// Report an event to the orchestrator.
    Emit(AgentEvent),
    /// Work on files; its result comes back as [`LeaderEvent::WorkFinished`](super::LeaderEvent::WorkFinished).
    Perform { id: u64, work: LeaderWork },
}

/// Work on files of the leader's node and of the prefix directory. Each can be repeated. The driver adds the time of
/// day and the job's id where they go into a name or a record.
#[derive(Clone, Debug)]
pub enum LeaderWork {
    /// Save the leader's memory. Returns [`Done`](super::WorkOutput::Done).
    SaveMemory(Box<LeaderMemory>),
    /// Save the directories of unfinished flushes. Returns [`Done`](super::WorkOutput::Done).
    SaveFlushes(UnfinishedFlushes),
    /// Read or change the halt file. Returns [`Halt`](super::WorkOutput::Halt).
    Halt(HaltWork),
    /// The datasets of which this node has anything in cache. Returns [`Datasets`](super::WorkOutput::Datasets).
    DatasetsHere {
        /// Only those below this cache base.
        base: Option<String>,
    },
    /// Where the flush file of this node has a dataset. Returns [`Locations`](super::WorkOutput::Locations).
    LocationsHere { checkpoint: CheckpointId },
    /// Make a directory below the prefix for a dataset. Returns [`Directory`](super::WorkOutput::Directory).
    MakeDirectory {
        checkpoint: CheckpointId,
        /// The application's name for the dataset.
        name: Option<String>,
        /// The one that was made before; a new one is made only if it was deleted.
        resume: Option<DirectoryName>,
    },
    /// Add a directory to the index as not complete, before the first file is written into it. Returns
    /// [`Done`](super::WorkOutput::Done).
    EnterIndex { checkpoint: CheckpointId, directory: DirectoryName, dataset: Dataset },
    /// Create a container in a directory. Returns [`Container`](super::WorkOutput::Container).
    CreateContainer { directory: DirectoryName, request: ContainerRequest },
    /// Complete the container with what the nodes wrote. Returns [`Done`](super::WorkOutput::Done).
    CommitContainer { directory: DirectoryName, packed: BTreeMap<Rank, PackedRank> },
    /// Record what a directory holds: summary, index, link. Returns [`Published`](super::WorkOutput::Published).
    Publish {
        directory: DirectoryName,
        /// What it holds; `None` if it cannot be used.
        summary: Option<Box<Summary>>,
        /// Restarts are to take it.
        make_current: bool,
    },
    /// The dataset of this id that the job wrote for its window and that is not yet verified. Returns
    /// [`Unverified`](super::WorkOutput::Unverified).
    Unverified { checkpoint: CheckpointId },
    /// Record that a dataset was verified, and delete those that the window leaves out. Returns
    /// [`LeftOut`](super::WorkOutput::LeftOut).
    KeepWindow {
        verified: DirectoryName,
        /// So many stay.
        keep: u32,
    },
    /// Record that the run restarted from the job's dataset of this id. Returns [`Done`](super::WorkOutput::Done).
    MarkRestarted { checkpoint: CheckpointId },
    /// What the application declared of the dataset in a directory. Returns [`Dataset`](super::WorkOutput::Dataset).
    ReadDataset { directory: DirectoryName },
    /// The newest dataset of this name in the index. Returns [`Found`](super::WorkOutput::Found).
    FindDataset {
        /// The application's name, SCR's default name, or the directory's.
        name: String,
    },
    /// Restarts are to take this directory, if they can use it. Returns [`Usable`](super::WorkOutput::Usable).
    MakeCurrent { directory: DirectoryName },
    /// Remove a directory from the index; its files stay. Returns [`Done`](super::WorkOutput::Done).
    Withdraw { directory: DirectoryName },
    /// The flushes of this job that did not end. Returns [`UnfinishedFlushes`](super::WorkOutput::UnfinishedFlushes).
    UnfinishedFlushes,
    /// End a flush that is not continued: remove its directory with its entry in the index, unless all files were
    /// copied. Returns [`Removed`](super::WorkOutput::Removed).
    AbandonFlush { directory: DirectoryName },
    /// Delete a directory below the prefix with all its files. Returns [`Done`](super::WorkOutput::Done).
    DeleteDirectory { directory: DirectoryName },
    /// What a restart may take from the prefix directory. Returns [`Candidates`](super::WorkOutput::Candidates).
    Candidates,
    /// Whether the index lists this directory as complete and without a failure. Returns
    /// [`Usable`](super::WorkOutput::Usable).
    LookUp { directory: DirectoryName },
    /// Read the summary in a directory. Returns [`Summary`](super::WorkOutput::Summary).
    ReadSummary { directory: DirectoryName },
    /// Whether a container holds the files in a directory. Returns [`Packed`](super::WorkOutput::Packed).
    IsPacked { directory: DirectoryName },
    /// Record how far a fetch came in the index and in the link. Returns [`Done`](super::WorkOutput::Done).
    MarkFetch {
        directory: DirectoryName,
        /// How far.
        stage: FetchStage,
    },
}

impl LeaderWork {
    /// True for the leader's own state files. Of several the last one counts: the driver keeps their order.
    pub fn is_save(&self) -> bool {
        matches!(self, LeaderWork::SaveMemory(_) | LeaderWork::SaveFlushes(_))
    }

    /// True if it only uses the directories of the leader's node, not the prefix directory.
    pub fn is_local(&self) -> bool {
        self.is_save()
            || matches!(self, LeaderWork::Halt(_) | LeaderWork::DatasetsHere { .. } | LeaderWork::LocationsHere { .. })
    }

    /// A stable name, for the log.
    pub fn name(&self) -> &'static str {
        match self {
            LeaderWork::SaveMemory(_) => "save_memory",
            LeaderWork::SaveFlushes(_) => "save_flushes",
            LeaderWork::Halt(_) => "halt",
            LeaderWork::DatasetsHere { .. } => "datasets_here",
            LeaderWork::LocationsHere { .. } => "locations_here",
            LeaderWork::MakeDirectory { .. } => "make_directory",
            LeaderWork::EnterIndex { .. } => "enter_index",
            LeaderWork::CreateContainer { .. } => "create_container",
            LeaderWork::CommitContainer { .. } => "commit_container",
            LeaderWork::Publish { .. } => "publish",
            LeaderWork::Unverified { .. } => "unverified",
            LeaderWork::KeepWindow { .. } => "keep_window",
            LeaderWork::MarkRestarted { .. } => "mark_restarted",
            LeaderWork::ReadDataset { .. } => "read_dataset",
            LeaderWork::FindDataset { .. } => "find_dataset",
            LeaderWork::MakeCurrent { .. } => "make_current",
            LeaderWork::Withdraw { .. } => "withdraw",
            LeaderWork::UnfinishedFlushes => "unfinished_flushes",
            LeaderWork::AbandonFlush { .. } => "abandon_flush",
            LeaderWork::DeleteDirectory { .. } => "delete_directory",
            LeaderWork::Candidates => "candidates",
            LeaderWork::LookUp { .. } => "look_up",
            LeaderWork::ReadSummary { .. } => "read_summary",
            LeaderWork::IsPacked { .. } => "is_packed",
            LeaderWork::MarkFetch { .. } => "mark_fetch",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HaltWork {
    Read,
    /// A run begins: set HaltSeconds, unless the file has it or this is 0.
    Begin {
        /// SCR_HALT_SECONDS.
        seconds: u64,
    },
    /// Count a complete checkpoint.
    CountCheckpoint,
    /// Record why the job ends.
    SetReason(String),
}

/// How far a fetch came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchStage {
    /// Recorded before the first file is read, so that a run that dies meanwhile leaves a trace.
    Begun,
    /// The data in the directory is damaged.
    Failed { reason: String },
    /// The run restarts from it.
    Succeeded,
}
