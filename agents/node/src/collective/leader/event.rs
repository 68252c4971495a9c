//! The events of the leader's machine: messages of members, links, results of file work, time.

use holdfast_core::prefix::Summary;
use holdfast_core::prefix::fetch::RestartCandidate;
use holdfast_core::prefix::unfinished::UnfinishedFlush;
use holdfast_core::prefix::window::LeftOut;
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, ContainerPlaces, Dataset, Failure, HaltState, Locations, NodeName, Unplaced};
use holdfast_wire::peer::ToLeader;

#[derive(Clone, Debug)]
pub enum LeaderEvent {
    /// A member can be reached (again) by a link of this number.
    LinkUp {
        node: NodeName,
        /// Chosen by the driver, larger than those of earlier links.
        link: u64,
    },
    /// That link broke. Ignored if the member has a newer one.
    LinkDown { node: NodeName, link: u64 },
    /// A node without ranks is down for the rest of the run: it gets no more orders, and its results are not waited
    /// for.
    NodeDown { node: NodeName },
    /// A member sent calls of its ranks, or the result of an order.
    Received { node: NodeName, message: ToLeader },
    /// Requested file work is done, or has failed.
    WorkFinished {
        /// As in [`LeaderAction::Perform`](super::LeaderAction::Perform).
        id: u64,
        result: WorkResult,
    },
    /// A halt condition was set or removed on the leader's node.
    HaltChanged,
    /// A checkpoint with a larger id is requested.
    CheckpointRequested { after: CheckpointId },
    /// [`LeaderMachine::deadline`](super::LeaderMachine::deadline) has passed.
    Tick,
}

pub type WorkResult = Result<WorkOutput, Failure>;

/// The output of file work; [`LeaderWork`](super::LeaderWork) documents which work returns which.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkOutput {
    Done,
    /// The halt file's content, and the condition that is met.
    Halt(HaltState),
    /// Ids, ascending.
    Datasets(Vec<CheckpointId>),
    /// Where a dataset is; nowhere, if it is unknown.
    Locations(Locations),
    Directory(DirectoryName),
    /// Where to write, or why no container can be created: the files are then copied as they are.
    Container(Result<ContainerPlaces, String>),
    /// Whether the index lists the directory as usable.
    Usable(bool),
    /// The record of a dataset; `None` is a plain checkpoint.
    Dataset(Option<Dataset>),
    /// A dataset that the index lists.
    Found(Option<(CheckpointId, DirectoryName)>),
    /// What a restart may fetch from the prefix directory, in the order of the attempts.
    Candidates(Vec<RestartCandidate>),
    Summary(Box<Summary>),
    /// Whether a container holds the files of a dataset.
    Packed(bool),
    /// Flushes that did not end, newest first.
    UnfinishedFlushes(Vec<UnfinishedFlush>),
    /// A dataset that is to be verified, with what was recorded of its files.
    Unverified(Option<(DirectoryName, Box<Summary>)>),
    /// The datasets that the window leaves out.
    LeftOut(Vec<LeftOut>),
    /// The files of a published dataset that are not at their paths.
    Published(Option<Unplaced>),
    /// Whether the directory was removed.
    Removed(bool),
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
            WorkOutput::Container(_) => "Container",
            WorkOutput::Usable(_) => "Usable",
            WorkOutput::Dataset(_) => "Dataset",
            WorkOutput::Found(_) => "Found",
            WorkOutput::Candidates(_) => "Candidates",
            WorkOutput::Summary(_) => "Summary",
            WorkOutput::Packed(_) => "Packed",
            WorkOutput::UnfinishedFlushes(_) => "UnfinishedFlushes",
            WorkOutput::Unverified(_) => "Unverified",
            WorkOutput::LeftOut(_) => "LeftOut",
            WorkOutput::Published(_) => "Published",
            WorkOutput::Removed(_) => "Removed",
        }
    }
}
