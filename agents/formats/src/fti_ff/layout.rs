//! The six layouts of FTI-FF and their file metadata (FB in the document, MF in later versions).
//!
//! A file has neither magic number nor version. The hash in the file metadata replaces them: it is computed in each
//! layout, at the place where that layout stores it, and the layout with a matching hash is that of the file.

use crc::{CRC_16_IBM_3740, Crc};
use md5::{Digest, Md5};

use crate::hex::hex;

/// A layout; the letters follow the order of FTI's versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// v1.1, the layout that FTI's document describes.
    A,
    /// v1.2.
    B,
    /// v1.3.
    C,
    /// v1.4.
    D,
    /// v1.4.1 to v1.6.
    E,
    /// The development branch of 2022.
    F,
}

impl Layout {
    pub fn letter(self) -> &'static str {
        match self {
            Layout::A => "A",
            Layout::B => "B",
            Layout::C => "C",
            Layout::D => "D",
            Layout::E => "E",
            Layout::F => "F",
        }
    }

    /// The versions of FTI that write it.
    pub fn written_by(self) -> &'static str {
        match self {
            Layout::A => "FTI v1.1",
            Layout::B => "FTI v1.2",
            Layout::C => "FTI v1.3",
            Layout::D => "FTI v1.4",
            Layout::E => "FTI v1.4.1 to v1.6",
            Layout::F => "FTI after v1.6",
        }
    }

    /// Bytes of the file metadata.
    pub fn meta_bytes(self) -> usize {
        match self {
            Layout::A => 96,
            Layout::B => 90,
            Layout::C | Layout::D => 110,
            Layout::E => 82,
            Layout::F => 106,
        }
    }

    /// True if all data precedes all metadata.
    pub fn is_data_first(self) -> bool {
        self >= Layout::C
    }

    /// Bytes of a block head.
    pub fn head_bytes(self) -> usize {
        if self == Layout::E { 8 } else { 12 }
    }

    /// Bytes of the metadata of one container.
    pub fn entry_bytes(self) -> usize {
        match self {
            Layout::A => 64,
            Layout::B | Layout::C => 62,
            Layout::D | Layout::F => 58,
            Layout::E => 50,
        }
    }

    /// True if entries store the variable's position in protect order.
    pub fn has_index(self) -> bool {
        self <= Layout::C
    }

    /// The width of stored sizes in bytes.
    pub(super) fn size_width(self) -> usize {
        if self == Layout::E { 4 } else { 8 }
    }

    fn time_width(self) -> usize {
        if self >= Layout::E { 4 } else { 8 }
    }
}

/// Reads consecutive little-endian numbers; `None` at the end of the bytes.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        self.bytes().map(i32::from_le_bytes)
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.bytes().map(i64::from_le_bytes)
    }

    pub(super) fn number(&mut self, width: usize) -> Option<i64> {
        if width == 4 { self.int().map(i64::from) } else { self.long() }
    }
}

/// Bytes of the checksum as stored: 32 hexadecimal digits and a NUL.
pub const CHECKSUM_BYTES: usize = 33;

/// The metadata of a file. Numbers are as stored: they may be negative or impossible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMeta {
    /// The layout it was read in.
    pub layout: Layout,
    /// MD5 as hexadecimal text with NUL; the hashed bytes depend on the layout.
    pub checksum: [u8; CHECKSUM_BYTES],
    /// MD5 of the other fields.
    pub own_hash: [u8; 16],
    /// The checkpoint's id, from layout C on.
    pub checkpoint: Option<i32>,
    /// Equal to `file_size`; in a parity file the size of the rank's own file.
    pub checkpoint_size: i64,
    /// Bytes of all metadata, from layout C on.
    pub meta_size: Option<i64>,
    /// Bytes of all containers, from layout C on.
    pub data_size: Option<i64>,
    /// `fs`: bytes of the file.
    pub file_size: i64,
    /// `maxFs`: at level 3 the bytes of the longest file of the group (padded, from layout C on); otherwise -1.
    pub largest_size: i64,
    /// `ptFs`: at level 2 the bytes of the left neighbour's file; otherwise -1.
    pub partner_size: i64,
    /// Time of creation in nanoseconds since 1970; from layout E on only its low 32 bits. In layout F, Holdfast stores
    /// a CRC in its place: see [`FileMeta::record_entries`].
    pub timestamp: i64,
    /// Layout F: the last byte, which FTI neither sets nor reads.
    pub last_byte: u8,
}

/// Marks a file of layout F whose metadata contains a CRC: its last byte, and the low half of its time stamp. FTI's own
/// files have any value there, so that one byte alone would be found in one of 256.
const CRC_MARK: (u8, u16) = (b'H', 0xc3a5);

impl FileMeta {
    /// Parses the metadata in one layout; `None` if there are too few bytes. Checks no values.
    pub fn parse(layout: Layout, bytes: &[u8]) -> Option<FileMeta> {
        let mut fields = Fields(bytes.get(..layout.meta_bytes())?);
        let checksum = fields.bytes()?;
        let own_hash = fields.bytes()?;
        if layout == Layout::A {
            fields.bytes::<7>()?;
        }
        let checkpoint = if layout.is_data_first() { Some(fields.int()?) } else { None };
        let width = layout.size_width();
        let checkpoint_size = fields.number(width)?;
        let (meta_size, data_size) = match layout.is_data_first() {
            true => (Some(fields.number(width)?), Some(fields.number(width)?)),
            false => (None, None),
        };
        let file_size = fields.number(width)?;
        let largest_size = fields.number(width)?;
        let partner_size = fields.number(width)?;
        let timestamp = fields.number(layout.time_width())?;
        let last_byte = if layout == Layout::F { fields.bytes::<1>()?[0] } else { 0 };
        Some(FileMeta {
            layout,
            checksum,
            own_hash,
            checkpoint,
            checkpoint_size,
            meta_size,
            data_size,
            file_size,
            largest_size,
            partner_size,
            timestamp,
            last_byte,
        })
    }

    /// Records the CRC of the block heads and variable entries, which no hash of layout F covers, nor the checkpoint's
    /// id: a wrong bit in them would load a variable as another one. It is stored where FTI reads nothing: in the time
    /// stamp, which only its own hash covers, and in the unused last byte.
    pub fn record_entries(&mut self, crc: u16) {
        let [low, high] = [CRC_MARK.1, crc].map(i64::from);
        self.timestamp = low | high << 16;
        self.last_byte = CRC_MARK.0;
    }

    /// The CRC that [`FileMeta::record_entries`] stored; `None` in files of FTI.
    pub fn recorded_entries(&self) -> Option<u16> {
        let [a, b, c, d, ..] = self.timestamp.to_le_bytes();
        let is_marked = self.layout == Layout::F && (self.last_byte, u16::from_le_bytes([a, b])) == CRC_MARK;
        is_marked.then_some(u16::from_le_bytes([c, d]))
    }

    /// The 96 bytes of layout A, with zeros as padding.
    pub fn document_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Layout::A.meta_bytes());
        bytes.extend(self.checksum);
        bytes.extend(self.own_hash);
        bytes.extend([0; 7]);
        let sizes = [self.checkpoint_size, self.file_size, self.largest_size, self.partner_size, self.timestamp];
        bytes.extend(sizes.iter().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    /// The 106 bytes of layout F.
    pub fn last_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Layout::F.meta_bytes());
        bytes.extend(self.checksum);
        bytes.extend(self.own_hash);
        bytes.extend(self.checkpoint.unwrap_or(0).to_le_bytes());
        let (meta, data) = (self.meta_size.unwrap_or(0), self.data_size.unwrap_or(0));
        let sizes = [self.checkpoint_size, meta, data, self.file_size, self.largest_size, self.partner_size];
        bytes.extend(sizes.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(self.timestamp.to_le_bytes().iter().take(4));
        bytes.push(self.last_byte);
        bytes
    }

    /// The expected value of `own_hash`. It covers neither the checkpoint's id nor padding, and its order of fields
    /// differs from the order in the file.
    pub fn computed_hash(&self) -> [u8; 16] {
        let mut hasher = Md5::new();
        hasher.update(self.checksum);
        hasher.update(&self.timestamp.to_le_bytes()[..self.layout.time_width()]);
        let sizes = [
            Some(self.checkpoint_size),
            self.meta_size,
            self.data_size,
            Some(self.file_size),
            Some(self.partner_size),
            Some(self.largest_size),
        ];
        for size in sizes.into_iter().flatten() {
            hasher.update(&size.to_le_bytes()[..self.layout.size_width()]);
        }
        hasher.finalize().into()
    }

    /// True if `own_hash` is correct.
    pub fn has_valid_hash(&self) -> bool {
        self.own_hash == self.computed_hash()
    }

    /// True if the checksum field has the form of one: a sign of the format when the hash is damaged.
    pub fn has_checksum_shape(&self) -> bool {
        let [digits @ .., end] = &self.checksum;
        *end == 0 && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The checksum as text; if the field has another form, its bytes in hexadecimal.
    pub fn checksum_text(&self) -> String {
        let [digits @ .., _] = &self.checksum;
        match std::str::from_utf8(digits) {
            Ok(text) if self.has_checksum_shape() => text.to_owned(),
            _ => hex(digits),
        }
    }
}

/// The CRC for [`FileMeta::record_entries`], over the bytes of all block heads and entries: it finds each wrong bit.
pub struct EntriesCrc(crc::Digest<'static, u16>);

static ENTRIES_CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_IBM_3740);

impl EntriesCrc {
    /// Of a file with this id of the checkpoint.
    pub fn of_checkpoint(id: i32) -> EntriesCrc {
        let mut crc = EntriesCrc(ENTRIES_CRC.digest());
        crc.update(&id.to_le_bytes());
        crc
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all bytes so far.
    pub fn value(self) -> u16 {
        self.0.finalize()
    }
}

/// A hash in the form of the checksum field.
pub fn checksum_field(hash: &[u8; 16]) -> [u8; CHECKSUM_BYTES] {
    let mut field = [0; CHECKSUM_BYTES];
    for (to, digit) in field.iter_mut().zip(hex(hash).bytes()) {
        *to = digit;
    }
    field
}
