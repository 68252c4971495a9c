//! The files of a dataset: reading them, plain or packed, and writing plain ones.
//!
//! A drain or a flush leaves the files of a dataset either as plain files or in containers, which another crate reads.
//! Scan, verify, rebuild, fetch and index use [`DatasetFiles`] only; the caller passes a [`DatasetOpener`] that
//! recognises the containers of an [`OpenDataset`]. `summary.scr`, the record of the dataset and the files that a
//! rebuild writes are always plain files.

use std::fmt::Debug;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use holdfast_model::OutputPath;

use super::staged::{Staged, StagedFile, StagedWriter};
use crate::control::meta::Meta;
use crate::control::{ControlError, meta};
use crate::durable::{Durability, DurableError};
use crate::kvtree::Tree;
use crate::kvtree::file::{self, HashFileError};

/// Opens the files of a dataset, however they are stored. Nothing is read yet that depends on the number of files.
///
/// # Errors
/// When the dataset cannot be listed. A container that cannot be used is no error: its files are not listed.
pub type DatasetOpener = fn(Arc<dyn OpenDataset>) -> io::Result<Arc<dyn DatasetFiles>>;

/// Opens a dataset in which nothing is packed. A [`DatasetOpener`].
///
/// # Errors
/// Never.
pub fn open_plain(dataset: Arc<dyn OpenDataset>) -> io::Result<Arc<dyn DatasetFiles>> {
    Ok(dataset)
}

/// The files of one dataset, for reading. Names have been checked: they are base names.
pub trait DatasetFiles: Debug + Send + Sync {
    /// The directory by the path that the user knows. Only for messages: files are not accessed by it.
    fn location(&self) -> &Path;

    /// The path of a file by which the user knows it, for messages.
    fn path_of(&self, name: &str) -> PathBuf {
        self.location().join(name)
    }

    /// The dataset as it is stored, for the files that are always plain, and for those that are written.
    fn stored(&self) -> Arc<dyn OpenDataset>;

    /// All names, and what is there under each. Temporary files, and names that are no text, are left out.
    fn list(&self) -> io::Result<Vec<ListedFile>>;

    /// What is there under a name. A plain file of an output that is not in the directory is at its output path.
    ///
    /// # Errors
    /// When there is nothing, or it cannot be examined.
    fn examine(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<FoundFile>;

    /// Opens a regular file. A link is not followed, and a pipe is refused: opening it would wait for a writer.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a regular file.
    fn open(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<Box<dyn StoredFile>>;

    /// True if the file of this name is read from a container. Reads nothing.
    fn is_packed(&self, _name: &str) -> bool {
        false
    }

    /// Containers, and parts of containers, in which files of the dataset are lost: what is wrong with each.
    fn damaged_containers(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Parts of containers whose first file is missing, beside a container that can be used: what is wrong with each.
    /// They are left of a process that was killed or is completing the container, or the first file was lost; they are
    /// a damage if the other files are not the whole dataset.
    fn containers_without_first_file(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// An open dataset. As [`DatasetFiles`] it has the plain files; what is in containers is not listed.
///
/// A file that is written appears under its name complete, or not at all, whenever its writer is killed.
pub trait OpenDataset: DatasetFiles {
    /// What a file has to survive once it has its name.
    fn durability(&self) -> Durability;

    /// Begins a file. Nothing has its name until it is committed; what has the name until then is replaced.
    ///
    /// # Errors
    /// When it cannot be made, or something that is not a regular file has the name.
    fn create(&self, name: &str) -> Result<Box<dyn StagedFile>, DurableError>;

    /// Opens a file that another process created and has not committed yet, by its [name](StagedFile::id) until then,
    /// for writing a part of it.
    fn attach(&self, id: &str) -> io::Result<Box<dyn StagedWriter>>;

    /// The files whose writers were killed before they committed them: their [names](StagedFile::id) until then, and
    /// their sizes.
    ///
    /// # Errors
    /// When the dataset cannot be listed.
    fn abandoned(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(Vec::new())
    }

    /// As [`create`](Self::create), with the content of an abandoned file, which no other process can take over then.
    /// `None` if another process was faster.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn take_over(&self, _name: &str, _abandoned: &str) -> Result<Option<Box<dyn StagedFile>>, DurableError> {
        Ok(None)
    }

    /// Replaces a small file.
    ///
    /// # Errors
    /// When any step fails; the old file is then untouched.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), DurableError>;

    /// Removes files in this order; those that are missing are left out.
    ///
    /// # Errors
    /// The first file that cannot be removed. Those before it are removed.
    fn remove(&self, names: &[&str]) -> Result<(), DurableError>;

    /// Removes files that were created and never committed.
    ///
    /// # Errors
    /// When the dataset cannot be listed, or a file cannot be removed; the others are removed.
    fn remove_staged(&self, which: Staged) -> io::Result<()>;

    /// True if a file belongs to this user, in a store whose files have owners.
    fn is_own(&self, name: &str) -> io::Result<bool>;

    /// When a file was changed last.
    fn modified(&self, name: &str) -> io::Result<SystemTime>;

    /// The unit in bytes in which several processes can write to one file without disturbing each other.
    fn block_bytes(&self) -> io::Result<u64>;
}

/// An open file of a dataset. Several threads can read it.
pub trait StoredFile: Debug + Send + Sync {
    fn length(&self) -> u64;

    /// Reads at an offset; 0 bytes at the end only.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl<F: StoredFile + ?Sized> StoredFile for Box<F> {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(buffer, offset)
    }
}

impl dyn StoredFile + '_ {
    /// Fills the buffer from an offset on.
    ///
    /// # Errors
    /// When it cannot be read, or ends before.
    pub fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    offset = offset.saturating_add(read as u64);
                    buffer = buffer.get_mut(read..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads it from the beginning.
    pub fn reader(&self) -> StoredFileReader<'_> {
        StoredFileReader { file: self, offset: 0 }
    }
}

/// Reads a [`StoredFile`] from the beginning to the end.
#[derive(Debug)]
pub struct StoredFileReader<'a> {
    file: &'a dyn StoredFile,
    offset: u64,
}

impl Read for StoredFileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset = self.offset.saturating_add(read as u64);
        Ok(read)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    pub name: String,
    /// False for a directory, a link, a pipe.
    pub is_regular: bool,
}

/// What is there under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundFile {
    /// A regular file of this many bytes.
    Regular(u64),
    /// A directory, a link, a pipe: nothing that is read.
    Other,
}

/// Reads the hash file of this name.
///
/// # Errors
/// When it cannot be read, or is not a hash file.
pub fn read_tree(files: &dyn DatasetFiles, name: &str) -> Result<Tree, HashFileError> {
    let path = files.path_of(name);
    match files.open(name, None) {
        Ok(stored) => file::read_from(&path, &mut BufReader::with_capacity(SMALL_BYTES, stored.reader())),
        Err(source) => Err(HashFileError::Read { path, source }),
    }
}

/// As [`read_tree`], with `None` when there is no such file.
///
/// # Errors
/// When the file is there and cannot be read, or is not a hash file.
pub fn read_tree_if_there(files: &dyn DatasetFiles, name: &str) -> Result<Option<Tree>, HashFileError> {
    match read_tree(files, name) {
        Ok(tree) => Ok(Some(tree)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the meta file of the file of this name.
///
/// # Errors
/// When the meta file cannot be read, or lacks something.
pub fn read_meta(files: &dyn DatasetFiles, name: &str) -> Result<Meta, ControlError> {
    let meta_name = format!("{name}{}", meta::EXTENSION);
    let tree = read_tree(files, &meta_name)?;
    Meta::from_tree(&tree).map_err(|source| ControlError::Content { path: files.path_of(&meta_name), source })
}

/// Replaces the hash file of this name.
///
/// # Errors
/// When a key contains a NUL, or the file cannot be replaced; the old one is then untouched.
pub fn write_tree(dataset: &dyn OpenDataset, name: &str, tree: &Tree) -> Result<(), HashFileError> {
    Ok(dataset.replace(name, &file::packed(&dataset.path_of(name), tree)?)?)
}

/// Replaces the meta file of the file that it is about.
pub fn write_meta(dataset: &dyn OpenDataset, meta: &Meta) -> Result<(), ControlError> {
    Ok(write_tree(dataset, &Meta::name_for(&meta.file), &meta.to_tree())?)
}

/// Most hash files are smaller.
const SMALL_BYTES: usize = 1 << 10;
