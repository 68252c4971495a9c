//! The byte counts of chunks (META2), and the places of the streams of all ranks (the mapping).
//!
//! Files store the byte counts block by block; readers need them by task. Consecutive chunks of a task with equal byte
//! counts are one run, so that the table of a file takes no more memory than its content: chunks of a hole are one run
//! too. Runs store ends, so that an offset is found by binary search. Entries after a task's last chunk are 0 or -1
//! (`docs/formats.md`, SION 3) and are not stored.

use std::io::{BufReader, Read};
use std::path::Path;

use holdfast_core::store::StoredFile;

use super::anomaly::Anomaly;
use super::byte_order::ByteOrder;
use super::error::SionError;
use super::fault::Fault;
use super::layout::Layout;
use super::limits::MOST_CHUNKS;
use super::reading::FileAt;
use super::usage::Usage;

/// Tasks whose byte counts are read together: the rows of the file are read in parts of this many entries.
const TASKS_AT_ONCE: usize = 4096;

/// Consecutive chunks of a task with equal byte counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChunkRun {
    /// The number of the task's chunks up to the end of the run.
    chunks_end: u64,
    /// The bytes of the task's stream up to the end of the run.
    bytes_end: u64,
}

/// The byte counts of one physical file's chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkTable {
    /// Index into `runs` of each task's first run, and one more at the end.
    first: Vec<usize>,
    runs: Vec<ChunkRun>,
    pub blocks: u64,
    /// The stored byte count of unused chunks: 0, or -1 from mapped writers.
    pub unused_mark: i64,
}

/// The place of a stream offset in the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkOffset {
    pub chunk: u64,
    pub inside: u64,
    /// Bytes from this offset to the end of the chunk's data.
    pub left: u64,
}

/// A table of byte counts in a file.
pub(super) struct StoredTable<'a> {
    pub file: &'a dyn StoredFile,
    pub path: &'a Path,
    pub order: ByteOrder,
    pub layout: &'a Layout,
    /// The offset of the table in the file.
    pub position: u64,
    pub blocks: u64,
}

impl StoredTable<'_> {
    /// Reads and checks the table; the caller has checked that the file contains all of it.
    pub(super) fn read(&self, anomalies: &mut Vec<Anomaly>) -> Result<ChunkTable, SionError> {
        let counts = self.counts(anomalies)?;
        let largest = counts.iter().copied().max().unwrap_or(0);
        if largest != self.blocks {
            return Err(self.damaged(Fault::BlocksUnused { blocks: self.blocks, largest }));
        }
        let mut table = ChunkTable::empty();
        table.blocks = self.blocks;
        let mut unused_mark = None;
        for (number, group) in counts.chunks(TASKS_AT_ONCE).enumerate() {
            let first = number.saturating_mul(TASKS_AT_ONCE);
            for usage in self.usages(first, group, &mut unused_mark)? {
                table.push(&usage).ok_or_else(|| self.damaged(Fault::Overflow))?;
            }
        }
        table.unused_mark = unused_mark.unwrap_or(0);
        Ok(table)
    }

    fn damaged(&self, fault: Fault) -> SionError {
        SionError::damaged(self.path)(fault)
    }

    /// The number of chunks of each task.
    fn counts(&self, anomalies: &mut Vec<Anomaly>) -> Result<Vec<u64>, SionError> {
        let mut input = BufReader::with_capacity(1 << 18, FileAt { file: self.file, position: self.position });
        let (mut counts, mut without) = (Vec::with_capacity(self.layout.tasks()), None);
        for task in 0..self.layout.tasks() {
            let mut bytes = [0; 8];
            input.read_exact(&mut bytes).map_err(SionError::io("read the byte counts of", self.path))?;
            let stored = self.order.i64(bytes);
            let count = u64::try_from(stored).ok().filter(|count| *count <= self.blocks);
            let wrong = Fault::ChunkCount { task, count: stored, blocks: self.blocks };
            let count = count.ok_or_else(|| self.damaged(wrong))?;
            if count == 0 {
                without = Some(without.map_or((task, 0_usize), |(first, more)| (first, more + 1)));
            }
            counts.push(count);
        }
        anomalies.extend(without.map(|(task, more)| Anomaly::NoChunk { task, more }));
        Ok(counts)
    }

    /// The byte counts of consecutive tasks with these numbers of chunks.
    fn usages(&self, first: usize, counts: &[u64], unused_mark: &mut Option<i64>) -> Result<Vec<Usage>, SionError> {
        let reading = || SionError::io("read the byte counts of", self.path);
        let overflow = || self.damaged(Fault::Overflow);
        let row_bytes = (self.layout.tasks() as u64).checked_mul(8).ok_or_else(overflow)?;
        let begin = self.position.checked_add(row_bytes).ok_or_else(overflow)?;
        let mut at = begin.checked_add((first as u64).saturating_mul(8)).ok_or_else(overflow)?;
        // All rows are contiguous if they are read completely.
        let complete = counts.len() == self.layout.tasks();
        let mut input = BufReader::with_capacity(1 << 18, FileAt { file: self.file, position: at });
        let mut usages = vec![Usage::default(); counts.len()];
        let mut row = vec![0_u8; counts.len().saturating_mul(8)];
        for chunk in 0..self.blocks {
            match complete {
                true => input.read_exact(&mut row).map_err(reading())?,
                false => self.file.read_exact_at(&mut row, at).map_err(reading())?,
            }
            at = at.saturating_add(row_bytes);
            let entries = row.as_chunks::<8>().0.iter().map(|bytes| self.order.i64(*bytes));
            for ((task, bytes), (usage, count)) in (first..).zip(entries).zip(usages.iter_mut().zip(counts)) {
                if chunk < *count {
                    let size = self.layout.chunk_size(task);
                    let checked = u64::try_from(bytes).ok().filter(|bytes| *bytes <= size);
                    let wrong = Fault::ChunkBytes { task, chunk, bytes, size };
                    usage.push_run(1, checked.ok_or_else(|| self.damaged(wrong))?);
                } else if bytes == 0 || bytes == -1 {
                    unused_mark.get_or_insert(bytes);
                } else {
                    return Err(self.damaged(Fault::UnusedEntry { task, count: *count, chunk, bytes }));
                }
            }
        }
        Ok(usages)
    }
}

impl ChunkTable {
    pub(super) fn empty() -> ChunkTable {
        ChunkTable { first: vec![0], runs: Vec::new(), blocks: 1, unused_mark: 0 }
    }

    /// The table of these tasks. `None` if a stream is larger than a file can be.
    pub(super) fn of_tasks(usages: impl IntoIterator<Item = Usage>) -> Option<ChunkTable> {
        let mut table = ChunkTable::empty();
        for usage in usages {
            table.push(&usage)?;
        }
        Some(table)
    }

    /// Adds the next task. `None` if its stream is larger than a file can be.
    pub(super) fn push(&mut self, usage: &Usage) -> Option<()> {
        let mut end = ChunkRun { chunks_end: 0, bytes_end: 0 };
        for (count, bytes) in usage.runs() {
            let sum = end.bytes_end.checked_add(count.checked_mul(bytes)?)?;
            let bytes_end = i64::try_from(sum).ok()?.cast_unsigned();
            end = ChunkRun { chunks_end: end.chunks_end.checked_add(count)?, bytes_end };
            self.runs.push(end);
        }
        self.blocks = self.blocks.max(end.chunks_end);
        self.first.push(self.runs.len());
        Some(())
    }

    fn runs_of(&self, task: usize) -> &[ChunkRun] {
        let begin = self.first.get(task).copied().unwrap_or(0);
        let end = task.checked_add(1).and_then(|next| self.first.get(next)).copied().unwrap_or(begin);
        self.runs.get(begin..end).unwrap_or(&[])
    }

    /// The runs of a task: number of chunks, and bytes of each of them.
    pub(super) fn runs(&self, task: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut before = ChunkRun { chunks_end: 0, bytes_end: 0 };
        self.runs_of(task).iter().map(move |run| {
            let run_before = std::mem::replace(&mut before, *run);
            run.since(run_before)
        })
    }

    /// The run with this index of a task, and the one before it.
    fn run(&self, task: usize, index: usize) -> Option<(ChunkRun, ChunkRun)> {
        let runs = self.runs_of(task);
        let start = ChunkRun { chunks_end: 0, bytes_end: 0 };
        let before = index.checked_sub(1).and_then(|before| runs.get(before)).copied().unwrap_or(start);
        Some((*runs.get(index)?, before))
    }

    /// Number of chunks that a task uses.
    pub fn chunks(&self, task: usize) -> u64 {
        self.runs_of(task).last().map_or(0, |run| run.chunks_end)
    }

    /// Bytes of a task's stream.
    pub fn stream_bytes(&self, task: usize) -> u64 {
        self.runs_of(task).last().map_or(0, |run| run.bytes_end)
    }

    /// Bytes of each chunk that a task uses.
    pub fn chunk_bytes(&self, task: usize) -> impl Iterator<Item = u64> + '_ {
        self.runs(task).flat_map(|(count, bytes)| (0..count).map(move |_| bytes))
    }

    /// Bytes of one chunk; `None` after the task's last.
    pub(super) fn bytes_of(&self, task: usize, chunk: u64) -> Option<u64> {
        let index = self.runs_of(task).partition_point(|run| run.chunks_end <= chunk);
        let (run, before) = self.run(task, index)?;
        Some(run.since(before).1)
    }

    /// The chunk with the byte at this offset of a task's stream; `None` at its end and beyond.
    pub(super) fn place(&self, task: usize, offset: u64) -> Option<ChunkOffset> {
        let index = self.runs_of(task).partition_point(|run| run.bytes_end <= offset);
        let (run, before) = self.run(task, index)?;
        let size = run.since(before).1;
        let inside_run = offset.checked_sub(before.bytes_end)?;
        let inside = inside_run.checked_rem(size)?;
        let chunk = before.chunks_end.checked_add(inside_run.checked_div(size)?)?;
        Some(ChunkOffset { chunk, inside, left: size - inside })
    }
}

impl ChunkRun {
    /// Number and bytes of the chunks after the end of another run.
    fn since(self, before: ChunkRun) -> (u64, u64) {
        let count = self.chunks_end.saturating_sub(before.chunks_end);
        (count, self.bytes_end.saturating_sub(before.bytes_end).checked_div(count).unwrap_or(0))
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

/// The mapping, which follows the byte counts: file and local rank of every global rank; empty from the serial writer.
/// Files of parallel writers of one file have none, nor have all files of a set but the first.
pub type Mapping = Option<Vec<(i32, i32)>>;
