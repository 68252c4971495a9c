//! Where datasets are kept, with the index of them and the name of the current one.

use std::fmt::{self, Debug};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use holdfast_model::OutputPath;

use super::dataset_files::OpenDataset;
use super::directory_name::DirectoryName;
use super::error::PrefixError;
use crate::kvtree::Tree;

/// A store of datasets.
///
/// *Records* are the index and the name of the current dataset. They are small, and changed by one process at a time:
/// see [`begin_change`](DatasetStore::begin_change). A dataset is *staged*: its directory is created, and its files are
/// written, each complete or not there; whoever enters it into the index as complete publishes it at once.
pub trait DatasetStore: Debug + Send + Sync {
    /// What the user knows the store by: the prefix directory.
    fn location(&self) -> &Path;

    /// The path by which the user knows a dataset: for messages, and for requests to agents.
    fn path_of(&self, name: &DirectoryName) -> PathBuf {
        self.location().join(name.as_str())
    }

    /// The content of the index; `None` if there is none yet.
    ///
    /// # Errors
    /// When it cannot be read, or is not a hash file.
    fn index(&self) -> Result<Option<Tree>, PrefixError>;

    /// The dataset that a restart takes first; `None` if none was chosen. Whether it exists is not looked at.
    ///
    /// # Errors
    /// [`PrefixError::Name`] if the record leads out of the store, [`PrefixError::Io`] if it cannot be read.
    fn current(&self) -> Result<Option<DirectoryName>, PrefixError>;

    /// Begins a change of the records. Where the store can lock, it waits for the changes of other processes, and they
    /// wait for this one. Otherwise a change that another one overtakes fails with [`PrefixError::Overtaken`], and is
    /// to be made again from its beginning.
    fn begin_change(&self) -> Result<Box<dyn RecordsChange + '_>, PrefixError>;

    /// What has the name of a dataset.
    fn occupant(&self, name: &DirectoryName) -> io::Result<DatasetOccupant>;

    /// True if there is a dataset of this name. What cannot be examined is taken to be none.
    fn contains(&self, name: &DirectoryName) -> bool {
        matches!(self.occupant(name), Ok(DatasetOccupant::Dataset))
    }

    /// The names that datasets may have, those of other directories included.
    ///
    /// # Errors
    /// When the store cannot be listed.
    fn names(&self) -> io::Result<Vec<DirectoryName>>;

    /// When files of a dataset were created or removed last.
    fn modified(&self, name: &DirectoryName) -> io::Result<SystemTime>;

    /// Makes a new, empty dataset; false if something has this name.
    fn create(&self, name: &DirectoryName) -> Result<bool, PrefixError>;

    /// Opens a dataset.
    ///
    /// # Errors
    /// When it does not exist (see [`PrefixError::is_missing`]), or must not be accessed in this way.
    fn open(&self, name: &DirectoryName, access: DatasetAccess) -> Result<Arc<dyn OpenDataset>, PrefixError>;

    /// Takes a dataset out of the store at once: from then on nothing has its name.
    ///
    /// # Errors
    /// When it cannot be taken out: it is unchanged then.
    fn delete(&self, name: &DirectoryName) -> Result<Removal, PrefixError>;

    /// Removes a dataset without files; one that has files stays.
    fn remove_if_empty(&self, name: &DirectoryName);

    /// The directory of an output path; `None` if it does not exist.
    ///
    /// # Errors
    /// When it cannot be used, or must not be.
    fn output_directory(&self, path: &OutputPath) -> io::Result<Option<Box<dyn OutputDirectory + '_>>>;

    /// As [`output_directory`](Self::output_directory); what is missing is made.
    ///
    /// # Errors
    /// As [`output_directory`](Self::output_directory), and when a directory cannot be made.
    fn create_output_directory(&self, path: &OutputPath) -> io::Result<Box<dyn OutputDirectory + '_>>;

    /// Removes the directories of an output path that are empty, the innermost first.
    fn remove_empty_directories(&self, path: &OutputPath);
}

/// A change of the records, of one process at a time. Each step is made at once, or not at all.
pub trait RecordsChange: Debug {
    /// As [`DatasetStore::index`].
    fn index(&self) -> Result<Option<Tree>, PrefixError>;

    /// As [`DatasetStore::current`].
    fn current(&self) -> Result<Option<DirectoryName>, PrefixError>;

    /// Replaces the index.
    ///
    /// # Errors
    /// When it cannot be replaced; the old one is then still there.
    fn set_index(&mut self, index: &Tree) -> Result<(), PrefixError>;

    /// Replaces the name of the current dataset.
    fn set_current(&mut self, current: &DirectoryName) -> Result<(), PrefixError>;

    /// Removes the name of the current dataset, also one that cannot be read; returns whether there was one.
    fn remove_current(&mut self) -> Result<bool, PrefixError>;
}

/// What a dataset is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetAccess {
    /// Reading. Another member of the project may have written it.
    Read,
    /// Writing: it must belong to this user.
    Write,
    /// As [`Write`](DatasetAccess::Write), and made if it is missing.
    Create,
}

/// What has the name of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetOccupant {
    Nothing,
    Dataset,
    /// Something that is no dataset, such as a link.
    Other,
}

/// What is left of a dataset that was deleted. No reader finds it; a later command removes it if this process does not.
pub struct Removal(Box<dyn FnOnce() -> Result<(), PrefixError>>);

impl Removal {
    pub fn new(finish: impl FnOnce() -> Result<(), PrefixError> + 'static) -> Removal {
        Removal(Box::new(finish))
    }

    /// Removes it. That may take long.
    pub fn finish(self) -> Result<(), PrefixError> {
        (self.0)()
    }
}

impl Debug for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Removal")
    }
}

/// A directory of output paths, which several datasets and the user may share.
pub trait OutputDirectory: Debug {
    /// What is at this name.
    fn occupant(&self, name: &str) -> io::Result<OutputOccupant>;

    /// Moves the file of this name of a dataset here. A kill leaves it in the dataset, or here, or in both.
    ///
    /// # Errors
    /// When it cannot be moved, or what is to be replaced is not a regular file of this user.
    fn take(&self, dataset: &DirectoryName, name: &str, occupied: Occupied) -> io::Result<Taken>;

    /// Removes a regular file, if it is there.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the changes survive the machine, also in the dataset from which files were taken.
    fn sync(&self, taken_from: Option<&DirectoryName>) -> io::Result<()>;
}

/// What happens to something else that is where a file is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupied {
    /// It stays, unless it is a file of this user with the same content: one that a publication moved there before it
    /// was killed.
    Keep,
    /// A regular file of this user is replaced.
    Replace,
}

/// What became of a file that was to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Moved,
    /// Something else is there, and was to be [kept](Occupied::Keep).
    Kept,
}

/// What is at an output path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputOccupant {
    Nothing,
    File {
        bytes: u64,
        /// It belongs to this user.
        own: bool,
    },
    /// A directory, a link, a pipe, a socket, a device.
    Other,
}
