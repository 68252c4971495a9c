//! Finite fields. [`bytes`]: GF(2^8), for Reed-Solomon redundancy.
//!
//! Here is GF(2^16): elements of 16 bits, polynomial x^16 + x^12 + x^3 + x + 1, as in FTI's level 3. [`rows`]: a code
//! over it.
//!
//! A product with a constant is two look-ups, one for each half of the element, in tables of 1 KiB that fit into the
//! L1 cache. Building the tables for a constant takes microseconds.

pub mod bytes;
pub mod rows;

use std::ops::BitXorAssign;

const POLYNOMIAL: u32 = 0x1_100b;

/// The product of two elements, bit by bit.
pub fn multiply(a: u16, b: u16) -> u16 {
    let (mut a, mut product) = (u32::from(a), 0_u32);
    for bit in 0..16 {
        if b >> bit & 1 == 1 {
            product ^= a;
        }
        a <<= 1;
        if a & 0x1_0000 != 0 {
            a ^= POLYNOMIAL;
        }
    }
    // The upper half is zero, because each step reduces the factor.
    (product & 0xffff) as u16
}

/// The multiplicative inverse; `None` for zero.
pub fn inverse(a: u16) -> Option<u16> {
    if a == 0 {
        return None;
    }
    // a^(2^16 - 2): the product of a^(2^i) for i from 1 to 15.
    let (mut power, mut result) = (a, 1);
    for _ in 1..16 {
        power = multiply(power, power);
        result = multiply(result, power);
    }
    Some(result)
}

/// Multiplication by one constant.
#[derive(Debug, Clone)]
pub struct Multiplier {
    low: [u16; 256],
    high: [u16; 256],
}

impl Multiplier {
    /// Builds the tables of a constant.
    pub fn new(constant: u16) -> Multiplier {
        let mut tables = Multiplier { low: [0; 256], high: [0; 256] };
        for (byte, (low, high)) in (0..=u8::MAX).zip(tables.low.iter_mut().zip(&mut tables.high)) {
            *low = multiply(constant, u16::from(byte));
            *high = multiply(constant, u16::from(byte) << 8);
        }
        tables
    }

    /// Adds the product of `source` to `target`; elements are little-endian. An odd last byte is an element whose upper
    /// half is zero; only the lower half of its product is stored.
    pub fn add_product(&self, source: &[u8], target: &mut [u8]) {
        let mut words = target.chunks_exact_mut(2);
        let sources = source.chunks_exact(2);
        let last = sources.remainder();
        for (to, from) in words.by_ref().zip(sources) {
            if let ([to_low, to_high], [low, high]) = (to, from) {
                let [product_low, product_high] = self.product(*low, *high).to_le_bytes();
                *to_low ^= product_low;
                *to_high ^= product_high;
            }
        }
        if let (Some(to), Some(from)) = (words.into_remainder().first_mut(), last.first()) {
            *to ^= self.product(*from, 0).to_le_bytes()[0];
        }
    }

    fn product(&self, low: u8, high: u8) -> u16 {
        self.low[usize::from(low)] ^ self.high[usize::from(high)]
    }
}

/// An element of one of the fields. `true` is one, `false` is zero.
pub trait Element: Copy + PartialEq + BitXorAssign + From<bool> {
    /// The product of two elements.
    fn times(self, other: Self) -> Self;

    /// The multiplicative inverse; `None` for zero.
    fn inverse(self) -> Option<Self>;
}

impl Element for u16 {
    fn times(self, other: u16) -> u16 {
        multiply(self, other)
    }

    fn inverse(self) -> Option<u16> {
        inverse(self)
    }
}

/// The inverse of a square matrix; `None` if it is singular.
pub fn invert<E: Element>(mut matrix: Vec<Vec<E>>) -> Option<Vec<Vec<E>>> {
    let (size, zero) = (matrix.len(), E::from(false));
    let mut inverse: Vec<Vec<E>> =
        (0..size).map(|row| (0..size).map(|column| E::from(row == column)).collect()).collect();
    for column in 0..size {
        let pivot = (column..size).find(|row| matrix.get(*row).and_then(|row| row.get(column)) != Some(&zero))?;
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        let scale = matrix.get(column)?.get(column)?.inverse()?;
        for row in [matrix.get_mut(column)?, inverse.get_mut(column)?] {
            row.iter_mut().for_each(|value| *value = value.times(scale));
        }
        let (pivot, pivot_inverse) = (matrix.get(column)?.clone(), inverse.get(column)?.clone());
        for row in (0..size).filter(|row| *row != column) {
            let factor = *matrix.get(row)?.get(column)?;
            for (row, pivot) in [(matrix.get_mut(row)?, &pivot), (inverse.get_mut(row)?, &pivot_inverse)] {
                row.iter_mut().zip(pivot).for_each(|(value, pivot)| *value ^= pivot.times(factor));
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplies_and_inverts_field_elements() {
        assert_eq!(multiply(0x1234, 0xABCD), 0x4792);
        assert_eq!(inverse(0), None);
        for a in (1..=u16::MAX).step_by(97) {
            assert_eq!(multiply(a, inverse(a).unwrap()), 1);
        }
    }

    #[test]
    fn tables_match_bitwise_product_and_keep_half_of_odd_last_element() {
        let tables = Multiplier::new(0x1234);
        let mut target = vec![0xff; 5];
        tables.add_product(&[0xCD, 0xAB, 0x01, 0x00, 0x07], &mut target);
        let odd = multiply(0x1234, 7).to_le_bytes()[0];
        assert_eq!(target, [0x92 ^ 0xff, 0x47 ^ 0xff, 0x34 ^ 0xff, 0x12 ^ 0xff, odd ^ 0xff]);
    }

    #[test]
    fn inverts_matrix_unless_singular() {
        assert_eq!(invert::<u16>(vec![vec![1, 2], vec![1, 2]]), None);
        assert_eq!(invert::<u16>(vec![vec![0, 1], vec![1, 0]]), Some(vec![vec![0, 1], vec![1, 0]]));
    }
}
