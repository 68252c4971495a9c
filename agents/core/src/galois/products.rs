//! Multiplication of many elements of a field.
//!
//! [`Products`] adds the products of some bytes with several constants to as many sums at once, so that each byte is
//! read from memory once. Its inner loop is chosen at run time: [`Kernel`].

use std::fmt;

use super::Element;

/// A field whose elements are multiplied many at a time.
pub trait Field: Element + 'static {
    /// A constant, prepared for the multiplication.
    type Constant: fmt::Debug + Clone;

    /// The vector instructions that can be chosen, fastest first; `None` where the processor does not have them.
    const VECTOR_KERNELS: &'static [fn() -> Option<Kernel<Self>>];

    /// Prepares a constant.
    fn constant(self) -> Self::Constant;

    /// Multiplication by tables, for every processor, and for what the vector instructions leave over: as
    /// [`Products::add`], of the elements from the byte `start` on.
    fn add_from(constants: &[Self::Constant], source: &[u8], start: usize, sums: &mut [u8], length: usize);
}

/// Multiplies bytes by several constants, and adds the products to as many sums.
#[derive(Clone, Debug)]
pub struct Products<E: Field> {
    constants: Vec<E::Constant>,
    /// The only constant is one.
    is_sum: bool,
    kernel: Kernel<E>,
}

impl<E: Field> Products<E> {
    /// For these constants, with the fastest instructions of this processor.
    pub fn new(constants: &[E]) -> Products<E> {
        Products {
            constants: constants.iter().map(|value| value.constant()).collect(),
            is_sum: constants == [E::from(true)],
            kernel: Kernel::fastest(),
        }
    }

    /// With the instructions of `kernel`.
    #[must_use]
    pub fn with(self, kernel: Kernel<E>) -> Products<E> {
        Products { kernel, ..self }
    }

    /// True if there is one product, and it is the source.
    pub fn is_sum(&self) -> bool {
        self.is_sum
    }

    /// Adds the product of `source` with the constant `i` to the front of sum `i`. The sums lie in `sums` one behind
    /// the other, each of `length` bytes; what `source` is longer than a sum is ignored. Elements of several bytes are
    /// little-endian; an incomplete last one in `source` is filled up with zeros, and of one at the end of a sum the
    /// front is stored.
    pub fn add(&self, source: &[u8], sums: &mut [u8], length: usize) {
        let source = &source[..source.len().min(length)];
        if self.is_sum {
            return crate::redundancy::piece::xor_into(sums, source);
        }
        // The vector instructions work on whole blocks.
        let blocks = source.len() - source.len() % BLOCK;
        (self.kernel.add)(&self.constants, &source[..blocks], sums, length);
        if blocks < source.len() {
            E::add_from(&self.constants, source, blocks, sums, length);
        }
    }
}

/// Bytes that a kernel adds at a time: it gets multiples of them.
pub(super) const BLOCK: usize = 256;

/// Adds products, as [`Products::add`], of a multiple of [`BLOCK`] bytes.
pub(super) type Add<E> = fn(&[<E as Field>::Constant], &[u8], &mut [u8], usize);

/// The instructions that a multiplication uses.
pub struct Kernel<E: Field> {
    /// Its name in figures.
    pub name: &'static str,
    pub(super) add: Add<E>,
}

impl<E: Field> Kernel<E> {
    const PORTABLE: Kernel<E> = Kernel {
        name: "portable",
        add: |constants, source, sums, length| E::add_from(constants, source, 0, sums, length),
    };

    /// The kernels that this processor can use, fastest first; the last one is for every processor.
    pub fn usable() -> impl Iterator<Item = Kernel<E>> {
        E::VECTOR_KERNELS.iter().filter_map(|kernel| kernel()).chain([Self::PORTABLE])
    }

    fn fastest() -> Kernel<E> {
        Kernel::usable().next().unwrap_or(Self::PORTABLE)
    }
}

// Derived, they would ask the same of the element.
impl<E: Field> Clone for Kernel<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Field> Copy for Kernel<E> {}

impl<E: Field> fmt::Debug for Kernel<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Elements as they lie in memory.
    trait Stored: Field + fmt::Debug {
        /// An element from its bytes, as many as there are.
        fn load(bytes: &[u8]) -> Self;
        fn store(self) -> Vec<u8>;
    }

    impl Stored for u8 {
        fn load(bytes: &[u8]) -> u8 {
            bytes[0]
        }

        fn store(self) -> Vec<u8> {
            vec![self]
        }
    }

    impl Stored for u16 {
        fn load(bytes: &[u8]) -> u16 {
            u16::from_le_bytes([bytes[0], bytes.get(1).copied().unwrap_or(0)])
        }

        fn store(self) -> Vec<u8> {
            self.to_le_bytes().to_vec()
        }
    }

    /// The products of each element, bit by bit.
    fn bit_by_bit<E: Stored>(source: &[u8], constant: E) -> Vec<u8> {
        source.chunks(E::BITS as usize / 8).flat_map(|element| E::load(element).times(constant).store()).collect()
    }

    fn kernels_equal_the_product_bit_by_bit<E: Stored>(
        constants: &[E],
        source: &[u8],
        (more, unaligned, before): (usize, usize, u8),
    ) {
        let source = &source[unaligned.min(source.len())..];
        let length = source.len() + more;
        let mut expected = vec![before; constants.len() * length];
        for (sum, constant) in expected.chunks_mut(length.max(1)).zip(constants) {
            sum.iter_mut().zip(bit_by_bit(source, *constant)).for_each(|(sum, byte)| *sum ^= byte);
        }
        for kernel in Kernel::usable() {
            let mut sums = vec![before; constants.len() * length + unaligned];
            Products::new(constants).with(kernel).add(source, &mut sums[unaligned..], length);
            assert!(sums[unaligned..] == expected, "{kernel:?} {constants:?}");
        }
    }

    #[test]
    fn kernels_multiply_every_pair_of_bytes() {
        let every: Vec<u8> = (0..=u8::MAX).collect();
        for constant in 0..=u8::MAX {
            kernels_equal_the_product_bit_by_bit(&[constant, 1], &every, (0, 0, 0));
        }
    }

    #[test]
    fn kernels_multiply_every_word() {
        let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for constant in [0_u16, 1, 2, 0x80, 0x100, 0x8000, 0x1234, 0xABCD, 0xFFFF] {
            kernels_equal_the_product_bit_by_bit(&[constant, 1], &every, (0, 0, 0));
        }
    }

    #[test]
    fn a_word_at_an_odd_end_is_filled_up_with_zeros_and_stored_as_far_as_it_fits() {
        let odd = 7_u16.times(0x1234).to_le_bytes();
        for kernel in Kernel::usable() {
            let products = Products::new(&[0x1234_u16]).with(kernel);
            for (length, rest) in [(5, vec![odd[0]]), (7, vec![odd[0], odd[1], 0])] {
                let mut sum = vec![0xff; length];
                products.add(&[0xCD, 0xAB, 0x01, 0x00, 0x07], &mut sum, length);
                let expected = [[0x92, 0x47, 0x34, 0x12].as_slice(), &rest].concat();
                assert_eq!(sum, expected.iter().map(|byte| byte ^ 0xff).collect::<Vec<u8>>(), "{kernel:?}");
            }
        }
    }

    #[test]
    fn the_fastest_kernel_is_used() {
        assert_eq!(Products::new(&[2_u8]).kernel.name, Kernel::<u8>::usable().next().unwrap().name);
        assert_eq!(Kernel::<u16>::usable().last().unwrap().name, "portable");
    }

    proptest! {
        #[test]
        fn all_kernels_equal_the_product_bit_by_bit(
            bytes in prop::collection::vec(any::<u8>(), 0..6),
            words in prop::collection::vec(any::<u16>(), 0..6),
            source in prop::collection::vec(any::<u8>(), 0..1500),
            place in (0_usize..70, 0_usize..3, any::<u8>()),
        ) {
            kernels_equal_the_product_bit_by_bit(&bytes, &source, place);
            kernels_equal_the_product_bit_by_bit(&words, &source, place);
        }
    }
}
