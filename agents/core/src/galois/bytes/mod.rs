//! The field GF(2^8): elements are bytes, polynomial x^8 + x^4 + x^3 + x^2 + 1, as in SCR 3.1 (`redset`).

#[cfg(target_arch = "x86_64")]
mod x86;

use super::products::{Field, Kernel};
use super::{Element, matrix};

/// The polynomial without its term x^8.
const POLYNOMIAL: u8 = 0x1d;

impl Element for u8 {
    const BITS: u32 = u8::BITS;

    fn times(self, other: u8) -> u8 {
        let (mut a, mut product) = (self, 0);
        for bit in 0..8 {
            if other >> bit & 1 == 1 {
                product ^= a;
            }
            a = (a << 1) ^ if a & 0x80 == 0 { 0 } else { POLYNOMIAL };
        }
        product
    }
}

/// A constant, prepared for the multiplication of many bytes.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The products with the lower four bits of a byte, and with the upper four.
    low: [u8; 16],
    high: [u8; 16],
    /// The multiplication as a matrix of bits.
    matrix: u64,
}

impl Field for u8 {
    type Constant = Constant;

    #[cfg(target_arch = "x86_64")]
    const VECTOR_KERNELS: &'static [fn() -> Option<Kernel<u8>>] =
        &[x86::gfni_avx512, x86::gfni_avx2, x86::avx2, x86::ssse3];
    #[cfg(not(target_arch = "x86_64"))]
    const VECTOR_KERNELS: &'static [fn() -> Option<Kernel<u8>>] = &[];

    fn constant(self) -> Constant {
        let products = |shift: u8| std::array::from_fn(|half| self.times((half as u8) << shift));
        Constant { low: products(0), high: products(4), matrix: matrix(|bit| self.times(1 << bit)) }
    }

    fn add_from(constants: &[Constant], source: &[u8], start: usize, sums: &mut [u8], length: usize) {
        for (at, constant) in constants.iter().enumerate() {
            let products: [u8; 256] = std::array::from_fn(|byte| constant.low[byte & 15] ^ constant.high[byte >> 4]);
            let sum = &mut sums[at * length..][start..source.len()];
            for (sum, byte) in sum.iter_mut().zip(&source[start..]) {
                *sum ^= products[usize::from(*byte)];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(0_u8.inverse(), None);
        for a in 1..=u8::MAX {
            assert_eq!(a.times(a.inverse().unwrap()), 1);
        }
        // 2 generates the field: its powers are all elements but zero.
        let powers = std::iter::successors(Some(1_u8), |power| Some(power.times(2)));
        assert_eq!(powers.take(255).collect::<std::collections::BTreeSet<_>>().len(), 255);
    }
}
