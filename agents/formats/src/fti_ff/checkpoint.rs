//! An open FTI-FF file: its layout, its metadata, and its variables, readable from any offset.

use std::collections::BTreeMap;
use std::path::Path;

use md5::{Digest, Md5};

use super::blocks::{self, Block, Walk};
use super::layout::{FileMeta, Layout};
use crate::error::FormatsError;
use crate::file_check::Damage;
use crate::format::Confidence;
use crate::input::Input;

/// A file of FTI, by its content.
#[derive(Debug)]
pub enum FtiFile {
    /// The checkpoint of a rank, or a partner copy of one.
    Checkpoint(Checkpoint),
    /// A row of Reed-Solomon parity.
    Parity(Parity),
    /// Nothing can be parsed, for this reason.
    Unreadable(Damage),
}

/// A checkpoint of one rank. Reads take `&self`, so that several threads can read at once.
#[derive(Debug)]
pub struct Checkpoint {
    pub input: Input,
    /// Its metadata, with the layout.
    pub meta: FileMeta,
    /// True if the metadata matches its hash.
    pub hash_valid: bool,
    /// Its blocks, and their damages.
    pub walk: Walk,
}

/// A row of Reed-Solomon parity (level 3).
#[derive(Debug)]
pub struct Parity {
    pub input: Input,
    /// The metadata in its trailer.
    pub meta: FileMeta,
    /// True if the trailer matches its hash.
    pub hash_valid: bool,
}

impl Parity {
    /// Bytes of parity before the trailer.
    pub fn data_bytes(&self) -> u64 {
        self.input.size.saturating_sub(self.meta.layout.meta_bytes() as u64)
    }
}

/// A variable and the places of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The id given to `FTI_Protect`.
    pub id: i32,
    /// Its containers with content, in order.
    pub chunks: Vec<VariableChunk>,
}

/// The content of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableChunk {
    pub block: usize,
    /// Its index in the block.
    pub index: usize,
    /// Offset and length in the file in bytes; `None` if they are impossible for the file.
    pub range: Option<(u64, u64)>,
    pub hash: [u8; 16],
}

impl Variable {
    /// The bytes of its value that are in the file.
    pub fn size(&self) -> u64 {
        self.chunks.iter().filter_map(|chunk| chunk.range).fold(0, |sum, range| sum.saturating_add(range.1))
    }

    /// A digest of the sizes and hashes of its chunks: with the same chunks, variables of equal digests are equal.
    pub fn digest(&self) -> [u8; 16] {
        let mut hasher = Md5::new();
        for chunk in &self.chunks {
            hasher.update(chunk.range.map_or(0, |range| range.1).to_le_bytes());
            hasher.update(chunk.hash);
        }
        hasher.finalize().into()
    }
}

impl Checkpoint {
    /// Opens a checkpoint for reading its variables.
    ///
    /// # Errors
    /// When the file cannot be read, or its metadata is damaged.
    pub fn open(path: &Path) -> Result<Checkpoint, FormatsError> {
        match inspect(Input::open(path)?)? {
            FtiFile::Checkpoint(checkpoint) => match checkpoint.walk.damages.first() {
                None => Ok(checkpoint),
                Some(damage) => Err(FormatsError::damaged("read variables of", path, damage)),
            },
            FtiFile::Parity(_) => Err(parity_has_none("read variables of", path)),
            FtiFile::Unreadable(damage) => Err(FormatsError::damaged("read variables of", path, damage)),
        }
    }

    /// The variables, ordered by id.
    pub fn variables(&self) -> Vec<Variable> {
        let mut variables: BTreeMap<i32, Vec<(i32, VariableChunk)>> = BTreeMap::new();
        for (block, content) in self.walk.blocks.iter().enumerate() {
            for (index, entry) in content.entries.iter().enumerate() {
                let chunks = variables.entry(entry.id).or_default();
                if entry.is_filled() {
                    let range = entry.range(self.input.size);
                    chunks.push((entry.containerid, VariableChunk { block, index, range, hash: entry.hash }));
                }
            }
        }
        let in_order = |(id, mut chunks): (i32, Vec<(i32, VariableChunk)>)| {
            chunks.sort_by_key(|(container, _)| *container);
            Variable { id, chunks: chunks.into_iter().map(|(_, chunk)| chunk).collect() }
        };
        variables.into_iter().map(in_order).collect()
    }

    /// Fills the buffer with the bytes of a variable from this offset in it on.
    ///
    /// # Errors
    /// When the variable ends inside the range, or reading fails.
    pub fn read(&self, variable: &Variable, offset: u64, mut buffer: &mut [u8]) -> Result<(), FormatsError> {
        let mut skipped = offset;
        for (start, bytes) in variable.chunks.iter().filter_map(|chunk| chunk.range) {
            let inside = skipped.min(bytes);
            skipped = skipped.saturating_sub(inside);
            let length = usize::try_from(bytes.saturating_sub(inside)).unwrap_or(usize::MAX).min(buffer.len());
            let (here, rest) = buffer.split_at_mut(length);
            if !here.is_empty() {
                self.input.read_at(start.saturating_add(inside), here)?;
            }
            buffer = rest;
        }
        if buffer.is_empty() {
            return Ok(());
        }
        let what = format!("variable {} ends {} bytes early", variable.id, buffer.len());
        Err(FormatsError::damaged("read variables of", &self.input.path, what))
    }

    /// A chunk's place as shown in messages.
    pub fn place(&self, chunk: &VariableChunk) -> String {
        let entry = self.walk.blocks.get(chunk.block).and_then(|block| block.entries.get(chunk.index));
        entry.map_or_else(String::new, |entry| blocks::place(chunk.block, chunk.index, entry))
    }

    /// The bytes of the file without those that were appended to it: `fs`, in the layouts whose readers ignore what
    /// follows. No hash covers these bytes.
    pub(super) fn own_bytes(&self) -> u64 {
        let size = self.input.size;
        match u64::try_from(self.meta.file_size) {
            Ok(own) if self.hash_valid && !self.meta.layout.is_data_first() && own > 0 => own.min(size),
            _ => size,
        }
    }

    pub fn blocks(&self) -> &[Block] {
        &self.walk.blocks
    }
}

pub(super) fn parity_has_none(action: &'static str, path: &Path) -> FormatsError {
    let why = "it is Reed-Solomon parity, which has no variables; use it to restore the lost file".to_owned();
    FormatsError::NotPossible { action, path: path.to_owned(), why }
}

/// File metadata parsed in one layout, at one of the places where layouts store it.
struct Candidate {
    meta: FileMeta,
    at_end: bool,
}

/// The file metadata in every layout whose metadata fits into the file.
fn candidates(input: &Input) -> Result<Vec<Candidate>, FormatsError> {
    let size = input.size;
    let places = [
        (Layout::A, false),
        (Layout::B, false),
        (Layout::C, true),
        (Layout::E, true),
        (Layout::F, true),
        (Layout::A, true),
        (Layout::B, true),
    ];
    let mut candidates = Vec::with_capacity(places.len());
    for (layout, at_end) in places {
        let bytes = layout.meta_bytes();
        let Some(last) = size.checked_sub(bytes as u64) else { continue };
        let bytes = input.bytes_at(if at_end { last } else { 0 }, bytes)?;
        candidates.extend(FileMeta::parse(layout, &bytes).map(|meta| Candidate { meta, at_end }));
    }
    Ok(candidates)
}

/// Scores how well the metadata fits a layout when its hash is wrong.
fn plausibility(candidate: &Candidate, size: u64) -> u32 {
    let meta = &candidate.meta;
    if !meta.has_checksum_shape() {
        return 0;
    }
    let is = |number: i64, expected: u64| u64::try_from(number).ok() == Some(expected);
    let trailer = size.saturating_sub(meta.layout.meta_bytes() as u64);
    let size_matches = is(meta.file_size, size) || (candidate.at_end && is(meta.file_size, trailer));
    1 + 2 * u32::from(size_matches)
        + u32::from(meta.checkpoint_size == meta.file_size)
        + u32::from(meta.largest_size >= -1 && meta.partner_size >= -1 && meta.file_size > 0)
}

/// The layout whose hash matches, or else the one with the best score.
fn choose(input: &Input) -> Result<Option<(Candidate, bool)>, FormatsError> {
    let mut best: Option<(u32, Candidate)> = None;
    for candidate in candidates(input)? {
        if candidate.meta.has_valid_hash() {
            return Ok(Some((candidate, true)));
        }
        let score = plausibility(&candidate, input.size);
        if score > best.as_ref().map_or(1, |(best, _)| *best) {
            best = Some((score, candidate));
        }
    }
    Ok(best.map(|(_, candidate)| (candidate, false)))
}

/// How certain the content shows that this is an FTI-FF file.
pub(super) fn confidence(input: &Input) -> Result<Confidence, FormatsError> {
    Ok(match choose(input)? {
        Some((_, true)) => Confidence::Certain,
        Some((_, false)) => Confidence::Likely,
        None => Confidence::No,
    })
}

/// Identifies a file by its content and walks over its blocks.
pub fn inspect(input: Input) -> Result<FtiFile, FormatsError> {
    let size = input.size;
    if size == 0 {
        return Ok(FtiFile::Unreadable(Damage::new("empty", "file", "it is empty")));
    }
    let Some((candidate, hash_valid)) = choose(&input)? else {
        let what = match size {
            0..82 => format!("{size} bytes are fewer than the file metadata of any layout"),
            _ => {
                "no file metadata of any layout at its start or end: truncated, overwritten, or of another mode of FTI"
                    .to_owned()
            }
        };
        return Ok(FtiFile::Unreadable(Damage::new("file-metadata", "file", what)));
    };
    let meta = candidate.meta;
    let trailer_only = size.checked_sub(meta.layout.meta_bytes() as u64);
    let is_parity =
        candidate.at_end && meta.file_size == meta.largest_size && u64::try_from(meta.file_size).ok() == trailer_only;
    if is_parity || (candidate.at_end && !meta.layout.is_data_first()) {
        return Ok(FtiFile::Parity(Parity { input, meta, hash_valid }));
    }
    let (meta, walk) = walk(&input, meta)?;
    Ok(FtiFile::Checkpoint(Checkpoint { input, meta, hash_valid, walk }))
}

/// Layouts C and D have the same file metadata: the layout whose blocks have fewer damages is chosen.
fn walk(input: &Input, meta: FileMeta) -> Result<(FileMeta, Walk), FormatsError> {
    let first = blocks::walk(input, &meta)?;
    if meta.layout != Layout::C || first.damages.is_empty() {
        return Ok((meta, first));
    }
    let other = FileMeta { layout: Layout::D, ..meta.clone() };
    let second = blocks::walk(input, &other)?;
    Ok(if second.damages.len() < first.damages.len() { (other, second) } else { (meta, first) })
}
