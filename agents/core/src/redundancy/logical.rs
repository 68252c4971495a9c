//! A member's files as one: concatenated, and padded with zeros to any length.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_model::Rank;

use super::RedundancyError;
use super::files::MemberFiles;
use super::inside;

/// Files that stay open at a time: a rank may have written thousands.
const OPEN_FILES: usize = 64;

/// The files of one member for reading, in the order of concatenation.
#[derive(Debug)]
pub struct LogicalFile {
    directory: PathBuf,
    member: u32,
    rank: Rank,
    parts: Vec<FileSpan>,
    total: u64,
    open: usize,
}

#[derive(Debug)]
struct FileSpan {
    name: String,
    start: u64,
    size: u64,
    crc: Option<u32>,
    handle: Option<File>,
}

impl LogicalFile {
    /// Opens the files of `files` in `directory`; each must be a regular file of exactly the size that its meta data
    /// records. `member` is the index in the set, for messages.
    pub fn open(directory: &Path, member: u32, files: &MemberFiles) -> Result<LogicalFile, RedundancyError> {
        let mut logical = LogicalFile {
            directory: directory.to_owned(),
            member,
            rank: files.rank,
            parts: Vec::with_capacity(files.files.len()),
            total: 0,
            open: 0,
        };
        for meta in &files.files {
            let start = logical.total;
            logical.total = start.checked_add(meta.size).ok_or_else(|| RedundancyError::Header {
                origin: format!("rank {}", files.rank),
                why: "the sizes of its files do not add up".into(),
            })?;
            logical.parts.push(FileSpan {
                name: meta.file.clone(),
                start,
                size: meta.size,
                crc: meta.crc,
                handle: None,
            });
            logical.handle(logical.parts.len() - 1)?;
        }
        Ok(logical)
    }

    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// World rank of the owner.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Sets the checksum that file number `at` must have if its header does not contain one (the file's own meta data
    /// does).
    pub(crate) fn expect_crc(&mut self, at: usize, crc: u32) {
        if let Some(part) = self.parts.get_mut(at) {
            part.crc = Some(crc);
        }
    }

    /// Reads at `offset` what there is of real data, into the front of `buffer`; returns how much. The rest is padding,
    /// and the buffer there is left as it was.
    pub fn read_real(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, RedundancyError> {
        let mut at = self.parts.partition_point(|part| part.start + part.size <= offset);
        let mut done = 0;
        while done < buffer.len() && at < self.parts.len() {
            let part = &self.parts[at];
            let inside = offset + done as u64 - part.start;
            let left = usize::try_from(part.size - inside).unwrap_or(usize::MAX);
            let take = left.min(buffer.len() - done);
            if take > 0 {
                let target = &mut buffer[done..done + take];
                let result = self.handle(at)?.read_exact_at(target, inside);
                if let Err(source) = result {
                    let path = self.path(at);
                    return Err(RedundancyError::Io { doing: "read", path, source });
                }
                done += take;
            }
            at += 1;
        }
        Ok(done)
    }

    /// Reads at `offset`, filling what is after the last file with zeros.
    pub fn read_padded(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), RedundancyError> {
        let real = self.read_real(offset, buffer)?;
        buffer[real..].fill(0);
        Ok(())
    }

    fn handle(&mut self, at: usize) -> Result<&File, RedundancyError> {
        if self.parts[at].handle.is_none() {
            if self.open >= OPEN_FILES {
                for part in &mut self.parts {
                    part.handle = None;
                }
                self.open = 0;
            }
            let file = inside::open(&self.directory, &self.parts[at].name)?;
            let path = self.path(at);
            let found = file.metadata().map_err(RedundancyError::io("look at", &path))?.len();
            let expected = self.parts[at].size;
            if found != expected {
                return Err(self.damaged(at, format!("it has {found} bytes instead of {expected}")));
            }
            self.parts[at].handle = Some(file);
            self.open += 1;
        }
        self.parts[at].handle.as_ref().ok_or_else(|| RedundancyError::Io {
            doing: "open",
            path: self.directory.clone(),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    fn path(&self, at: usize) -> PathBuf {
        self.directory.join(&self.parts[at].name)
    }

    fn damaged(&self, at: usize, why: String) -> RedundancyError {
        RedundancyError::MemberDamaged { member: self.member, rank: self.rank, path: self.path(at), why }
    }
}

/// Checks the CRC32 of each file while the logical file is read front to back, so that verifying costs no second read.
#[derive(Debug, Default)]
pub struct Verifier {
    part: usize,
    inside: u64,
    hasher: crc32fast::Hasher,
    verified: usize,
}

impl Verifier {
    /// A verifier at the front of a logical file.
    pub fn new() -> Self {
        Verifier::default()
    }

    /// Takes the next real bytes; an error as soon as a file ends with another checksum than its meta data records.
    pub fn feed(&mut self, logical: &LogicalFile, mut bytes: &[u8]) -> Result<(), RedundancyError> {
        loop {
            let Some(part) = logical.parts.get(self.part) else { return Ok(()) };
            let left = part.size - self.inside;
            let take = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            if part.crc.is_some() {
                self.hasher.update(&bytes[..take]);
            }
            bytes = &bytes[take..];
            self.inside += take as u64;
            if self.inside < part.size {
                return Ok(());
            }
            let found = std::mem::take(&mut self.hasher).finalize();
            if let Some(expected) = part.crc {
                if found != expected {
                    let why = format!("its CRC32 is {found:#010x} instead of {expected:#010x}");
                    return Err(logical.damaged(self.part, why));
                }
                self.verified += 1;
            }
            self.part += 1;
            self.inside = 0;
        }
    }

    /// After the last byte: closes files of size 0 at the end, and returns how many files carried a checksum.
    pub fn finish(mut self, logical: &LogicalFile) -> Result<usize, RedundancyError> {
        self.feed(logical, &[])?;
        Ok(self.verified)
    }
}
