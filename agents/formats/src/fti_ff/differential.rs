//! Writes checkpoints of variables in memory, in layout A or F. Of a file that holds an earlier checkpoint only what
//! has changed since then is written.
//!
//! Changes are found with a fingerprint (XXH3, 128 bits) of each [`UNIT`] of a container, which stays in memory
//! ([`Image`]). The MD5 of a container whose fingerprints are those of the previous checkpoint is known; in layout A
//! the checksum of the file must nevertheless be computed over every byte.
//!
//! Until [`OpenCheckpoint::finish`] returns, the file is no checkpoint: the caller passes one that nothing else needs.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::calls;
use md5::{Digest, Md5};
use xxhash_rust::xxh3::xxh3_128;

use super::blocks::{Block, ContainerEntry, MAX_CONTAINERS};
use super::containers::{self, ContainerError};
use super::layout::{EntriesCrc, Layout};
use super::md5_lanes;
use super::writer::Stamp;
use crate::error::{FormatsError, Result};
use crate::input::Input;

/// Bytes that are compared, and written if they differ.
pub const UNIT: usize = 64 << 10;

/// The variables of a process.
pub trait VariableSource {
    /// Ids and sizes in bytes, in protect order.
    fn variables(&self) -> Vec<(i32, u64)>;

    /// Passes the bytes of a variable to `read`; they must not change until `read` returns.
    fn read(&self, id: i32, read: &mut dyn FnMut(&[u8]));
}

/// The content of a checkpoint file, as far as the next checkpoint needs it.
#[derive(Debug, Clone)]
pub struct Image {
    layout: Layout,
    blocks: Vec<Block>,
    /// Of each unit of each container.
    fingerprints: HashMap<Place, Vec<u128>>,
}

/// Id and number of a container.
type Place = (i32, i32);

impl Image {
    /// The content of an intact file that was not written by this process. All units count as changed until
    /// [`Image::learn`] is called.
    pub fn of_file(layout: Layout, blocks: &[Block]) -> Image {
        Image { layout, blocks: blocks.to_vec(), fingerprints: HashMap::new() }
    }

    /// Makes a file with this content no checkpoint, on disk too: after a loss of power it could have the old content
    /// under the name of the checkpoint that was written over it. Waits for the disk.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn invalidate(&self, file: &File) -> io::Result<()> {
        let bytes = vec![0; self.layout.meta_bytes()];
        let end = if self.layout.is_data_first() { file.metadata()?.len() } else { bytes.len() as u64 };
        calls::write_all_at(file, &bytes, end.saturating_sub(bytes.len() as u64))?;
        Ok(calls::fdatasync(file)?)
    }

    /// Records the content of a variable, which was read from the file.
    pub fn learn(&mut self, id: i32, bytes: &[u8]) {
        for entry in self.blocks.iter().flat_map(|block| &block.entries).filter(|entry| entry.id == id) {
            if let Some(chunk) = chunk(entry, bytes) {
                self.fingerprints.insert(place(entry), fingerprints(chunk));
            }
        }
    }

    /// Ids and sizes in bytes of the variables.
    pub fn sizes(&self) -> Vec<(i32, u64)> {
        let mut sizes: Vec<(i32, u64)> = Vec::new();
        for entry in self.blocks.iter().flat_map(|block| &block.entries) {
            let bytes = u64::try_from(entry.chunksize).unwrap_or(0);
            match sizes.iter_mut().find(|(id, _)| *id == entry.id) {
                Some((_, size)) => *size = size.saturating_add(bytes),
                None => sizes.push((entry.id, bytes)),
            }
        }
        sizes
    }
}

/// What a checkpoint has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes written to the file.
    pub bytes: u64,
    /// Bytes of the variables.
    pub variables: u64,
    /// Bytes of containers whose MD5 was computed.
    pub hashed: u64,
}

/// A file that becomes a checkpoint.
#[derive(Debug)]
pub struct CheckpointFile<'a> {
    /// The file, open for reading and writing.
    pub file: &'a File,
    /// Its path, for messages.
    pub path: &'a Path,
    /// A or F.
    pub layout: Layout,
    /// The program's id of the checkpoint.
    pub checkpoint: u32,
    /// Time of creation, in nanoseconds since 1970. Not stored in layout F, whose 32 bits of it contain a CRC.
    pub timestamp: i64,
    /// Level 2: bytes of the left neighbour's file (`ptFs`).
    pub partner_size: Option<u64>,
    /// The content of the file; if it is not known, the file is emptied.
    pub held: Option<Arc<Image>>,
    /// The content of the previous checkpoint, in whichever file: its containers are continued, as the rules of the
    /// format require, and its hashes are used.
    pub previous: Option<Arc<Image>>,
}

impl CheckpointFile<'_> {
    /// Writes the variables, and returns the content of the file.
    ///
    /// # Errors
    /// When the variables are too large for a file, or reading or writing fails. The file is then no checkpoint.
    pub fn write(self, source: &dyn VariableSource) -> Result<(Image, Written)> {
        let variables = source.variables();
        let mut open = self.begin(&variables)?;
        for (id, _) in &variables {
            let mut result = Ok(());
            source.read(*id, &mut |bytes| result = open.add(*id, bytes));
            result?;
        }
        open.finish()
    }

    /// Begins a checkpoint of variables that are added one by one. `variables`: ids and sizes in bytes, in protect
    /// order.
    ///
    /// # Errors
    /// When the variables are too large for a file, or it cannot be written.
    pub fn begin(self, variables: &[(i32, u64)]) -> Result<OpenCheckpoint> {
        let CheckpointFile { file, path, layout, checkpoint, timestamp, partner_size, held, previous } = self;
        let previous = previous.filter(|image| image.layout == layout);
        let (blocks, end) = plan(layout, previous.as_deref(), variables)
            .map_err(|error| FormatsError::Unwritable { path: path.to_owned(), why: error.to_string() })?;
        let failed = FormatsError::writing(path);
        let held = held.filter(|image| image.layout == layout);
        if held.is_none() {
            calls::ftruncate(file, 0).map_err(io::Error::from).map_err(&failed)?;
        }
        calls::ftruncate(file, end).map_err(io::Error::from).map_err(&failed)?;
        let update = Update {
            file: file.try_clone().map_err(&failed)?,
            held: Contents::of(held),
            previous: Contents::of(previous),
            image: Image { layout, blocks, fingerprints: HashMap::new() },
            written: Written { variables: variables.iter().map(|(_, bytes)| *bytes).sum(), ..Written::default() },
        };
        let stamp = Stamp { partner_size, ..Stamp::at(timestamp) };
        Ok(OpenCheckpoint { path: path.to_owned(), layout, checkpoint, end, stamp, update })
    }
}

/// A checkpoint that is being written, variable by variable. Its file is no checkpoint yet.
pub struct OpenCheckpoint {
    path: PathBuf,
    layout: Layout,
    checkpoint: u32,
    /// Where the containers end.
    end: u64,
    stamp: Stamp,
    update: Update,
}

impl OpenCheckpoint {
    /// Writes a variable: `bytes` is its content, of the length that [`CheckpointFile::begin`] got.
    ///
    /// # Errors
    /// When there are fewer bytes, or writing fails.
    pub fn add(&mut self, id: i32, bytes: &[u8]) -> Result<()> {
        self.update.variable(id, bytes).map_err(FormatsError::writing(&self.path))
    }

    /// Makes the file a checkpoint, after all variables were added; returns its content.
    ///
    /// # Errors
    /// When reading or writing fails. The file is then no checkpoint.
    pub fn finish(self) -> Result<(Image, Written)> {
        let OpenCheckpoint { path, layout, checkpoint, end, stamp, mut update } = self;
        update.empty_containers();
        match layout {
            Layout::A => update.finish_document(&path, end, stamp)?,
            _ => update.finish_chunked(&path, end, checkpoint, stamp)?,
        }
        Ok((update.image, update.written))
    }
}

impl fmt::Debug for OpenCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCheckpoint").field("path", &self.path).field("checkpoint", &self.checkpoint).finish()
    }
}

/// The containers of the checkpoint, and the offset of their end: those of the previous one and what must be added, or
/// new ones if the variables are others.
fn plan(
    layout: Layout,
    previous: Option<&Image>,
    variables: &[(i32, u64)],
) -> Result<(Vec<Block>, u64), ContainerError> {
    let total = variables.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let largest = match layout {
        Layout::A => u64::MAX,
        // At most half of the containers that a file can have: variables may still grow.
        _ => (UNIT as u64).max((total / (MAX_CONTAINERS as u64 / 2)).next_multiple_of(UNIT as u64)),
    };
    let continued = previous.and_then(|image| containers::next_in(layout, largest, &image.blocks, variables).ok());
    let blocks = match continued {
        Some(blocks) => blocks,
        None => containers::next_in(layout, largest, &[], variables)?,
    };
    let end = if layout.is_data_first() { containers::data_end(&blocks) } else { containers::end(&blocks) };
    let end = end.filter(|end| i64::try_from(*end).is_ok()).ok_or(ContainerError::TooLarge)?;
    Ok((blocks, end))
}

/// The bytes of the file (`fs`) that [`CheckpointFile::write`] makes of these variables, `(id, bytes)`.
///
/// # Errors
/// When the variables are too large for a file.
pub fn file_size(layout: Layout, previous: Option<&Image>, variables: &[(i32, u64)]) -> Result<u64, ContainerError> {
    let (blocks, end) = plan(layout, previous.filter(|image| image.layout == layout), variables)?;
    let after = if layout.is_data_first() {
        let blocks = blocks.iter().map(|block| layout.head_bytes() + layout.entry_bytes() * block.entries.len());
        blocks.sum::<usize>() + layout.meta_bytes()
    } else {
        0
    };
    end.checked_add(after as u64).ok_or(ContainerError::TooLarge)
}

/// The containers of an image, by place.
struct Contents {
    image: Option<Arc<Image>>,
    /// Numbers of block and entry.
    entries: HashMap<Place, (usize, usize)>,
}

impl Contents {
    fn of(image: Option<Arc<Image>>) -> Contents {
        let mut entries = HashMap::new();
        for (number, block) in image.iter().flat_map(|image| image.blocks.iter().enumerate()) {
            entries.extend(block.entries.iter().enumerate().map(|(at, entry)| (place(entry), (number, at))));
        }
        Contents { image, entries }
    }

    /// There is no other content than that of the entries.
    fn is_empty(&self) -> bool {
        self.image.is_none()
    }

    /// The container at this place, and its fingerprints, if they are known.
    fn at(&self, place: Place) -> Option<(&ContainerEntry, &[u128])> {
        let image = self.image.as_ref()?;
        let (block, entry) = self.entries.get(&place)?;
        Some((image.blocks.get(*block)?.entries.get(*entry)?, image.fingerprints.get(&place)?))
    }
}

struct Update {
    file: File,
    held: Contents,
    previous: Contents,
    image: Image,
    written: Written,
}

impl Update {
    fn variable(&mut self, id: i32, bytes: &[u8]) -> io::Result<()> {
        let Update { file, held, previous, image, written } = self;
        let Image { blocks, fingerprints: found, .. } = image;
        // Containers whose hash is not known, and their content.
        let (mut unknown, mut contents): (Vec<&mut ContainerEntry>, Vec<&[u8]>) = (Vec::new(), Vec::new());
        for entry in blocks.iter_mut().flat_map(|block| &mut block.entries).filter(|entry| entry.id == id) {
            let Some(chunk) = chunk(entry, bytes) else {
                return Err(io::Error::other(format!("variable {id} changed its size while it was saved")));
            };
            let prints = fingerprints(chunk);
            write_changed(file, held, entry, chunk, &prints, written)?;
            let place = place(entry);
            match previous.at(place) {
                Some((before, same)) if before.chunksize == entry.chunksize && *same == prints[..] => {
                    entry.hash = before.hash;
                }
                _ => {
                    written.hashed += chunk.len() as u64;
                    unknown.push(entry);
                    contents.push(chunk);
                }
            }
            found.insert(place, prints);
            if unknown.len() == md5_lanes::count() {
                hash_all(&mut unknown, &mut contents);
            }
        }
        hash_all(&mut unknown, &mut contents);
        Ok(())
    }

    /// Containers without content have the MD5 of no bytes, as FTI writes it. Their bytes were overwritten with zeros
    /// with the others of their variable.
    fn empty_containers(&mut self) {
        for entry in self.image.blocks.iter_mut().flat_map(|block| &mut block.entries) {
            if !entry.is_filled() {
                entry.hash = Md5::digest([]).into();
            }
        }
    }

    fn put(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.written.bytes += bytes.len() as u64;
        calls::write_all_at(&self.file, bytes, offset)
    }

    /// Layout A: the metadata of each block, the checksum over everything, and the metadata of the file.
    fn finish_document(&mut self, path: &Path, size: u64, stamp: Stamp) -> Result<()> {
        for (bytes, offset) in self.metadata(Layout::A) {
            self.put(&bytes, offset).map_err(FormatsError::writing(path))?;
        }
        let input = Input::over(path, self.file.try_clone().map_err(FormatsError::writing(path))?, size);
        let meta = stamp.document(&input)?;
        self.put(&meta.document_bytes(), 0).map_err(FormatsError::writing(path))
    }

    /// Layout F: the checksum over the hashes of the containers, and all metadata after the data. FTI's reader computes
    /// the checksum over the containers with content only.
    fn finish_chunked(&mut self, path: &Path, data_size: u64, checkpoint: u32, stamp: Stamp) -> Result<()> {
        let entries = self.image.blocks.iter().flat_map(|block| &block.entries);
        let mut hasher = Md5::new();
        entries.filter(|entry| entry.is_filled()).for_each(|entry| hasher.update(entry.hash));
        let all = self.metadata(Layout::F);
        let mut bytes: Vec<u8> = all.into_iter().flat_map(|(bytes, _)| bytes).collect();
        let meta_size = bytes.len() as u64 + Layout::F.meta_bytes() as u64;
        let sizes = Some((meta_size, data_size));
        let id = i32::try_from(checkpoint).unwrap_or(i32::MAX);
        let mut crc = EntriesCrc::of_checkpoint(id);
        crc.update(&bytes);
        let mut meta =
            stamp.meta(Layout::F, Some(id), hasher.finalize().into(), data_size.saturating_add(meta_size), sizes);
        meta.record_entries(crc.value());
        meta.own_hash = meta.computed_hash();
        bytes.extend(meta.last_bytes());
        self.put(&bytes, data_size).map_err(FormatsError::writing(path))
    }

    /// The metadata of each block, and its offset.
    fn metadata(&self, layout: Layout) -> Vec<(Vec<u8>, u64)> {
        self.image.blocks.iter().map(|block| (block.metadata_bytes(layout), block.offset)).collect()
    }
}

fn hash_all(entries: &mut Vec<&mut ContainerEntry>, contents: &mut Vec<&[u8]>) {
    for (entry, hash) in entries.drain(..).zip(md5_lanes::of_each(contents)) {
        entry.hash = hash;
    }
    contents.clear();
}

/// Writes the units of a container that the file does not hold, and zeros after its data if the file held more.
fn write_changed(
    file: &File,
    held: &Contents,
    entry: &ContainerEntry,
    chunk: &[u8],
    prints: &[u128],
    written: &mut Written,
) -> io::Result<()> {
    let offset = u64::try_from(entry.fptr).map_err(|_| io::Error::other("a container before the file"))?;
    let known = held.at(place(entry));
    let known = known.filter(|(before, _)| before.fptr == entry.fptr && before.containersize == entry.containersize);
    let before: &[u128] = known.map_or(&[], |(_, prints)| prints);
    let is_held = |unit: usize| before.get(unit).is_some_and(|print| prints.get(unit) == Some(print));
    let mut unit = 0;
    while unit < prints.len() {
        // Changed neighbours are written together.
        let end = (unit..prints.len()).find(|unit| is_held(*unit)).unwrap_or(prints.len());
        if let Some(bytes) = chunk.get(unit * UNIT..(end * UNIT).min(chunk.len())).filter(|bytes| !bytes.is_empty()) {
            calls::write_all_at(file, bytes, offset + (unit * UNIT) as u64)?;
            written.bytes += bytes.len() as u64;
        }
        unit = end.max(unit + 1);
    }
    let before = match known {
        Some((before, _)) => before.chunksize,
        None if held.is_empty() => 0,
        None => entry.containersize,
    };
    let before = usize::try_from(before).unwrap_or(0);
    let mut at = chunk.len();
    let zeros = vec![0; UNIT.min(before.saturating_sub(at))];
    while at < before {
        let zeros = zeros.get(..zeros.len().min(before - at)).unwrap_or_default();
        calls::write_all_at(file, zeros, offset + at as u64)?;
        written.bytes += zeros.len() as u64;
        at += zeros.len();
    }
    Ok(())
}

fn place(entry: &ContainerEntry) -> Place {
    (entry.id, entry.containerid)
}

/// The part of a variable's bytes that a container holds.
fn chunk<'a>(entry: &ContainerEntry, bytes: &'a [u8]) -> Option<&'a [u8]> {
    if !entry.is_filled() {
        return Some(&[]);
    }
    let start = usize::try_from(entry.dptr).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(entry.chunksize).ok()?)?)
}

fn fingerprints(chunk: &[u8]) -> Vec<u128> {
    chunk.chunks(UNIT).map(xxh3_128).collect()
}
