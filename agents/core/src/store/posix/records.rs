//! The index and the link to the current dataset.
//!
//! SCR rewrites the index in place and without a lock. We write it through [`durable`], so that a reader sees the old
//! index or the new one, and hold a lock of our own from reading to writing; the lock is a file beside the index,
//! because a lock on a file that is replaced by rename protects nothing. SCR does not know the lock: the index is
//! therefore read anew under the lock for every change, never kept.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::lock::IndexLock;
use super::trash;
use crate::durable;
use crate::kvtree::Tree;
use crate::kvtree::file::{self, HashFileError};
use crate::state_directory::StateDirectory;
use crate::store::dataset_store::RecordsChange;
use crate::store::directory_name::DirectoryName;
use crate::store::error::PrefixError;
use crate::temporary;

/// The index file's name.
pub const INDEX_FILE: &str = "index.scr";
/// The link to the checkpoint that a restart takes.
pub const CURRENT_LINK: &str = "scr.current";
/// How often an index that cannot be decoded is read before it counts as damaged.
const READ_ATTEMPTS: u32 = 4;
/// The time between: much longer than SCR's rewriting of a small file takes.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(5);

pub(super) fn index(prefix: &Path) -> Result<Option<Tree>, PrefixError> {
    let path = prefix.join(INDEX_FILE);
    let mut attempt = 1;
    loop {
        match read_regular(&path) {
            // SCR truncates the index and writes it anew: a reader may meet it in between.
            Err(PrefixError::HashFile(HashFileError::Format { .. })) if attempt < READ_ATTEMPTS => {
                attempt += 1;
                thread::sleep(BETWEEN_ATTEMPTS);
            }
            read => return read,
        }
    }
}

/// Anything but a regular file is refused before it is opened: opening a pipe would wait for a writer for ever.
fn read_regular(path: &Path) -> Result<Option<Tree>, PrefixError> {
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

pub(super) fn current(prefix: &Path) -> Result<Option<DirectoryName>, PrefixError> {
    let path = prefix.join(CURRENT_LINK);
    let target = match fs::read_link(&path) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            let remedy = "it should be a symbolic link to a checkpoint directory beside it: remove it";
            return Err(PrefixError::Io { action: "read the link", path, source, remedy });
        }
    };
    let name = target.to_string_lossy().into_owned();
    match DirectoryName::new(name.trim_end_matches('/')) {
        Ok(directory) => Ok(Some(directory)),
        Err(problem) => Err(PrefixError::Name {
            path,
            place: "link target".to_owned(),
            name,
            problem,
            remedy: "remove the link, or set it with `holdfast index current`",
        }),
    }
}

/// Index and link while this process holds the lock.
#[derive(Debug)]
pub(super) struct PosixRecords<'a> {
    prefix: &'a Path,
    _lock: IndexLock,
}

impl<'a> PosixRecords<'a> {
    /// Waits for the lock, and removes the temporary files that killed processes left beside index and lock.
    pub(super) fn lock(prefix: &'a Path) -> Result<Self, PrefixError> {
        let lock = IndexLock::acquire(prefix)?;
        for directory in [prefix, StateDirectory::below(prefix).path()] {
            // No reader uses them: a failure must not prevent the change.
            let _ = temporary::remove_abandoned(directory);
        }
        let _ = trash::remove_abandoned(prefix);
        Ok(PosixRecords { prefix, _lock: lock })
    }
}

impl RecordsChange for PosixRecords<'_> {
    fn index(&self) -> Result<Option<Tree>, PrefixError> {
        index(self.prefix)
    }

    fn current(&self) -> Result<Option<DirectoryName>, PrefixError> {
        current(self.prefix)
    }

    fn set_index(&mut self, index: &Tree) -> Result<(), PrefixError> {
        Ok(file::write(&self.prefix.join(INDEX_FILE), index)?)
    }

    fn set_current(&mut self, current: &DirectoryName) -> Result<(), PrefixError> {
        Ok(durable::replace_symlink(&self.prefix.join(CURRENT_LINK), current.as_str())?)
    }

    /// Only a link is ever removed, never a file or directory.
    fn remove_current(&mut self) -> Result<bool, PrefixError> {
        let path = self.prefix.join(CURRENT_LINK);
        let failed = |source| PrefixError::Io {
            action: "remove the link",
            path: path.clone(),
            source,
            remedy: "check that you may write to the prefix directory",
        };
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {}
            Ok(_) => return Err(failed(io::Error::other("it is not a symbolic link"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        fs::remove_file(&path).map_err(failed)?;
        durable::sync_directory(self.prefix)?;
        Ok(true)
    }
}
