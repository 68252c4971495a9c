//! The vector instructions of x86-64: the affine transformation of GFNI, which multiplies by any constant in any field
//! of this size, in registers of 64 or 32 bytes; and look-ups of half bytes by shuffles, in registers of 32 or 16.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use bytemuck::{bytes_of, pod_read_unaligned};

use super::{BLOCK, Constant, Kernel};

/// Those that this processor has, fastest first.
pub(super) fn usable() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    if is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions.
        let add = |constants: &[Constant], source: &[u8], sums: &mut [u8], length| unsafe {
            gfni_avx512(constants, source, sums, length);
        };
        kernels.push(Kernel { name: "GFNI with AVX-512", add });
    }
    if is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        let add = |constants: &[Constant], source: &[u8], sums: &mut [u8], length| unsafe {
            gfni_avx2(constants, source, sums, length);
        };
        kernels.push(Kernel { name: "GFNI with AVX2", add });
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        let add = |constants: &[Constant], source: &[u8], sums: &mut [u8], length| unsafe {
            avx2(constants, source, sums, length);
        };
        kernels.push(Kernel { name: "AVX2", add });
    }
    if is_x86_feature_detected!("ssse3") {
        // SAFETY: the processor has the instructions.
        let add = |constants: &[Constant], source: &[u8], sums: &mut [u8], length| unsafe {
            ssse3(constants, source, sums, length);
        };
        kernels.push(Kernel { name: "SSSE3", add });
    }
    kernels
}

/// A kernel: multiplies a block, which stays in the L1 cache, by each constant in turn.
macro_rules! kernel {
    (
        $name:ident,
        $features:literal,
        $vector:ty,
        $xor:ident,
        |$constant:ident| $prepare:expr,
        |$prepared:ident, $bytes:ident| $product:expr
    ) => {
        #[target_feature(enable = $features)]
        fn $name(constants: &[Constant], source: &[u8], sums: &mut [u8], length: usize) {
            const WIDTH: usize = size_of::<$vector>();
            let read = |bytes: &[u8]| pod_read_unaligned::<$vector>(bytes);
            for (block, source) in source.chunks_exact(BLOCK).enumerate() {
                for (at, $constant) in constants.iter().enumerate() {
                    let $prepared = $prepare;
                    let sums = &mut sums[at * length + block * BLOCK..][..BLOCK];
                    for (sum, source) in sums.chunks_exact_mut(WIDTH).zip(source.chunks_exact(WIDTH)) {
                        let $bytes = read(source);
                        sum.copy_from_slice(bytes_of(&$xor(read(sum), $product)));
                    }
                }
            }
        }
    };
}

kernel!(
    gfni_avx512,
    "gfni,avx512f",
    __m512i,
    _mm512_xor_si512,
    |constant| _mm512_set1_epi64(constant.matrix.cast_signed()),
    |matrix, bytes| _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix)
);

kernel!(
    gfni_avx2,
    "gfni,avx2",
    __m256i,
    _mm256_xor_si256,
    |constant| _mm256_set1_epi64x(constant.matrix.cast_signed()),
    |matrix, bytes| _mm256_gf2p8affine_epi64_epi8::<0>(bytes, matrix)
);

kernel!(
    avx2,
    "avx2",
    __m256i,
    _mm256_xor_si256,
    |constant| {
        let table = |half: &[u8; 16]| _mm256_broadcastsi128_si256(pod_read_unaligned(half));
        (table(&constant.low), table(&constant.high), _mm256_set1_epi8(15))
    },
    |prepared, bytes| {
        let (low, high, half) = prepared;
        let upper = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), half);
        let lower = _mm256_and_si256(bytes, half);
        _mm256_xor_si256(_mm256_shuffle_epi8(low, lower), _mm256_shuffle_epi8(high, upper))
    }
);

kernel!(
    ssse3,
    "ssse3",
    __m128i,
    _mm_xor_si128,
    |constant| {
        let table = |half: &[u8; 16]| pod_read_unaligned::<__m128i>(half);
        (table(&constant.low), table(&constant.high), _mm_set1_epi8(15))
    },
    |prepared, bytes| {
        let (low, high, half) = prepared;
        let upper = _mm_and_si128(_mm_srli_epi64::<4>(bytes), half);
        let lower = _mm_and_si128(bytes, half);
        _mm_xor_si128(_mm_shuffle_epi8(low, lower), _mm_shuffle_epi8(high, upper))
    }
);
