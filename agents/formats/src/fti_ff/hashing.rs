//! MD5 over ranges of a file, distributed over threads.
//!
//! One MD5 cannot run in parallel. The calling thread computes the checksum of the file while other threads hash the
//! chunks, so that a verification takes the time of one MD5 over the file.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use md5::{Digest, Md5};

use crate::{FormatsError, Input, Progress};

/// Below this number of bytes, starting threads takes longer than hashing on one.
const WORTH_THREADS: u64 = 4 << 20;
/// More reading threads do not increase the throughput of a disk.
const MAX_THREADS: usize = 8;

/// A range of a file: offset and length in bytes.
pub type Range = (u64, u64);

/// The ranges to hash.
#[derive(Debug, Default)]
pub struct HashRequest {
    /// Ranges with a hash each.
    pub chunks: Vec<Range>,
    /// Ranges with one hash for all of them, in this order.
    pub combined: Vec<Range>,
}

/// The hashes of a [`HashRequest`].
#[derive(Debug)]
pub struct Hashes {
    /// The hash of each chunk.
    pub chunks: Vec<[u8; 16]>,
    /// The hash of all bytes of `combined`.
    pub combined: [u8; 16],
}

/// Computes all hashes. The ranges must lie in the file.
///
/// # Errors
/// When the file cannot be read.
pub fn hash(input: &Input, request: &HashRequest, progress: Progress<'_>) -> Result<Hashes, FormatsError> {
    let bytes = |ranges: &[Range]| ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.1));
    let total = bytes(&request.chunks).saturating_add(bytes(&request.combined));
    let shared = Shared { input, chunks: &request.chunks, next: AtomicUsize::new(0), done: AtomicU64::new(0) };
    let extra_threads = match total {
        0..WORTH_THREADS => 0,
        _ => thread::available_parallelism().map_or(1, usize::from).clamp(2, MAX_THREADS) - 1,
    };
    let mut hashes = vec![[0; 16]; request.chunks.len()];
    let combined = thread::scope(|scope| -> Result<[u8; 16], FormatsError> {
        let threads: Vec<_> = (0..extra_threads.min(request.chunks.len()))
            .map(|_| scope.spawn(|| shared.take_chunks(&mut |_| {})))
            .collect();
        let mut report = |done: u64| progress(done, total);
        let combined = shared.stream(&request.combined, &mut report)?;
        let mut found = shared.take_chunks(&mut report)?;
        for thread in threads {
            match thread.join() {
                Ok(more) => found.extend(more?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        for (index, hash) in found {
            if let Some(place) = hashes.get_mut(index) {
                *place = hash;
            }
        }
        Ok(combined)
    })?;
    progress(total, total);
    Ok(Hashes { chunks: hashes, combined })
}

struct Shared<'a> {
    input: &'a Input,
    chunks: &'a [Range],
    next: AtomicUsize,
    done: AtomicU64,
}

impl Shared<'_> {
    /// Hashes chunks until none is left.
    fn take_chunks(&self, report: &mut dyn FnMut(u64)) -> Result<Vec<(usize, [u8; 16])>, FormatsError> {
        let mut found = Vec::new();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(range) = self.chunks.get(index) else { return Ok(found) };
            found.push((index, self.stream(std::slice::from_ref(range), report)?));
        }
    }

    fn stream(&self, ranges: &[Range], report: &mut dyn FnMut(u64)) -> Result<[u8; 16], FormatsError> {
        let mut hasher = Md5::new();
        for &(offset, bytes) in ranges {
            self.input.each_piece(offset, bytes, |piece| {
                hasher.update(piece);
                let bytes = piece.len() as u64;
                report(self.done.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes));
                Ok::<_, FormatsError>(())
            })?;
        }
        Ok(hasher.finalize().into())
    }
}
