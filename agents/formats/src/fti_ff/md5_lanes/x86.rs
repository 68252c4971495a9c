//! The instructions of x86-64.

use std::arch::x86_64::*;

use super::lanes::{Lanes, filled, together};

pub(super) fn with_avx512() -> Option<Lanes> {
    is_x86_feature_detected!("avx512f").then_some(Lanes {
        count: 16,
        // SAFETY: the processor has the instructions.
        hash: |messages| unsafe { avx512(&filled(messages)) }.to_vec(),
    })
}

pub(super) fn with_avx2() -> Option<Lanes> {
    is_x86_feature_detected!("avx2").then_some(Lanes {
        count: 8,
        // SAFETY: the processor has the instructions.
        hash: |messages| unsafe { avx2(&filled(messages)) }.to_vec(),
    })
}

#[target_feature(enable = "avx2")]
fn avx2(messages: &[&[u8]; 8]) -> [[u8; 16]; 8] {
    let splat = |word: u32| _mm256_set1_epi32(word.cast_signed());
    let (and, or, xor) = (|a, b| _mm256_and_si256(a, b), |a, b| _mm256_or_si256(a, b), |a, b| _mm256_xor_si256(a, b));
    together(
        messages,
        splat,
        |a, b| _mm256_add_epi32(a, b),
        |words, bits| or(_mm256_sllv_epi32(words, splat(bits)), _mm256_srlv_epi32(words, splat(32 - bits))),
        |round, b, c, d| match round {
            0 => xor(d, and(b, xor(c, d))),
            1 => xor(c, and(d, xor(b, c))),
            2 => xor(b, xor(c, d)),
            _ => xor(c, or(b, xor(d, splat(u32::MAX)))),
        },
        |a, b| {
            let (even, odd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            [_mm256_permute2x128_si256::<0x20>(even, odd), _mm256_permute2x128_si256::<0x31>(even, odd)]
        },
    )
}

#[target_feature(enable = "avx512f")]
fn avx512(messages: &[&[u8]; 16]) -> [[u8; 16]; 16] {
    // The places of the words in a and, from 16 on, b.
    let first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    let second = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
    let splat = |word: u32| _mm512_set1_epi32(word.cast_signed());
    together(
        messages,
        splat,
        |a, b| _mm512_add_epi32(a, b),
        |words, bits| _mm512_rolv_epi32(words, splat(bits)),
        // The functions of the rounds as tables of their values, for all bits of b, c and d.
        |round, b, c, d| match round {
            0 => _mm512_ternarylogic_epi32::<0xca>(b, c, d),
            1 => _mm512_ternarylogic_epi32::<0xe4>(b, c, d),
            2 => _mm512_ternarylogic_epi32::<0x96>(b, c, d),
            _ => _mm512_ternarylogic_epi32::<0x39>(b, c, d),
        },
        |a, b| [_mm512_permutex2var_epi32(a, first, b), _mm512_permutex2var_epi32(a, second, b)],
    )
}
