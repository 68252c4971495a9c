//! The field GF(2^16): elements are words of two bytes, polynomial x^16 + x^12 + x^3 + x + 1, as in FTI's level 3.

#[cfg(target_arch = "x86_64")]
mod x86;

use super::products::{Field, Kernel};
use super::{Element, matrix};

/// The polynomial without its term x^16.
const POLYNOMIAL: u16 = 0x100b;

impl Element for u16 {
    const BITS: u32 = u16::BITS;

    fn times(self, other: u16) -> u16 {
        let (mut a, mut product) = (self, 0);
        for bit in 0..16 {
            if other >> bit & 1 == 1 {
                product ^= a;
            }
            a = (a << 1) ^ if a & 0x8000 == 0 { 0 } else { POLYNOMIAL };
        }
        product
    }
}

/// A constant, prepared for the multiplication of many words.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The lower bytes of the products with each of the four half bytes of a word, lowest first, and the upper bytes.
    low: [[u8; 16]; 4],
    high: [[u8; 16]; 4],
    /// The multiplication as four matrices of bits: what the bytes of a word contribute to the same bytes of the
    /// product, and what they contribute to the others.
    straight: [u64; 2],
    crossed: [u64; 2],
}

impl Constant {
    /// The product of a word whose other byte is zero, for each value of the byte: the lower one or the upper one.
    fn products(&self, byte: usize) -> [u16; 256] {
        let product = |half: usize, value: usize| u16::from_le_bytes([self.low[half][value], self.high[half][value]]);
        std::array::from_fn(|value| product(2 * byte, value & 15) ^ product(2 * byte + 1, value >> 4))
    }
}

impl Field for u16 {
    type Constant = Constant;

    #[cfg(target_arch = "x86_64")]
    const VECTOR_KERNELS: &'static [fn() -> Option<Kernel<u16>>] =
        &[x86::gfni_avx512, x86::gfni_avx2, x86::avx2, x86::ssse3];
    #[cfg(not(target_arch = "x86_64"))]
    const VECTOR_KERNELS: &'static [fn() -> Option<Kernel<u16>>] = &[];

    fn constant(self) -> Constant {
        let products = |to: usize| {
            let product = |half: usize, value: usize| self.times((value as u16) << (4 * half)).to_le_bytes()[to];
            std::array::from_fn(|half| std::array::from_fn(|value| product(half, value)))
        };
        let matrix = |from: u32, to: usize| matrix(|bit| self.times(1 << (8 * from + bit)).to_le_bytes()[to]);
        Constant {
            low: products(0),
            high: products(1),
            straight: [matrix(0, 0), matrix(1, 1)],
            crossed: [matrix(1, 0), matrix(0, 1)],
        }
    }

    fn add_from(constants: &[Constant], source: &[u8], start: usize, sums: &mut [u8], length: usize) {
        let (words, last) = source[start..].as_chunks::<2>();
        for (at, constant) in constants.iter().enumerate() {
            let (of_low, of_high) = (constant.products(0), constant.products(1));
            let product = |low: u8, high: u8| of_low[usize::from(low)] ^ of_high[usize::from(high)];
            let sum = &mut sums[at * length..][start..length];
            let (front, rest) = sum.split_at_mut(2 * words.len());
            for (sum, [low, high]) in front.as_chunks_mut::<2>().0.iter_mut().zip(words) {
                *sum = (u16::from_le_bytes(*sum) ^ product(*low, *high)).to_le_bytes();
            }
            if let [low] = last {
                rest.iter_mut().zip(product(*low, 0).to_le_bytes()).for_each(|(sum, byte)| *sum ^= byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplies_and_inverts_field_elements() {
        assert_eq!(0x1234_u16.times(0xABCD), 0x4792);
        assert_eq!(0_u16.inverse(), None);
        for a in (1..=u16::MAX).step_by(97) {
            assert_eq!(a.times(a.inverse().unwrap()), 1);
        }
    }
}
