//! A container: one or more physical files that together store one stream per task.
//!
//! Opening the first file of a set opens all files. Their names are derived from the name used to open, not from the
//! stored prefix, so that a renamed set can be opened. Opening another file of the set shows only its own tasks. Tasks
//! are numbered as in sionsplit: by global rank in a set of several files, by local rank in a single file.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::anomaly::{Anomaly, Warning};
use super::error::SionError;
use super::fault::Fault;
use super::header::{Header, KeyValue};
use super::physical_file::PhysicalFile;
use super::slot::{Slot, part_path};

/// A container open for reading. Several threads can share it.
#[derive(Debug)]
pub struct Container {
    /// The path it was opened by.
    pub path: PathBuf,
    pub parts: Vec<PhysicalFile>,
    slots: Vec<Slot>,
    /// Anomalies that do not prevent reading.
    pub warnings: Vec<Warning>,
    pub(super) ranks_are_numbers: bool,
}

impl Container {
    /// Opens a container and checks everything that can be checked without reading the data.
    ///
    /// # Errors
    /// When a file cannot be read, is not a container, was never closed, is damaged, or the files are not one set.
    pub fn open(path: &Path) -> Result<Container, SionError> {
        let first = PhysicalFile::open(path)?;
        let files = first.header.files;
        let alone = first.header.file_number.filter(|number| files > 1 && *number != 0);
        let mut parts = vec![first];
        if alone.is_none() {
            for number in 1..files {
                let part = part_path(path, number);
                if !part.exists() {
                    let fault = Fault::PartMissing { number, files, path: part };
                    return Err(SionError::Damaged { path: path.to_owned(), fault });
                }
                parts.push(PhysicalFile::open(&part)?);
            }
        }
        let slots = order(&parts)?;
        let mut container = Container::with_order(path, parts, slots);
        if let Some(number) = alone {
            let anomaly = Anomaly::PartAlone { number, files };
            container.warnings.push(Warning { path: path.to_owned(), anomaly });
        }
        Ok(container)
    }

    /// Makes a container of checked files.
    pub(super) fn with_order(path: &Path, parts: Vec<PhysicalFile>, slots: Vec<Slot>) -> Container {
        let mut warnings: Vec<Warning> = parts.iter().flat_map(|part| part.warnings.iter().cloned()).collect();
        warnings.extend(rank_twice(&parts).map(|anomaly| Warning { path: path.to_owned(), anomaly }));
        Container { path: path.to_owned(), parts, slots, warnings, ranks_are_numbers: false }
    }

    pub(super) fn warn(&mut self, path: &Path, anomaly: Anomaly) {
        self.warnings.push(Warning { path: path.to_owned(), anomaly });
    }

    /// Whether the streams are key-value records.
    pub fn key_value(&self) -> KeyValue {
        self.header().map_or(KeyValue::None, |header| header.key_value)
    }

    pub(super) fn header(&self) -> Option<&Header> {
        self.parts.first().map(|part| &part.header)
    }

    pub fn tasks(&self) -> usize {
        self.slots.len()
    }

    /// The place of a task's stream.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn slot(&self, task: usize) -> Result<Slot, SionError> {
        let missing = || SionError::NoSuchTask { path: self.path.clone(), task, tasks: self.slots.len() };
        self.slots.get(task).copied().ok_or_else(missing)
    }

    pub(super) fn located(&self, task: usize) -> Result<(&PhysicalFile, usize), SionError> {
        let slot = self.slot(task)?;
        let missing = || SionError::NoSuchTask { path: self.path.clone(), task, tasks: self.slots.len() };
        self.parts.get(slot.part).map(|part| (part, slot.local)).ok_or_else(missing)
    }

    /// The global rank stored for a task.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn global_rank(&self, task: usize) -> Result<i64, SionError> {
        let (part, local) = self.located(task)?;
        Ok(part.header.global_ranks.get(local).copied().unwrap_or(0))
    }

    /// Bytes of a task's stream.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn stream_bytes(&self, task: usize) -> Result<u64, SionError> {
        let (part, local) = self.located(task)?;
        Ok(part.table.stream_bytes(local))
    }

    /// The lengths of all streams together.
    pub(super) fn all_stream_bytes(&self) -> Result<u64, SionError> {
        (0..self.tasks()).try_fold(0_u64, |sum, task| Ok(sum.saturating_add(self.stream_bytes(task)?)))
    }

    /// Reads at an offset of a task's stream until the buffer is full or the stream ends. Returns the number of bytes,
    /// 0 at the end. Several threads may read at the same time.
    ///
    /// # Errors
    /// When there is no such task or the file cannot be read.
    pub fn read_at(&self, task: usize, offset: u64, buffer: &mut [u8]) -> Result<usize, SionError> {
        let (part, local) = self.located(task)?;
        part.read_at(local, offset, buffer).map_err(SionError::io("read", &part.path))
    }

    /// A task's stream as a seekable reader.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn stream(&self, task: usize) -> Result<TaskStream<'_>, SionError> {
        let (part, local) = self.located(task)?;
        Ok(TaskStream::at(part, local, 0))
    }
}

/// A task's stream: the concatenation of its chunks.
#[derive(Debug, Clone)]
pub struct TaskStream<'a> {
    /// The physical file that contains it.
    pub(super) part: &'a PhysicalFile,
    local: usize,
    offset: u64,
    pub length: u64,
}

impl<'a> TaskStream<'a> {
    /// The stream of a task of this file, to be read from an offset on.
    pub(super) fn at(part: &'a PhysicalFile, local: usize, offset: u64) -> TaskStream<'a> {
        TaskStream { part, local, offset, length: part.table.stream_bytes(local) }
    }

    /// The path of the physical file that contains it.
    pub fn path(&self) -> &Path {
        &self.part.path
    }
}

impl Read for TaskStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.part.read_at(self.local, self.offset, buffer)?;
        self.offset = self.offset.saturating_add(read as u64);
        Ok(read)
    }
}

impl Seek for TaskStream<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.offset.checked_add_signed(by),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
        };
        self.offset = target.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.offset)
    }
}

/// The ranks that are stored for more than one task. Most files have them in ascending order.
fn rank_twice(parts: &[PhysicalFile]) -> Option<Anomaly> {
    let ranks = || parts.iter().flat_map(|part| part.header.global_ranks.iter().copied());
    if ranks().is_sorted_by(|one, next| one < next) {
        return None;
    }
    let mut sorted: Vec<i64> = ranks().collect();
    sorted.sort_unstable();
    let mut twice: Vec<i64> = sorted.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    twice.dedup();
    let rank = *twice.first()?;
    Some(Anomaly::RankTwice { rank, more: twice.len() - 1 })
}

/// Checks that the files are one set, and returns the places of its tasks in order.
fn order(parts: &[PhysicalFile]) -> Result<Vec<Slot>, SionError> {
    let Some(first) = parts.first() else { return Ok(Vec::new()) };
    for (index, part) in parts.iter().enumerate().skip(1) {
        let (mine, its) = (&first.header, &part.header);
        let differs = |field, value: i64, expected: i64| {
            Err(SionError::damaged(&part.path)(Fault::PartDiffers { field, value, expected }))
        };
        let number = i32::try_from(index).unwrap_or(i32::MAX);
        if its.file_number.is_some_and(|its| its != number) {
            return differs("file number", its.file_number.unwrap_or(0).into(), number.into());
        }
        if its.files != mine.files {
            return differs("number of files", its.files.into(), mine.files.into());
        }
        if its.format != mine.format {
            return differs("file format version", its.format.into(), mine.format.into());
        }
        if its.byte_order != mine.byte_order || its.user_order != mine.user_order {
            return differs(
                "byte order",
                i64::from(its.byte_order.as_str() == "big"),
                i64::from(mine.byte_order.as_str() == "big"),
            );
        }
        if its.key_value != mine.key_value {
            return differs("key-value mode", its.key_value.code().into(), mine.key_value.code().into());
        }
    }
    let one_file = parts.len() == 1;
    let entries = first.mapping().unwrap_or_default();
    if entries.is_empty() && one_file {
        return Ok((0..first.header.tasks()).map(|local| Slot { part: 0, local }).collect());
    }
    let damaged = SionError::damaged;
    // The copies of a buddy set start with tasks of their own, which have negative ranks.
    let ranks = parts.iter().flat_map(|part| &part.header.global_ranks);
    let tasks = ranks.filter(|rank| **rank >= 0 || one_file).count() as u64;
    if entries.len() as u64 != tasks {
        let size = i64::try_from(entries.len()).unwrap_or(i64::MAX);
        return Err(damaged(&first.path)(Fault::MappingSize { size, tasks }));
    }
    let mut taken: Vec<Vec<bool>> = parts.iter().map(|part| vec![false; part.header.tasks()]).collect();
    let mut slots = Vec::with_capacity(entries.len());
    for (rank, (file, task)) in entries.iter().enumerate() {
        let rank = rank as u64;
        let (file, task) = (*file, *task);
        let slot = Slot::of((file, task));
        let seen = slot.and_then(|slot| taken.get_mut(slot.part)?.get_mut(slot.local));
        let (Some(slot), Some(seen)) = (slot, seen) else {
            return Err(damaged(&first.path)(Fault::MappingTarget { rank, file, task }));
        };
        if std::mem::replace(seen, true) {
            return Err(damaged(&first.path)(Fault::MappingTwice { rank, file, task }));
        }
        let ranks = parts.get(slot.part).map(|part| &part.header.global_ranks);
        let stored = ranks.and_then(|ranks| ranks.get(slot.local)).copied().unwrap_or(-1);
        if u64::try_from(stored) != Ok(rank) {
            return Err(damaged(&first.path)(Fault::MappingRank { rank, stored }));
        }
        slots.push(slot);
    }
    if one_file {
        // Readers of a single file number tasks by local rank.
        slots.sort_by_key(|slot| slot.local);
    }
    Ok(slots)
}
