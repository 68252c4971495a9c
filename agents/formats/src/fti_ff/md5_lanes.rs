//! MD5 of several messages at a time.
//!
//! Each step of MD5 waits for the one before, so that a processor computes one MD5 with a part of its speed only. The
//! steps of several messages of the same length do not depend on each other: they are computed together, in vector
//! registers. The algorithm is written once ([`together`]), over the instructions for a word of each message; which
//! instructions the processor has is detected at run time.

// What is compiled for instructions that a processor may lack is called where they were detected.
#![allow(unsafe_code)]

use std::sync::LazyLock;

use bytemuck::Pod;
use md5::{Digest, Md5};

/// Bytes that a step of the whole algorithm takes of each message.
const BLOCK: usize = 64;

/// The state before the first block (RFC 1321).
const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// By how many bits each step rotates: four numbers a round, which repeat.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The constant of each step: the integer part of 2³² |sin(step + 1)|.
const CONSTANTS: [[u32; 16]; 4] = [
    [
        0xd76a_a478,
        0xe8c7_b756,
        0x2420_70db,
        0xc1bd_ceee,
        0xf57c_0faf,
        0x4787_c62a,
        0xa830_4613,
        0xfd46_9501,
        0x6980_98d8,
        0x8b44_f7af,
        0xffff_5bb1,
        0x895c_d7be,
        0x6b90_1122,
        0xfd98_7193,
        0xa679_438e,
        0x49b4_0821,
    ],
    [
        0xf61e_2562,
        0xc040_b340,
        0x265e_5a51,
        0xe9b6_c7aa,
        0xd62f_105d,
        0x0244_1453,
        0xd8a1_e681,
        0xe7d3_fbc8,
        0x21e1_cde6,
        0xc337_07d6,
        0xf4d5_0d87,
        0x455a_14ed,
        0xa9e3_e905,
        0xfcef_a3f8,
        0x676f_02d9,
        0x8d2a_4c8a,
    ],
    [
        0xfffa_3942,
        0x8771_f681,
        0x6d9d_6122,
        0xfde5_380c,
        0xa4be_ea44,
        0x4bde_cfa9,
        0xf6bb_4b60,
        0xbebf_bc70,
        0x289b_7ec6,
        0xeaa1_27fa,
        0xd4ef_3085,
        0x0488_1d05,
        0xd9d4_d039,
        0xe6db_99e5,
        0x1fa2_7cf8,
        0xc4ac_5665,
    ],
    [
        0xf429_2244,
        0x432a_ff97,
        0xab94_23a7,
        0xfc93_a039,
        0x655b_59c3,
        0x8f0c_cc92,
        0xffef_f47d,
        0x8584_5dd1,
        0x6fa8_7e4f,
        0xfe2c_e6e0,
        0xa301_4314,
        0x4e08_11a1,
        0xf753_7e82,
        0xbd3a_f235,
        0x2ad7_d2bb,
        0xeb86_d391,
    ],
];

/// A way to hash messages together.
struct Lanes {
    /// Messages at a time.
    count: usize,
    /// The MD5s of so many messages or fewer, all of one length, which is a multiple of [`BLOCK`].
    hash: fn(&[&[u8]]) -> Vec<[u8; 16]>,
}

/// The fastest way that this processor has.
static FASTEST: LazyLock<Lanes> = LazyLock::new(|| {
    #[cfg(target_arch = "x86_64")]
    let wide = x86::with_avx512().or_else(x86::with_avx2);
    #[cfg(not(target_arch = "x86_64"))]
    let wide = None;
    wide.unwrap_or(PORTABLE)
});

const PORTABLE: Lanes = Lanes { count: 4, hash: |messages| portable(&filled(messages)).to_vec() };

/// How many messages are hashed together: fewer take the same time.
pub fn count() -> usize {
    FASTEST.count
}

/// The MD5 of each message.
pub fn of_each(messages: &[&[u8]]) -> Vec<[u8; 16]> {
    of_each_by(&FASTEST, messages)
}

fn of_each_by(lanes: &Lanes, messages: &[&[u8]]) -> Vec<[u8; 16]> {
    let mut hashes = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some(first) = rest.first() {
        let same = rest.iter().take(lanes.count).take_while(|message| message.len() == first.len()).count();
        // The words of the messages are read as those of the processor, as MD5 defines them.
        let together = first.len().is_multiple_of(BLOCK) && cfg!(target_endian = "little");
        let taken = if together { same } else { 1 };
        let (group, others) = rest.split_at(taken);
        match group {
            [one] => hashes.push(Md5::digest(one).into()),
            _ => hashes.extend((lanes.hash)(group).into_iter().take(taken)),
        }
        rest = others;
    }
    hashes
}

/// A message in each lane: where there are too few, one of them again.
fn filled<'a, const LANES: usize>(messages: &[&'a [u8]]) -> [&'a [u8]; LANES] {
    let mut messages = messages.iter().cycle();
    std::array::from_fn(|_| *messages.next().unwrap_or(&&[][..]))
}

/// The MD5 of messages of one length, which is a multiple of a block. `V` holds a word of each message, and the
/// functions are its instructions. `mix` is the function of a round; `interleave` takes the words of both operands in
/// turn: of a b c d and A B C D it makes a A b B and c C d D.
///
/// The loops have no iterators or closures of their own: those would be compiled without the instructions, and called.
#[inline(always)]
fn together<V: Pod, const LANES: usize>(
    messages: &[&[u8]; LANES],
    splat: impl Fn(u32) -> V,
    add: impl Fn(V, V) -> V,
    rotate: impl Fn(V, u32) -> V,
    mix: impl Fn(usize, V, V, V) -> V,
    interleave: impl Fn(V, V) -> [V; 2],
) -> [[u8; 16]; LANES]
where
    [u32; LANES]: Pod,
{
    // Not known to the compiler: it would add the constant last, where all wait for it.
    let constants = std::hint::black_box(&CONSTANTS);
    let mut state = [splat(INITIAL[0]), splat(INITIAL[1]), splat(INITIAL[2]), splat(INITIAL[3])];
    // The sixteen steps of a round are written out, so that state and words stay in registers.
    macro_rules! round {
        ($round:literal, $words:ident, $order:expr) => {
            round!($round, $words, $order, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
        };
        ($round:literal, $words:ident, $order:expr, $($step:literal)*) => {{
            let order: fn(usize) -> usize = $order;
            $(
                let [a, b, c, d] = state;
                let sum = add(a, add($words[order($step) % 16], splat(constants[$round][$step])));
                let sum = add(sum, mix($round, b, c, d));
                state = [d, add(b, rotate(sum, ROTATIONS[$round][$step % 4])), b, c];
            )*
        }};
    }
    macro_rules! add_block {
        ($words:ident) => {
            let before = state;
            round!(0, $words, |step| step);
            round!(1, $words, |step| 5 * step + 1);
            round!(2, $words, |step| 3 * step + 5);
            round!(3, $words, |step| 7 * step);
            let ([a, b, c, d], [e, f, g, h]) = (before, state);
            state = [add(a, e), add(b, f), add(c, g), add(d, h)];
        };
    }

    let parts = BLOCK / size_of::<V>();
    let blocks = messages.map(|message| message.as_chunks::<BLOCK>().0);
    for at in 0..blocks[0].len() {
        // The words of the first message, then those of the second, and so on.
        let mut words = [splat(0); 16];
        for (lane, blocks) in blocks.iter().enumerate() {
            let Some(block) = blocks.get(at) else { continue };
            for part in 0..parts {
                words[lane * parts + part] =
                    bytemuck::pod_read_unaligned(&block[part * size_of::<V>()..][..size_of::<V>()]);
            }
        }
        // Each time, the first half is interleaved with the second. In the end the first words of all messages are
        // together, then the second ones, and so on.
        for _ in 0..LANES.ilog2() {
            let before = words;
            for pair in 0..8 {
                [words[2 * pair], words[2 * pair + 1]] = interleave(before[pair], before[pair + 8]);
            }
        }
        add_block!(words);
    }
    // The end of each message: a bit, and the number of bits.
    let bits = (messages[0].len() as u64).wrapping_mul(8);
    let mut words = [splat(0); 16];
    words[0] = splat(0x80);
    words[14] = splat(bits as u32);
    words[15] = splat((bits >> 32) as u32);
    add_block!(words);
    let state = state.map(bytemuck::cast::<V, [u32; LANES]>);
    std::array::from_fn(|lane| bytemuck::cast(state.map(|words| words[lane])))
}

/// With the instructions that every processor has: the compiler makes one of the four words.
fn portable(messages: &[&[u8]; 4]) -> [[u8; 16]; 4] {
    type Words = [u32; 4];
    #[inline(always)]
    fn each(word: impl Fn(usize) -> u32) -> Words {
        [word(0), word(1), word(2), word(3)]
    }
    together(
        messages,
        |word| [word; 4],
        |a: Words, b| each(|lane| a[lane].wrapping_add(b[lane])),
        |words, bits| each(|lane| words[lane].rotate_left(bits)),
        |round, b, c, d| {
            each(|lane| match (round, b[lane], c[lane], d[lane]) {
                (0, b, c, d) => d ^ (b & (c ^ d)),
                (1, b, c, d) => c ^ (d & (b ^ c)),
                (2, b, c, d) => b ^ c ^ d,
                (_, b, c, d) => c ^ (b | !d),
            })
        },
        |a, b| [[a[0], b[0], a[1], b[1]], [a[2], b[2], a[3], b[3]]],
    )
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, filled, together};

    pub fn with_avx512() -> Option<Lanes> {
        is_x86_feature_detected!("avx512f").then_some(Lanes {
            count: 16,
            // SAFETY: the processor has the instructions.
            hash: |messages| unsafe { avx512(&filled(messages)) }.to_vec(),
        })
    }

    pub fn with_avx2() -> Option<Lanes> {
        is_x86_feature_detected!("avx2").then_some(Lanes {
            count: 8,
            // SAFETY: the processor has the instructions.
            hash: |messages| unsafe { avx2(&filled(messages)) }.to_vec(),
        })
    }

    #[target_feature(enable = "avx2")]
    fn avx2(messages: &[&[u8]; 8]) -> [[u8; 16]; 8] {
        let splat = |word: u32| _mm256_set1_epi32(word.cast_signed());
        let (and, or, xor) =
            (|a, b| _mm256_and_si256(a, b), |a, b| _mm256_or_si256(a, b), |a, b| _mm256_xor_si256(a, b));
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways that this processor has.
    fn available() -> Vec<Lanes> {
        #[cfg(target_arch = "x86_64")]
        let wide = [x86::with_avx512(), x86::with_avx2()];
        #[cfg(not(target_arch = "x86_64"))]
        let wide = [];
        wide.into_iter().flatten().chain([PORTABLE]).collect()
    }

    #[test]
    fn hashes_are_those_of_the_messages_one_by_one() {
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let check = |messages: &[&[u8]], what: &str| {
            let expected: Vec<[u8; 16]> = messages.iter().map(|message| Md5::digest(message).into()).collect();
            for lanes in &available() {
                assert_eq!(of_each_by(lanes, messages), expected, "{} lanes, {what}", lanes.count);
            }
            assert_eq!(of_each(messages), expected, "{what}");
        };
        for bytes in [0, 1, 63, 64, 65, 128, 640, 4096] {
            for count in 0..35 {
                let messages: Vec<&[u8]> = (0..count).map(|at| &content[at * 2700..at * 2700 + bytes]).collect();
                check(&messages, &format!("{count} messages of {bytes} bytes"));
            }
        }
        let lengths = [64, 64, 65, 64, 64, 64, 64, 128, 128, 0, 0, 64, 7, 7, 64];
        let mixed: Vec<&[u8]> = lengths.iter().enumerate().map(|(at, bytes)| &content[at..at + bytes]).collect();
        check(&mixed, "messages of several lengths");
    }
}
