//! Why files were not copied.

use std::io;
use std::path::PathBuf;

use holdfast_core::control::ControlError;
use holdfast_core::control::content::ContentMismatch;
use holdfast_core::control::meta::{UnusableFile, format_crc};
use holdfast_core::control::node_path::UnsafePath;
use holdfast_core::durable::{self, DurableError};
use holdfast_core::kvtree::file::HashFileError;
use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::store::PrefixError;
use holdfast_formats::sion::SionError;

use crate::prefix::job_prefixes::DatasetAccessError;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyFault {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Durable(#[from] DurableError),
    #[error("the connection to the peer broke: {0}")]
    Peer(io::Error),
    #[error("{} {mismatch}", path.display())]
    Mismatch { path: PathBuf, mismatch: ContentMismatch },
    /// What arrived is not what the other node sent: nothing of it is kept.
    #[error(
        "the copy {} differs from its original: its CRC32 is {}, that of the original is {}",
        path.display(), format_crc(*received), format_crc(*sent)
    )]
    DiffersFromOriginal { path: PathBuf, sent: u32, received: u32 },
    #[error(transparent)]
    Name(#[from] UnsafePath),
    /// The filemap lists the file, but it cannot be used.
    #[error(transparent)]
    Unusable(#[from] UnusableFile),
    #[error(transparent)]
    MetaFile(#[from] HashFileError),
    #[error(transparent)]
    Meta(#[from] ControlError),
    /// The container of the dataset.
    #[error(transparent)]
    Container(#[from] SionError),
    #[error("the copy was cancelled")]
    Cancelled,
}

impl CopyFault {
    /// True if the copy could not be written, or descriptors or memory are exhausted; the file itself may be intact.
    pub fn prevents_writing(&self) -> bool {
        match self {
            CopyFault::Write { .. } | CopyFault::Durable(_) | CopyFault::Container(_) => true,
            CopyFault::Read { source, .. } => durable::is_exhaustion(source),
            CopyFault::Unusable(error) => error.is_exhaustion(),
            CopyFault::MetaFile(error) => error.prevents_writing() || error.is_exhaustion(),
            CopyFault::Meta(error) => error.prevents_writing() || error.is_exhaustion(),
            _ => false,
        }
    }
}

/// Why nothing could be copied, rebuilt or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    #[error(transparent)]
    Directory(#[from] DatasetAccessError),
    #[error(transparent)]
    Durable(#[from] DurableError),
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// What the node holds is not known.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot list {}: {source}; check that it exists and that you may read it", directory.display())]
    Unlisted { directory: PathBuf, source: io::Error },
    #[error("{set} in {} was not rebuilt: {problem}", directory.display())]
    Rebuild { directory: PathBuf, set: SetRebuild, problem: String, unwritable: bool },
}

impl CopyError {
    /// True if something could not be written, whatever the files contain.
    pub fn prevents_writing(&self) -> bool {
        match self {
            CopyError::Durable(_) => true,
            CopyError::Prefix(error) => error.prevents_writing(),
            CopyError::Rebuild { unwritable, .. } => *unwritable,
            CopyError::Directory(error) => error.prevents_writing(),
            CopyError::Store(_) | CopyError::Unlisted { .. } => false,
        }
    }
}
