//! The vector instructions of x86-64: the affine transformation of GFNI, which multiplies by any constant in any field
//! of this size, in registers of 64 or 32 bytes; and look-ups of half bytes by shuffles, in registers of 32 or 16.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use bytemuck::pod_read_unaligned;

use super::Constant;
use crate::galois::products::{Add, BLOCK, Kernel};
use crate::galois::x86::{kernel, twofold};

kernel!(
    gfni_avx512: u8,
    "GFNI with AVX-512",
    ["gfni", "avx512f"],
    __m512i,
    _mm512_xor_si512,
    |constant| _mm512_set1_epi64(constant.matrix.cast_signed()),
    |matrix, bytes| _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix)
);

kernel!(
    gfni_avx2: u8,
    "GFNI with AVX2",
    ["gfni", "avx2"],
    __m256i,
    _mm256_xor_si256,
    |constant| _mm256_set1_epi64x(constant.matrix.cast_signed()),
    |matrix, bytes| _mm256_gf2p8affine_epi64_epi8::<0>(bytes, matrix)
);

kernel!(
    avx2: u8,
    "AVX2",
    ["avx2"],
    __m256i,
    _mm256_xor_si256,
    |constant| (twofold(&constant.low), twofold(&constant.high), _mm256_set1_epi8(15)),
    |prepared, bytes| {
        let (low, high, half) = prepared;
        let upper = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), half);
        let lower = _mm256_and_si256(bytes, half);
        _mm256_xor_si256(_mm256_shuffle_epi8(low, lower), _mm256_shuffle_epi8(high, upper))
    }
);

kernel!(
    ssse3: u8,
    "SSSE3",
    ["ssse3"],
    __m128i,
    _mm_xor_si128,
    |constant| (pod_read_unaligned(&constant.low), pod_read_unaligned(&constant.high), _mm_set1_epi8(15)),
    |prepared, bytes| {
        let (low, high, half) = prepared;
        let upper = _mm_and_si128(_mm_srli_epi64::<4>(bytes), half);
        let lower = _mm_and_si128(bytes, half);
        _mm_xor_si128(_mm_shuffle_epi8(low, lower), _mm_shuffle_epi8(high, upper))
    }
);
