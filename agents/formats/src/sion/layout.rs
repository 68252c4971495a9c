//! Where chunks stand in a physical file.
//!
//! The file is a head, then blocks of one chunk a task, all blocks alike, then the byte counts (`docs/formats.md`, SION
//! 1). Everything follows from the chunk sizes and the block size, so any process can compute any position alone. All
//! sums are checked: the numbers come from files.

/// Bytes of the head of a file without tasks; each task adds 16.
pub(super) const HEAD_BYTES: u64 = 1088;

/// The positions in one physical file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    start_of_data: u64,
    block_skip: u64,
    starts: Vec<u64>,
    sizes: Vec<u64>,
}

/// `value` rounded up to a multiple of `unit`, if that can be a file position.
pub(super) fn align(value: u64, unit: u64) -> Option<u64> {
    value.checked_next_multiple_of(unit).filter(|aligned| i64::try_from(*aligned).is_ok())
}

/// Where the head of a file of format 3 and later ends.
pub(super) fn head_end(tasks: u64) -> Option<u64> {
    tasks.checked_mul(16)?.checked_add(HEAD_BYTES)
}

impl Layout {
    /// The layout of chunks of these sizes, as they stand in the file; `None` when a position cannot be one.
    pub(super) fn new(block_size: u32, sizes: Vec<u64>) -> Option<Layout> {
        let start_of_data = align(head_end(u64::try_from(sizes.len()).ok()?)?, u64::from(block_size))?;
        let mut starts = Vec::with_capacity(sizes.len());
        let mut at = start_of_data;
        for size in &sizes {
            starts.push(at);
            at = at.checked_add(*size).filter(|at| i64::try_from(*at).is_ok())?;
        }
        Some(Layout { start_of_data, block_skip: at.checked_sub(start_of_data)?, starts, sizes })
    }

    /// Offset of the first chunk.
    pub fn start_of_data(&self) -> u64 {
        self.start_of_data
    }

    /// Bytes of one block: the distance between two chunks of a task (`globalskip`).
    pub fn block_skip(&self) -> u64 {
        self.block_skip
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.sizes.len()
    }

    /// Size of a task's chunks; zero for a task that is not there.
    pub fn chunk_size(&self, task: usize) -> u64 {
        self.sizes.get(task).copied().unwrap_or(0)
    }

    /// Offset of a chunk; `None` for a task that is not there, or past what a file can have.
    pub fn chunk_position(&self, task: usize, chunk: u64) -> Option<u64> {
        let position = self.block_skip.checked_mul(chunk)?.checked_add(*self.starts.get(task)?)?;
        i64::try_from(position).ok().map(|_| position)
    }

    /// Where the byte counts begin behind this many blocks.
    pub fn tail(&self, blocks: u64) -> Option<u64> {
        let tail = self.block_skip.checked_mul(blocks)?.checked_add(self.start_of_data)?;
        i64::try_from(tail).ok().map(|_| tail)
    }
}
