//! The algorithm, over the instructions for a word of each message (RFC 1321).

use bytemuck::Pod;

/// Bytes that a step of the whole algorithm takes of each message.
pub(super) const BLOCK: usize = 64;

/// The state before the first block (RFC 1321).
const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// By how many bits each step rotates: four numbers a round, which repeat.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The constant of each step: the integer part of 2³² |sin(step + 1)|.
#[rustfmt::skip]
const CONSTANTS: [[u32; 16]; 4] = [
    [
        0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
        0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    ],
    [
        0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
        0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    ],
    [
        0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
        0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    ],
    [
        0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
        0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
    ],
];

/// A way to hash messages together.
pub(super) struct Lanes {
    /// Messages at a time.
    pub(super) count: usize,
    /// The MD5s of so many messages or fewer, all of one length, which is a multiple of [`BLOCK`].
    pub(super) hash: fn(&[&[u8]]) -> Vec<[u8; 16]>,
}

/// A message in each lane: where there are too few, one of them again.
pub(super) fn filled<'a, const LANES: usize>(messages: &[&'a [u8]]) -> [&'a [u8]; LANES] {
    let mut messages = messages.iter().cycle();
    std::array::from_fn(|_| *messages.next().unwrap_or(&&[][..]))
}

/// The MD5 of messages of one length, which is a multiple of a block. `V` holds a word of each message, and the
/// functions are its instructions. `mix` is the function of a round; `interleave` takes the words of both operands in
/// turn: of a b c d and A B C D it makes a A b B and c C d D.
///
/// The loops have no iterators or closures of their own: those would be compiled without the instructions, and called.
#[inline(always)]
pub(super) fn together<V: Pod, const LANES: usize>(
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
