//! The XOR loop, the size of pieces, and the reuse of buffers.

use std::sync::Arc;

use parking_lot::Mutex;

/// Default size of a piece: two of them fit into the second-level cache of any machine of the last fifteen years.
pub const DEFAULT_PIECE_BYTES: usize = 256 * 1024;

/// Largest piece that is accepted: limits how much a peer can make this process allocate.
pub const MAX_PIECE_BYTES: usize = 16 * 1024 * 1024;

/// The requested piece size, limited to the supported range.
pub(crate) fn usable_piece(bytes: usize) -> usize {
    bytes.clamp(1, MAX_PIECE_BYTES)
}

/// Adds `source` to the front of `target`, in the field of two elements: exclusive or.
///
/// Fixed-size blocks without bounds checks inside: the compiler turns the loop into vector instructions, and the speed
/// is that of the cache.
pub fn xor_into(target: &mut [u8], source: &[u8]) {
    let length = target.len().min(source.len());
    let (target, source) = (&mut target[..length], &source[..length]);
    let (target_blocks, target_rest) = target.as_chunks_mut::<64>();
    let (source_blocks, source_rest) = source.as_chunks::<64>();
    for (target, source) in target_blocks.iter_mut().zip(source_blocks) {
        for at in 0..64 {
            target[at] ^= source[at];
        }
    }
    for (target, source) in target_rest.iter_mut().zip(source_rest) {
        *target ^= source;
    }
}

/// Buffers that were used and can be used again; clones share them.
#[derive(Clone, Debug, Default)]
pub struct BufferPool {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// More free buffers than this are freed.
const KEPT: usize = 16;

impl BufferPool {
    /// A buffer of `length` bytes with unspecified contents.
    pub fn take(&self, length: usize) -> Vec<u8> {
        let mut buffer = self.free.lock().pop().unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    /// Returns a buffer to the pool.
    pub fn give(&self, buffer: Vec<u8>) {
        let mut free = self.free.lock();
        if free.len() < KEPT && buffer.capacity() > 0 {
            free.push(buffer);
        }
    }
}

/// A chunk, cut into pieces: (offset, length) of each.
pub(crate) fn pieces(chunk: u64, piece: usize) -> impl Iterator<Item = (u64, usize)> {
    let step = usable_piece(piece);
    let mut offset = 0;
    std::iter::from_fn(move || {
        let left = chunk.checked_sub(offset).filter(|left| *left > 0)?;
        let length = usize::try_from(left).map_or(step, |left| left.min(step));
        let at = offset;
        offset += length as u64;
        Some((at, length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_xored() {
        for length in 0..300 {
            let source: Vec<u8> = (0..length).map(|i| (i * 7 + 1) as u8).collect();
            let mut target: Vec<u8> = (0..length + 3).map(|i| (i * 13) as u8).collect();
            xor_into(&mut target, &source);
            for (i, byte) in target.iter().enumerate() {
                let other = source.get(i).copied().unwrap_or(0);
                assert_eq!(*byte, (i * 13) as u8 ^ other);
            }
        }
    }

    #[test]
    fn pieces_cover_a_chunk_without_gap() {
        for (chunk, size) in [(1, 4), (4, 4), (9, 4), (8, 1), (3, 0)] {
            let mut end = 0;
            for (offset, length) in pieces(chunk, size) {
                assert_eq!(offset, end);
                assert!((1..=size.max(1)).contains(&length));
                end += length as u64;
            }
            assert_eq!(end, chunk);
        }
    }

    #[test]
    fn a_pool_reuses_buffers_at_the_requested_length() {
        let pool = BufferPool::default();
        pool.give(vec![1; 100]);
        assert_eq!(pool.clone().take(10).len(), 10);
        assert_eq!(pool.take(50), vec![0; 50]);
    }
}
