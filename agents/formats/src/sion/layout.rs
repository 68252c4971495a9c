//! The offsets of chunks in a physical file.
//!
//! A file consists of a head, blocks of equal size with one chunk per task, and the byte counts (`docs/formats.md`,
//! SION 1). All offsets follow from the chunk sizes and the block size, so that each process can compute them. All sums
//! are checked, because the numbers are read from files.

/// Bytes of the head of a file without tasks; each task adds 16.
pub(super) const HEAD_BYTES: u64 = 1088;

/// The offsets in one physical file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Offset of the first chunk.
    pub start_of_data: u64,
    /// Bytes of one block: the distance between two chunks of a task (`globalskip`).
    pub block_skip: u64,
    starts: Vec<u64>,
    sizes: Vec<u64>,
}

/// `value` rounded up to a multiple of `unit`; `None` beyond the largest file size.
pub(super) fn align(value: u64, unit: u64) -> Option<u64> {
    value.checked_next_multiple_of(unit).filter(|aligned| i64::try_from(*aligned).is_ok())
}

/// The end of the head of a file of format 3 or later.
pub(super) fn head_end(tasks: u64) -> Option<u64> {
    tasks.checked_mul(16)?.checked_add(HEAD_BYTES)
}

impl Layout {
    /// The layout of chunks of these sizes, including padding; `None` beyond the largest file size.
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

    /// The layout as a process with some of the tasks sees it: offset of the first chunk and chunk size of each.
    pub fn of_tasks(tasks: impl IntoIterator<Item = (u64, u64)>, block_skip: u64) -> Layout {
        let (starts, sizes): (Vec<u64>, Vec<u64>) = tasks.into_iter().unzip();
        Layout { start_of_data: starts.first().copied().unwrap_or(0), block_skip, starts, sizes }
    }

    pub fn tasks(&self) -> usize {
        self.sizes.len()
    }

    /// Size of a task's chunks; zero for an unknown task.
    pub fn chunk_size(&self, task: usize) -> u64 {
        self.sizes.get(task).copied().unwrap_or(0)
    }

    /// Offset of a chunk; `None` for an unknown task, or beyond the largest file size.
    pub fn chunk_position(&self, task: usize, chunk: u64) -> Option<u64> {
        let position = self.block_skip.checked_mul(chunk)?.checked_add(*self.starts.get(task)?)?;
        i64::try_from(position).ok().map(|_| position)
    }

    /// Offset of the byte counts after this many blocks.
    pub fn tail(&self, blocks: u64) -> Option<u64> {
        let tail = self.block_skip.checked_mul(blocks)?.checked_add(self.start_of_data)?;
        i64::try_from(tail).ok().map(|_| tail)
    }
}
