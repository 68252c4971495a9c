//! Counts how often this process synchronised files, and how many bytes it wrote to files that must survive it. Read by
//! benchmarks, and by tests that limit the cost of a decision.

use std::sync::atomic::{AtomicU64, Ordering};

static SYNCS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Counts since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCount {
    /// Files and directories that were synchronised.
    pub syncs: u64,
    /// Bytes of replaced files and appended entries.
    pub bytes: u64,
}

pub fn now() -> IoCount {
    IoCount { syncs: SYNCS.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) }
}

/// A file or a directory is being synchronised.
pub fn synced() {
    SYNCS.fetch_add(1, Ordering::Relaxed);
}

/// So many bytes were written.
pub fn written(bytes: usize) {
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}
