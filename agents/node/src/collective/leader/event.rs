//! What the leader's machine is given: messages of members, links that come and go, results of file work, time.

use holdfast_core::prefix::fetch::Candidate;
use holdfast_core::prefix::{DirectoryName, Summary};
use holdfast_model::{CheckpointId, Dataset, Failure, HaltState, Locations, NodeName};
use holdfast_wire::peer::ToLeader;

/// Something that happened. Each is handled at once; what follows from it is in the actions that are returned.
#[derive(Clone, Debug)]
pub enum LeaderEvent {
    /// A member can be reached (again) by a link of this number.
    LinkUp {
        /// The member.
        node: NodeName,
        /// Chosen by the driver, larger than those of earlier links.
        link: u64,
    },
    /// That link broke; if the member has a newer one already, nothing follows.
    LinkDown {
        /// The member.
        node: NodeName,
        /// The link's number.
        link: u64,
    },
    /// A node without ranks is down for good: nothing is ordered there any more, and what was is not waited for.
    NodeDown {
        /// The node.
        node: NodeName,
    },
    /// A member sent calls of its ranks, or the result of an order.
    Received {
        /// The member.
        node: NodeName,
        /// What it sent.
        message: ToLeader,
    },
    /// File work that was asked for is done, or could not be.
    WorkFinished {
        /// As in [`LeaderAction::Perform`](super::LeaderAction::Perform).
        id: u64,
        /// Its result.
        result: WorkResult,
    },
    /// The time of [`LeaderMachine::deadline`](super::LeaderMachine::deadline) has come.
    Tick,
}

/// What file work returned.
pub type WorkResult = Result<WorkOutput, Failure>;

/// What file work that succeeded returned; [`LeaderWork`](super::LeaderWork) has which belongs to which.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkOutput {
    /// No more than that.
    Done,
    /// The halt file's content, and the condition that holds.
    Halt(HaltState),
    /// Ids, ascending.
    Datasets(Vec<CheckpointId>),
    /// Where a dataset is; nowhere, if nothing is known of it.
    Locations(Locations),
    /// A directory below the prefix.
    Directory(DirectoryName),
    /// Whether the index lists the directory as usable.
    Usable(bool),
    /// The record of a dataset; `None` is a plain checkpoint.
    Dataset(Option<Dataset>),
    /// A dataset that the index lists.
    Found(Option<(CheckpointId, DirectoryName)>),
    /// What a restart may take from the prefix directory, in the order of the attempts.
    Candidates(Vec<Candidate>),
    /// A summary.
    Summary(Box<Summary>),
}

impl WorkOutput {
    /// The kind's name, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            WorkOutput::Done => "Done",
            WorkOutput::Halt(_) => "Halt",
            WorkOutput::Datasets(_) => "Datasets",
            WorkOutput::Locations(_) => "Locations",
            WorkOutput::Directory(_) => "Directory",
            WorkOutput::Usable(_) => "Usable",
            WorkOutput::Dataset(_) => "Dataset",
            WorkOutput::Found(_) => "Found",
            WorkOutput::Candidates(_) => "Candidates",
            WorkOutput::Summary(_) => "Summary",
        }
    }
}
