//! What the leader's machine has its driver do, and the file work among it.

use std::sync::Arc;

use holdfast_core::prefix::{DirectoryName, Summary};
use holdfast_model::{CheckpointId, Dataset, NodeName};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{Outcome, ToMember};

use super::memory::{LeaderMemory, UnfinishedFlushes};

/// One thing to do. Actions are performed in their order; file work may overlap with what follows it.
#[derive(Clone, Debug)]
pub enum LeaderAction {
    /// Send to a member over its newest link; dropped if there is none any more.
    Send {
        /// The member.
        node: NodeName,
        /// What.
        message: ToMember,
    },
    /// Send the results of a collective ([`ToMember::Results`]) to members: the same to all, so that it is not copied
    /// for each of them here.
    Answer {
        /// The members.
        nodes: Vec<NodeName>,
        /// The collective.
        seq: u64,
        /// What every rank gets.
        outcome: Arc<Outcome>,
    },
    /// Report an event.
    Emit(AgentEvent),
    /// Work on files; its result comes back as [`LeaderEvent::WorkFinished`](super::LeaderEvent::WorkFinished).
    Perform {
        /// Names it in the result.
        id: u64,
        /// What to do.
        work: LeaderWork,
    },
}

/// Work on files of the leader's node and of the prefix directory. Each can be repeated. The driver adds the time of
/// day and the job's id where they go into a name or a record.
#[derive(Clone, Debug)]
pub enum LeaderWork {
    /// Put what the leader must not forget on disk. Returns [`Done`](super::WorkOutput::Done).
    SaveMemory(Box<LeaderMemory>),
    /// Put the directories of unfinished flushes on disk. Returns [`Done`](super::WorkOutput::Done).
    SaveFlushes(UnfinishedFlushes),
    /// Read or change the halt file. Returns [`Halt`](super::WorkOutput::Halt).
    Halt(HaltWork),
    /// The datasets of which this node has anything in cache. Returns [`Datasets`](super::WorkOutput::Datasets).
    DatasetsHere {
        /// Only those below this cache base.
        base: Option<String>,
    },
    /// Where the flush file of this node has a dataset. Returns [`Locations`](super::WorkOutput::Locations).
    LocationsHere {
        /// The dataset.
        checkpoint: CheckpointId,
    },
    /// Make a directory below the prefix for a dataset. Returns [`Directory`](super::WorkOutput::Directory).
    MakeDirectory {
        /// The dataset.
        checkpoint: CheckpointId,
        /// The one that was made before; a new one is made only if it is gone.
        resume: Option<DirectoryName>,
    },
    /// Enter a directory into the index as not complete, before the first file is written into it. Returns
    /// [`Done`](super::WorkOutput::Done).
    EnterIndex {
        /// The dataset.
        checkpoint: CheckpointId,
        /// Its directory.
        directory: DirectoryName,
        /// What the application declared of it.
        dataset: Dataset,
    },
    /// Record what a directory holds: summary, index, link. Returns [`Done`](super::WorkOutput::Done).
    Publish {
        /// The directory.
        directory: DirectoryName,
        /// What it holds; `None` if it cannot be used.
        summary: Option<Box<Summary>>,
        /// Restarts are to take it.
        make_current: bool,
    },
    /// What the application declared of the dataset in a directory. Returns [`Dataset`](super::WorkOutput::Dataset).
    ReadDataset {
        /// The directory.
        directory: DirectoryName,
    },
    /// The newest dataset of this name in the index. Returns [`Found`](super::WorkOutput::Found).
    FindDataset {
        /// The application's name, SCR's default name, or the directory's.
        name: String,
    },
    /// Restarts are to take this directory. Returns [`Done`](super::WorkOutput::Done).
    MakeCurrent {
        /// The directory.
        directory: DirectoryName,
    },
    /// Take a directory out of the index; its files stay. Returns [`Done`](super::WorkOutput::Done).
    Withdraw {
        /// The directory.
        directory: DirectoryName,
    },
    /// Delete a directory below the prefix with all that is in it. Returns [`Done`](super::WorkOutput::Done).
    DeleteDirectory {
        /// The directory.
        directory: DirectoryName,
    },
    /// What a restart may take from the prefix directory. Returns [`Candidates`](super::WorkOutput::Candidates).
    Candidates,
    /// Whether the index lists this directory as complete and without a failure. Returns
    /// [`Usable`](super::WorkOutput::Usable).
    LookUp {
        /// The directory.
        directory: DirectoryName,
    },
    /// Read the summary in a directory. Returns [`Summary`](super::WorkOutput::Summary).
    ReadSummary {
        /// The directory.
        directory: DirectoryName,
    },
    /// Record how far a fetch came in the index and in the link. Returns [`Done`](super::WorkOutput::Done).
    MarkFetch {
        /// The directory.
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
            LeaderWork::Publish { .. } => "publish",
            LeaderWork::ReadDataset { .. } => "read_dataset",
            LeaderWork::FindDataset { .. } => "find_dataset",
            LeaderWork::MakeCurrent { .. } => "make_current",
            LeaderWork::Withdraw { .. } => "withdraw",
            LeaderWork::DeleteDirectory { .. } => "delete_directory",
            LeaderWork::Candidates => "candidates",
            LeaderWork::LookUp { .. } => "look_up",
            LeaderWork::ReadSummary { .. } => "read_summary",
            LeaderWork::MarkFetch { .. } => "mark_fetch",
        }
    }
}

/// What is done with the halt file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HaltWork {
    /// Read it.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchStage {
    /// It begins: recorded first, so that a run that dies in it leaves its trace.
    Begun,
    /// The directory could not be used.
    Failed,
    /// The run restarts from it.
    Succeeded,
}
