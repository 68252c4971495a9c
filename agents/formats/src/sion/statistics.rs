//! The sums that siondump prints.
//!
//! They are counted as in siondump, so that both outputs can be compared: a used chunk of size zero counts as full, and
//! the sizes of formats 2 and 3 are the stored ones, without padding.

use super::container::Container;
use super::error::SionError;
use super::tables::ChunkTable;

/// Number and bytes of the chunks of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkSum {
    pub chunks: u64,
    /// Bytes of data in used chunks; size of empty ones.
    pub bytes: u64,
}

impl ChunkSum {
    fn add(&mut self, chunks: u64, bytes: u64) {
        self.chunks = self.chunks.saturating_add(chunks);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The usage of a container's space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The largest number of blocks of a file.
    pub blocks: u64,
    /// Size of all used chunks.
    pub chunk_bytes: u64,
    /// Bytes of all streams.
    pub data_bytes: u64,
    pub full: ChunkSum,
    /// Chunks that are partly used.
    pub partly: ChunkSum,
    pub empty: ChunkSum,
    /// File system blocks that hold data.
    pub used_blocks: u64,
    /// File system blocks that are full.
    pub full_blocks: u64,
    /// Size of a file system block in bytes.
    pub block_size: u64,
}

impl Statistics {
    /// Counts a container's chunks.
    pub fn of(container: &Container) -> Result<Statistics, SionError> {
        let blocks = container.parts.iter().map(|part| part.table.blocks).max().unwrap_or(0);
        let block_size = container.header().map_or(1, |header| u64::from(header.block_size).max(1));
        let mut sums = Statistics { blocks, block_size, ..Statistics::default() };
        for task in 0..container.tasks() {
            let (part, local) = container.located(task)?;
            let size = part.header.stored_chunk_sizes.get(local).copied().unwrap_or(0);
            sums.add_task(&part.table, local, size);
        }
        Ok(sums)
    }

    fn add_task(&mut self, table: &ChunkTable, local: usize, size: u64) {
        let used = table.chunks(local);
        self.chunk_bytes = self.chunk_bytes.saturating_add(used.saturating_mul(size));
        for (count, bytes) in table.runs(local) {
            let sum = count.saturating_mul(bytes);
            self.data_bytes = self.data_bytes.saturating_add(sum);
            match bytes {
                _ if bytes == size => self.full.add(count, sum),
                0 => self.empty.add(count, count.saturating_mul(size)),
                _ => self.partly.add(count, sum),
            }
            let used_blocks = count.saturating_mul(bytes.div_ceil(self.block_size));
            self.used_blocks = self.used_blocks.saturating_add(used_blocks);
            let full_blocks = count.saturating_mul(bytes.checked_div(self.block_size).unwrap_or(0));
            self.full_blocks = self.full_blocks.saturating_add(full_blocks);
        }
        let unused = self.blocks.saturating_sub(used);
        self.empty.add(unused, unused.saturating_mul(size));
    }

    /// Bytes of used chunks without data.
    pub fn overhead_bytes(&self) -> i64 {
        self.chunk_bytes.cast_signed().wrapping_sub(self.data_bytes.cast_signed())
    }
}

/// A share in percent; 0 if the total is 0.
pub(super) fn percent(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { 100.0 * part as f64 / total as f64 }
}
