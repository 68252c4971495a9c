//! Why an order was not carried out, and how that is reported to the leader.

use std::io;
use std::path::PathBuf;

use holdfast_core::control::content::ContentMismatch;
use holdfast_core::control::{ContentError, ControlError};
use holdfast_core::durable::{self, DurableError};
use holdfast_core::kvtree::file::HashFormatError;
use holdfast_core::prefix::application_name::ApplicationNameError;
use holdfast_core::redundancy::RedundancyError;
use holdfast_core::redundancy::descriptor::DescriptorError;
use holdfast_model::{CheckpointId, Failure, FailureKind, Rank, Scheme};
use holdfast_wire::frame::FrameError;

use crate::copy::CopyFault;
use crate::directories::paths::PathError;
use crate::prefix::job_prefixes::DatasetAccessError;
use crate::store::StoreError;
use crate::stream::StreamError;

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A connection to a peer broke, or carried unexpected data.
    #[error("a peer was lost: {0}")]
    Frame(FrameError),
    /// A message to a peer, or to the leader, that cannot be sent.
    #[error(transparent)]
    Unsendable(FrameError),
    #[error(transparent)]
    Redundancy(#[from] RedundancyError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Durable(#[from] DurableError),
    #[error(transparent)]
    Halt(ControlError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Dataset(#[from] DatasetAccessError),
    #[error(transparent)]
    Copy(#[from] CopyFault),
    #[error("cannot {doing} {}: {source}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("rank {rank}: {source}")]
    Descriptor { rank: Rank, source: DescriptorError },
    /// A directory, a link, a pipe, a socket or a device in place of a file.
    #[error("{} is {found}, not a regular file", path.display())]
    NotRegular { rank: Rank, path: PathBuf, found: &'static str },
    #[error("the application routed but did not write the file {}: {source}", path.display())]
    NotWritten { rank: Rank, path: PathBuf, source: io::Error },
    /// A file in the prefix directory that a restart is to read.
    #[error("cannot read {}: {source}", path.display())]
    Missing { rank: Rank, path: PathBuf, source: io::Error },
    /// A summary names a file that no checkpoint can contain.
    #[error("the file {name:?} in the summary cannot be fetched: {problem}")]
    Name { name: String, problem: ApplicationNameError },
    /// A file in this node's cache that was to be sent to another node, or sealed again.
    #[error("{} of rank {rank} {mismatch}; it is not used", path.display())]
    Damaged { rank: Rank, path: PathBuf, mismatch: ContentMismatch },
    /// The receiver of a rank's files did not acknowledge them.
    #[error("the receiver could not keep the files of rank {0}")]
    NotReceived(Rank),
    #[error("the container has no room for the files of rank {0}")]
    NoPlace(Rank),
    /// A peer sent data of another rank than expected.
    #[error("a peer sent data of rank {found}, expected is rank {expected}")]
    OtherRank { expected: Rank, found: Rank },
    /// A peer sent data of another checkpoint than expected.
    #[error("a peer sent data of checkpoint {found}, expected is checkpoint {expected}")]
    OtherCheckpoint { expected: CheckpointId, found: CheckpointId },
    #[error("a peer sent {what} that cannot be decoded: {source}")]
    Undecodable { what: &'static str, source: HashFormatError },
    #[error("a peer sent {what} that cannot be used: {source}")]
    Content { what: &'static str, source: ContentError },
    /// A redundancy group without a member that the order names.
    #[error("redundancy group {group_id} has no member {member}")]
    NoSuchMember { group_id: u32, member: u32 },
    #[error("the redundancy scheme {0} is not known to this agent")]
    UnknownScheme(Scheme),
    /// A dataset that bypasses the cache and was not opened on this agent.
    #[error("dataset {0} was not opened here")]
    NotOpen(CheckpointId),
    /// A dataset of which this node does not hold all files of a rank.
    #[error(
        "the files of rank {rank} of checkpoint {checkpoint} are not all on this node: it was deleted, or never \
         complete"
    )]
    NotHeld { checkpoint: CheckpointId, rank: Rank },
    /// The system refused a thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl From<FrameError> for OrderError {
    fn from(error: FrameError) -> OrderError {
        match error {
            FrameError::TooLarge { .. } => OrderError::Unsendable(error),
            error => OrderError::Frame(error),
        }
    }
}

impl OrderError {
    /// The same of a file that an earlier run has written, not the running application.
    pub(super) fn of_earlier_run(self) -> OrderError {
        match self {
            OrderError::NotWritten { rank, path, source } => OrderError::Missing { rank, path, source },
            error => error,
        }
    }

    /// Adds to an error of the file system what was being done, and to which file.
    pub(super) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> OrderError {
        let path = path.into();
        move |source| OrderError::File { doing, path, source }
    }

    /// An error of the connection to a peer.
    pub(super) fn connection(source: io::Error) -> OrderError {
        OrderError::Frame(source.into())
    }

    /// It may follow from what failed elsewhere.
    pub(super) fn is_of_peer(&self) -> bool {
        match self {
            OrderError::Redundancy(RedundancyError::Node(failure)) => failure.kind == FailureKind::LostPeer,
            error => error.kind() == FailureKind::LostPeer,
        }
    }

    fn kind(&self) -> FailureKind {
        match self {
            // A wrong certificate, or a node without an address: a retry changes nothing.
            OrderError::Stream(StreamError::Trust(_) | StreamError::UnknownNode(_)) => FailureKind::Internal,
            // The member that failed first reports the cause; this one was only cancelled, and takes part in the retry.
            OrderError::Stream(_) | OrderError::Frame(_) | OrderError::Copy(CopyFault::Peer(_)) => {
                FailureKind::LostPeer
            }
            OrderError::Copy(CopyFault::Cancelled) => FailureKind::Cancelled,
            OrderError::Copy(
                CopyFault::Mismatch { .. } | CopyFault::DiffersFromOriginal { .. } | CopyFault::Unusable(_),
            )
            | OrderError::Damaged { .. } => FailureKind::Damaged,
            OrderError::Copy(CopyFault::Name(_)) => FailureKind::InvalidRequest,
            OrderError::Redundancy(error) if error.is_lost_link() => FailureKind::LostPeer,
            // Not the files of the member: this node cannot write its part, or read any.
            OrderError::Redundancy(error) if error.prevents_writing() => FailureKind::Io,
            OrderError::Control(error) if !error.prevents_writing() => FailureKind::Damaged,
            OrderError::Dataset(error) if error.prevents_writing() => FailureKind::Io,
            // A limit of this node.
            OrderError::Thread(_)
            | OrderError::Redundancy(RedundancyError::Thread(_) | RedundancyError::Io { .. })
            | OrderError::Store(_)
            | OrderError::Control(_)
            | OrderError::Durable(_)
            | OrderError::Halt(_)
            | OrderError::Copy(_)
            | OrderError::File { .. }
            | OrderError::NoPlace(_)
            | OrderError::NotReceived(_) => FailureKind::Io,
            OrderError::NotWritten { .. }
            | OrderError::Missing { .. }
            | OrderError::NotOpen(_)
            | OrderError::NotHeld { .. } => FailureKind::NotFound,
            OrderError::Unsendable(_)
            | OrderError::Path(_)
            | OrderError::NotRegular { .. }
            | OrderError::Dataset(_)
            | OrderError::NoSuchMember { .. }
            | OrderError::UnknownScheme(_) => FailureKind::InvalidRequest,
            OrderError::Redundancy(_)
            | OrderError::Descriptor { .. }
            | OrderError::Name { .. }
            | OrderError::OtherRank { .. }
            | OrderError::OtherCheckpoint { .. }
            | OrderError::Undecodable { .. }
            | OrderError::Content { .. } => FailureKind::Damaged,
        }
    }

    fn remedy(&self) -> Option<&'static str> {
        match self {
            OrderError::File { source, .. } | OrderError::Copy(CopyFault::Write { source, .. })
                if source.kind() == io::ErrorKind::StorageFull =>
            {
                Some("free some space on this file system")
            }
            OrderError::File { source, .. } | OrderError::Copy(CopyFault::Write { source, .. })
                if source.kind() == io::ErrorKind::FileTooLarge =>
            {
                Some(durable::remedy(source))
            }
            OrderError::Thread(_) => Some("raise the limit of processes (`ulimit -u`, the cgroup's `pids.max`)"),
            OrderError::NotWritten { .. } => Some("write every routed file before complete_checkpoint"),
            OrderError::NotRegular { .. } => Some("write a regular file to each routed path"),
            _ => None,
        }
    }
}

impl From<OrderError> for Failure {
    fn from(error: OrderError) -> Failure {
        let error = match error {
            // What failed on this node, passed on by the scheme.
            OrderError::Redundancy(RedundancyError::Node(failure)) => return *failure,
            error => error,
        };
        let mut failure = Failure::new(error.kind(), error.to_string());
        failure.remedy = error.remedy().map(str::to_owned);
        // The order was cancelled because of another member; this one takes part in the retry.
        failure.retryable |= failure.kind == FailureKind::Cancelled;
        // Others may give back descriptors and memory in the pause before the next try.
        failure.retryable |= matches!(&error, OrderError::Store(error) if error.is_exhaustion());
        match error {
            OrderError::File { path, .. }
            | OrderError::Copy(
                CopyFault::Read { path, .. }
                | CopyFault::Write { path, .. }
                | CopyFault::Mismatch { path, .. }
                | CopyFault::DiffersFromOriginal { path, .. },
            ) => failure.at(path),
            OrderError::NotRegular { rank, path, .. }
            | OrderError::NotWritten { rank, path, .. }
            | OrderError::Missing { rank, path, .. } => failure.of_rank(rank).at(path),
            OrderError::Descriptor { rank, .. }
            | OrderError::NotReceived(rank)
            | OrderError::OtherRank { expected: rank, .. } => failure.of_rank(rank),
            OrderError::OtherCheckpoint { expected: checkpoint, .. } | OrderError::NotOpen(checkpoint) => {
                failure.of_checkpoint(checkpoint)
            }
            OrderError::NotHeld { checkpoint, rank } => failure.of_checkpoint(checkpoint).of_rank(rank),
            OrderError::Store(error) => error.locate(failure),
            OrderError::Damaged { rank, path, .. }
            | OrderError::Redundancy(RedundancyError::MemberDamaged { rank, path, .. }) => {
                failure.of_rank(rank).at(path)
            }
            _ => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_names_the_file_and_a_remedy_and_is_not_retried() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let failure = Failure::from(OrderError::file("write", "/cache/rank_1.ckpt")(full));
        assert_eq!((failure.kind, failure.retryable), (FailureKind::Io, false));
        assert_eq!(failure.subject.file, Some("/cache/rank_1.ckpt".into()));
        assert!(failure.remedy.unwrap().contains("free some space"));
    }

    #[test]
    fn a_file_that_is_too_large_names_the_limit() {
        let source = io::Error::from(io::ErrorKind::FileTooLarge);
        let failure = Failure::from(OrderError::Copy(CopyFault::Write { path: "/pfs/ckpt.sion".into(), source }));
        assert!(failure.to_string().contains("`ulimit -f`"), "{failure}");
    }

    #[test]
    fn a_meta_file_that_cannot_be_written_is_not_damage() {
        let (action, path) = ("write", "/cache/rank_1.ckpt.scr".into());
        let full = DurableError::Io { action, path, source: io::Error::from(io::ErrorKind::StorageFull) };
        let failure = Failure::from(OrderError::from(RedundancyError::from(full)));
        assert_eq!(failure.kind, FailureKind::Io);
    }

    #[test]
    fn a_lost_peer_is_retryable() {
        let lost = OrderError::connection(io::ErrorKind::ConnectionReset.into());
        assert!(Failure::from(lost).retryable);
    }

    #[test]
    fn exhausted_descriptors_are_a_fault_of_the_node_and_retryable() {
        let exhausted = || io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        let list = StoreError::List { path: "/control".into(), source: exhausted() };
        let describe = StoreError::Describe { directory: "/control".into(), source: exhausted() };
        for error in [list, describe] {
            let failure = Failure::from(OrderError::from(error));
            assert_eq!((failure.kind, failure.retryable), (FailureKind::Io, true));
        }
        let full = StoreError::Describe { directory: "/control".into(), source: io::ErrorKind::StorageFull.into() };
        assert!(!Failure::from(OrderError::from(full)).retryable);
    }

    #[test]
    fn a_refused_thread_is_a_fault_of_the_node_with_a_remedy_and_not_retried() {
        let refused = || io::Error::from(io::ErrorKind::WouldBlock);
        for error in [OrderError::Thread(refused()), OrderError::Redundancy(RedundancyError::Thread(refused()))] {
            let failure = Failure::from(error);
            assert_eq!((failure.kind, failure.retryable), (FailureKind::Io, false));
            assert!(failure.to_string().contains("`ulimit -u`"), "{failure}");
        }
    }
}
