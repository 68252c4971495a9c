//! Writes checkpoints of variables in memory, in layout A or F. Of a file that holds an earlier checkpoint only what
//! has changed since then is written.
//!
//! Changes are found with a fingerprint (XXH3, 128 bits) of each [`UNIT`] of a container, which stays in memory
//! ([`Image`]). The MD5 of a container whose fingerprints are those of the previous checkpoint is known; in layout A
//! the checksum of the file must nevertheless be computed over every byte.
//!
//! Until [`CheckpointFile::write`] returns, the file is no checkpoint: the caller passes one that nothing else needs.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

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
    pub held: Option<&'a Image>,
    /// The content of the previous checkpoint, in whichever file: its containers are continued, as the rules of the
    /// format require, and its hashes are used.
    pub previous: Option<&'a Image>,
}

impl CheckpointFile<'_> {
    /// Writes the variables, and returns the content of the file.
    ///
    /// # Errors
    /// When the variables are too large for a file, or reading or writing fails. The file is then no checkpoint.
    pub fn write(self, source: &dyn VariableSource) -> Result<(Image, Written)> {
        write(&self, source)
    }
}

fn write(into: &CheckpointFile<'_>, source: &dyn VariableSource) -> Result<(Image, Written)> {
    let CheckpointFile { file, path, layout, checkpoint, timestamp, partner_size, held, previous } = *into;
    let variables = source.variables();
    let previous = previous.filter(|image| image.layout == layout);
    let (blocks, end) = plan(layout, previous, &variables)
        .map_err(|error| FormatsError::Unwritable { path: path.to_owned(), why: error.to_string() })?;
    let failed = FormatsError::writing(path);
    let held = held.filter(|image| image.layout == layout);
    if held.is_none() {
        calls::ftruncate(file, 0).map_err(io::Error::from).map_err(&failed)?;
    }
    calls::ftruncate(file, end).map_err(io::Error::from).map_err(&failed)?;
    let mut update = Update {
        file,
        held: Contents::of(held),
        previous: Contents::of(previous),
        image: Image { layout, blocks, fingerprints: HashMap::new() },
        written: Written { variables: variables.iter().map(|(_, bytes)| *bytes).sum(), ..Written::default() },
    };
    for (id, _) in &variables {
        let mut result = Ok(());
        source.read(*id, &mut |bytes| result = update.variable(*id, bytes));
        result.map_err(&failed)?;
    }
    update.empty_containers().map_err(&failed)?;
    let stamp = Stamp { partner_size, ..Stamp::at(timestamp) };
    match layout {
        Layout::A => update.finish_document(path, end, stamp)?,
        _ => update.finish_chunked(path, end, checkpoint, stamp)?,
    }
    Ok((update.image, update.written))
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
struct Contents<'a> {
    entries: HashMap<Place, (&'a ContainerEntry, &'a [u128])>,
    /// There is no other content than that of the entries.
    is_empty: bool,
}

impl<'a> Contents<'a> {
    fn of(image: Option<&'a Image>) -> Contents<'a> {
        let mut entries = HashMap::new();
        let Some(image) = image else { return Contents { entries, is_empty: true } };
        for entry in image.blocks.iter().flat_map(|block| &block.entries) {
            if let Some(fingerprints) = image.fingerprints.get(&place(entry)) {
                entries.insert(place(entry), (entry, fingerprints.as_slice()));
            }
        }
        Contents { entries, is_empty: false }
    }
}

struct Update<'a> {
    file: &'a File,
    held: Contents<'a>,
    previous: Contents<'a>,
    image: Image,
    written: Written,
}

impl Update<'_> {
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
            match previous.entries.get(&place) {
                Some((before, same)) if before.chunksize == entry.chunksize && **same == prints[..] => {
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
    fn empty_containers(&mut self) -> io::Result<()> {
        for entry in self.image.blocks.iter_mut().flat_map(|block| &mut block.entries) {
            if !entry.is_filled() {
                entry.hash = Md5::digest([]).into();
            }
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.written.bytes += bytes.len() as u64;
        calls::write_all_at(self.file, bytes, offset)
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
    held: &Contents<'_>,
    entry: &ContainerEntry,
    chunk: &[u8],
    prints: &[u128],
    written: &mut Written,
) -> io::Result<()> {
    let offset = u64::try_from(entry.fptr).map_err(|_| io::Error::other("a container before the file"))?;
    let known = held.entries.get(&place(entry));
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
        None if held.is_empty => 0,
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
