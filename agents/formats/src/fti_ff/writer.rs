//! Writes checkpoints in layout A.
//!
//! Any thread may write data, in any order and in pieces of any size: each piece is written to its place in the file.
//! Then the hashes are computed from the file: those of the containers, the checksum over everything, and that of the
//! metadata. The file gets its name when it is complete and on disk.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::blocks::Block;
use super::containers;
use super::hashing::{self, HashRequest};
use super::layout::{FileMeta, Layout, checksum_field};
use crate::destination::{self, FillError};
use crate::error::FormatsError;
use crate::input::Input;

/// The fields of the file metadata that do not follow from the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Time of creation, in nanoseconds since 1970.
    pub timestamp: i64,
    /// Level 3: bytes of the longest file of the group.
    pub largest_size: Option<u64>,
    /// Level 2: bytes of the left neighbour's file.
    pub partner_size: Option<u64>,
}

impl Stamp {
    /// A checkpoint of level 1 or 4.
    pub fn at(timestamp: i64) -> Stamp {
        Stamp { timestamp, largest_size: None, partner_size: None }
    }

    /// The metadata of a file in layout A, whose content after its own place is complete.
    pub(super) fn document(self, input: &Input) -> Result<FileMeta, FormatsError> {
        let (front, size) = (Layout::A.meta_bytes() as u64, input.size);
        let request = HashRequest { chunks: Vec::new(), combined: vec![(front, size.saturating_sub(front))] };
        let checksum = hashing::hash(input, &request, &mut |_, _| {})?.combined;
        Ok(self.meta(Layout::A, None, checksum, size, None))
    }

    /// The metadata of a file of this size; `sizes` are those of its metadata and of its data.
    pub(super) fn meta(
        self,
        layout: Layout,
        checkpoint: Option<i32>,
        checksum: [u8; 16],
        size: u64,
        sizes: Option<(u64, u64)>,
    ) -> FileMeta {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut meta = FileMeta {
            layout,
            checksum: checksum_field(&checksum),
            own_hash: [0; 16],
            checkpoint,
            checkpoint_size: number(size),
            meta_size: sizes.map(|(meta, _)| number(meta)),
            data_size: sizes.map(|(_, data)| number(data)),
            file_size: number(size),
            largest_size: self.largest_size.map_or(-1, number),
            partner_size: self.partner_size.map_or(-1, number),
            timestamp: self.timestamp,
            last_byte: 0,
        };
        meta.own_hash = meta.computed_hash();
        meta
    }
}

/// Accepts the data of the variables while a file is written.
#[derive(Debug)]
pub struct Writer<'a> {
    file: &'a File,
    blocks: &'a [Block],
}

impl Writer<'_> {
    /// Writes bytes of a variable from this offset on. Several threads may call it at the same time.
    ///
    /// # Errors
    /// When the range exceeds the variable, or writing fails.
    pub fn write(&self, id: i32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        for entry in self.blocks.iter().flat_map(|block| &block.entries).filter(|entry| entry.id == id) {
            if rest.is_empty() {
                break;
            }
            let number = |number: i64| u64::try_from(number).unwrap_or(0);
            let (start, size) = (number(entry.dptr), number(entry.chunksize));
            let Some(skip) = at.checked_sub(start).filter(|skip| *skip < size) else { continue };
            let now = usize::try_from(size - skip).unwrap_or(usize::MAX).min(rest.len());
            let (here, later) = rest.split_at(now);
            self.file.write_all_at(here, number(entry.fptr).saturating_add(skip))?;
            (at, rest) = (at.saturating_add(now as u64), later);
        }
        match rest.len() {
            0 => Ok(()),
            left => Err(io::Error::other(format!("{left} bytes are after the end of variable {id}"))),
        }
    }
}

/// Writes a checkpoint with these blocks (see [`containers::next`]) and returns the blocks with their hashes, as input
/// for the next checkpoint. Bytes that `fill` does not write are zero. A file of that name is replaced.
///
/// # Errors
/// When the blocks are too large for a file, `fill` fails, or writing fails; a previous file is then unchanged.
pub fn write(
    path: &Path,
    blocks: Vec<Block>,
    stamp: Stamp,
    fill: impl FnOnce(&Writer<'_>) -> io::Result<()>,
) -> Result<Vec<Block>, FormatsError> {
    let size = containers::end(&blocks).filter(|size| i64::try_from(*size).is_ok());
    let size = size.ok_or_else(|| FormatsError::Unwritable {
        path: path.to_owned(),
        why: "the blocks are larger than a file can be; drop variables or split them".to_owned(),
    })?;
    destination::replace(path, |out| {
        out.flush()?;
        let file = &out.get_ref().0;
        file.set_len(size)?;
        fill(&Writer { file, blocks: &blocks })?;
        finish(path, file, size, blocks, stamp)
    })
}

/// Hashes the content of the file and writes all metadata.
fn finish(path: &Path, file: &File, size: u64, mut blocks: Vec<Block>, stamp: Stamp) -> Result<Vec<Block>, FillError> {
    let input = Input::over(path, file.try_clone()?, size);
    let mut request = HashRequest::default();
    for entry in blocks.iter().flat_map(|block| &block.entries) {
        request.chunks.push(entry.range(size).unwrap_or((0, 0)));
    }
    let hashes = hashing::hash(&input, &request, &mut |_, _| {})?;
    let entries = blocks.iter_mut().flat_map(|block| &mut block.entries);
    for (entry, hash) in entries.zip(hashes.chunks) {
        // An empty container gets the MD5 of no bytes, as FTI writes it.
        entry.hash = hash;
    }
    for block in &blocks {
        file.write_all_at(&block.metadata_bytes(Layout::A), block.offset)?;
    }
    let meta = stamp.document(&input)?;
    file.write_all_at(&meta.document_bytes(), 0)?;
    Ok(blocks)
}
