//! What is accepted in one physical file: bounds against files that claim too much.

/// Most tasks of one physical file that are accepted: ten times those of the largest runs written so.
pub(super) const MOST_TASKS: u64 = 1 << 24;
/// Most byte counts of one physical file that are accepted: 256 MiB of table.
pub(super) const MOST_CHUNKS: u64 = 1 << 25;
/// Most records of one task that are followed.
pub(super) const MOST_RECORDS: u64 = 1 << 24;
/// The original's limit for a block size; above it, it takes 2 MiB.
pub(super) const LARGEST_BLOCK: u32 = 32 << 20;
/// Bytes of the field that holds the name given to the writer.
pub(super) const PREFIX_BYTES: usize = 1024;
