//! Copying and checking in one pass: a program waits while its checkpoint is stored.
//!
//! Where the processor has carry-less multiplication of 512 bits, each piece is loaded once, stored, and folded into
//! the CRC while it is in registers. Otherwise pieces are copied, and checked while they are in the first cache.

/// So much is copied and then checked.
const PIECE: usize = 16 << 10;

/// Copies `from` to `to`, and returns the CRC32 of what was copied.
///
/// # Safety
/// `to` points to `from.len()` bytes that may be written and do not overlap `from`.
pub(crate) unsafe fn copy_out(from: &[u8], to: *mut u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if from.len() >= 2 * folded::BLOCK && folded::is_supported() {
        // SAFETY: the instructions were just found; the rest is the caller's promise.
        let (crc, done) = unsafe { folded::copy_blocks(from, to) };
        // SAFETY: `done` is at most the length, for which the caller guarantees `to`.
        return unsafe { copy_pieces(crc, &from[done..], to.add(done)) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_pieces(crc32fast::Hasher::new(), from, to) }
}

/// Continues a CRC.
///
/// # Safety
/// As [`copy_out`].
unsafe fn copy_pieces(mut crc: crc32fast::Hasher, from: &[u8], to: *mut u8) -> u32 {
    let mut done = 0;
    for piece in from.chunks(PIECE) {
        // SAFETY: `done` and the piece are within the length that the caller guarantees.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), to.add(done), piece.len()) };
        crc.update(piece);
        done += piece.len();
    }
    crc.finalize()
}

/// Folding with carry-less multiplication, after Gopal et al., "Fast CRC Computation for Generic Polynomials Using
/// PCLMULQDQ Instruction": 16 lanes of 128 bits, each multiplied by the power of x for the distance to its next block.
#[cfg(target_arch = "x86_64")]
mod folded {
    use std::arch::x86_64::{
        __m512i, _mm_set_epi64x, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128, _mm512_loadu_si512,
        _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
    };

    /// Bytes of four registers.
    pub const BLOCK: usize = 256;
    const REGISTER: usize = 64;
    /// The polynomial of CRC32, reflected.
    const POLYNOMIAL: u32 = 0xedb8_8320;

    /// x to this power modulo the polynomial, reflected, as a factor of a reflected product.
    const fn power(exponent: u32) -> i64 {
        let (mut value, mut left) = (1_u32 << 31, exponent);
        while left > 0 {
            value = (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 };
            left -= 1;
        }
        (value as i64) << 1
    }

    const FACTOR_LOW: i64 = power(8 * BLOCK as u32 + 32);
    const FACTOR_HIGH: i64 = power(8 * BLOCK as u32 - 32);

    pub fn is_supported() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")
    }

    /// Copies all complete blocks; returns their CRC, to be continued with the rest, and how many bytes they have.
    ///
    /// # Safety
    /// `to` points to `from.len()` bytes that may be written and do not overlap `from`; [`is_supported`], and at least
    /// a block.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub unsafe fn copy_blocks(from: &[u8], to: *mut u8) -> (crc32fast::Hasher, usize) {
        let mut lanes = [_mm512_zextsi128_si512(_mm_set_epi64x(0, 0)); 4];
        let factors = _mm512_broadcast_i32x4(_mm_set_epi64x(FACTOR_HIGH, FACTOR_LOW));
        let blocks = from.as_chunks::<BLOCK>().0;
        for (number, block) in blocks.iter().enumerate() {
            for (at, lane) in lanes.iter_mut().enumerate() {
                // SAFETY: register `at` of the block, of which the caller guarantees that `to` has the same.
                let loaded = unsafe {
                    let loaded = _mm512_loadu_si512(block.as_ptr().add(at * REGISTER).cast());
                    _mm512_storeu_si512(to.add(number * BLOCK + at * REGISTER).cast(), loaded);
                    loaded
                };
                *lane = if number == 0 {
                    // A CRC32 begins with ones.
                    let ones = if at == 0 { u32::MAX.into() } else { 0 };
                    _mm512_xor_si512(loaded, _mm512_zextsi128_si512(_mm_set_epi64x(0, ones)))
                } else {
                    fold(*lane, factors, loaded)
                };
            }
        }
        // The lanes have the remainder of all blocks: their CRC, which begins with zeros, is that of the blocks.
        let mut bytes = [0_u8; BLOCK];
        for (lane, bytes) in lanes.iter().zip(bytes.as_chunks_mut::<REGISTER>().0) {
            // SAFETY: a register's bytes.
            unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), *lane) };
        }
        let mut crc = crc32fast::Hasher::new_with_initial(u32::MAX);
        crc.update(&bytes);
        (crc, blocks.len() * BLOCK)
    }

    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold(lane: __m512i, factors: __m512i, next: __m512i) -> __m512i {
        const XOR_OF_THREE: i32 = 0x96;
        let low = _mm512_clmulepi64_epi128::<0x00>(lane, factors);
        let high = _mm512_clmulepi64_epi128::<0x11>(lane, factors);
        _mm512_ternarylogic_epi64::<XOR_OF_THREE>(low, high, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_the_crc32_of_every_length() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in (0..2100).chain([4095, 4096, 4097, 65_535, 65_536, 70_000 - 7]) {
            for start in [0, 1, 7] {
                let from = &bytes[start..start + length];
                let mut to = vec![0xaa; length + 1];
                // SAFETY: `to` has the length.
                let crc = unsafe { copy_out(from, to.as_mut_ptr()) };
                assert_eq!(crc, crc32fast::hash(from), "{length} bytes from {start}");
                assert_eq!((&to[..length], to[length]), (from, 0xaa));
                // SAFETY: as above.
                let crc = unsafe { copy_pieces(crc32fast::Hasher::new(), from, to.as_mut_ptr()) };
                assert_eq!(crc, crc32fast::hash(from), "{length} bytes from {start}, in pieces");
            }
        }
    }
}
