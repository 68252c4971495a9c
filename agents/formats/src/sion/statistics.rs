//! The sums that siondump prints, with its own rules of counting.
//!
//! They are kept as the original counts them, so that its output can be compared line by line: a chunk of no bytes that
//! is used counts as full, the sizes of formats 2 and 3 are those stored, without padding.

use super::container::Container;
use super::error::SionError;
use super::tables::ChunkTable;

/// Chunks of one kind: how many, and how many bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkSum {
    /// Number of chunks.
    pub chunks: u64,
    /// Bytes: of data for used chunks, of room for empty ones.
    pub bytes: u64,
}

impl ChunkSum {
    fn add(&mut self, chunks: u64, bytes: u64) {
        self.chunks = self.chunks.saturating_add(chunks);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// How a container uses its room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks of the file that has most.
    pub blocks: u64,
    /// Room of all chunks that are used.
    pub chunk_bytes: u64,
    /// Bytes of all streams.
    pub data_bytes: u64,
    /// Chunks used to their last byte.
    pub full: ChunkSum,
    /// Chunks used in part.
    pub partly: ChunkSum,
    /// Chunks with nothing in them.
    pub empty: ChunkSum,
    /// File system blocks that hold data.
    pub used_blocks: u64,
    /// File system blocks full of data.
    pub full_blocks: u64,
    /// The alignment that the file system blocks are counted in.
    pub block_size: u64,
}

impl Statistics {
    /// Counts a container's chunks.
    ///
    /// # Errors
    /// Never for the tasks of the container itself.
    pub fn of(container: &Container) -> Result<Statistics, SionError> {
        let blocks = container.parts().iter().map(|part| part.table().blocks()).max().unwrap_or(0);
        let block_size = container.header().map_or(1, |header| u64::from(header.block_size).max(1));
        let mut sums = Statistics { blocks, block_size, ..Statistics::default() };
        for task in 0..container.tasks() {
            let (part, local) = container.located(task)?;
            let size = part.header().stored_chunk_sizes.get(local).copied().unwrap_or(0);
            sums.add_task(part.table(), local, size);
        }
        Ok(sums)
    }

    fn add_task(&mut self, table: &ChunkTable, local: usize, size: u64) {
        let used = table.chunks(local);
        self.chunk_bytes = self.chunk_bytes.saturating_add(used.saturating_mul(size));
        for bytes in table.chunk_bytes(local) {
            self.data_bytes = self.data_bytes.saturating_add(bytes);
            match bytes {
                _ if bytes == size => self.full.add(1, bytes),
                0 => self.empty.add(1, size),
                _ => self.partly.add(1, bytes),
            }
            self.used_blocks = self.used_blocks.saturating_add(bytes.div_ceil(self.block_size));
            self.full_blocks = self.full_blocks.saturating_add(bytes.checked_div(self.block_size).unwrap_or(0));
        }
        let unused = self.blocks.saturating_sub(used);
        self.empty.add(unused, unused.saturating_mul(size));
    }

    /// Room that is used for no data.
    pub fn overhead_bytes(&self) -> i64 {
        self.chunk_bytes.cast_signed().wrapping_sub(self.data_bytes.cast_signed())
    }
}

/// A share in percent, 0 of nothing.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}
