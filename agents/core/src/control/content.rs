//! Whether a file has the content that was written: the one rule for copies, transfers and verifications.

use super::meta::{Meta, format_crc};

/// What was read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileContent {
    pub bytes: u64,
    /// CRC32 over all of it.
    pub crc: u32,
}

/// What a meta file or a summary records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedContent {
    pub bytes: u64,
    /// CRC32 over all of it, if it was computed.
    pub crc: Option<u32>,
}

/// How a file differs from its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentMismatch {
    /// Another length.
    #[error("has {found} bytes, {expected} are recorded")]
    Size { expected: u64, found: u64 },
    /// The same length, but another content.
    #[error("is damaged: its CRC32 is {}, {} is recorded", format_crc(*found), format_crc(*expected))]
    Crc { expected: u32, found: u32 },
}

impl From<&Meta> for RecordedContent {
    fn from(meta: &Meta) -> Self {
        RecordedContent { bytes: meta.size, crc: meta.crc }
    }
}

impl From<FileContent> for RecordedContent {
    fn from(content: FileContent) -> Self {
        RecordedContent { bytes: content.bytes, crc: Some(content.crc) }
    }
}

impl RecordedContent {
    /// Accepts content that agrees with what is recorded.
    pub fn check(self, found: FileContent) -> Result<FileContent, ContentMismatch> {
        self.check_copy(found.into()).map(|_| found)
    }

    /// As [`RecordedContent::check`], for a copy whose checksum was computed only if it was needed.
    pub fn check_copy(self, found: RecordedContent) -> Result<RecordedContent, ContentMismatch> {
        match (self.crc, found.crc) {
            _ if found.bytes != self.bytes => Err(ContentMismatch::Size { expected: self.bytes, found: found.bytes }),
            (Some(expected), Some(found)) if expected != found => Err(ContentMismatch::Crc { expected, found }),
            _ => Ok(found),
        }
    }
}
