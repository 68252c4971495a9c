//! Tables of a file as the program gets them: arrays of 64-bit numbers, indexed by task.

use crate::error::{CallError, Result};

/// Largest number of byte counts in one table: 256 MiB.
const MOST_ENTRIES: u64 = 1 << 25;

/// The tables of `sion_get_locations`.
#[derive(Debug, Default)]
pub struct Locations {
    pub chunk_sizes: Vec<i64>,
    pub global_ranks: Vec<i64>,
    pub chunk_counts: Vec<i64>,
    /// The bytes used in each chunk, at `tasks * chunk + task`.
    pub chunk_bytes: Vec<i64>,
}

/// What `sion_get_locations` returns besides the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub tasks: usize,
    /// The largest number of chunks of a task.
    pub blocks: u64,
    /// Bytes between two chunks of a task, in the file of the current task.
    pub skip: u64,
    /// The offset of the byte counts.
    pub tail: u64,
}

/// The tables of `sion_get_current_locations`.
#[derive(Debug, Default)]
pub struct CurrentLocations {
    /// Positions in the physical file of the task.
    pub positions: Vec<i64>,
    pub chunks: Vec<i64>,
}

/// A task's part of [`Locations`].
#[derive(Debug)]
pub struct Row<I> {
    pub chunk_size: u64,
    pub global_rank: i64,
    pub chunk_bytes: I,
}

impl Locations {
    /// The tables of these tasks, with `unused` for the chunks that a task does not have.
    ///
    /// # Errors
    /// They would be too large.
    pub fn of<I: Iterator<Item = u64>>(
        tasks: usize,
        blocks: u64,
        unused: i64,
        rows: impl Iterator<Item = Result<Row<I>>>,
    ) -> Result<Locations> {
        let entries = blocks.saturating_mul(tasks as u64);
        if entries > MOST_ENTRIES {
            return Err(CallError::LargeTable(entries));
        }
        let mut tables =
            Locations { chunk_bytes: vec![unused; usize::try_from(entries).unwrap_or(0)], ..Locations::default() };
        for (task, row) in rows.enumerate() {
            let row = row?;
            tables.chunk_sizes.push(row.chunk_size.cast_signed());
            tables.global_ranks.push(row.global_rank);
            let mut count = 0;
            for (chunk, bytes) in row.chunk_bytes.enumerate() {
                count += 1;
                if let Some(entry) = tables.chunk_bytes.get_mut(tasks * chunk + task) {
                    *entry = bytes.cast_signed();
                }
            }
            tables.chunk_counts.push(count);
        }
        Ok(tables)
    }
}
