//! When a file holds what was written: the one rule for copies, transfers and verifications.

use super::meta::{Meta, format_crc};

/// What was read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its length.
    pub bytes: u64,
    /// CRC32 over all of it.
    pub crc: u32,
}

/// What a meta file or a summary records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its length.
    pub bytes: u64,
    /// CRC32 over all of it, if it was computed.
    pub crc: Option<u32>,
}

/// How a file differs from its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another length.
    #[error("has {found} bytes, {expected} are recorded")]
    Size {
        /// As recorded.
        expected: u64,
        /// As read.
        found: u64,
    },
    /// The same length, but another content.
    #[error("is damaged: its CRC32 is {}, {} is recorded", format_crc(*found), format_crc(*expected))]
    Crc {
        /// As recorded.
        expected: u32,
        /// As read.
        found: u32,
    },
}

impl From<&Meta> for Recorded {
    fn from(meta: &Meta) -> Self {
        Recorded { bytes: meta.size, crc: meta.crc }
    }
}

impl Recorded {
    /// Accepts content that agrees with the record, as far as that goes.
    ///
    /// # Errors
    /// The difference.
    pub fn check(self, found: Content) -> Result<Content, Mismatch> {
        match self.crc {
            _ if found.bytes != self.bytes => Err(Mismatch::Size { expected: self.bytes, found: found.bytes }),
            Some(expected) if expected != found.crc => Err(Mismatch::Crc { expected, found: found.crc }),
            _ => Ok(found),
        }
    }
}
