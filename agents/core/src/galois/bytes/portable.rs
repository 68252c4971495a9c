//! Multiplication by tables, for every processor, and for what the vector instructions leave over.

use super::Constant;

/// Adds the products of the bytes of `source` from `start` on.
pub(super) fn add_from(constants: &[Constant], source: &[u8], start: usize, sums: &mut [u8], length: usize) {
    if start == source.len() {
        return;
    }
    for (at, constant) in constants.iter().enumerate() {
        let products: [u8; 256] = std::array::from_fn(|byte| constant.low[byte & 15] ^ constant.high[byte >> 4]);
        let sum = &mut sums[at * length..][start..source.len()];
        for (sum, byte) in sum.iter_mut().zip(&source[start..]) {
            *sum ^= products[usize::from(*byte)];
        }
    }
}
