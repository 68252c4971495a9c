//! Stores of datasets: where flushes and drains put them, and where restarts take them from.
//!
//! * [`dataset_store`]: [`DatasetStore`]: datasets, the index of them, the current one, and files at output paths;
//! * [`dataset_files`]: [`DatasetFiles`]: reading the files of a dataset, plain or packed in containers;
//!   [`OpenDataset`]: its plain files, read and written; [`staged`]: files that are being written;
//! * [`posix`]: the first store: a directory of a parallel file system. Renames, links, locks and descriptors of
//!   directories are used there only;
//! * `stall`: an injected stall of a prefix directory;
//! * [`directory_name`], [`base_name`]: names that cannot lead elsewhere; [`error`]: what can go wrong.
//!
//! [`crate::prefix`] knows what index, summary and meta files contain, and uses these traits only. Another store is a
//! folder here and a line in [`open`]; the suites of `prefix` run with a second one, in memory.

pub mod base_name;
pub mod dataset_files;
pub mod dataset_store;
pub mod directory_name;
pub mod error;
#[cfg(any(test, feature = "kill-points"))]
#[allow(clippy::disallowed_methods)]
pub mod memory;
pub mod posix;
pub mod staged;
mod stall;

use std::path::PathBuf;
use std::sync::Arc;

pub use dataset_files::{DatasetFiles, DatasetOpener, FoundFile, ListedFile, OpenDataset, StoredFile};
pub use dataset_store::{
    DatasetAccess, DatasetOccupant, DatasetStore, Occupied, OutputDirectory, OutputOccupant, RecordsChange, Removal,
    Taken,
};
pub use directory_name::{DirectoryName, NameParts};
pub use error::{PrefixError, Result};
pub(crate) use error::{known, known_or_reason};
pub use posix::{PosixDataset, PosixStore};
pub use staged::{Staged, StagedAppender, StagedFile, StagedWriter};
pub use stall::stall_for;

/// Opens the store of a job, which `prefix` in its spec names.
///
/// # Errors
/// [`PrefixError::NoPrefix`] if it does not exist, [`PrefixError::Io`] if it cannot be examined.
pub fn open(prefix: impl Into<PathBuf>) -> Result<Arc<dyn DatasetStore>, PrefixError> {
    Ok(Arc::new(PosixStore::open(prefix)?))
}
