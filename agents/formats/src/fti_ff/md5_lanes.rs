//! MD5 of several messages at a time.
//!
//! Each step of MD5 waits for the one before, so that a processor computes one MD5 with a part of its speed only. The
//! steps of several messages of the same length do not depend on each other: they are computed together, in vector
//! registers. Four messages take about half of the time that they take one after the other.

use md5::{Digest, Md5};

/// Messages at a time: the words of a vector register that every processor has.
const LANES: usize = 4;
/// Bytes that a step of the whole algorithm takes of each message.
const BLOCK: usize = 64;

/// A word of each message.
type Words = [u32; LANES];

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

/// The MD5 of each message.
pub fn of_each(messages: &[&[u8]]) -> Vec<[u8; 16]> {
    let mut hashes = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some((first, others)) = rest.split_first() {
        if let Some((four, others)) = rest.split_first_chunk::<LANES>()
            && first.len().is_multiple_of(BLOCK)
            && four.iter().all(|message| message.len() == first.len())
        {
            hashes.extend(together(four));
            rest = others;
        } else {
            hashes.push(Md5::digest(first).into());
            rest = others;
        }
    }
    hashes
}

/// The MD5 of messages of one length, which is a multiple of a block.
fn together(messages: &[&[u8]; LANES]) -> [[u8; 16]; LANES] {
    let mut state = INITIAL.map(|word| [word; LANES]);
    let blocks = messages.map(|message| message.as_chunks::<BLOCK>().0);
    for at in 0..blocks[0].len() {
        let mut words = [[0; LANES]; 16];
        for (lane, blocks) in blocks.iter().enumerate() {
            let block = blocks.get(at).map_or(&[][..], |block| block.as_chunks::<4>().0);
            for (words, bytes) in words.iter_mut().zip(block) {
                words[lane] = u32::from_le_bytes(*bytes);
            }
        }
        add_block(&mut state, &words);
    }
    // The end of each message: a bit, and the number of bits.
    let bits = (messages[0].len() as u64).wrapping_mul(8).to_le_bytes();
    let mut words = [[0; LANES]; 16];
    words[0] = [0x80; LANES];
    for (words, bytes) in words[14..].iter_mut().zip(bits.as_chunks::<4>().0) {
        *words = [u32::from_le_bytes(*bytes); LANES];
    }
    add_block(&mut state, &words);
    std::array::from_fn(|lane| {
        let mut hash = [0; 16];
        for (bytes, words) in hash.as_chunks_mut::<4>().0.iter_mut().zip(&state) {
            *bytes = words[lane].to_le_bytes();
        }
        hash
    })
}

/// The words of all lanes: a loop that the compiler makes one instruction of.
#[inline(always)]
fn each(word: impl Fn(usize) -> u32) -> Words {
    let mut words = [0; LANES];
    for (lane, words) in words.iter_mut().enumerate() {
        *words = word(lane);
    }
    words
}

/// The sixteen steps of a round, written out: in a loop, the compiler would keep the state in memory.
macro_rules! round {
    ($apply:expr, $state:ident, $words:ident, $order:expr, $mix:expr) => {
        round!($apply, $state, $words, $order, $mix, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($apply:expr, $state:ident, $words:ident, $order:expr, $mix:expr, $($step:literal)*) => {{
        let order: fn(usize) -> usize = $order;
        $($apply($state, $step, $words[order($step) % 16], $mix);)*
    }};
}

/// Adds a block of each message to the state.
fn add_block(state: &mut [Words; 4], words: &[Words; 16]) {
    let before = *state;
    round!(apply::<0>, state, words, |step| step, |b, c, d| d ^ (b & (c ^ d)));
    round!(apply::<1>, state, words, |step| 5 * step + 1, |b, c, d| c ^ (d & (b ^ c)));
    round!(apply::<2>, state, words, |step| 3 * step + 5, |b, c, d| b ^ c ^ d);
    round!(apply::<3>, state, words, |step| 7 * step, |b, c, d| c ^ (b | !d));
    for (state, before) in state.iter_mut().zip(before) {
        *state = each(|lane| state[lane].wrapping_add(before[lane]));
    }
}

/// A step of a round; `mix` is the round's function.
#[inline(always)]
fn apply<const ROUND: usize>(state: &mut [Words; 4], step: usize, word: Words, mix: impl Fn(u32, u32, u32) -> u32) {
    let [a, b, c, d] = *state;
    let next = each(|lane| {
        let sum = a[lane].wrapping_add(mix(b[lane], c[lane], d[lane]));
        let sum = sum.wrapping_add(CONSTANTS[ROUND][step]).wrapping_add(word[lane]);
        b[lane].wrapping_add(sum.rotate_left(ROTATIONS[ROUND][step % 4]))
    });
    *state = [d, next, b, c];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_messages_one_by_one() {
        let content: Vec<u8> = (0..40_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for bytes in [0, 1, 63, 64, 65, 128, 640, 4096] {
            for count in 0..10 {
                let messages: Vec<&[u8]> = (0..count).map(|at| &content[at * 3000..at * 3000 + bytes]).collect();
                let expected: Vec<[u8; 16]> = messages.iter().map(|message| Md5::digest(message).into()).collect();
                assert_eq!(of_each(&messages), expected, "{count} messages of {bytes} bytes");
            }
        }
        let mixed =
            [&content[..64], &content[1..65], &content[..65], &content[2..66], &content[3..67], &content[4..68]];
        let expected = mixed.map(|message| <[u8; 16]>::from(Md5::digest(message)));
        assert_eq!(of_each(&mixed), expected);
    }
}
