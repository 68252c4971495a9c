//! Reading the files of a dataset in its directory, plain or packed.
//!
//! A drain or a flush leaves the files of a dataset either as plain files ([`PlainFiles`]) or in containers, which
//! another crate reads. Scan, verify, rebuild, fetch and index use [`DatasetFiles`] only; the caller passes a
//! [`DatasetOpener`] that recognises the containers in a directory. `summary.scr`, the record of the dataset and the
//! files that a rebuild writes are always plain files.

use std::fmt::Debug;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_model::OutputPath;

use crate::control::meta::Meta;
use crate::control::{ControlError, meta};
use crate::kvtree::Tree;
use crate::kvtree::file::{self, HashFileError};
use crate::{output_files, regular_file, temporary};

/// Opens the files of the dataset in a directory. Nothing is read yet that depends on the number of files.
///
/// # Errors
/// When the directory cannot be listed. A container that cannot be used is no error: its files are not listed.
pub type DatasetOpener = fn(&Path) -> io::Result<Arc<dyn DatasetFiles>>;

/// The files of one dataset, for reading. Names have been checked: they are base names.
pub trait DatasetFiles: Debug + Send + Sync {
    /// The directory, for the files that are always plain, and for those that are written.
    fn directory(&self) -> &Path;

    /// All names, and what is there under each. Temporary files, and names that are no text, are left out.
    ///
    /// # Errors
    /// When the directory cannot be listed.
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

/// An open file of a dataset. Several threads can read it.
pub trait StoredFile: Debug + Send + Sync {
    fn length(&self) -> u64;

    /// Reads at an offset; 0 bytes at the end only.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
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
    let path = files.directory().join(name);
    match files.open(name, None) {
        Ok(stored) => file::read_from(&path, &mut BufReader::with_capacity(SMALL_BYTES, stored.reader())),
        Err(source) => Err(HashFileError::Read { path, source }),
    }
}

/// Reads the meta file of the file of this name.
///
/// # Errors
/// When the meta file cannot be read, or lacks something.
pub fn read_meta(files: &dyn DatasetFiles, name: &str) -> Result<Meta, ControlError> {
    let meta_name = format!("{name}{}", meta::EXTENSION);
    let tree = read_tree(files, &meta_name)?;
    Meta::from_tree(&tree).map_err(|source| ControlError::Content { path: files.directory().join(meta_name), source })
}

/// Most hash files are smaller.
const SMALL_BYTES: usize = 1 << 10;

/// The plain files of a directory.
#[derive(Clone, Debug)]
pub struct PlainFiles {
    directory: PathBuf,
}

impl PlainFiles {
    /// The files of a directory, which need not exist.
    pub fn of(directory: &Path) -> Arc<dyn DatasetFiles> {
        Arc::new(PlainFiles::new(directory))
    }

    pub fn new(directory: &Path) -> PlainFiles {
        PlainFiles { directory: directory.to_owned() }
    }

    /// Opens a directory in which nothing is packed. A [`DatasetOpener`].
    ///
    /// # Errors
    /// Never.
    pub fn open_directory(directory: &Path) -> io::Result<Arc<dyn DatasetFiles>> {
        Ok(PlainFiles::of(directory))
    }
}

impl DatasetFiles for PlainFiles {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn list(&self) -> io::Result<Vec<ListedFile>> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            // A name that is no text is none of ours.
            let Some(name) =
                entry.file_name().to_str().filter(|name| !temporary::is_temporary(name)).map(str::to_owned)
            else {
                continue;
            };
            listed.push(ListedFile { name, is_regular: entry.file_type()?.is_file() });
        }
        Ok(listed)
    }

    fn examine(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<FoundFile> {
        let found = |metadata: Metadata| match metadata.is_file() {
            true => FoundFile::Regular(metadata.len()),
            false => FoundFile::Other,
        };
        output_files::path(&self.directory, name, output_path).and_then(fs::symlink_metadata).map(found)
    }

    fn open(&self, name: &str, output_path: Option<&OutputPath>) -> io::Result<Box<dyn StoredFile>> {
        let path = output_files::path(&self.directory, name, output_path)?;
        let file = regular_file::open_no_link(&path)?;
        let length = file.metadata()?.len();
        Ok(Box::new(PlainFile { file, length }))
    }
}

#[derive(Debug)]
struct PlainFile {
    file: File,
    length: u64,
}

impl StoredFile for PlainFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_files_are_listed_examined_and_read_and_nothing_else_is_opened() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("a"), b"content").unwrap();
        fs::create_dir(scratch.path().join("b")).unwrap();
        std::os::unix::fs::symlink("a", scratch.path().join("c")).unwrap();
        fs::write(scratch.path().join(".hf-0-1-2-3.tmp"), b"").unwrap();
        let files = PlainFiles::new(scratch.path());
        let mut listed = files.list().unwrap();
        listed.sort_by(|one, next| one.name.cmp(&next.name));
        let listed: Vec<_> = listed.iter().map(|file| (file.name.as_str(), file.is_regular)).collect();
        assert_eq!(listed, [("a", true), ("b", false), ("c", false)]);
        assert_eq!(files.examine("a", None).unwrap(), FoundFile::Regular(7));
        assert_eq!(files.examine("c", None).unwrap(), FoundFile::Other);
        assert_eq!(files.examine("d", None).unwrap_err().kind(), io::ErrorKind::NotFound);
        for other in ["b", "c", "d"] {
            assert!(files.open(other, None).is_err(), "{other}");
        }
        let file = files.open("a", None).unwrap();
        let (mut part, mut all) = ([0; 3], Vec::new());
        file.read_exact_at(&mut part, 2).unwrap();
        file.reader().read_to_end(&mut all).unwrap();
        assert_eq!((&part, all.as_slice(), file.length()), (b"nte", b"content".as_slice(), 7));
        assert!(file.read_exact_at(&mut part, 5).is_err());
    }
}
