//! A member's files as one: concatenated, and padded with zeros to any length.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_model::{OutputPath, Rank};

use super::files::MemberFiles;
use super::inside;
use super::{RedundancyError, Result};
use crate::store::{DatasetFiles, StoredFile};

/// Files that stay open at a time: a rank may have written thousands.
const OPEN_FILES: usize = 64;

/// The files of one member for reading, in the order of concatenation.
#[derive(Debug)]
pub struct LogicalFile {
    files: Arc<dyn DatasetFiles>,
    member: u32,
    rank: Rank,
    parts: Vec<FileSpan>,
    total: u64,
    open: usize,
}

#[derive(Debug)]
struct FileSpan {
    name: String,
    output_path: Option<OutputPath>,
    start: u64,
    size: u64,
    crc: Option<u32>,
    handle: Option<Box<dyn StoredFile>>,
}

impl LogicalFile {
    /// Opens the files of `files` in a directory in cache; each must be a regular file of exactly the size that its
    /// meta data records. `member` is the index in the set, for messages.
    pub fn open(directory: &Path, member: u32, files: &MemberFiles) -> Result<LogicalFile> {
        let dataset: Arc<dyn DatasetFiles> = inside::open_directory(directory)?;
        LogicalFile::open_in(&dataset, member, files)
    }

    /// As [`LogicalFile::open`], of the files of a dataset.
    pub fn open_in(dataset: &Arc<dyn DatasetFiles>, member: u32, files: &MemberFiles) -> Result<LogicalFile> {
        let mut logical = LogicalFile {
            files: Arc::clone(dataset),
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
                output_path: meta.output_path.clone(),
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
    pub fn read_real(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
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

    /// As [`LogicalFile::read_real`], filling what is after the last file with zeros.
    pub fn read_padded(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let real = self.read_real(offset, buffer)?;
        buffer[real..].fill(0);
        Ok(real)
    }

    fn handle(&mut self, at: usize) -> Result<&dyn StoredFile> {
        if self.parts[at].handle.is_none() {
            if self.open >= OPEN_FILES {
                for part in &mut self.parts {
                    part.handle = None;
                }
                self.open = 0;
            }
            let FileSpan { name, output_path, .. } = &self.parts[at];
            let file = inside::open(&*self.files, name, output_path.as_ref())?;
            let found = file.length();
            let expected = self.parts[at].size;
            if found != expected {
                return Err(self.damaged(at, format!("it has {found} bytes instead of {expected}")));
            }
            self.parts[at].handle = Some(file);
            self.open += 1;
        }
        self.parts[at].handle.as_deref().ok_or_else(|| RedundancyError::Io {
            doing: "open",
            path: self.files.location().to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    fn path(&self, at: usize) -> PathBuf {
        self.files.path_of(&self.parts[at].name)
    }

    fn damaged(&self, at: usize, why: String) -> RedundancyError {
        RedundancyError::MemberDamaged { member: self.member, rank: self.rank, path: self.path(at), why }
    }
}

/// Computes the CRC32 of each file while the logical file is read in chunks side by side, so that it costs no second
/// read: each chunk is read front to back, and the parts of a file that lie in several chunks are combined at the end.
#[derive(Debug)]
pub struct ChunkedChecksums {
    chunks: Vec<ChunkPosition>,
    /// For each file the CRC32 of what was read of it, by chunk.
    parts: Vec<BTreeMap<usize, crc32fast::Hasher>>,
}

#[derive(Debug)]
struct ChunkPosition {
    /// Offset in the logical file.
    at: u64,
    /// The file at `at`.
    part: usize,
    /// Of the bytes of that file that were read in this chunk.
    hasher: crc32fast::Hasher,
}

impl ChunkedChecksums {
    /// For a logical file that is read in `count` chunks of `bytes` bytes each.
    pub fn new(logical: &LogicalFile, count: u32, bytes: u64) -> Self {
        let chunks = (0..u64::from(count)).map(|chunk| {
            let at = chunk.saturating_mul(bytes);
            let part = logical.parts.partition_point(|part| part.start + part.size <= at);
            ChunkPosition { at, part, hasher: crc32fast::Hasher::new() }
        });
        ChunkedChecksums { chunks: chunks.collect(), parts: vec![BTreeMap::new(); logical.parts.len()] }
    }

    /// Takes the next real bytes of a chunk.
    pub fn feed(&mut self, logical: &LogicalFile, chunk: usize, mut bytes: &[u8]) {
        let Some(position) = self.chunks.get_mut(chunk) else { return };
        while !bytes.is_empty() {
            let Some(part) = logical.parts.get(position.part) else { return };
            let left = part.start + part.size - position.at;
            let take = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            position.hasher.update(&bytes[..take]);
            position.at += take as u64;
            bytes = &bytes[take..];
            if position.at >= part.start + part.size {
                self.parts[position.part].insert(chunk, std::mem::take(&mut position.hasher));
                position.part += 1;
            }
        }
    }

    /// After the last byte: the checksum of each file.
    ///
    /// # Errors
    /// A file that has another checksum than its meta data records.
    pub fn finish(mut self, logical: &LogicalFile) -> Result<Vec<u32>> {
        for (chunk, position) in self.chunks.into_iter().enumerate() {
            // A file that continues in the next chunk.
            if let Some(read) = self.parts.get_mut(position.part) {
                read.entry(chunk).or_insert(position.hasher);
            }
        }
        let files = self.parts.iter().zip(&logical.parts).enumerate();
        let sums = files.map(|(at, (read, part))| {
            let mut all = crc32fast::Hasher::new();
            read.values().for_each(|hasher| all.combine(hasher));
            let found = all.finalize();
            match part.crc {
                Some(expected) if expected != found => Err(logical.damaged(at, wrong_crc(found, expected))),
                _ => Ok(found),
            }
        });
        sums.collect()
    }
}

fn wrong_crc(found: u32, expected: u32) -> String {
    format!("its CRC32 is {found:#010x} instead of {expected:#010x}")
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
    /// Takes the next real bytes; an error as soon as a file ends with another checksum than its meta data records.
    pub fn feed(&mut self, logical: &LogicalFile, mut bytes: &[u8]) -> Result<()> {
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
                    return Err(logical.damaged(self.part, wrong_crc(found, expected)));
                }
                self.verified += 1;
            }
            self.part += 1;
            self.inside = 0;
        }
    }

    /// After the last byte: closes files of size 0 at the end, and returns how many files carried a checksum.
    pub fn finish(mut self, logical: &LogicalFile) -> Result<usize> {
        self.feed(logical, &[])?;
        Ok(self.verified)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_model::CheckpointId;
    use proptest::prelude::*;

    use super::*;
    use crate::control::meta::Meta;

    /// Files of these sizes, of which none has a recorded checksum.
    fn written(directory: &Path, sizes: &[usize]) -> (MemberFiles, Vec<u32>) {
        let (mut files, mut checksums) = (Vec::new(), Vec::new());
        for (number, size) in (0u32..).zip(sizes) {
            let bytes = holdfast_testkit::application_bytes(1, 0, number, *size);
            let file = format!("f{number}");
            fs::write(directory.join(&file), &bytes).unwrap();
            checksums.push(crc32fast::hash(&bytes));
            files.push(Meta::of_application(file, *size as u64, CheckpointId(1), Rank(0), 1));
        }
        (MemberFiles { rank: Rank(0), files }, checksums)
    }

    /// Reads a logical file in `count` chunks, piece by piece of each in turn.
    fn checksums_of(logical: &mut LogicalFile, count: u32, piece: usize) -> Result<Vec<u32>> {
        let chunk = logical.total_bytes().div_ceil(u64::from(count)).max(1);
        let mut checksums = ChunkedChecksums::new(logical, count, chunk);
        let mut offset = 0;
        while offset < chunk {
            let length = piece.min((chunk - offset) as usize);
            for number in (0..count).rev() {
                let mut buffer = vec![0xff; length];
                let real = logical.read_real(u64::from(number) * chunk + offset, &mut buffer).unwrap();
                checksums.feed(logical, number as usize, &buffer[..real]);
            }
            offset += length as u64;
        }
        checksums.finish(logical)
    }

    proptest! {
        #[test]
        fn chunks_that_are_read_side_by_side_give_the_checksum_of_each_file(
            sizes in prop::collection::vec(0usize..700, 0..6),
            count in 1u32..7,
            piece in 1usize..200,
            changed in any::<prop::sample::Index>(),
        ) {
            let work = tempfile::tempdir().unwrap();
            let (mut files, expected) = written(work.path(), &sizes);
            let mut logical = LogicalFile::open(work.path(), 3, &files).unwrap();
            prop_assert_eq!(checksums_of(&mut logical, count, piece).unwrap(), &expected[..]);

            // The same with recorded checksums, of which one is that of another content.
            for (meta, crc) in files.files.iter_mut().zip(&expected) {
                meta.crc = Some(*crc);
            }
            let mut logical = LogicalFile::open(work.path(), 3, &files).unwrap();
            prop_assert!(checksums_of(&mut logical, count, piece).is_ok());
            if !sizes.is_empty() {
                let changed = changed.index(sizes.len());
                files.files[changed].crc = Some(!expected[changed]);
                let mut logical = LogicalFile::open(work.path(), 3, &files).unwrap();
                let refused = checksums_of(&mut logical, count, piece);
                let path = work.path().join(format!("f{changed}"));
                prop_assert!(
                    matches!(&refused, Err(RedundancyError::MemberDamaged { path: of, .. }) if *of == path),
                    "{:?}", refused
                );
            }
        }
    }
}
