//! Finite fields, and the loop that multiplies in them.
//!
//! * [`mod@bytes`]: GF(2^8), for Reed-Solomon redundancy; [`words`]: GF(2^16), as in FTI's level 3;
//! * [`products`]: the multiplication of many elements of either field, whose inner loop is chosen at run time;
//! * [`rows`]: FTI's code over GF(2^16).

pub mod bytes;
pub mod products;
pub mod rows;
pub mod words;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::BitXorAssign;

/// An element of one of the fields. `true` is one, `false` is zero.
pub trait Element: Copy + PartialEq + BitXorAssign + From<bool> {
    /// Bits of an element.
    const BITS: u32;

    /// The product of two elements, bit by bit.
    fn times(self, other: Self) -> Self;

    /// The multiplicative inverse; `None` for zero.
    fn inverse(self) -> Option<Self> {
        // a^(2^n - 2): the product of a^(2^i) for i from 1 to n - 1.
        let (mut power, mut result) = (self, Self::from(true));
        for _ in 1..Self::BITS {
            power = power.times(power);
            result = result.times(power);
        }
        (self != Self::from(false)).then_some(result)
    }
}

/// A linear function of eight bits as a matrix, in the order of the instruction GF2P8AFFINEQB: byte 7 - i has the bits
/// of the argument whose sum is bit i of the result. `column` returns the results of the eight bits.
fn matrix(column: impl Fn(u32) -> u8) -> u64 {
    let mut matrix = 0;
    for from in 0..8 {
        let result = column(from);
        for to in (0..8).filter(|to| result >> to & 1 == 1) {
            matrix |= 1 << (8 * (7 - to) + from);
        }
    }
    matrix
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
    fn inverts_matrix_unless_singular() {
        assert_eq!(invert::<u16>(vec![vec![1, 2], vec![1, 2]]), None);
        assert_eq!(invert::<u16>(vec![vec![0, 1], vec![1, 0]]), Some(vec![vec![0, 1], vec![1, 0]]));
    }
}
