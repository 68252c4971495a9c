//! MD5 of several messages at a time.
//!
//! Each step of MD5 waits for the one before, so that a processor computes one MD5 with a part of its speed only. The
//! steps of several messages of the same length do not depend on each other: they are computed together, in vector
//! registers. The algorithm is written once ([`lanes`]), over the instructions for a word of each message; which
//! instructions the processor has is detected at run time.

// What is compiled for instructions that a processor may lack is called where they were detected.
#![allow(unsafe_code)]

use std::sync::LazyLock;

use md5::{Digest, Md5};

use lanes::{BLOCK, Lanes, filled, together};

mod lanes;
#[cfg(target_arch = "x86_64")]
mod x86;

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
