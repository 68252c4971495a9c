//! Why files were not copied.

use std::io;
use std::path::PathBuf;

use holdfast_core::control::ControlError;
use holdfast_core::control::content::ContentMismatch;
use holdfast_core::control::meta::UnusableFile;
use holdfast_core::control::node_path::UnsafePath;
use holdfast_core::durable::DurableError;
use holdfast_core::kvtree::file::HashFileError;
use holdfast_core::prefix::PrefixError;
use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::redundancy::RedundancyError;

/// Why one file was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyFault {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The copy cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The copy.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The copy cannot be put in place.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The connection to the other node broke.
    #[error("the connection to the peer broke: {0}")]
    Peer(io::Error),
    /// The file is not what is recorded of it.
    #[error("{} {mismatch}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// How it differs.
        mismatch: ContentMismatch,
    },
    /// A name that leads out of the directory.
    #[error(transparent)]
    Name(#[from] UnsafePath),
    /// The filemap lists the file, but it cannot be used.
    #[error(transparent)]
    Unusable(#[from] UnusableFile),
    /// Its meta file cannot be read or written.
    #[error(transparent)]
    MetaFile(#[from] HashFileError),
    /// Its meta file cannot be read or written.
    #[error(transparent)]
    Meta(#[from] ControlError),
    /// The run or the request that the copy belongs to is over.
    #[error("the copy was cancelled")]
    Cancelled,
}

/// Why nothing at all could be copied, rebuilt or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Not a directory that a drain may write to.
    #[error("{} is not an absolute path without `..`: a checkpoint directory must be", .0.display())]
    Directory(PathBuf),
    /// The directory could not be made.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The dataset's name could not be recorded there.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// A rebuild.
    #[error("{set} in {} was not rebuilt: {source}", directory.display())]
    Rebuild {
        /// The checkpoint directory.
        directory: PathBuf,
        /// The set, and its lost members.
        set: SetRebuild,
        /// Why.
        source: Box<RedundancyError>,
    },
}
