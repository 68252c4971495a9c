//! The loop of the vector instructions of x86-64.
//!
//! It has neither iterators nor closures: where the compiler puts these into another unit of code than the loop, they
//! are called for each vector, which takes four times as long.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use bytemuck::pod_read_unaligned;

/// A function that returns a [`Kernel`](super::products::Kernel) if the processor has its instructions. It multiplies
/// a block, which stays in the L1 cache, by each constant in turn: prepares the constant, then computes the products of
/// a vector.
macro_rules! kernel {
    (
        $function:ident: $element:ty,
        $name:literal,
        [$($feature:tt),+],
        $vector:ty,
        $xor:ident,
        |$constant:ident| $prepare:expr,
        |$prepared:ident, $bytes:ident| $product:expr
    ) => {
        pub(super) fn $function() -> Option<Kernel<$element>> {
            #[target_feature($(enable = $feature),+)]
            fn add(constants: &[Constant], source: &[u8], sums: &mut [u8], length: usize) {
                const WIDTH: usize = size_of::<$vector>();
                const { assert!(BLOCK.is_multiple_of(WIDTH)) };
                let mut begin = 0;
                while begin + BLOCK <= source.len() {
                    let mut number = 0;
                    while number < constants.len() {
                        let $constant = &constants[number];
                        let $prepared = $prepare;
                        let source = &source[begin..begin + BLOCK];
                        let sums = &mut sums[number * length + begin..][..BLOCK];
                        let mut at = 0;
                        while at < BLOCK {
                            let $bytes = pod_read_unaligned::<$vector>(&source[at..at + WIDTH]);
                            let sum = $xor(pod_read_unaligned(&sums[at..at + WIDTH]), $product);
                            // SAFETY: a vector fits at this place: the blocks are whole vectors.
                            unsafe { sums.as_mut_ptr().add(at).cast::<$vector>().write_unaligned(sum) };
                            at += WIDTH;
                        }
                        number += 1;
                    }
                    begin += BLOCK;
                }
            }
            let is_usable = $(is_x86_feature_detected!($feature))&&+;
            // SAFETY: the processor has the instructions.
            let add: Add<$element> = |constants, source, sums, length| unsafe { add(constants, source, sums, length) };
            is_usable.then_some(Kernel { name: $name, add })
        }
    };
}

pub(super) use kernel;

/// Sixteen bytes, four times.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn fourfold(bytes: &[u8]) -> __m512i {
    _mm512_broadcast_i32x4(pod_read_unaligned(bytes))
}

/// Sixteen bytes, twice.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn twofold(bytes: &[u8]) -> __m256i {
    _mm256_broadcastsi128_si256(pod_read_unaligned(bytes))
}
