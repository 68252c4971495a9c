//! A file of FTI-FF that was opened: its layout, its metadata, and where its variables are.

use std::collections::BTreeMap;
use std::path::Path;

use super::blocks::{self, Block, Walk};
use super::layout::{FileMeta, Layout};
use crate::{Confidence, Damage, FormatsError, Input};

/// What a file turned out to be.
#[derive(Debug)]
pub enum FtiFile {
    /// A checkpoint of a rank, or the copy of one.
    Checkpoint(Checkpoint),
    /// A row of Reed-Solomon parity.
    Parity(Parity),
    /// Nothing can be read; this is why.
    Unreadable(Damage),
}

/// A checkpoint of one rank. Reads take `&self`, so that several threads can read at once.
#[derive(Debug)]
pub struct Checkpoint {
    /// The file.
    pub input: Input,
    /// Its metadata, with the layout.
    pub meta: FileMeta,
    /// Whether the metadata's own hash is right.
    pub meta_sound: bool,
    /// Its blocks, and what is wrong with them.
    pub walk: Walk,
}

/// A row of Reed-Solomon parity (level 3).
#[derive(Debug)]
pub struct Parity {
    /// The file.
    pub input: Input,
    /// The metadata in its trailer.
    pub meta: FileMeta,
    /// Whether the trailer's own hash is right.
    pub meta_sound: bool,
}

impl Parity {
    /// Bytes of parity in front of the trailer.
    pub fn data_bytes(&self) -> u64 {
        self.input.size().saturating_sub(self.meta.layout.meta_bytes() as u64)
    }
}

/// A variable and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The id given to `FTI_Protect`.
    pub id: i32,
    /// Its containers with content, in their order.
    pub chunks: Vec<VariableChunk>,
}

/// The content of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableChunk {
    /// Number of its block.
    pub block: usize,
    /// Its place in the block.
    pub index: usize,
    /// Where it is in the file and how long; `None` if the file cannot have that.
    pub range: Option<(u64, u64)>,
    /// The MD5 that it should have.
    pub hash: [u8; 16],
}

impl Variable {
    /// Bytes of its value, as far as they are in the file.
    pub fn size(&self) -> u64 {
        self.chunks.iter().filter_map(|chunk| chunk.range).fold(0, |sum, range| sum.saturating_add(range.1))
    }
}

impl Checkpoint {
    /// Opens a checkpoint for reading its variables.
    ///
    /// # Errors
    /// When the file cannot be read, or its metadata cannot be followed to the end.
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

    /// The variables in the order of their ids.
    pub fn variables(&self) -> Vec<Variable> {
        let mut variables: BTreeMap<i32, Vec<(i32, VariableChunk)>> = BTreeMap::new();
        for (block, content) in self.walk.blocks.iter().enumerate() {
            for (index, entry) in content.entries.iter().enumerate() {
                let chunks = variables.entry(entry.id).or_default();
                if entry.is_filled() {
                    let range = entry.range(self.input.size());
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

    /// The name of a chunk's place in messages.
    pub fn place(&self, chunk: &VariableChunk) -> String {
        let entry = self.walk.blocks.get(chunk.block).and_then(|block| block.entries.get(chunk.index));
        entry.map_or_else(String::new, |entry| blocks::place(chunk.block, chunk.index, entry))
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.walk.blocks
    }
}

pub(super) fn parity_has_none(action: &'static str, path: &Path) -> FormatsError {
    let why = "it is Reed-Solomon parity, which holds no variables; restore the lost file from it".to_owned();
    FormatsError::NotPossible { action, path: path.to_owned(), why }
}

/// A place where a layout keeps its file metadata.
struct Candidate {
    meta: FileMeta,
    at_end: bool,
}

/// Every layout at its place, as far as the file is long enough.
fn candidates(input: &Input) -> Result<Vec<Candidate>, FormatsError> {
    let size = input.size();
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

/// How much speaks for a layout whose hash is wrong.
fn plausibility(candidate: &Candidate, size: u64) -> u32 {
    let meta = &candidate.meta;
    if !meta.has_checksum_shape() {
        return 0;
    }
    let is = |number: i64, wanted: u64| u64::try_from(number).ok() == Some(wanted);
    let trailer = size.saturating_sub(meta.layout.meta_bytes() as u64);
    let whole = is(meta.file_size, size) || (candidate.at_end && is(meta.file_size, trailer));
    1 + 2 * u32::from(whole)
        + u32::from(meta.checkpoint_size == meta.file_size)
        + u32::from(meta.largest_size >= -1 && meta.partner_size >= -1 && meta.file_size > 0)
}

/// The layout whose hash is right, or else the one that looks best.
fn choose(input: &Input) -> Result<Option<(Candidate, bool)>, FormatsError> {
    let mut best: Option<(u32, Candidate)> = None;
    for candidate in candidates(input)? {
        if candidate.meta.is_sound() {
            return Ok(Some((candidate, true)));
        }
        let score = plausibility(&candidate, input.size());
        if score > best.as_ref().map_or(1, |(best, _)| *best) {
            best = Some((score, candidate));
        }
    }
    Ok(best.map(|(_, candidate)| (candidate, false)))
}

/// How sure the content is that this is a file of FTI-FF.
pub(super) fn confidence(input: &Input) -> Result<Confidence, FormatsError> {
    Ok(match choose(input)? {
        Some((_, true)) => Confidence::Certain,
        Some((_, false)) => Confidence::Likely,
        None => Confidence::No,
    })
}

/// Finds out what a file is and follows its blocks.
///
/// # Errors
/// When the file cannot be read.
pub fn inspect(input: Input) -> Result<FtiFile, FormatsError> {
    let size = input.size();
    if size == 0 {
        return Ok(FtiFile::Unreadable(Damage::new("empty", "file", "it is empty")));
    }
    let Some((candidate, meta_sound)) = choose(&input)? else {
        let what = match size {
            0..82 => format!("{size} bytes are fewer than the file metadata of any layout"),
            _ => {
                "no file metadata of any layout at its start or end: cut short, overwritten, or of another mode of FTI"
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
        return Ok(FtiFile::Parity(Parity { input, meta, meta_sound }));
    }
    let (meta, walk) = walk(&input, meta)?;
    Ok(FtiFile::Checkpoint(Checkpoint { input, meta, meta_sound, walk }))
}

/// C and D have the same file metadata; the one whose blocks end where it starts is the layout.
fn walk(input: &Input, meta: FileMeta) -> Result<(FileMeta, Walk), FormatsError> {
    let first = blocks::walk(input, &meta)?;
    if meta.layout != Layout::C || first.damages.is_empty() {
        return Ok((meta, first));
    }
    let other = FileMeta { layout: Layout::D, ..meta.clone() };
    let second = blocks::walk(input, &other)?;
    Ok(if second.damages.len() < first.damages.len() { (other, second) } else { (meta, first) })
}
