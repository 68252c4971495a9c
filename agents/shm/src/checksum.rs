//! Copying and checking in one pass.

/// So much is copied and then checked while it is in the processor's first cache.
const PIECE: usize = 16 << 10;

/// Copies `from` to `to`, and returns the CRC32 of what was copied.
///
/// # Safety
/// `to` points to `from.len()` bytes that may be written and do not overlap `from`.
pub(crate) unsafe fn copy_out(from: &[u8], to: *mut u8) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    let mut done = 0;
    for piece in from.chunks(PIECE) {
        // SAFETY: `done` and the piece are within the length that the caller guarantees.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), to.add(done), piece.len()) };
        crc.update(piece);
        done += piece.len();
    }
    crc.finalize()
}
