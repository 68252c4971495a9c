//! The meta file `<file>.scr` beside every checkpoint file (`docs/scr-files.md` §3).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::{ContentError, ControlError, node_path, parse, required};
use crate::kvtree::{Tree, file};
use crate::{calls, durable};
use holdfast_model::{CheckpointId, OutputPath, Rank, Scheme};
use rustix::fs::{AtFlags, CWD, FileType};

/// What is appended to a file's name for its meta file.
pub const EXTENSION: &str = ".scr";

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A file of the application, or a partner's copy of one (`TYPE FULL`).
    Full,
    /// Redundancy data (`TYPE` is the scheme's name).
    Redundancy(Scheme),
}

const FULL: &str = "FULL";

impl FileKind {
    /// The kind that a value of `TYPE` means.
    fn parse(value: &str) -> Option<FileKind> {
        let scheme = || value.parse::<Scheme>().ok().filter(|scheme| scheme.as_str() == value);
        if value == FULL { Some(FileKind::Full) } else { scheme().map(FileKind::Redundancy) }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileKind::Full => f.write_str(FULL),
            FileKind::Redundancy(scheme) => scheme.fmt(f),
        }
    }
}

/// What is known of one checkpoint file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    pub file: String,
    /// Application data or redundancy data.
    pub kind: FileKind,
    pub size: u64,
    pub checkpoint: CheckpointId,
    /// The rank that owns it; for a partner's copy that is the rank that wrote the original.
    pub rank: Rank,
    /// Number of ranks of the run that wrote it.
    pub ranks: u32,
    /// The file is complete. A missing key means false.
    pub complete: bool,
    /// CRC32 of the content, once it is known.
    pub crc: Option<u32>,
    /// Where the file of an output belongs below the prefix directory. SCR 1 has no such key.
    pub output_path: Option<OutputPath>,
}

/// Why a file named in a filemap cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableFile {
    #[error(transparent)]
    Meta(#[from] ControlError),
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The meta file contradicts the filemap, or the file's size.
    #[error("{}: its meta file records {what} {found}, expected is {expected}", path.display())]
    Mismatch { path: PathBuf, what: &'static str, found: String, expected: String },
}

impl UnusableFile {
    /// True if descriptors or memory were exhausted: nothing is known of the file, and a later try may succeed.
    pub fn is_exhaustion(&self) -> bool {
        match self {
            UnusableFile::Meta(error) => error.is_exhaustion(),
            UnusableFile::File { source, .. } => durable::is_exhaustion(source),
            UnusableFile::Mismatch { .. } => false,
        }
    }
}

impl Meta {
    /// Of a complete file of the application whose checksum is not known.
    pub fn of_application(
        file: impl Into<String>,
        size: u64,
        checkpoint: CheckpointId,
        rank: Rank,
        ranks: u32,
    ) -> Meta {
        let (file, kind) = (file.into(), FileKind::Full);
        Meta { file, kind, size, checkpoint, rank, ranks, complete: true, crc: None, output_path: None }
    }

    /// The tree in the original's order: CRC first, if known, then COMPLETE, RANKS, RANK, CKPT, SIZE, TYPE, FILE;
    /// at the end PATH, of a file of an output.
    pub fn to_tree(&self) -> Tree {
        self.to_tree_with(format_crc)
    }

    /// As [`Meta::to_tree`], with a CRC that is padded to eight digits: trees that differ in the value of the CRC only
    /// have the same length.
    pub fn to_tree_of_fixed_length(&self) -> Tree {
        self.to_tree_with(|crc| format!("{crc:#010x}"))
    }

    fn to_tree_with(&self, format: fn(u32) -> String) -> Tree {
        let mut tree = Tree::new();
        if let Some(path) = &self.output_path {
            tree.set_kv("PATH", path);
        }
        tree.set_kv("FILE", &self.file);
        tree.set_kv("TYPE", self.kind);
        tree.set_kv("SIZE", self.size);
        tree.set_kv("CKPT", self.checkpoint);
        tree.set_kv("RANK", self.rank);
        tree.set_kv("RANKS", self.ranks);
        tree.set_kv("COMPLETE", u8::from(self.complete));
        if let Some(crc) = self.crc {
            tree.set_kv("CRC", format(crc));
        }
        tree
    }

    /// Parses a tree, in any order of its elements.
    ///
    /// # Errors
    /// The key that is missing or has an impossible value; among those is a FILE that is not a bare name.
    pub fn from_tree(tree: &Tree) -> Result<Meta, ContentError> {
        let file: String = required(tree, "FILE", "a file name")?;
        if node_path::base_name(&file).is_err() {
            let expected = "a file name without directory";
            return Err(ContentError::Value { key: "FILE".to_owned(), value: file, expected });
        }
        let output_path = match exactly_one(tree, "PATH").transpose()? {
            None => None,
            Some(path) => match OutputPath::parse(path) {
                Ok(parsed) if parsed.base_name() == file => Some(parsed),
                _ => {
                    let expected = "a path below the prefix directory that ends in FILE";
                    return Err(ContentError::Value { key: "PATH".to_owned(), value: path.to_owned(), expected });
                }
            },
        };
        const EXPECTED: &str = "FULL or the name of a redundancy scheme";
        let kind: String = required(tree, "TYPE", EXPECTED)?;
        let kind = FileKind::parse(&kind).ok_or_else(|| ContentError::Value {
            key: "TYPE".to_owned(),
            value: kind.clone(),
            expected: EXPECTED,
        })?;
        Ok(Meta {
            file,
            kind,
            size: exactly_one(tree, "SIZE")
                .ok_or_else(|| ContentError::Missing { key: "SIZE".to_owned() })
                .and_then(|value| parse("SIZE", value?, "one number of bytes"))?,
            checkpoint: required(tree, "CKPT", "a checkpoint id")?,
            rank: required(tree, "RANK", "a rank")?,
            ranks: required(tree, "RANKS", "a number of ranks")?,
            complete: match tree.value("COMPLETE") {
                None | Some("0") => false,
                Some("1") => true,
                Some(value) => {
                    let value = value.to_owned();
                    return Err(ContentError::Value { key: "COMPLETE".to_owned(), value, expected: "0 or 1" });
                }
            },
            crc: crc_of(tree)?,
            output_path,
        })
    }

    /// The name of a file's meta file.
    pub fn name_for(file: &str) -> String {
        format!("{file}{EXTENSION}")
    }

    /// The path of a file's meta file.
    pub fn path_for(file: &Path) -> PathBuf {
        let mut path = file.as_os_str().to_owned();
        path.push(EXTENSION);
        PathBuf::from(path)
    }

    /// Reads the meta file of a checkpoint file.
    ///
    /// # Errors
    /// When the meta file cannot be read, or lacks something.
    pub fn read(file: &Path) -> Result<Meta, ControlError> {
        let path = Meta::path_for(file);
        Meta::from_tree(&file::read(&path)?).map_err(|source| ControlError::Content { path, source })
    }

    /// Replaces the meta file of a checkpoint file.
    ///
    /// # Errors
    /// When it cannot be replaced; the old one is then untouched.
    pub fn write(&self, file: &Path) -> Result<(), ControlError> {
        Ok(file::write(&Meta::path_for(file), &self.to_tree())?)
    }

    /// As [`Meta::write`], without a sync: for the meta files of files in cache.
    pub fn write_unsynced(&self, file: &Path) -> Result<(), ControlError> {
        Ok(file::write_unsynced(&Meta::path_for(file), &self.to_tree())?)
    }

    /// "Have the file" in the original's sense: file and meta file readable, complete, of this checkpoint and rank (and
    /// of a run with so many ranks, where that is asked), and of the size that its meta file records. The content is
    /// not read.
    ///
    /// # Errors
    /// The first of these that does not hold.
    pub fn of_usable(
        file: &Path,
        checkpoint: CheckpointId,
        rank: Rank,
        ranks: Option<u32>,
    ) -> Result<Meta, UnusableFile> {
        let unreadable = |source| UnusableFile::File { path: file.to_owned(), source };
        let found = calls::statat(CWD, file, AtFlags::empty()).map_err(|errno| unreadable(errno.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
        }
        let size = u64::try_from(found.st_size).unwrap_or(0);
        let meta = Meta::read(file)?;
        let mismatch = |what, found: String, expected: String| {
            Err(UnusableFile::Mismatch { path: file.to_owned(), what, found, expected })
        };
        if !meta.complete {
            return mismatch("COMPLETE", "0".to_owned(), "1".to_owned());
        }
        if meta.checkpoint != checkpoint {
            return mismatch("CKPT", meta.checkpoint.to_string(), checkpoint.to_string());
        }
        if meta.rank != rank {
            return mismatch("RANK", meta.rank.to_string(), rank.to_string());
        }
        if let Some(ranks) = ranks.filter(|ranks| *ranks != meta.ranks) {
            return mismatch("RANKS", meta.ranks.to_string(), ranks.to_string());
        }
        if meta.size != size {
            return mismatch("SIZE", meta.size.to_string(), size.to_string());
        }
        Ok(meta)
    }
}

/// A CRC as the original writes it, C's `%#x`: lower case, not padded, and zero is `0`.
pub fn format_crc(crc: u32) -> String {
    if crc == 0 { "0".to_owned() } else { format!("{crc:#x}") }
}

/// A CRC as the original reads it, C's `strtoul(…, 0)`: hexadecimal with `0x`, octal with `0`, else decimal.
pub fn parse_crc(text: &str) -> Option<u32> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    // `from_str_radix` would take a sign.
    if digits.starts_with(['+', '-']) { None } else { u32::from_str_radix(digits, radix).ok() }
}

/// The CRC that a tree has under its key `CRC`, if it has one: meta files and summaries write it alike.
///
/// # Errors
/// When there are several, or it is not a number.
pub fn crc_of(tree: &Tree) -> Result<Option<u32>, ContentError> {
    let expected = "one CRC32 as 0x…";
    let Some(value) = exactly_one(tree, "CRC") else { return Ok(None) };
    let value = value?;
    let wrong = || ContentError::Value { key: "CRC".to_owned(), value: value.to_owned(), expected };
    parse_crc(value).ok_or_else(wrong).map(Some)
}

/// The value of a key of which the original insists that there is one only; `None` without the key.
fn exactly_one<'a>(tree: &'a Tree, key: &str) -> Option<Result<&'a str, ContentError>> {
    let values = tree.get(key)?;
    Some(tree.single(key).ok_or_else(|| ContentError::Value {
        key: key.to_owned(),
        value: values.keys().collect::<Vec<_>>().join(" "),
        expected: "exactly one value",
    }))
}
