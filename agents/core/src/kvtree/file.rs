//! Hash files on disk: read with every bound checked, replaced through [`crate::durable`] only.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::limits::Limits;
use super::tree::Tree;
use crate::durable::{self, CreationMode, DurableError, Target};
use crate::regular_file;

pub use super::packed::{HashFormatError, LeadingHashError, decode, decode_prefix, decode_within, encode};

/// Why a hash file could not be read or written, and what the user can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HashFileError {
    #[error("cannot read {}: {source}; {}", path.display(), durable::remedy(source))]
    Read { path: PathBuf, source: io::Error },
    /// It was read, and is not a hash file, or a damaged one.
    #[error("{} is not a readable SCR file: {source}; move it away, or restore it", path.display())]
    Format {
        path: PathBuf,
        /// What is wrong, and where.
        source: HashFormatError,
    },
    /// The lock could not be had.
    #[error(
        "cannot lock {}: {source}; see which process holds it, and whether its file system has locks",
        path.display()
    )]
    Lock { path: PathBuf, source: io::Error },
    /// A key that the format cannot hold.
    #[error(
        "cannot write {}: the key {key:?} contains a NUL, which ends keys in SCR files; rename what it names",
        path.display()
    )]
    NulInKey {
        /// The file that was to be written.
        path: PathBuf,
        key: String,
    },
    /// The file could not be replaced; the old one is untouched.
    #[error(transparent)]
    Write(#[from] DurableError),
}

impl HashFileError {
    /// True if there is no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(self, HashFileError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// True if descriptors or memory were exhausted when it was to be read.
    pub fn is_exhaustion(&self) -> bool {
        match self {
            HashFileError::Read { source, .. } | HashFileError::Lock { source, .. } => durable::is_exhaustion(source),
            _ => false,
        }
    }

    /// True if the file could not be written, or its file system not be used, whatever the file contains.
    pub fn prevents_writing(&self) -> bool {
        match self {
            HashFileError::Write(_) => true,
            HashFileError::Read { source, .. } | HashFileError::Lock { source, .. } => {
                durable::prevents_writing(source)
            }
            HashFileError::Format { .. } | HashFileError::NulInKey { .. } => false,
        }
    }

    pub(super) fn reading(path: &Path, error: LeadingHashError) -> HashFileError {
        let path = path.to_owned();
        match error {
            LeadingHashError::Io(source) => HashFileError::Read { path, source },
            LeadingHashError::Format(source) => HashFileError::Format { path, source },
        }
    }
}

/// The tree in a hash file, or in front of an `.xor` file.
///
/// # Errors
/// When the file cannot be read, or is not a hash file; see [`HashFormatError`] for the ways.
pub fn read(path: &Path) -> Result<Tree, HashFileError> {
    let file = regular_file::open(path).map_err(|source| HashFileError::Read { path: path.to_owned(), source })?;
    read_open(path, &file)
}

/// The tree at the beginning of what `input` reads of the file at `path`, whose name says how large it may be.
pub fn read_from(path: &Path, input: &mut impl io::Read) -> Result<Tree, HashFileError> {
    let (tree, _) = decode_prefix(input, Limits::of(path)).map_err(|error| HashFileError::reading(path, error))?;
    Ok(tree)
}

/// As [`read`], with `None` when there is no such file.
///
/// # Errors
/// When the file is there and cannot be read, or is not a hash file.
pub fn read_if_there(path: &Path) -> Result<Option<Tree>, HashFileError> {
    match read(path) {
        Ok(tree) => Ok(Some(tree)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a file by the hash file of `tree`, with the mode that the umask leaves: for the files of the prefix
/// directory.
///
/// # Errors
/// When a key contains a NUL, or the file cannot be replaced; the old one is then untouched.
pub fn write(target: impl Into<Target>, tree: &Tree) -> Result<(), HashFileError> {
    let target = target.into();
    let bytes = packed(&target.location(), tree)?;
    Ok(durable::replace(target, CreationMode::Umask, &bytes)?)
}

/// As [`write()`], private and without a sync: for the files of control and cache directories (see [`durable`]).
///
/// # Errors
/// As [`write()`].
pub fn write_unsynced(path: &Path, tree: &Tree) -> Result<(), HashFileError> {
    Ok(durable::replace_unsynced(path, &packed(path, tree)?)?)
}

/// The encoded hash file of `tree`; `path` is only named in errors.
///
/// # Errors
/// When a key contains a NUL.
pub fn packed(path: &Path, tree: &Tree) -> Result<Vec<u8>, HashFileError> {
    match key_with_nul(tree) {
        Some(key) => Err(HashFileError::NulInKey { path: path.to_owned(), key: key.to_owned() }),
        None => Ok(encode(tree)),
    }
}

pub(super) fn read_open(path: &Path, file: &File) -> Result<Tree, HashFileError> {
    read_from(path, &mut BufReader::new(file))
}

fn key_with_nul(tree: &Tree) -> Option<&str> {
    tree.iter().find_map(|(key, value)| if key.contains('\0') { Some(key) } else { key_with_nul(value) })
}
