//! The vector instructions of x86-64. A product is linear over the bits of a word: each of its bytes is a sum of what
//! the lower and the upper byte of the word contribute.
//!
//! With GFNI each half of 16 bytes, after a shuffle, has the bytes of one kind, so that one affine transformation
//! computes the contributions to the same bytes, and another one, after the opposite shuffle, those to the other bytes.
//! Without it, two registers are sorted into one of lower bytes and one of upper bytes, and half bytes are looked up.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use bytemuck::{bytes_of, pod_read_unaligned};

use super::Constant;
use crate::galois::products::{Add, BLOCK, Kernel};
use crate::galois::x86::{fourfold, kernel, twofold};

/// Shuffles: the lower bytes of eight words, then their upper bytes.
const LOW_FIRST: [u8; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];
/// The upper bytes, then the lower ones.
const HIGH_FIRST: [u8; 16] = [1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12, 14];
/// Words again, of what has the lower bytes first.
const JOINED: [u8; 16] = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15];

kernel!(
    gfni_avx512: u16,
    "GFNI with AVX-512",
    ["gfni", "avx512f", "avx512bw"],
    __m512i,
    _mm512_xor_si512,
    |constant| (fourfold(bytes_of(&constant.straight)), fourfold(bytes_of(&constant.crossed))),
    |prepared, words| {
        let (straight, crossed) = prepared;
        let same = _mm512_gf2p8affine_epi64_epi8::<0>(_mm512_shuffle_epi8(words, fourfold(&LOW_FIRST)), straight);
        let other = _mm512_gf2p8affine_epi64_epi8::<0>(_mm512_shuffle_epi8(words, fourfold(&HIGH_FIRST)), crossed);
        _mm512_shuffle_epi8(_mm512_xor_si512(same, other), fourfold(&JOINED))
    }
);

kernel!(
    gfni_avx2: u16,
    "GFNI with AVX2",
    ["gfni", "avx2"],
    __m256i,
    _mm256_xor_si256,
    |constant| (twofold(bytes_of(&constant.straight)), twofold(bytes_of(&constant.crossed))),
    |prepared, words| {
        let (straight, crossed) = prepared;
        let same = _mm256_gf2p8affine_epi64_epi8::<0>(_mm256_shuffle_epi8(words, twofold(&LOW_FIRST)), straight);
        let other = _mm256_gf2p8affine_epi64_epi8::<0>(_mm256_shuffle_epi8(words, twofold(&HIGH_FIRST)), crossed);
        _mm256_shuffle_epi8(_mm256_xor_si256(same, other), twofold(&JOINED))
    }
);

kernel!(
    avx2: u16,
    "AVX2",
    ["avx2"],
    [__m256i; 2],
    xor_pairs_avx2,
    |constant| [&constant.low, &constant.high],
    |tables, words| {
        let order = twofold(&LOW_FIRST);
        let (a, b) = (_mm256_shuffle_epi8(words[0], order), _mm256_shuffle_epi8(words[1], order));
        let bytes = [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)];
        let (low, high) = (look_up_avx2(tables[0], bytes), look_up_avx2(tables[1], bytes));
        [_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)]
    }
);

kernel!(
    ssse3: u16,
    "SSSE3",
    ["ssse3"],
    [__m128i; 2],
    xor_pairs_ssse3,
    |constant| [&constant.low, &constant.high],
    |tables, words| {
        let order = pod_read_unaligned(&LOW_FIRST);
        let (a, b) = (_mm_shuffle_epi8(words[0], order), _mm_shuffle_epi8(words[1], order));
        let bytes = [_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)];
        let (low, high) = (look_up_ssse3(tables[0], bytes), look_up_ssse3(tables[1], bytes));
        [_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high)]
    }
);

#[inline]
#[target_feature(enable = "avx2")]
fn xor_pairs_avx2(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
    [_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "ssse3")]
fn xor_pairs_ssse3(a: [__m128i; 2], b: [__m128i; 2]) -> [__m128i; 2] {
    [_mm_xor_si128(a[0], b[0]), _mm_xor_si128(a[1], b[1])]
}

/// The sums of what the tables have for the half bytes of the lower and of the upper bytes of words.
#[inline]
#[target_feature(enable = "avx2")]
fn look_up_avx2(tables: &[[u8; 16]; 4], [lower, upper]: [__m256i; 2]) -> __m256i {
    let half = _mm256_set1_epi8(15);
    let first = _mm256_shuffle_epi8(twofold(&tables[0]), _mm256_and_si256(lower, half));
    let second = _mm256_shuffle_epi8(twofold(&tables[1]), _mm256_and_si256(_mm256_srli_epi64::<4>(lower), half));
    let third = _mm256_shuffle_epi8(twofold(&tables[2]), _mm256_and_si256(upper, half));
    let fourth = _mm256_shuffle_epi8(twofold(&tables[3]), _mm256_and_si256(_mm256_srli_epi64::<4>(upper), half));
    _mm256_xor_si256(_mm256_xor_si256(first, second), _mm256_xor_si256(third, fourth))
}

/// As [`look_up_avx2`].
#[inline]
#[target_feature(enable = "ssse3")]
fn look_up_ssse3(tables: &[[u8; 16]; 4], [lower, upper]: [__m128i; 2]) -> __m128i {
    let (half, table) = (_mm_set1_epi8(15), pod_read_unaligned::<[__m128i; 4]>(bytes_of(tables)));
    let first = _mm_shuffle_epi8(table[0], _mm_and_si128(lower, half));
    let second = _mm_shuffle_epi8(table[1], _mm_and_si128(_mm_srli_epi64::<4>(lower), half));
    let third = _mm_shuffle_epi8(table[2], _mm_and_si128(upper, half));
    let fourth = _mm_shuffle_epi8(table[3], _mm_and_si128(_mm_srli_epi64::<4>(upper), half));
    _mm_xor_si128(_mm_xor_si128(first, second), _mm_xor_si128(third, fourth))
}
