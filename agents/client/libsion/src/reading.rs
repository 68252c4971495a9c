//! A file, or a set of files, that is read.

use std::collections::HashMap;

use holdfast_formats::sion::{Container, KeyValue, PhysicalFile, Slot};

use crate::error::{CallError, Result};
use crate::keys::{KeyPlace, Keys};
use crate::stream::Stream;
use crate::tables::{CurrentLocations, Extent, Locations, Row};

/// A place in the stream of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub chunk: usize,
    /// Bytes from the start of the chunk.
    pub inside: u64,
}

/// Where to go in the stream of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a chunk, `None` for the current one, and a position there, `None` for the current one.
    Chunk(Option<i64>, Option<i64>),
    /// So many bytes from the start of the stream.
    Absolute(i64),
    /// So many bytes from the end of the stream, as a negative number.
    FromEnd(i64),
}

/// A file, or a set of files, that is read.
#[derive(Debug)]
pub struct Reading {
    container: Container,
    /// The only task that is open, of `sion_open_rank`.
    only: Option<usize>,
    descriptor: bool,
    /// Those of the physical files that were needed.
    streams: Vec<Option<Stream>>,
    pub task: usize,
    /// The indexes in the physical file of the tasks of a parallel program's process, for messages; otherwise empty.
    pub indexes: Vec<usize>,
    slot: Slot,
    chunk: usize,
    /// The bytes in each chunk of the current task; at least one.
    bytes: Vec<u64>,
    /// Where tasks were left.
    left: HashMap<usize, Place>,
    /// The records of the tasks whose records were read.
    keys: HashMap<usize, Keys>,
    pub locations: Option<Locations>,
    pub current: CurrentLocations,
    /// The bytes of the chunks of the current task, for the program.
    pub current_bytes: Vec<i64>,
    /// File and index of each task, for the program; empty for a single file.
    pub mapping: Vec<i32>,
}

impl Reading {
    /// Opens a task of a container, or the first with all others.
    ///
    /// # Errors
    /// There is no such task, or its physical file cannot be opened.
    pub fn of(container: Container, only: Option<i64>, descriptor: bool) -> Result<Reading> {
        let last = container.tasks().saturating_sub(1);
        let out_of_range = |rank| CallError::Rank { rank, last };
        let only =
            only.map(|rank| usize::try_from(rank).ok().filter(|rank| *rank <= last).ok_or_else(|| out_of_range(rank)));
        let only = only.transpose()?;
        let task = only.unwrap_or(0);
        let slot = container.slot(task)?;
        let mapping = match container.parts.len() {
            1 => Vec::new(),
            _ => container.parts.first().and_then(PhysicalFile::mapping).unwrap_or_default().to_vec(),
        };
        let mut reading = Reading {
            streams: container.parts.iter().map(|_| None).collect(),
            container,
            only,
            descriptor,
            task,
            indexes: Vec::new(),
            slot,
            chunk: 0,
            bytes: Vec::new(),
            left: HashMap::new(),
            keys: HashMap::new(),
            locations: None,
            current: CurrentLocations::default(),
            current_bytes: Vec::new(),
            mapping: mapping.into_iter().flat_map(|(file, local)| [file, local]).collect(),
        };
        reading.enter(task)?;
        reading.place(Place::default())?;
        Ok(reading)
    }

    /// The physical file of the current task.
    ///
    /// # Errors
    /// None in practice: the container has it.
    pub fn part(&self) -> Result<&PhysicalFile> {
        self.part_at(self.slot.part)
    }

    fn part_at(&self, index: usize) -> Result<&PhysicalFile> {
        let (rank, last) = (index as u64, self.container.parts.len().saturating_sub(1));
        self.container.parts.get(index).ok_or(CallError::Rank { rank: rank.cast_signed(), last })
    }

    pub fn container(&self) -> &Container {
        &self.container
    }

    /// True if `sion_open_rank` opened it.
    pub fn is_of_one_rank(&self) -> bool {
        self.only.is_some()
    }

    /// The stream of the current task's physical file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn stream(&mut self) -> Result<&mut Stream> {
        let path = self.part()?.path.clone();
        let (rank, last) = (self.slot.part as u64, self.streams.len().saturating_sub(1));
        let missing = CallError::Rank { rank: rank.cast_signed(), last };
        let stream = self.streams.get_mut(self.slot.part).ok_or(missing)?;
        match stream {
            Some(stream) => Ok(stream),
            None => Ok(stream.insert(Stream::open(&path, self.descriptor)?)),
        }
    }

    /// Makes a task the current one, without moving its stream.
    fn enter(&mut self, task: usize) -> Result<()> {
        self.slot = self.container.slot(task)?;
        self.task = task;
        let (slot, part) = (self.slot, self.part()?);
        let mut bytes: Vec<u64> = part.table.chunk_bytes(slot.local).collect();
        if bytes.is_empty() {
            bytes.push(0);
        }
        self.bytes = bytes;
        let place = self.left.get(&task).copied().unwrap_or_default();
        self.chunk = place.chunk;
        Ok(())
    }

    /// The bytes used in the current chunk.
    fn used(&self) -> u64 {
        self.bytes.get(self.chunk).copied().unwrap_or(0)
    }

    /// The current task, for messages.
    fn named_task(&self) -> usize {
        self.indexes.get(self.task).copied().unwrap_or(self.task)
    }

    fn last_chunk(&self) -> usize {
        self.bytes.len().saturating_sub(1)
    }

    fn start_of(&self, chunk: usize) -> Result<u64> {
        let layout = &self.part()?.layout;
        Ok(layout.chunk_position(self.slot.local, chunk as u64).unwrap_or(0))
    }

    /// The size of a chunk of the current task.
    ///
    /// # Errors
    /// None in practice: the container has the task's file.
    pub fn chunk_size(&self) -> Result<u64> {
        Ok(self.part()?.layout.chunk_size(self.slot.local))
    }

    /// Moves to a place in the stream of the current task.
    fn place(&mut self, place: Place) -> Result<()> {
        let position = self.start_of(place.chunk)? + place.inside;
        self.chunk = place.chunk;
        self.stream()?.set_position(position)
    }

    /// The position from the start of the current chunk, where the program may have moved.
    fn inside(&mut self) -> Result<i64> {
        let start = self.start_of(self.chunk)?.cast_signed();
        Ok(self.stream()?.position()?.cast_signed() - start)
    }

    /// The bytes of the current chunk that are not read; negative if the program read beyond it.
    ///
    /// # Errors
    /// The system has no position of the stream.
    pub fn left_in_chunk(&mut self) -> Result<i64> {
        Ok(self.used().cast_signed() - self.inside()?)
    }

    /// True at the end of the stream. Goes to the next chunk at the end of one.
    ///
    /// # Errors
    /// The stream cannot be moved.
    pub fn at_end(&mut self) -> Result<bool> {
        if self.left_in_chunk()? > 0 {
            return Ok(false);
        }
        if self.chunk >= self.last_chunk() {
            return Ok(true);
        }
        self.place(Place { chunk: self.chunk + 1, inside: 0 })?;
        Ok(false)
    }

    /// Reads from one chunk. Returns the number of bytes, 0 at the end of the stream.
    ///
    /// # Errors
    /// The chunk has fewer bytes left, or cannot be read.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let wanted = buffer.len() as u64;
        let left = self.left_in_chunk()?;
        if self.chunk_size()? < wanted || (left != 0 && left < wanted.cast_signed()) {
            return Err(self.short_chunk(wanted, left));
        }
        if self.at_end()? {
            return Ok(0);
        }
        let left = self.left_in_chunk()?;
        if left < wanted.cast_signed() {
            return Err(self.short_chunk(wanted, left));
        }
        self.stream()?.read(buffer)
    }

    fn short_chunk(&self, wanted: u64, left: i64) -> CallError {
        CallError::ShortChunk { task: self.named_task(), chunk: self.chunk, wanted, left }
    }

    /// The bytes of the current task that were read.
    ///
    /// # Errors
    /// The system has no position of the stream.
    pub fn bytes_read(&mut self) -> Result<i64> {
        let before: u64 = self.bytes.iter().take(self.chunk).sum();
        Ok(before.cast_signed() + self.inside()?)
    }

    /// Goes to a place in the stream of a task; `None` for the current one.
    ///
    /// # Errors
    /// There is no such place. The task is the current one nevertheless, at the place where it was left.
    pub fn seek(&mut self, rank: Option<i64>, target: Target) -> Result<()> {
        let rank = rank.filter(|rank| usize::try_from(*rank) != Ok(self.task));
        if let Some(rank) = rank {
            let task = self.task_of(rank)?;
            let inside = u64::try_from(self.inside()?).unwrap_or(0);
            self.left.insert(self.task, Place { chunk: self.chunk, inside });
            self.enter(task)?;
            self.place(self.left.get(&task).copied().unwrap_or_default())?;
            // A task that was left at the end of a chunk continues in the next one.
            if target == Target::Chunk(None, None) && self.key_value() == KeyValue::None {
                let at_end = self.at_end()?;
                return if at_end && self.last_chunk() > 0 { Err(CallError::AtEnd(task)) } else { Ok(()) };
            }
        }
        let place = self.found(target)?;
        self.place(place)
    }

    fn task_of(&self, rank: i64) -> Result<usize> {
        let last = self.container.tasks().saturating_sub(1);
        let found = usize::try_from(rank).ok().filter(|task| *task <= last);
        match (self.only, found) {
            (Some(only), _) => Err(CallError::OtherRank { rank, only }),
            (None, found) => found.ok_or(CallError::Rank { rank, last }),
        }
    }

    fn found(&mut self, target: Target) -> Result<Place> {
        let (chunk, position) = match target {
            Target::Chunk(chunk, position) => {
                let last = self.last_chunk();
                let number = chunk.unwrap_or(self.chunk as i64);
                let checked = usize::try_from(number).ok().filter(|chunk| *chunk <= last);
                let chunk = checked.ok_or(CallError::Chunk { task: self.named_task(), chunk: number, last })?;
                match position {
                    Some(position) => (chunk, position),
                    None => (chunk, self.inside()?),
                }
            }
            Target::Absolute(position) => self.in_stream(position)?,
            Target::FromEnd(position) => self.in_stream(self.stream_bytes().cast_signed().saturating_add(position))?,
        };
        let bytes = self.bytes.get(chunk).copied().unwrap_or(0);
        let inside = u64::try_from(position).ok().filter(|inside| *inside <= bytes);
        Ok(Place { chunk, inside: inside.ok_or(CallError::Position { position, bytes })? })
    }

    /// The bytes of the current task's stream.
    fn stream_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The chunk with this position of the current task's stream, and the position there.
    fn in_stream(&self, position: i64) -> Result<(usize, i64)> {
        let bytes = self.stream_bytes();
        if !(0..=bytes.cast_signed()).contains(&position) {
            return Err(CallError::StreamPosition { task: self.named_task(), position, bytes });
        }
        Ok(absolute(&self.bytes, position))
    }

    pub fn key_value(&self) -> KeyValue {
        self.container.key_value()
    }

    /// The records of the current task.
    ///
    /// # Errors
    /// The file has no records, or a record is damaged.
    pub fn keys(&mut self) -> Result<&mut Keys> {
        if self.key_value() == KeyValue::None {
            return Err(CallError::NotKeyValue);
        }
        if !self.keys.contains_key(&self.task) {
            let mut keys = Keys::default();
            for record in self.container.records(self.task)? {
                keys.push(record?);
            }
            self.keys.insert(self.task, keys);
        }
        Ok(self.keys.entry(self.task).or_default())
    }

    /// Reads items of the current record of a key. Returns the number of bytes.
    ///
    /// # Errors
    /// The file has no records, a record is damaged, or it cannot be read.
    pub fn read_key(&mut self, key: u64, item: usize, buffer: &mut [u8]) -> Result<usize> {
        let keys = self.keys()?;
        let Some(piece) = keys.left(key).filter(|_| !buffer.is_empty()) else { return Ok(0) };
        let fits = usize::try_from(piece.bytes).unwrap_or(usize::MAX).min(buffer.len());
        let whole = fits - fits.checked_rem(item).unwrap_or(0);
        let target = buffer.get_mut(..whole).unwrap_or_default();
        let read = self.container.read_at(self.task, piece.offset, target)?;
        self.keys()?.advance(key, read as u64);
        self.place_offset(piece.offset + read as u64)?;
        Ok(read)
    }

    /// Goes to a place in the records of a key. False if there is no such place.
    ///
    /// # Errors
    /// The file has no records, or a record is damaged.
    pub fn seek_key(&mut self, key: u64, place: Option<KeyPlace>) -> Result<bool> {
        let keys = self.keys()?;
        let offset = match place {
            Some(place) => keys.seek(key, place),
            None => keys.position(key),
        };
        match offset {
            Some(offset) => self.place_offset(offset).map(|()| true),
            None => Ok(false),
        }
    }

    /// The next record: its key and the bytes of its value. `None` after the last.
    ///
    /// # Errors
    /// The file has no records, or a record is damaged.
    pub fn next_record(&mut self) -> Result<Option<(u64, u64)>> {
        let Some(record) = self.keys()?.next_record() else { return Ok(None) };
        self.place_offset(record.offset)?;
        Ok(Some((record.key, record.length)))
    }

    /// Moves to an offset of the current task's stream.
    fn place_offset(&mut self, offset: u64) -> Result<()> {
        let (chunk, inside) = absolute(&self.bytes, offset.cast_signed());
        self.place(Place { chunk, inside: u64::try_from(inside).unwrap_or(0) })
    }

    /// Makes [`Reading::locations`].
    ///
    /// # Errors
    /// The tables would be too large.
    pub fn locate(&mut self) -> Result<Extent> {
        let container = &self.container;
        let tasks = container.tasks();
        let blocks = container.parts.iter().map(|part| part.table.blocks).max().unwrap_or(1);
        if self.locations.is_none() {
            // SIONlib's table of a set of files begins with -1 everywhere.
            let unused = match container.parts.as_slice() {
                [only] => only.table.unused_mark,
                _ => -1,
            };
            let rows = (0..tasks).map(|task| {
                let slot = container.slot(task)?;
                let part = self.part_at(slot.part)?;
                let chunk_size = part.layout.chunk_size(slot.local);
                let chunk_bytes = part.table.chunk_bytes(slot.local);
                Ok(Row { chunk_size, global_rank: container.global_rank(task)?, chunk_bytes })
            });
            self.locations = Some(Locations::of(tasks, blocks, unused, rows)?);
        }
        let part = self.part()?;
        let tail = part.header.closed.map_or(0, |closed| closed.tail);
        Ok(Extent { tasks, blocks, skip: part.layout.block_skip, tail: tail.cast_unsigned() })
    }

    /// Updates [`Reading::current`].
    ///
    /// # Errors
    /// The system has no position of the stream.
    pub fn locate_current(&mut self) -> Result<()> {
        let here = Place { chunk: self.chunk, inside: u64::try_from(self.inside()?).unwrap_or(0) };
        self.left.insert(self.task, here);
        let mut tables = CurrentLocations::default();
        for task in 0..self.container.tasks() {
            let (slot, place) = (self.container.slot(task)?, self.left.get(&task).copied().unwrap_or_default());
            let start = self.part_at(slot.part)?.layout.chunk_position(slot.local, place.chunk as u64);
            tables.positions.push((start.unwrap_or(0) + place.inside).cast_signed());
            tables.chunks.push(place.chunk as i64);
        }
        self.current = tables;
        Ok(())
    }

    /// The current chunk, the position in it, and the number of chunks of the current task. Updates
    /// [`Reading::current_bytes`].
    ///
    /// # Errors
    /// The system has no position of the stream.
    pub fn current_place(&mut self) -> Result<(usize, i64, usize)> {
        let inside = self.inside()?;
        self.current_bytes = self.bytes.iter().map(|bytes| bytes.cast_signed()).collect();
        Ok((self.chunk, inside, self.current_bytes.len()))
    }
}

/// The chunk with this position of a stream, and the position there. Between two chunks, that is the end of the first;
/// beyond the last one, a position that it does not have.
fn absolute(bytes: &[u64], position: i64) -> (usize, i64) {
    let mut left = position;
    for (chunk, used) in bytes.iter().enumerate() {
        if left <= used.cast_signed() || chunk + 1 == bytes.len() {
            return (chunk, left);
        }
        left -= used.cast_signed();
    }
    (0, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_a_stream_are_found_in_its_chunks() {
        let bytes = [900, 0, 800];
        for (position, place) in [(0, (0, 0)), (900, (0, 900)), (901, (2, 1)), (1700, (2, 800)), (1701, (2, 801))] {
            assert_eq!(absolute(&bytes, position), place, "{position}");
        }
        assert_eq!(absolute(&bytes, -1), (0, -1));
    }
}
