//! Limits of a physical file, against files that declare huge numbers.

/// Largest number of tasks in one physical file: ten times that of the largest known runs.
pub(super) const MOST_TASKS: u64 = 1 << 24;
/// Tasks with one global rank in sequence. Writers give each task its own; a hole of the file reads as a very long
/// table of tasks with rank 0. Further tasks therefore take space in the file.
pub(super) const MOST_EQUAL_RANKS: usize = 1 << 16;
/// Largest number of byte counts in one physical file: a table of 256 MiB in the file, and of its runs in memory.
pub(super) const MOST_CHUNKS: u64 = 1 << 25;
/// Largest number of records of one task.
pub(super) const MOST_RECORDS: u64 = 1 << 24;
/// SIONlib's limit for the block size of a file system; above it, SIONlib uses 2 MiB.
pub(super) const LARGEST_BLOCK: u32 = 32 << 20;
/// Bytes of the field that holds the name given to the writer.
pub(super) const PREFIX_BYTES: usize = 1024;
