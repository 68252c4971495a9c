//! The byte counts of chunks (META2), and the places of the streams of all ranks (the mapping).
//!
//! Files store the byte counts block by block; readers need them by task. The table stores the end of each chunk in its
//! task's stream, so that an offset is found by binary search. Entries after a task's last chunk are 0 or -1
//! (`docs/formats.md`, SION 3) and are not stored.

use std::io::Read;
use std::path::Path;

use super::anomaly::Anomaly;
use super::byte_order::ByteOrder;
use super::error::SionError;
use super::fault::Fault;
use super::layout::Layout;
use super::limits::MOST_CHUNKS;

/// The byte counts of one physical file's chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkTable {
    /// Index into `ends` of each task's first chunk, and one more at the end.
    first: Vec<usize>,
    /// The end of each chunk in its task's stream.
    ends: Vec<u64>,
    blocks: u64,
    unused_mark: i64,
}

/// The place of a stream offset in the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkOffset {
    pub chunk: u64,
    /// Offset inside the chunk.
    pub inside: u64,
    /// Bytes from this offset to the end of the chunk's data.
    pub left: u64,
}

impl ChunkTable {
    /// Reads and checks the table from its start; the caller has checked that the file contains all of it.
    pub(super) fn read(
        input: &mut impl Read,
        path: &Path,
        order: ByteOrder,
        layout: &Layout,
        blocks: u64,
        anomalies: &mut Vec<Anomaly>,
    ) -> Result<ChunkTable, SionError> {
        let damaged = SionError::damaged;
        let mut next = || -> Result<i64, SionError> {
            let mut bytes = [0; 8];
            input.read_exact(&mut bytes).map_err(SionError::io("read the byte counts of", path))?;
            Ok(order.i64(bytes))
        };
        let mut first = Vec::with_capacity(layout.tasks() + 1);
        let (mut total, mut largest) = (0_usize, 0);
        for task in 0..layout.tasks() {
            let stored = next()?;
            let count = u64::try_from(stored).ok().filter(|count| *count <= blocks);
            let count = count.ok_or(Fault::ChunkCount { task, count: stored, blocks }).map_err(damaged(path))?;
            if count == 0 {
                anomalies.push(Anomaly::NoChunk { task });
            }
            first.push(total);
            largest = largest.max(count);
            // At most tasks times blocks, which the caller has limited.
            total = total.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
        }
        first.push(total);
        if largest != blocks {
            return Err(damaged(path)(Fault::BlocksUnused { blocks, largest }));
        }
        let mut ends = vec![0_u64; total];
        let mut unused_mark = None;
        for chunk in 0..blocks {
            for (task, range) in first.windows(2).enumerate() {
                let bytes = next()?;
                let [begin, end] = *range else { continue };
                let index = begin.saturating_add(usize::try_from(chunk).unwrap_or(usize::MAX));
                if index < end {
                    let size = layout.chunk_size(task);
                    let checked = u64::try_from(bytes).ok().filter(|bytes| *bytes <= size);
                    let wrong = Fault::ChunkBytes { task, chunk, bytes, size };
                    if let Some(place) = ends.get_mut(index) {
                        *place = checked.ok_or(wrong).map_err(damaged(path))?;
                    }
                } else if bytes == 0 || bytes == -1 {
                    unused_mark.get_or_insert(bytes);
                } else {
                    let count = (end - begin) as u64;
                    return Err(damaged(path)(Fault::UnusedEntry { task, count, chunk, bytes }));
                }
            }
        }
        let mut table = ChunkTable { first, ends, blocks, unused_mark: unused_mark.unwrap_or(0) };
        table.accumulate().ok_or(Fault::Overflow).map_err(damaged(path))?;
        Ok(table)
    }

    /// A table of recovered counts: for each task, the bytes of each of its chunks.
    pub(super) fn from_counts(counts: impl IntoIterator<Item = Vec<u64>>) -> Option<ChunkTable> {
        let (mut first, mut ends, mut blocks) = (vec![0], Vec::new(), 1);
        for task in counts {
            blocks = blocks.max(task.len() as u64);
            ends.extend(task);
            first.push(ends.len());
        }
        let mut table = ChunkTable { first, ends, blocks, unused_mark: 0 };
        table.accumulate()?;
        Some(table)
    }

    /// Converts byte counts to ends.
    fn accumulate(&mut self) -> Option<()> {
        for range in self.first.windows(2) {
            let [begin, end] = *range else { continue };
            let mut sum = 0_u64;
            for entry in self.ends.get_mut(begin..end)? {
                sum = sum.checked_add(*entry).filter(|sum| i64::try_from(*sum).is_ok())?;
                *entry = sum;
            }
        }
        Some(())
    }

    fn ends_of(&self, task: usize) -> &[u64] {
        let begin = self.first.get(task).copied().unwrap_or(0);
        let end = task.checked_add(1).and_then(|next| self.first.get(next)).copied().unwrap_or(begin);
        self.ends.get(begin..end).unwrap_or(&[])
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Number of chunks that a task uses.
    pub fn chunks(&self, task: usize) -> u64 {
        self.ends_of(task).len() as u64
    }

    /// Bytes of a task's stream.
    pub fn stream_bytes(&self, task: usize) -> u64 {
        self.ends_of(task).last().copied().unwrap_or(0)
    }

    /// Bytes of each chunk that a task uses.
    pub fn chunk_bytes(&self, task: usize) -> impl Iterator<Item = u64> + '_ {
        let mut before = 0;
        self.ends_of(task).iter().map(move |end| {
            let bytes = end - before;
            before = *end;
            bytes
        })
    }

    /// Bytes of one chunk; `None` after the task's last.
    pub(super) fn bytes_of(&self, task: usize, chunk: u64) -> Option<u64> {
        let ends = self.ends_of(task);
        let chunk = usize::try_from(chunk).ok()?;
        let before = chunk.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        ends.get(chunk).map(|end| end - before)
    }

    /// The stored byte count of unused chunks: 0, or -1 from mapped writers.
    pub fn unused_mark(&self) -> i64 {
        self.unused_mark
    }

    /// The chunk with the byte at this offset of a task's stream; `None` at its end and beyond.
    pub(super) fn place(&self, task: usize, offset: u64) -> Option<ChunkOffset> {
        let ends = self.ends_of(task);
        let chunk = ends.partition_point(|end| *end <= offset);
        let end = *ends.get(chunk)?;
        let begin = chunk.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        Some(ChunkOffset { chunk: chunk as u64, inside: offset - begin, left: end - offset })
    }
}

/// Bytes of the table for this many tasks and blocks; an error beyond the limit.
pub(super) fn table_bytes(tasks: u64, blocks: u64) -> Result<u64, Fault> {
    let entries = blocks.checked_add(1).and_then(|rows| rows.checked_mul(tasks));
    match entries {
        Some(entries) if entries <= MOST_CHUNKS => Ok(entries * 8),
        _ => Err(Fault::TooMany { what: "chunks", count: entries.unwrap_or(u64::MAX), limit: MOST_CHUNKS }),
    }
}

/// The mapping, which follows the byte counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapping {
    /// No mapping: files of parallel writers of one file, and all files of a set but the first.
    None,
    /// File and local rank of every global rank; empty from the serial writer.
    Entries(Vec<(i32, i32)>),
}
