//! Recovery of a container that was never closed, or lost its tail.
//!
//! The data are in the file from the first write; only the byte counts of the chunks are missing, because SIONlib keeps
//! them in memory until it closes the file. They are recovered, in order of decreasing certainty,
//!
//! 1. from the end of the file, if a table of byte counts fits exactly between the last block and the end of the file;
//! 2. in a key-value stream, from the records: all chunks but the last are full;
//! 3. otherwise, by assuming that each chunk ends at its last byte that is not zero. Zeros at the end of a chunk are
//!    lost. Therefore the result has a warning, and recovery must be requested.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::anomaly::Anomaly;
use super::byte_order::ByteOrder;
use super::container::Container;
use super::error::SionError;
use super::fault::Fault;
use super::header::KeyValue;
use super::physical_file::{OpenedHead, PhysicalFile};
use super::slot::{Slot, numbers_present, part_path};
use super::tables::{ChunkTable, Mapping, table_bytes};
use super::usage::Usage;

/// Up to this many missing files are listed.
const MAX_MISSING_LISTED: usize = 16;
const WINDOW_BYTES: usize = 1 << 18;

/// Opens a container like [`Container::open`]. If that fails because of a missing or damaged tail, the byte counts are
/// recovered from the content, and the warnings describe how.
///
/// # Errors
/// When the head of the first file is unusable.
pub fn recover(path: &Path) -> Result<Container, SionError> {
    match Container::open(path) {
        Ok(container) => return Ok(container),
        Err(error) if !error.is_damage() => return Err(error),
        Err(_) => {}
    }
    let first = recover_part(path)?;
    let files = first.header.files;
    let alone = first.header.file_number.is_some_and(|number| files > 1 && number != 0);
    let (mut parts, mut lost) = (vec![first], Vec::new());
    let present = if alone { BTreeSet::new() } else { numbers_present(path, files)? };
    for number in &present {
        match recover_part(&part_path(path, *number)) {
            Ok(part) if part.header.belongs(*number, files) => parts.push(part),
            Ok(_) => lost.push((*number, "it belongs to another set".to_owned())),
            Err(error) => lost.push((*number, error.to_string())),
        }
    }
    let missing = if alone { 1..1 } else { 1..files };
    let missing = missing.filter(|number| !present.contains(number));
    lost.extend(missing.take(MAX_MISSING_LISTED).map(|number| (number, "it is missing".to_owned())));
    let (slots, by_mapping) = order(&parts);
    let mut container = Container::with_order(path, parts, slots);
    if !lost.is_empty() {
        container.ranks_are_numbers = true;
    } else if !by_mapping {
        container.warn(path, Anomaly::MappingLost);
    }
    for (number, reason) in lost {
        container.warn(path, Anomaly::PartLost { number, files, reason });
    }
    Ok(container)
}

/// Recovers one physical file; uses its own tail if that is intact.
fn recover_part(path: &Path) -> Result<PhysicalFile, SionError> {
    match PhysicalFile::open(path) {
        Err(error) if error.is_damage() => {}
        intact_or_unreadable => return intact_or_unreadable,
    }
    let mut head = OpenedHead::open(path)?;
    let mut anomalies = std::mem::take(&mut head.anomalies);
    let before = anomalies.len();
    if let Some(closed) = head.header.closed
        && let Ok(blocks) = u64::try_from(closed.blocks)
        && let Some(tail) = head.layout.tail(blocks).filter(|tail| u64::try_from(closed.tail) == Ok(*tail))
        && let Ok((table, _)) = head.table_at(tail, blocks, &mut anomalies)
    {
        // Only the mapping is damaged; the ranks stored in the heads result in the same order.
        return Ok(head.into_physical_file(table, None, anomalies));
    }
    anomalies.truncate(before);
    if let Some((table, mapping)) = tail_at_end(&head, &mut anomalies) {
        anomalies.push(Anomaly::TailFound);
        return Ok(head.into_physical_file(table, mapping, anomalies));
    }
    anomalies.truncate(before);
    let table = match head.header.key_value {
        KeyValue::Inline => {
            anomalies.push(Anomaly::CountsFromRecords);
            follow_records(&head)?
        }
        KeyValue::None => {
            anomalies.push(Anomaly::CountsEstimated);
            last_bytes(&head)?
        }
    };
    Ok(head.into_physical_file(table, None, anomalies))
}

/// Finds a table of byte counts that fits exactly between the last block and the end of the file.
fn tail_at_end(head: &OpenedHead, anomalies: &mut Vec<Anomaly>) -> Option<(ChunkTable, Mapping)> {
    let tasks = head.layout.tasks() as u64;
    let row = tasks.checked_mul(8)?;
    // Without a mapping, with an empty one, or with one entry for each task of this file.
    for ending in [0, 4, 4_u64.checked_add(row)?] {
        let fixed = head.layout.start_of_data.checked_add(row)?.checked_add(ending)?;
        let period = head.layout.block_skip.checked_add(row)?;
        let Some(rest) = head.length.checked_sub(fixed) else { continue };
        if rest % period != 0 || rest == 0 {
            continue;
        }
        let (blocks, before) = (rest / period, anomalies.len());
        let Some(tail) = head.layout.tail(blocks) else { continue };
        let found = head.table_at(tail, blocks, anomalies).ok().filter(|_| anomalies.len() == before);
        if let Some((table, end)) = found
            && let Ok(mapping) = head.mapping_at(end, anomalies)
            && anomalies.len() == before
        {
            return Some((table, mapping));
        }
        anomalies.truncate(before);
    }
    None
}

/// The number of a task's chunks that start inside the file's data.
fn chunks_begun(head: &OpenedHead, task: usize) -> u64 {
    let (Some(start), size) = (head.layout.chunk_position(task, 0), head.layout.chunk_size(task)) else { return 0 };
    // A damaged tail at a known offset is not data.
    let closed = head.header.closed.and_then(|closed| {
        let expected = head.layout.tail(u64::try_from(closed.blocks).ok()?)?;
        (u64::try_from(closed.tail) == Ok(expected)).then_some(expected)
    });
    let end = closed.map_or(head.length, |tail| tail.min(head.length));
    if size == 0 || end <= start {
        return 0;
    }
    match head.layout.block_skip {
        0 => 0,
        skip => (end - start).div_ceil(skip),
    }
}

fn bounded(head: &OpenedHead) -> Result<(), SionError> {
    let most = (0..head.layout.tasks()).map(|task| chunks_begun(head, task)).max().unwrap_or(0);
    table_bytes(head.layout.tasks() as u64, most).map(|_| ()).map_err(SionError::damaged(&head.path))
}

/// Byte counts that end each chunk at its last byte that is not zero.
fn last_bytes(head: &OpenedHead) -> Result<ChunkTable, SionError> {
    bounded(head)?;
    let mut scan = DataScan::new(&head.file.file);
    let mut table = ChunkTable::empty();
    for task in 0..head.layout.tasks() {
        let mut usage = Usage::default();
        for chunk in 0..chunks_begun(head, task) {
            let begin = head.layout.chunk_position(task, chunk).unwrap_or(head.length);
            let end = begin.saturating_add(head.layout.chunk_size(task)).min(head.length);
            let used = scan.used_bytes(begin, end).map_err(SionError::io("read", &head.path))?;
            usage.push_run(1, used);
        }
        // Chunks after the last one with data were not written.
        usage.trim();
        add(&mut table, &usage, head)?;
    }
    Ok(table)
}

fn add(table: &mut ChunkTable, usage: &Usage, head: &OpenedHead) -> Result<(), SionError> {
    table.push(usage).ok_or(Fault::Overflow).map_err(SionError::damaged(&head.path))
}

/// Finds the last byte that is not zero, skipping holes. All chunks in one hole need one system call, so that a long
/// empty file does not make recovery slow.
struct DataScan<'a> {
    file: &'a File,
    buffer: Vec<u8>,
    /// Start and end of the last hole that was found.
    hole: (u64, u64),
}

impl<'a> DataScan<'a> {
    fn new(file: &'a File) -> DataScan<'a> {
        DataScan { file, buffer: vec![0; WINDOW_BYTES], hole: (0, 0) }
    }

    /// The start of the data at this offset or after it.
    fn data_from(&mut self, at: u64) -> u64 {
        use rustix::fs::{SeekFrom, seek};
        if at < self.hole.0 || at >= self.hole.1 {
            let data = match seek(self.file, SeekFrom::Data(at)) {
                Ok(data) => data.max(at),
                Err(rustix::io::Errno::NXIO) => u64::MAX,
                // The file system does not support holes: everything is data.
                Err(_) => at,
            };
            self.hole = (at, data);
        }
        self.hole.1.max(at)
    }

    /// The number of bytes from `begin` to the last byte before `end` that is not zero.
    fn used_bytes(&mut self, begin: u64, end: u64) -> io::Result<u64> {
        use rustix::fs::{SeekFrom, seek};
        let (mut at, mut used) = (self.data_from(begin), 0);
        while at < end {
            let hole = seek(self.file, SeekFrom::Hole(at)).ok().filter(|hole| *hole > at).unwrap_or(end).min(end);
            while at < hole {
                let want = usize::try_from(hole - at).unwrap_or(WINDOW_BYTES).min(WINDOW_BYTES);
                let window = self.buffer.get_mut(..want).unwrap_or(&mut []);
                let read = self.file.read_at(window, at)?;
                if read == 0 {
                    return Ok(used);
                }
                if let Some(last) = window.iter().take(read).rposition(|byte| *byte != 0) {
                    used = at - begin + last as u64 + 1;
                }
                at += read as u64;
            }
            if at < end {
                at = self.data_from(at);
            }
        }
        Ok(used)
    }
}

/// Byte counts from records: a stream ends before a header of zeros, or before a record that does not fit.
fn follow_records(head: &OpenedHead) -> Result<ChunkTable, SionError> {
    bounded(head)?;
    let mut table = ChunkTable::empty();
    for task in 0..head.layout.tasks() {
        let size = head.layout.chunk_size(task);
        let chunks = chunks_begun(head, task);
        let available = match chunks.checked_sub(1) {
            // The last chunk may be truncated by the end of the file.
            Some(full) => {
                let begin = head.layout.chunk_position(task, full).unwrap_or(head.length);
                full.saturating_mul(size).saturating_add(size.min(head.length.saturating_sub(begin)))
            }
            None => 0,
        };
        let stream = FullChunks { head, task, size, available };
        let end = stream.end_of_records(head.header.byte_order).map_err(SionError::io("read", &head.path))?;
        let mut usage = Usage::filled(end, size);
        if usage.used() == 0 {
            usage.push_run(1, 0);
        }
        add(&mut table, &usage, head)?;
    }
    Ok(table)
}

/// A stream whose chunks are all full, as in key-value containers.
struct FullChunks<'a> {
    head: &'a OpenedHead,
    task: usize,
    size: u64,
    available: u64,
}

impl FullChunks<'_> {
    fn end_of_records(&self, order: ByteOrder) -> io::Result<u64> {
        let mut at = 0_u64;
        while let Some(after_header) = at.checked_add(16).filter(|end| *end <= self.available) {
            let mut header = [[0_u8; 8]; 2];
            self.read_at(at, header.as_flattened_mut())?;
            let [key, length] = header.map(|bytes| order.u64(bytes));
            let end = after_header.checked_add(length).filter(|end| *end <= self.available);
            match end {
                Some(end) if key != 0 || length != 0 => at = end,
                // Unwritten space, or an incomplete record.
                _ => break,
            }
        }
        Ok(at)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let place = at.checked_div(self.size).zip(at.checked_rem(self.size));
            let begin = place.and_then(|(chunk, inside)| {
                self.head
                    .layout
                    .chunk_position(self.task, chunk)?
                    .checked_add(inside)
                    .zip(self.size.checked_sub(inside))
            });
            let (position, room) = begin.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
            let now = usize::try_from(room).unwrap_or(usize::MAX).min(rest.len());
            let (here, later) = rest.split_at_mut(now);
            self.head.file.file.read_exact_at(here, position)?;
            at = at.saturating_add(now as u64);
            rest = later;
        }
        Ok(())
    }
}

/// The tasks in the order of the mapping if it is intact, else in that of their stored ranks. The flag is true if the
/// mapping was used.
fn order(parts: &[PhysicalFile]) -> (Vec<Slot>, bool) {
    if parts.len() == 1 {
        let tasks = parts.first().map_or(0, |part| part.header.tasks());
        return ((0..tasks).map(|local| Slot { part: 0, local }).collect(), true);
    }
    let mut ranked = Vec::new();
    for (part, file) in parts.iter().enumerate() {
        for (local, rank) in file.header.global_ranks.iter().enumerate() {
            // Tasks with negative ranks have no data: they store the copy of a buddy.
            if *rank >= 0 {
                ranked.push((*rank, Slot { part, local }));
            }
        }
    }
    ranked.sort_by_key(|(rank, slot)| (*rank, slot.part, slot.local));
    let slots: Vec<Slot> = ranked.into_iter().map(|(_, slot)| slot).collect();
    let mapping = parts.first().and_then(PhysicalFile::mapping);
    let intact = mapping
        .is_some_and(|mapping| mapping.iter().map(|entry| Slot::of(*entry)).eq(slots.iter().map(|slot| Some(*slot))));
    (slots, intact)
}
