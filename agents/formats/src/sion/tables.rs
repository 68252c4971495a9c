//! How many bytes each chunk holds (META2), and where each rank's stream is (the mapping).
//!
//! On disk the byte counts stand block by block; a reader wants them task by task. What is kept is where each chunk
//! ends in its task's stream, so that any offset is found by bisection. Entries behind a task's last chunk are 0 or -1
//! (`docs/formats.md`, SION 3) and are not kept.

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
    /// Where each chunk ends in its task's stream.
    ends: Vec<u64>,
    blocks: u64,
    unused_mark: i64,
}

/// A place in a task's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkOffset {
    pub chunk: u64,
    /// Offset inside the chunk.
    pub inside: u64,
    /// Bytes that follow in the same chunk.
    pub left: u64,
}

impl ChunkTable {
    /// Reads and checks the table; `input` stands at its begin and the caller has checked that the file has it all.
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
            // At most tasks times blocks, which the caller has bounded.
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

    /// A table of the counts that recovery or a writer found: per task, the bytes of each of its chunks.
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

    /// Turns byte counts into ends.
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

    /// Number of chunks a task uses.
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

    /// Bytes of one chunk; `None` behind the task's last.
    pub(super) fn bytes_of(&self, task: usize, chunk: u64) -> Option<u64> {
        let ends = self.ends_of(task);
        let chunk = usize::try_from(chunk).ok()?;
        let before = chunk.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        ends.get(chunk).map(|end| end - before)
    }

    /// What the file has where a chunk is not used: 0, or -1 from mapped writers.
    pub fn unused_mark(&self) -> i64 {
        self.unused_mark
    }

    /// The chunk that holds the byte at this offset of a task's stream; `None` at its end and behind.
    pub(super) fn place(&self, task: usize, offset: u64) -> Option<ChunkOffset> {
        let ends = self.ends_of(task);
        let chunk = ends.partition_point(|end| *end <= offset);
        let end = *ends.get(chunk)?;
        let begin = chunk.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        Some(ChunkOffset { chunk: chunk as u64, inside: offset - begin, left: end - offset })
    }
}

/// Bytes of the table for this many tasks and blocks, if it is one that is accepted.
pub(super) fn table_bytes(tasks: u64, blocks: u64) -> Result<u64, Fault> {
    let entries = blocks.checked_add(1).and_then(|rows| rows.checked_mul(tasks));
    match entries {
        Some(entries) if entries <= MOST_CHUNKS => Ok(entries * 8),
        _ => Err(Fault::TooMany { what: "chunks", count: entries.unwrap_or(u64::MAX), limit: MOST_CHUNKS }),
    }
}

/// What stands behind the byte counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapping {
    /// Nothing: parallel writers of one file, and all parts but the first.
    None,
    /// File and local rank of every global rank; empty from the serial writer.
    Entries(Vec<(i32, i32)>),
}
