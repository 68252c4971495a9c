//! The store in a directory of a parallel file system: SCR's layout (`docs/scr-files.md` §2).
//!
//! A dataset is a directory below it ([`dataset`]), the index is the file `index.scr` and the current dataset the link
//! `scr.current` ([`records`]), files of outputs are at the paths that the application named ([`outputs`]), and what is
//! being deleted is in a directory of its own ([`trash`]). No symbolic link below it is followed. Everything that
//! replaces something does so by a rename, so that a kill leaves the old or the new.

pub mod dataset;
mod lock;
mod outputs;
mod records;
mod trash;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use holdfast_model::OutputPath;
use rustix::fs::{AtFlags, FileType, Stat};

use super::dataset_files::OpenDataset;
use super::dataset_store::{DatasetAccess, DatasetOccupant, DatasetStore, OutputDirectory, RecordsChange, Removal};
use super::directory_name::DirectoryName;
use super::error::PrefixError;
use super::stall;
use crate::calls::{entries, unlinkat};
use crate::kvtree::Tree;
use crate::owned::{MissingDirectories, OwnedError, SharedDirectory};

pub use dataset::PosixDataset;
pub use trash::ScratchDirectory;

/// It holds the prefix directory open: nothing that is exchanged later has an effect.
#[derive(Clone, Debug)]
pub struct PosixStore {
    prefix: Arc<SharedDirectory>,
}

impl PosixStore {
    /// Opens an existing prefix directory.
    ///
    /// # Errors
    /// [`PrefixError::NoPrefix`] if it does not exist or is not a directory, [`PrefixError::Io`] if it cannot be
    /// opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, PrefixError> {
        let path = path.into();
        stall::wait();
        let source = match SharedDirectory::open(&path, [], MissingDirectories::Fail) {
            Ok(opened) => return Ok(PosixStore { prefix: Arc::new(opened) }),
            Err(OwnedError::Io { source, .. }) => source,
            Err(refused) => return Err(refused.into()),
        };
        Err(match source.kind() {
            io::ErrorKind::NotADirectory => PrefixError::NoPrefix { path, problem: "is not a directory" },
            io::ErrorKind::NotFound => PrefixError::NoPrefix { path, problem: "does not exist" },
            _ => {
                let remedy = "check the path and your permissions on every directory of it";
                PrefixError::Io { action: "open the prefix directory", path, source, remedy }
            }
        })
    }

    /// A directory below the prefix directory for the time of a command's work.
    ///
    /// # Errors
    /// [`PrefixError::Owned`] if it cannot be made, or another user may have a hand in it.
    pub fn scratch_directory(&self) -> Result<ScratchDirectory, PrefixError> {
        stall::wait();
        Ok(ScratchDirectory::make(&self.prefix)?)
    }

    fn examine(&self, name: &DirectoryName) -> io::Result<Option<Stat>> {
        self.prefix.examine(name.as_str())
    }
}

impl DatasetStore for PosixStore {
    fn location(&self) -> &Path {
        self.prefix.path()
    }

    fn index(&self) -> Result<Option<Tree>, PrefixError> {
        records::index(&self.prefix)
    }

    fn current(&self) -> Result<Option<DirectoryName>, PrefixError> {
        records::current(&self.prefix)
    }

    fn begin_change(&self) -> Result<Box<dyn RecordsChange + '_>, PrefixError> {
        stall::wait();
        Ok(Box::new(records::PosixRecords::lock(&self.prefix)?))
    }

    fn occupant(&self, name: &DirectoryName) -> io::Result<DatasetOccupant> {
        Ok(match self.examine(name)? {
            None => DatasetOccupant::Nothing,
            Some(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => DatasetOccupant::Dataset,
            Some(_) => DatasetOccupant::Other,
        })
    }

    fn names(&self) -> io::Result<Vec<DirectoryName>> {
        let may_be_directory = |kind: &FileType| matches!(kind, FileType::Directory | FileType::Unknown);
        let entries = entries(&*self.prefix)?.into_iter().filter(|(_, kind)| may_be_directory(kind));
        let names = entries.filter_map(|(name, _)| name.into_string().ok()).filter(|name| !name.starts_with('.'));
        Ok(names.filter_map(|name| DirectoryName::new(name).ok()).collect())
    }

    fn modified(&self, name: &DirectoryName) -> io::Result<SystemTime> {
        Ok(dataset::modified(&self.examine(name)?.ok_or(io::ErrorKind::NotFound)?))
    }

    fn create(&self, name: &DirectoryName) -> Result<bool, PrefixError> {
        Ok(self.prefix.make_directory(OsStr::new(name.as_str()))?)
    }

    fn open(&self, name: &DirectoryName, access: DatasetAccess) -> Result<Arc<dyn OpenDataset>, PrefixError> {
        stall::wait();
        let missing = match access {
            DatasetAccess::Read | DatasetAccess::Write => MissingDirectories::Fail,
            DatasetAccess::Create => MissingDirectories::Create,
        };
        let opened = self.prefix.below([OsStr::new(name.as_str())], missing);
        let opened = opened.and_then(|directory| match access {
            DatasetAccess::Read => Ok(directory),
            DatasetAccess::Write | DatasetAccess::Create => directory.check_owner().map(|()| directory),
        });
        let directory = opened.map_err(|error| match error {
            OwnedError::Io { action, path, source } => {
                let remedy = "give the name of a checkpoint directory below the prefix, and check your permissions";
                PrefixError::Io { action, path, source, remedy }
            }
            refused => refused.into(),
        })?;
        Ok(Arc::new(PosixDataset::opened(directory, &self.prefix)))
    }

    fn delete(&self, name: &DirectoryName) -> Result<Removal, PrefixError> {
        let taken = trash::take(&self.prefix, name)?;
        self.prefix.sync()?;
        let prefix = self.prefix.clone();
        Ok(Removal::new(move || Ok(trash::remove(&prefix, &taken)?)))
    }

    fn remove_if_empty(&self, name: &DirectoryName) {
        // Not empty if it contains files of others. A link stays: what it leads to is left alone.
        let _ = unlinkat(&self.prefix, name.as_str(), AtFlags::REMOVEDIR);
        // The names were removed one by one, each durably.
        let _ = self.prefix.sync();
    }

    fn output_directory(&self, path: &OutputPath) -> io::Result<Option<Box<dyn OutputDirectory + '_>>> {
        Ok(outputs::open(&self.prefix, path)?.map(|opened| Box::new(opened) as Box<dyn OutputDirectory + '_>))
    }

    fn create_output_directory(&self, path: &OutputPath) -> io::Result<Box<dyn OutputDirectory + '_>> {
        Ok(Box::new(outputs::create(&self.prefix, path)?))
    }

    fn remove_empty_directories(&self, path: &OutputPath) {
        outputs::remove_empty_directories(&self.prefix, path);
    }
}
