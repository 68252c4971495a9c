//! The two byte orders of a container, and fields read and written in one of them.
//!
//! The word at offset 4 is four bytes `m u u m`: `m` says whether the metadata (and the headers of key-value records)
//! are big-endian, `u` whether the user's data are declared to be. Only bit 0 of the first and second byte counts
//! (`docs/formats.md`, SION 2); anything else in them is worth a warning, since no writer leaves it there.

/// Big or little end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The word as siondump prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            ByteOrder::Little => "little",
            ByteOrder::Big => "big",
        }
    }

    /// The order of the machine we run on.
    pub fn native() -> ByteOrder {
        if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little }
    }

    pub(super) fn i32(self, bytes: [u8; 4]) -> i32 {
        match self {
            ByteOrder::Little => i32::from_le_bytes(bytes),
            ByteOrder::Big => i32::from_be_bytes(bytes),
        }
    }

    pub(super) fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            ByteOrder::Little => i64::from_le_bytes(bytes),
            ByteOrder::Big => i64::from_be_bytes(bytes),
        }
    }

    pub(super) fn put_i32(self, out: &mut Vec<u8>, value: i32) {
        match self {
            ByteOrder::Little => out.extend_from_slice(&value.to_le_bytes()),
            ByteOrder::Big => out.extend_from_slice(&value.to_be_bytes()),
        }
    }

    pub(super) fn put_i64(self, out: &mut Vec<u8>, value: i64) {
        match self {
            ByteOrder::Little => out.extend_from_slice(&value.to_le_bytes()),
            ByteOrder::Big => out.extend_from_slice(&value.to_be_bytes()),
        }
    }

    pub(super) fn u64(self, bytes: [u8; 8]) -> u64 {
        self.i64(bytes).cast_unsigned()
    }

    pub(super) fn u64_bytes(self, value: u64) -> [u8; 8] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    fn from_bit(byte: u8) -> ByteOrder {
        if byte & 1 == 1 { ByteOrder::Big } else { ByteOrder::Little }
    }

    fn bit(self) -> u8 {
        u8::from(self == ByteOrder::Big)
    }
}

/// Metadata's and user data's order out of the word at offset 4.
pub(super) fn from_word(word: [u8; 4]) -> (ByteOrder, ByteOrder) {
    (ByteOrder::from_bit(word[0]), ByteOrder::from_bit(word[1]))
}

/// The word at offset 4 for these orders.
pub(super) fn to_word(metadata: ByteOrder, user: ByteOrder) -> [u8; 4] {
    [metadata.bit(), user.bit(), user.bit(), metadata.bit()]
}

/// Fields taken one after the other out of a slice; `None` when it is too short.
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
