//! Reading the hash files of a directory that other programs write to as well.

use std::fs;
use std::io;
use std::path::Path;

use super::error::PrefixError;
use crate::kvtree::{Tree, file};

/// Reads a hash file; `None` if there is none. Anything but a regular file is refused before it is opened: opening a
/// pipe would wait for a writer for ever.
///
/// # Errors
/// [`PrefixError::Io`] if the name cannot be looked at or is no file, [`PrefixError::HashFile`] if it cannot be read.
pub(super) fn hash_file(path: &Path) -> Result<Option<Tree>, PrefixError> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(Some(file::read(path)?)),
        Ok(_) => {
            let error = io::Error::other("it is not a regular file");
            Err(PrefixError::io("read", path, "move away what is in its place")(error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PrefixError::io("look at", path, "check the path and your permissions")(error)),
    }
}
