//! Opening files by base name, strictly inside a directory: names come from headers that may be damaged or forged.

use std::path::Path;
use std::sync::Arc;

use holdfast_model::OutputPath;

use super::error::{RedundancyError, Result};
use crate::store::{DatasetFiles, PosixDataset, StoredFile};

/// Refuses everything that is not the plain name of a file in `directory`.
pub(crate) fn check_name(directory: &Path, name: &str) -> Result<()> {
    let why = match name {
        "" => "it is empty",
        "." | ".." => "it is a directory",
        _ if name.len() > 255 => "it is longer than a file name can be",
        _ if name.contains('/') => "it leads to another directory",
        _ if name.contains('\0') => "it contains a NUL",
        _ => return Ok(()),
    };
    Err(RedundancyError::UnsafeName { directory: directory.to_owned(), name: name.to_owned(), why })
}

/// Opens the dataset in a directory in cache.
pub(crate) fn open_directory(directory: &Path) -> Result<Arc<PosixDataset>> {
    Ok(Arc::new(PosixDataset::in_cache(directory).map_err(RedundancyError::io("open", directory))?))
}

/// Opens a regular file of a dataset for reading, at its output path if it is not in the directory; never follows a
/// link, never waits for a pipe's writer.
pub(crate) fn open(files: &dyn DatasetFiles, name: &str, output: Option<&OutputPath>) -> Result<Box<dyn StoredFile>> {
    check_name(files.location(), name)?;
    files.open(name, output).map_err(RedundancyError::io("open", &files.path_of(name)))
}
