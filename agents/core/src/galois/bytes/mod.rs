//! The field GF(2^8): elements are bytes, polynomial x^8 + x^4 + x^3 + x^2 + 1, as in SCR 3.1 (`redset`).
//!
//! [`Products`] adds the products of some bytes with several constants to as many sums at once, so that each byte is
//! read from memory once. Its inner loop is chosen at run time: [`Kernel`].

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;
use std::sync::OnceLock;

use super::Element;

/// The polynomial without its term x^8.
const POLYNOMIAL: u8 = 0x1d;

/// The product of two elements, bit by bit.
pub const fn multiply(mut a: u8, b: u8) -> u8 {
    let (mut product, mut bit) = (0, 0);
    while bit < 8 {
        if b >> bit & 1 == 1 {
            product ^= a;
        }
        a = twice(a);
        bit += 1;
    }
    product
}

const fn twice(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { POLYNOMIAL }
}

impl Element for u8 {
    fn times(self, other: u8) -> u8 {
        multiply(self, other)
    }

    fn inverse(self) -> Option<u8> {
        // a^254: the product of a^(2^i) for i from 1 to 7.
        let (mut power, mut result) = (self, 1);
        for _ in 1..8 {
            power = multiply(power, power);
            result = multiply(result, power);
        }
        (self != 0).then_some(result)
    }
}

/// A constant, prepared for the multiplication of many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Constant {
    value: u8,
    /// The products with the lower four bits of a byte, and with the upper four.
    low: [u8; 16],
    high: [u8; 16],
    /// The multiplication as a matrix of bits, in the order of the instruction GF2P8AFFINEQB: byte 7 - i has the bits
    /// of the factor whose sum is bit i of the product.
    matrix: u64,
}

impl Constant {
    const fn new(value: u8) -> Constant {
        let mut constant = Constant { value, low: [0; 16], high: [0; 16], matrix: 0 };
        let mut nibble = 0;
        while nibble < 16 {
            constant.low[nibble as usize] = multiply(value, nibble);
            constant.high[nibble as usize] = multiply(value, nibble << 4);
            nibble += 1;
        }
        let mut from = 0;
        while from < 8 {
            let product = multiply(value, 1 << from);
            let mut to = 0;
            while to < 8 {
                if product >> to & 1 == 1 {
                    constant.matrix |= 1 << (8 * (7 - to) + from);
                }
                to += 1;
            }
            from += 1;
        }
        constant
    }
}

/// Multiplies bytes by several constants, and adds the products to as many sums.
#[derive(Clone, Debug)]
pub struct Products {
    constants: Vec<Constant>,
    kernel: Kernel,
}

impl Products {
    /// For these constants, with the fastest instructions of this processor.
    pub fn new(constants: &[u8]) -> Products {
        Products::with(Kernel::fastest(), constants)
    }

    /// With the instructions of `kernel`.
    pub fn with(kernel: Kernel, constants: &[u8]) -> Products {
        Products { constants: constants.iter().map(|value| Constant::new(*value)).collect(), kernel }
    }

    /// Adds the product of `source` with the constant `i` to the front of sum `i`. The sums lie in `sums` one behind
    /// the other, each of `length` bytes; what `source` is longer than a sum is ignored.
    pub fn add(&self, source: &[u8], sums: &mut [u8], length: usize) {
        let source = &source[..source.len().min(length)];
        if let [Constant { value: 1, .. }] = self.constants.as_slice() {
            return crate::redundancy::piece::xor_into(sums, source);
        }
        // The vector instructions work on whole blocks.
        let blocks = source.len() - source.len() % BLOCK;
        (self.kernel.add)(&self.constants, &source[..blocks], sums, length);
        portable::add_from(&self.constants, source, blocks, sums, length);
    }
}

/// Bytes that a kernel adds at a time: it gets multiples of them.
const BLOCK: usize = 256;

/// Adds products, as [`Products::add`], of a multiple of [`BLOCK`] bytes.
type Add = fn(&[Constant], &[u8], &mut [u8], usize);

/// The instructions that a multiplication uses.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Its name in figures.
    pub name: &'static str,
    add: Add,
}

impl Kernel {
    /// The kernels that this processor can use, fastest first; the last one is for every processor.
    pub fn usable() -> Vec<Kernel> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        kernels.extend(x86::usable());
        kernels.push(Kernel {
            name: "portable",
            add: |constants, source, sums, length| {
                portable::add_from(constants, source, 0, sums, length);
            },
        });
        kernels
    }

    fn fastest() -> Kernel {
        static FASTEST: OnceLock<Kernel> = OnceLock::new();
        *FASTEST.get_or_init(|| Kernel::usable()[0])
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(0_u8.inverse(), None);
        for a in 1..=u8::MAX {
            assert_eq!(multiply(a, a.inverse().unwrap()), 1);
        }
        // 2 generates the field: its powers are all elements but zero.
        let powers = std::iter::successors(Some(1), |power| Some(multiply(*power, 2)));
        assert_eq!(powers.take(255).collect::<std::collections::BTreeSet<_>>().len(), 255);
    }

    #[test]
    fn kernels_multiply_every_pair_of_bytes() {
        let every: Vec<u8> = (0..=u8::MAX).collect();
        for kernel in Kernel::usable() {
            for constant in 0..=u8::MAX {
                let mut sums = vec![0; 2 * BLOCK];
                Products::with(kernel, &[constant, 1]).add(&every, &mut sums, BLOCK);
                let expected: Vec<u8> = every.iter().map(|byte| multiply(*byte, constant)).collect();
                assert!(sums[..BLOCK] == expected && sums[BLOCK..] == every, "{kernel:?} {constant}");
            }
        }
    }

    proptest! {
        #[test]
        fn all_kernels_equal_the_product_bit_by_bit(
            constants in prop::collection::vec(any::<u8>(), 0..6),
            source in prop::collection::vec(any::<u8>(), 0..1500),
            more in 0_usize..70,
            unaligned in 0_usize..3,
            before in any::<u8>(),
        ) {
            let source = &source[unaligned.min(source.len())..];
            let length = source.len() + more;
            let mut expected = vec![before; constants.len() * length];
            for (sum, constant) in expected.chunks_mut(length.max(1)).zip(&constants) {
                sum.iter_mut().zip(source).for_each(|(sum, byte)| *sum ^= multiply(*byte, *constant));
            }
            for kernel in Kernel::usable() {
                let mut sums = vec![before; constants.len() * length + unaligned];
                Products::with(kernel, &constants).add(source, &mut sums[unaligned..], length);
                prop_assert!(sums[unaligned..] == expected, "{:?}", kernel);
            }
        }
    }
}
