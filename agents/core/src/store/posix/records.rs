//! The index and the link to the current dataset.
//!
//! SCR rewrites the index in place and without a lock. We write it through [`durable`], so that a reader sees the old
//! index or the new one, and hold a lock of our own from reading to writing; the lock is a file beside the index,
//! because a lock on a file that is replaced by rename protects nothing. SCR does not know the lock: the index is
//! therefore read anew under the lock for every change, never kept.

use std::io::{self, BufReader};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;

use super::lock::IndexLock;
use super::trash;
use crate::calls::{readlinkat, unlinkat};
use crate::durable::{self, Target};
use crate::kvtree::Tree;
use crate::kvtree::file::{self, HashFileError};
use crate::owned::{Access, SharedDirectory};
use crate::state_directory;
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

pub(super) fn index(prefix: &SharedDirectory) -> Result<Option<Tree>, PrefixError> {
    let mut attempt = 1;
    loop {
        match read_regular(prefix) {
            // SCR truncates the index and writes it anew: a reader may meet it in between.
            Err(PrefixError::HashFile(HashFileError::Format { .. })) if attempt < READ_ATTEMPTS => {
                attempt += 1;
                thread::sleep(BETWEEN_ATTEMPTS);
            }
            read => return read,
        }
    }
}

fn read_regular(prefix: &SharedDirectory) -> Result<Option<Tree>, PrefixError> {
    let path = prefix.path().join(INDEX_FILE);
    match prefix.open_file(INDEX_FILE, OFlags::RDONLY) {
        Ok(opened) => Ok(Some(file::read_from(&path, &mut BufReader::new(opened))?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let remedy = match prefix.examine(INDEX_FILE) {
                Ok(Some(found)) if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile => {
                    "move away what is in its place"
                }
                _ => "check the path and your permissions",
            };
            Err(PrefixError::io("read", path, remedy)(error))
        }
    }
}

pub(super) fn current(prefix: &SharedDirectory) -> Result<Option<DirectoryName>, PrefixError> {
    let path = prefix.path().join(CURRENT_LINK);
    let target = match readlinkat(prefix, CURRENT_LINK) {
        Ok(target) => target,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => {
            let remedy = "it should be a symbolic link to a checkpoint directory beside it: remove it";
            return Err(PrefixError::io("read the link", path, remedy)(errno.into()));
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
    prefix: &'a Arc<SharedDirectory>,
    _lock: IndexLock,
}

impl<'a> PosixRecords<'a> {
    /// Waits for the lock, and removes the temporary files that killed processes left beside index and lock.
    pub(super) fn lock(prefix: &'a Arc<SharedDirectory>) -> Result<Self, PrefixError> {
        let lock = IndexLock::acquire(prefix)?;
        // No reader uses them: a failure must not prevent the change.
        let _ = temporary::remove_abandoned(prefix);
        if let Ok(Some(own)) = prefix.open_directory(state_directory::NAME, Access::Readable) {
            let _ = temporary::remove_abandoned(&own);
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
        Ok(file::write(Target::inside(self.prefix, INDEX_FILE), index)?)
    }

    fn set_current(&mut self, current: &DirectoryName) -> Result<(), PrefixError> {
        Ok(durable::replace_symlink(Target::inside(self.prefix, CURRENT_LINK), current.as_str())?)
    }

    /// Only a link is ever removed, never a file or directory.
    fn remove_current(&mut self) -> Result<bool, PrefixError> {
        let failed = |source| {
            let remedy = "check that you may write to the prefix directory";
            PrefixError::io("remove the link", self.prefix.path().join(CURRENT_LINK), remedy)(source)
        };
        match self.prefix.examine(CURRENT_LINK).map_err(failed)? {
            None => return Ok(false),
            Some(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => {}
            Some(_) => return Err(failed(io::Error::other("it is not a symbolic link"))),
        }
        unlinkat(self.prefix, CURRENT_LINK, AtFlags::empty()).map_err(|errno| failed(errno.into()))?;
        self.prefix.sync()?;
        Ok(true)
    }
}
