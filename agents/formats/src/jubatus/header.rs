//! The 48-byte header: magic number, release of the writer, checksum, and sizes of the two blocks.

use std::fmt;
use std::str::FromStr;

/// Bytes of the header.
pub const HEADER_LENGTH: u64 = 48;

/// The first eight bytes of every model file.
pub const MAGIC: [u8; 8] = *b"jubatus\0";

/// The only format version, written by Jubatus 0.5.0 to 1.1.1.
pub const FORMAT_VERSION: u64 = 1;

/// A release of Jubatus, as stored in the header. Ordered by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    pub major: u32,
    pub minor: u32,
    pub maintenance: u32,
}

impl Release {
    /// The newest supported release; the default for verifications.
    pub const NEWEST: Release = Release::new(1, 1, 1);

    /// The release with these numbers.
    pub const fn new(major: u32, minor: u32, maintenance: u32) -> Release {
        Release { major, minor, maintenance }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.maintenance)
    }
}

/// The text is not three numbers separated by dots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a Jubatus release; give three numbers, for example 1.1.1")]
pub struct ReleaseError {
    text: String,
}

impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Release, ReleaseError> {
        let numbers: Option<Vec<u32>> = text.split('.').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some([major, minor, maintenance]) => Ok(Release::new(*major, *minor, *maintenance)),
            _ => Err(ReleaseError { text: text.to_owned() }),
        }
    }
}

/// The header's fields as stored; no field is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// [`MAGIC`] in a model file.
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`].
    pub format_version: u64,
    /// The release that wrote the file.
    pub release: Release,
    pub crc32: u32,
    /// Bytes of the system data, which follow the header.
    pub system_data_size: u64,
    /// Bytes of the user data, which follow the system data.
    pub user_data_size: u64,
}

impl Header {
    pub fn decode(bytes: &[u8; HEADER_LENGTH as usize]) -> Header {
        let u64_at = |at: usize| bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let u32_at = |at: usize| bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let mut magic = [0; 8];
        magic.copy_from_slice(&bytes[..8]);
        Header {
            magic,
            format_version: u64_at(8),
            release: Release::new(u32_at(16), u32_at(20), u32_at(24)),
            crc32: u32_at(28),
            system_data_size: u64_at(32),
            user_data_size: u64_at(40),
        }
    }

    pub fn encode(&self) -> [u8; HEADER_LENGTH as usize] {
        let mut bytes = [0; HEADER_LENGTH as usize];
        bytes[..8].copy_from_slice(&self.magic);
        bytes[8..16].copy_from_slice(&self.format_version.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.release.major.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.release.minor.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.release.maintenance.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.crc32.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.system_data_size.to_be_bytes());
        bytes[40..].copy_from_slice(&self.user_data_size.to_be_bytes());
        bytes
    }

    /// A hasher with the header's part of the checksum, without the four bytes of the checksum itself. The bytes of the
    /// two blocks must be added to it.
    pub fn start_checksum(bytes: &[u8; HEADER_LENGTH as usize]) -> crc32fast::Hasher {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..28]);
        hasher.update(&bytes[32..]);
        hasher
    }

    /// The offset of the user data in the file; `None` on overflow.
    pub fn user_data_offset(&self) -> Option<u64> {
        HEADER_LENGTH.checked_add(self.system_data_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_decoded_as_it_was_encoded() {
        let header = Header {
            magic: MAGIC,
            format_version: 0x0102_0304_0506_0708,
            release: Release::new(0x0a0b_0c0d, 2, u32::MAX),
            crc32: 0xe0bc_f095,
            system_data_size: u64::MAX,
            user_data_size: 119,
        };
        assert_eq!(Header::decode(&header.encode()), header);
        assert_eq!(header.user_data_offset(), None);
    }

    #[test]
    fn orders_and_parses_releases() {
        assert!(Release::new(0, 9, 4) < Release::new(1, 0, 3));
        assert_eq!("0.5.0".parse(), Ok(Release::new(0, 5, 0)));
        assert_eq!(Release::NEWEST.to_string().parse(), Ok(Release::NEWEST));
        for text in ["", "1", "1.1", "1.1.1.1", "1.1.x", "-1.0.0"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
    }
}
