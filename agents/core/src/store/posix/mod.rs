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
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use holdfast_model::OutputPath;

use super::dataset_files::OpenDataset;
use super::dataset_store::{DatasetAccess, DatasetOccupant, DatasetStore, OutputDirectory, RecordsChange, Removal};
use super::directory_name::DirectoryName;
use super::error::PrefixError;
use crate::durable::{self, CreationMode};
use crate::kill_point;
use crate::kvtree::Tree;
use crate::owned::{MissingDirectories, OwnedError, SharedDirectory};

pub use dataset::PosixDataset;

#[derive(Clone, Debug)]
pub struct PosixStore {
    path: PathBuf,
}

impl PosixStore {
    /// Opens an existing prefix directory.
    ///
    /// # Errors
    /// [`PrefixError::NoPrefix`] if it does not exist or is not a directory, [`PrefixError::Io`] if it cannot be looked
    /// at.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, PrefixError> {
        let path = path.into();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => Ok(PosixStore { path }),
            Ok(_) => Err(PrefixError::NoPrefix { path, problem: "is not a directory" }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(PrefixError::NoPrefix { path, problem: "does not exist" })
            }
            Err(source) => Err(PrefixError::Io {
                action: "look at the prefix directory",
                path,
                source,
                remedy: "check the path and your permissions on every directory of it",
            }),
        }
    }
}

impl DatasetStore for PosixStore {
    fn location(&self) -> &Path {
        &self.path
    }

    fn index(&self) -> Result<Option<Tree>, PrefixError> {
        records::index(&self.path)
    }

    fn current(&self) -> Result<Option<DirectoryName>, PrefixError> {
        records::current(&self.path)
    }

    fn begin_change(&self) -> Result<Box<dyn RecordsChange + '_>, PrefixError> {
        Ok(Box::new(records::PosixRecords::lock(&self.path)?))
    }

    fn occupant(&self, name: &DirectoryName) -> io::Result<DatasetOccupant> {
        let path = self.path_of(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => Ok(DatasetOccupant::Dataset),
            Ok(_) => Ok(DatasetOccupant::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DatasetOccupant::Nothing),
            Err(error) => Err(error),
        }
    }

    fn modified(&self, name: &DirectoryName) -> io::Result<SystemTime> {
        fs::metadata(self.path_of(name))?.modified()
    }

    fn create(&self, name: &DirectoryName) -> Result<bool, PrefixError> {
        let path = self.path_of(name);
        match CreationMode::Umask.make_directory(&path) {
            Ok(()) => {
                durable::sync_directory(&self.path)?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => {
                let remedy = "check that the prefix directory is writable and has space left";
                Err(PrefixError::Io { action: "make the checkpoint directory", path, source, remedy })
            }
        }
    }

    fn open(&self, name: &DirectoryName, access: DatasetAccess) -> Result<Arc<dyn OpenDataset>, PrefixError> {
        let missing = match access {
            DatasetAccess::Read | DatasetAccess::Write => MissingDirectories::Fail,
            DatasetAccess::Create => MissingDirectories::Create,
        };
        let opened = SharedDirectory::open(&self.path, [OsStr::new(name.as_str())], missing);
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
        Ok(Arc::new(PosixDataset::opened(directory, &self.path)))
    }

    fn delete(&self, name: &DirectoryName) -> Result<Removal, PrefixError> {
        kill_point::reach();
        let taken = trash::take(&self.path, name)?;
        kill_point::reach();
        durable::sync_directory(&self.path)?;
        let prefix = self.path.clone();
        Ok(Removal::new(move || Ok(trash::remove(&prefix, &taken)?)))
    }

    fn remove_if_empty(&self, name: &DirectoryName) {
        // Not empty if it contains files of others. A link stays: what it leads to is left alone.
        let _ = fs::remove_dir(self.path_of(name));
        // The names were removed one by one, each durably.
        let _ = durable::sync_directory(&self.path);
    }

    fn output_directory(&self, path: &OutputPath) -> io::Result<Option<Box<dyn OutputDirectory + '_>>> {
        Ok(outputs::open(&self.path, path)?.map(|opened| Box::new(opened) as Box<dyn OutputDirectory + '_>))
    }

    fn create_output_directory(&self, path: &OutputPath) -> io::Result<Box<dyn OutputDirectory + '_>> {
        Ok(Box::new(outputs::create(&self.path, path)?))
    }

    fn remove_empty_directories(&self, path: &OutputPath) {
        outputs::remove_empty_directories(&self.path, path);
    }
}
