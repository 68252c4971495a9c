//! Writing the streams of ranks at their places, by a process that did not plan the container.
//!
//! A process that was killed may have written a part of a stream at the same place. What is there already is compared
//! and left as it is, up to the first difference.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use holdfast_core::store::{OpenDataset, StagedWriter};
use holdfast_model::{ContainerPlaces, PackedFile, PackedRank, RankPlace};

use super::super::error::SionError;
use super::super::input_mismatch::InputMismatch;
use super::super::key_value::RECORD_HEADER;
use super::plan::BYTE_ORDER;

/// Bytes that are compared first: few, because mostly nothing was written yet.
const PROBE: usize = 4096;

/// The physical files of a container that another process created, open for writing. Only those are opened that have a
/// place. Several threads can write.
#[derive(Debug)]
pub struct PlacedFiles {
    files: Vec<Option<(PathBuf, Box<dyn StagedWriter>)>>,
}

impl PlacedFiles {
    /// Opens the physical files in the dataset.
    ///
    /// # Errors
    /// When a file cannot be opened, or a place names a file that is not listed.
    pub fn open(dataset: &dyn OpenDataset, places: &ContainerPlaces) -> Result<PlacedFiles, SionError> {
        let mut files = PlacedFiles { files: Vec::new() };
        files.files.resize_with(places.files.len(), || None);
        for place in places.ranks.values() {
            let number = usize::try_from(place.file).unwrap_or(usize::MAX);
            let slot = files.files.get_mut(number).zip(places.files.get(number));
            let Some((slot, name)) = slot.filter(|(_, name)| !name.contains('/')) else {
                let mismatch = InputMismatch::NoRoom { task: number };
                return Err(SionError::Input { path: dataset.location().to_owned(), mismatch });
            };
            if slot.is_none() {
                let path = dataset.path_of(name);
                let file = dataset.attach(name).map_err(SionError::io("open", &path))?;
                *slot = Some((path, file));
            }
        }
        Ok(files)
    }

    /// A writer for the stream of the rank with this place. `None` if its file is not open.
    pub fn writer(&self, place: RankPlace) -> Option<RankWriter<'_>> {
        let (path, file) = self.files.get(usize::try_from(place.file).ok()?)?.as_ref()?;
        let files = Vec::new();
        (place.chunk_bytes > 0).then(|| RankWriter { path, file: &**file, place, at: 0, files, was_begun: true })
    }

    /// Synchronises what was written. Only then may it be reported.
    pub fn synchronise(&self) -> Result<(), SionError> {
        let mut open = self.files.iter().flatten();
        open.try_for_each(|(path, file)| file.sync().map_err(SionError::io("synchronise", path)))
    }
}

/// Writes the files of one rank as the records of its stream.
#[derive(Debug)]
pub struct RankWriter<'a> {
    pub path: &'a Path,
    file: &'a dyn StagedWriter,
    place: RankPlace,
    /// The end of the last record.
    at: u64,
    files: Vec<PackedFile>,
    /// The stream may have what an earlier process has written.
    was_begun: bool,
}

impl<'a> RankWriter<'a> {
    /// Writes the content of the next file. Without [`RankWriter::finish`] it is discarded: the next file is written
    /// over it.
    pub fn content(&mut self) -> ContentWriter<'_, 'a> {
        let (offset, compares) = (self.at.saturating_add(RECORD_HEADER), self.was_begun);
        ContentWriter { to: self, offset, compares, kept: 0 }
    }

    /// Ends a file with a content of so many bytes, which was written.
    pub fn finish(&mut self, name: &str, bytes: u64) -> Result<(), SionError> {
        let mut header = [0; 16];
        let (key, length) = header.split_at_mut(8);
        key.copy_from_slice(&BYTE_ORDER.u64_bytes(self.files.len() as u64));
        length.copy_from_slice(&BYTE_ORDER.u64_bytes(bytes));
        self.put(self.at, &header).map_err(SionError::io("write", self.path))?;
        self.at = self.at.saturating_add(RECORD_HEADER).saturating_add(bytes);
        self.files.push(PackedFile { name: name.to_owned(), bytes });
        Ok(())
    }

    /// Writes a small file.
    pub fn add(&mut self, name: &str, content: &[u8]) -> Result<(), SionError> {
        self.content().write_all(content).map_err(SionError::io("write", self.path))?;
        self.finish(name, content.len() as u64)
    }

    /// The files that were written.
    pub fn end(self) -> PackedRank {
        PackedRank { first_chunk: self.place.first_chunk, files: self.files }
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let write = |part: Range<usize>, at| self.file.write_at(bytes.get(part).unwrap_or_default(), at);
        self.each_part(offset, bytes.len(), write)
    }

    /// True if the stream has these bytes already.
    fn has(&self, offset: u64, bytes: &[u8]) -> bool {
        let (front, rest) = bytes.split_at(bytes.len().min(PROBE));
        let same = |offset: u64, bytes: &[u8]| {
            let mut there = vec![0; bytes.len()];
            let read = |part: Range<usize>, at| self.file.read_at(there.get_mut(part).unwrap_or_default(), at);
            self.each_part(offset, bytes.len(), read).is_ok() && there == bytes
        };
        same(offset, front) && same(offset.saturating_add(front.len() as u64), rest)
    }

    /// Calls `each` with the parts of so many bytes that lie in one chunk, and where that is in the physical file.
    fn each_part(
        &self,
        mut offset: u64,
        length: usize,
        mut each: impl FnMut(Range<usize>, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
        let RankPlace { offset: begin, chunk_bytes, stride, first_chunk, .. } = self.place;
        let mut done = 0;
        while done < length {
            let inside = offset % chunk_bytes;
            let chunk = first_chunk.checked_add(offset / chunk_bytes).ok_or_else(too_large)?;
            let position = chunk.checked_mul(stride).and_then(|at| at.checked_add(begin)?.checked_add(inside));
            let now = usize::try_from(chunk_bytes - inside).unwrap_or(usize::MAX).min(length - done);
            each(done..done + now, position.ok_or_else(too_large)?)?;
            offset = offset.checked_add(now as u64).ok_or_else(too_large)?;
            done += now;
        }
        Ok(())
    }
}

/// Writes the content of one file.
#[derive(Debug)]
pub struct ContentWriter<'w, 'a> {
    to: &'w mut RankWriter<'a>,
    offset: u64,
    /// All that was written until now was there.
    compares: bool,
    kept: u64,
}

impl ContentWriter<'_, '_> {
    /// The bytes that an earlier process had written.
    pub fn kept(&self) -> u64 {
        self.kept
    }
}

impl Write for ContentWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.compares = self.compares && self.to.has(self.offset, bytes);
        if self.compares {
            self.kept = self.kept.saturating_add(bytes.len() as u64);
        } else {
            // Meta data can differ between two attempts. What differs at the beginning of the stream is of no attempt.
            self.to.was_begun = self.to.was_begun && (self.to.at > 0 || self.kept > 0);
            self.to.put(self.offset, bytes)?;
        }
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
