//! The two byte orders of a container, and reading and writing fields in a byte order.
//!
//! The four bytes at offset 4 are `m u u m`: `m` is 1 if the metadata (and the headers of key-value records) are
//! big-endian, `u` is 1 if the user's data are declared big-endian. Only bit 0 of the first and second byte is used
//! (`docs/formats.md`, SION 2); other values cause a warning, since no writer stores them.

/// Big or little end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The name that siondump prints.
    pub fn as_str(self) -> &'static str {
        match self {
            ByteOrder::Little => "little",
            ByteOrder::Big => "big",
        }
    }

    /// The byte order of this machine.
    pub fn native() -> ByteOrder {
        if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little }
    }

    /// The bytes of a number in this order, from those in little-endian order, or the other way round.
    fn ordered<const BYTES: usize>(self, mut bytes: [u8; BYTES]) -> [u8; BYTES] {
        if self == ByteOrder::Big {
            bytes.reverse();
        }
        bytes
    }

    pub(super) fn i32(self, bytes: [u8; 4]) -> i32 {
        i32::from_le_bytes(self.ordered(bytes))
    }

    pub(super) fn i64(self, bytes: [u8; 8]) -> i64 {
        i64::from_le_bytes(self.ordered(bytes))
    }

    pub(super) fn put_i32(self, out: &mut Vec<u8>, value: i32) {
        out.extend_from_slice(&self.ordered(value.to_le_bytes()));
    }

    pub(super) fn put_i64(self, out: &mut Vec<u8>, value: i64) {
        out.extend_from_slice(&self.ordered(value.to_le_bytes()));
    }

    pub(super) fn u64(self, bytes: [u8; 8]) -> u64 {
        self.i64(bytes).cast_unsigned()
    }

    pub(super) fn u64_bytes(self, value: u64) -> [u8; 8] {
        self.ordered(value.to_le_bytes())
    }

    fn from_bit(byte: u8) -> ByteOrder {
        if byte & 1 == 1 { ByteOrder::Big } else { ByteOrder::Little }
    }

    fn bit(self) -> u8 {
        u8::from(self == ByteOrder::Big)
    }
}

/// The byte orders of metadata and user data, from the bytes at offset 4.
pub(super) fn from_field(field: [u8; 4]) -> (ByteOrder, ByteOrder) {
    (ByteOrder::from_bit(field[0]), ByteOrder::from_bit(field[1]))
}

/// The bytes at offset 4 for these byte orders.
pub(super) fn to_field(metadata: ByteOrder, user: ByteOrder) -> [u8; 4] {
    [metadata.bit(), user.bit(), user.bit(), metadata.bit()]
}

/// Reads consecutive fields of a slice; `None` at its end.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Fields { bytes, order }
    }

    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*head)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.take().map(|bytes| self.order.i32(bytes))
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.take().map(|bytes| self.order.i64(bytes))
    }
}
