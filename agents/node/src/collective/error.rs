//! Why a call of the checkpoint API failed, and how that is reported to the rank.

use std::path::PathBuf;

use holdfast_core::control::ControlError;
use holdfast_core::durable::DurableError;
use holdfast_core::prefix::summary::FetchRefusal;
use holdfast_core::store::{DirectoryName, PrefixError};
use holdfast_formats::sion::SionError;
use holdfast_model::dataset::DatasetNameError;
use holdfast_model::{CheckpointId, Failure, FailureKind, Generation, Level, Rank, Scheme};
use holdfast_wire::frame::FrameError;
use tokio::task::JoinError;

use crate::directories::claim::ClaimError;
use crate::directories::paths::PathError;
use crate::sources::files::FileError;
use crate::store::StoreError;

pub type Result<T, E = CallError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    #[error(transparent)]
    Order(#[from] Failure),
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    #[error(transparent)]
    Durable(#[from] DurableError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Halt(#[from] ControlError),
    #[error(transparent)]
    Path(#[from] PathError),
    /// The directory of a rank process.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A dataset on the prefix directory cannot be read by this run.
    #[error(transparent)]
    Refused(#[from] FetchRefusal),
    /// A checkpoint does not fit the job. It is not damaged.
    #[error("{place} has the files of {written} ranks, and this run has {running}: it is kept as it is; {remedy}")]
    OtherSize { place: String, written: u32, running: u32, remedy: &'static str },
    /// What all datasets in the prefix directory share cannot be used, for example the index.
    #[error("the prefix directory cannot be used for a restart: {0}")]
    PrefixUnusable(Failure),
    /// The requested dataset on the prefix directory is not complete.
    #[error("{0} is not complete")]
    Incomplete(DirectoryName),
    #[error(transparent)]
    Container(#[from] SionError),
    #[error("the container of the dataset is not being written")]
    NoContainer,
    #[error("no redundancy descriptor is due for checkpoint {0}")]
    NoDescriptor(CheckpointId),
    #[error("no redundancy descriptor with the scheme {scheme} of level {level} is in force")]
    NoDescriptorOfLevel { level: Level, scheme: Scheme },
    #[error("{call} without {before}")]
    OutOfOrder { call: &'static str, before: &'static str },
    #[error("dataset {0} is being written")]
    DatasetOpen(CheckpointId),
    #[error("the name {name:?}: {problem}")]
    DatasetName { name: String, problem: DatasetNameError },
    #[error("neither SCR_FLAG_CHECKPOINT nor SCR_FLAG_OUTPUT is given")]
    NoPurpose,
    #[error("{0} is output, not a checkpoint: no run can have restarted from it")]
    NotACheckpoint(DirectoryName),
    #[error("the index of {} lists no dataset {name:?}", prefix.display())]
    UnknownDataset { prefix: PathBuf, name: String },
    /// A dataset that is to be flushed is not in cache, or not any more.
    #[error("dataset {checkpoint} is not in cache: there are no files of {}", named(ranks))]
    NotInCache { checkpoint: CheckpointId, ranks: Vec<Rank> },
    #[error("{} could not write their files", named(.0))]
    NotWritten(Vec<Rank>),
    /// A rank process reported why.
    #[error("rank {rank}: {reason}")]
    ProgramFailed { rank: Rank, reason: String },
    #[error("the programs of all ranks have ended")]
    ProgramsEnded,
    #[error("the program of rank {0} ended with exit code 0 after SIGTERM: it is not finished")]
    Terminated(Rank),
    #[error(transparent)]
    File(#[from] FileError),
    /// Ranks made different calls at the same place in their order.
    #[error("rank {first} called {one} while rank {second} called {other}")]
    DifferentCalls { first: Rank, one: &'static str, second: Rank, other: &'static str },
    #[error("rank {0} gave another name or other flags than the ranks before it")]
    DifferentDatasets(Rank),
    #[error("rank {0} gave another level than the ranks before it")]
    DifferentLevels(Rank),
    #[error("rank {0} gave another checkpoint id than the ranks before it")]
    DifferentIds(Rank),
    #[error("{0} is not collective")]
    NotCollective(&'static str),
    /// A process of a rank joined after the application called finalize in another one.
    #[error("the application has called finalize: the run is finished")]
    Finalized,
    /// A process of a rank joined after another one of the same rank had made further calls.
    #[error("rank {0} has used its checkpoints in a process that has ended: another process cannot continue its run")]
    JoinedLate(Rank),
    /// Ranks have results that this leader does not know: they could not be saved, and its agent was restarted.
    #[error("the results of an earlier call could not be saved before the leader's agent ended: the run cannot go on")]
    ResultsLost,
    #[error("generation {0} is over")]
    GenerationOver(Generation),
    /// All ranks together gave more than can be sent to each of them.
    #[error("allgather: the ranks gave more than {limit} bytes together")]
    GatheredTooLarge { limit: usize },
    #[error(transparent)]
    Unsendable(#[from] FrameError),
    #[error("no run was prepared")]
    NoRun,
    /// A file was routed with nothing to write to or to read from.
    #[error("there is no checkpoint to read from")]
    NothingToRead,
    /// The leader's own state could not be put on disk.
    #[error("the leader's state could not be recorded in {}: {source}", directory.display())]
    NotSaved { directory: PathBuf, source: std::io::Error },
    /// File work of the leader returned another kind of result.
    #[error("file work of the leader returned {found}, expected is {expected}")]
    WrongOutput { expected: &'static str, found: &'static str },
    #[error("the agent failed: {0}")]
    Crashed(#[from] JoinError),
}

impl CallError {
    /// A directory below the prefix has the files of another number of ranks.
    pub(super) fn other_size(directory: &DirectoryName, written: u32, running: u32) -> Self {
        let remedy = "run with as many ranks, with `checkpoint: {restart: {ranks: any}}` if the program can read it, \
                      or with `--from-beginning` or `--checkpoint NAME`";
        CallError::OtherSize { place: directory.to_string(), written, running, remedy }
    }

    fn kind(&self) -> FailureKind {
        match self {
            CallError::Order(failure) | CallError::PrefixUnusable(failure) => failure.kind,
            CallError::Prefix(_)
            | CallError::Durable(_)
            | CallError::Store(_)
            | CallError::Halt(_)
            | CallError::Claim(_)
            | CallError::NotSaved { .. }
            | CallError::Container(_)
            | CallError::NoContainer
            | CallError::ResultsLost
            | CallError::File(
                FileError::Store(_)
                | FileError::Record { .. }
                | FileError::OutputDirectory { .. }
                | FileError::Unlisted(_),
            ) => FailureKind::Io,
            CallError::Refused(_) | CallError::Incomplete(_) => FailureKind::Damaged,
            CallError::UnknownDataset { .. }
            | CallError::NotInCache { .. }
            | CallError::File(FileError::Unreadable { .. })
            | CallError::NothingToRead => FailureKind::NotFound,
            CallError::OtherSize { .. }
            | CallError::Path(_)
            | CallError::NoDescriptor(_)
            | CallError::NoDescriptorOfLevel { .. }
            | CallError::OutOfOrder { .. }
            | CallError::DatasetOpen(_)
            | CallError::DatasetName { .. }
            | CallError::NoPurpose
            | CallError::NotACheckpoint(_)
            | CallError::NotWritten(_)
            | CallError::ProgramFailed { .. }
            | CallError::ProgramsEnded
            | CallError::Terminated(_)
            | CallError::File(
                FileError::Shared { .. }
                | FileError::Name { .. }
                | FileError::LongPath { .. }
                | FileError::OutputPath { .. }
                | FileError::Taken(_),
            )
            | CallError::DifferentCalls { .. }
            | CallError::DifferentDatasets(_)
            | CallError::DifferentLevels(_)
            | CallError::DifferentIds(_)
            | CallError::NotCollective(_)
            | CallError::JoinedLate(_)
            | CallError::GatheredTooLarge { .. }
            | CallError::Unsendable(FrameError::TooLarge { .. })
            | CallError::File(FileError::OtherLibrary | FileError::NoSource)
            | CallError::NoRun => FailureKind::InvalidRequest,
            CallError::GenerationOver(_) => FailureKind::Superseded,
            CallError::Finalized => FailureKind::Duplicate,
            CallError::Unsendable(_) | CallError::Crashed(_) | CallError::WrongOutput { .. } => FailureKind::Internal,
        }
    }

    fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            CallError::NoDescriptor(_) => "add a redundancy descriptor with `every: 1`",
            CallError::NoDescriptorOfLevel { .. } => "set `source: variables`, and `enabled: true` in this descriptor",
            CallError::DatasetOpen(_) => "complete it first",
            CallError::NoPurpose => "give at least one: they define the purpose of the dataset",
            CallError::UnknownDataset { .. } => "`holdfast index` lists them",
            CallError::File(FileError::Shared { .. }) => {
                "for a file that ranks share set SCR_CACHE_BYPASS=1 (`run.env` of the spec, or SCR_Config before \
                 SCR_Init); otherwise put the rank into its name (the directories of a name do not count)"
            }
            CallError::File(FileError::OutputPath { .. }) => {
                "name a file below the prefix directory, relative to it or with its absolute path"
            }
            CallError::File(FileError::Name { .. }) => "route the file under another name",
            CallError::File(FileError::LongPath { .. }) => {
                "use a shorter name, or shorter paths of the prefix and cache directories"
            }
            CallError::DifferentIds(_) => "all ranks must pass the same id to checkpoint",
            CallError::DifferentCalls { .. } | CallError::DifferentDatasets(_) | CallError::DifferentLevels(_) => {
                "all ranks must make the same calls in the same order"
            }
            CallError::GatheredTooLarge { .. } => {
                "allgather is for small data such as addresses and sums: give less per rank, or send \
                 bulk data between the ranks"
            }
            CallError::Unsendable(FrameError::TooLarge { .. }) => "use fewer files a rank, or fewer ranks a node",
            CallError::JoinedLate(_) => {
                "when the program of a rank fails, end with an exit code other than 0: all ranks are launched again"
            }
            CallError::NoRun => "start the program with `holdfast run`",
            CallError::NothingToRead => "route files after start_checkpoint",
            CallError::NotSaved { .. } | CallError::ResultsLost | CallError::File(FileError::Record { .. }) => {
                "check whether its file system is full or read-only"
            }
            _ => return None,
        })
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        let mut failure = match error {
            CallError::Order(failure) => return failure,
            ref error => Failure::new(error.kind(), error.to_string()),
        };
        failure.remedy = error.remedy().map(str::to_owned);
        match error {
            CallError::File(FileError::Unreadable { rank, path, .. }) => failure.of_rank(rank).at(path),
            CallError::DifferentDatasets(rank)
            | CallError::DifferentLevels(rank)
            | CallError::DifferentIds(rank)
            | CallError::JoinedLate(rank) => failure.of_rank(rank),
            CallError::NoDescriptor(checkpoint) | CallError::DatasetOpen(checkpoint) => {
                failure.of_checkpoint(checkpoint)
            }
            CallError::UnknownDataset { prefix, .. } => failure.at(prefix),
            CallError::Store(error) | CallError::File(FileError::Store(error)) => error.locate(failure),
            _ => failure,
        }
    }
}

/// `rank 3`, `ranks 3, 4`.
pub(super) fn named(ranks: &[Rank]) -> String {
    let list: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    let more = if ranks.len() > 8 { format!(" and {} more", ranks.len() - 8) } else { String::new() };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_kind_subject_and_remedy() {
        let error = CallError::from(FileError::Shared { name: "all".to_owned(), first: Rank(0), second: Rank(3) });
        let failure = Failure::from(error);
        assert_eq!((failure.kind, failure.retryable), (FailureKind::InvalidRequest, false));
        assert!(failure.message.contains("ranks 0 and 3 both write a file all"), "{failure}");
        assert!(failure.remedy.unwrap().contains("SCR_CACHE_BYPASS=1"));
        let failure = Failure::from(CallError::from(StoreError::NoSlot(Rank(5))));
        assert_eq!(failure.subject.rank, Some(Rank(5)));
    }

    #[test]
    fn the_failure_of_another_agent_reaches_the_rank_unchanged() {
        let failure = Failure::new(FailureKind::Io, "no space left").on_node(&"n1".into()).at("/cache/a");
        assert_eq!(Failure::from(CallError::from(failure.clone())), failure);
    }
}
