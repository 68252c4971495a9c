//! The layout of the file, computed from its header.
//!
//! | offset | bytes | content of the header |
//! |---|---|---|
//! | 0 | 8 | `HFPAIRS` and a NUL |
//! | 8 | 4 | version of the layout |
//! | 12 | 4 | CRC32 of the header without this field and without the counter of registrations |
//! | 16 | 8 | size of the file |
//! | 24 | 4 | number of pairs |
//! | 28 | 4 | checkpoints that are kept of each pair |
//! | 32 | 8 | hash (XXH3) of the job's name |

use holdfast_model::pair::MOST_PAIRS;

use crate::error::ShmError;

/// The version of the layout.
pub const VERSION: u32 = 2;
/// The most checkpoints that are kept of a pair.
pub const MOST_RING: u32 = 32;
/// The largest checkpoint: 64 GiB.
pub const MOST_CHECKPOINT_BYTES: u64 = 1 << 36;

/// Areas start at multiples of this: of the largest pages of the machines that Holdfast runs on, so that each can be
/// mapped alone.
pub const UNIT: u64 = 64 << 10;

const MAGIC: [u8; 8] = *b"HFPAIRS\0";
/// The header without the table of the pairs.
pub(crate) const FIXED_BYTES: usize = 128;
/// What of it the CRC covers, after the CRC itself; the counter of registrations follows.
const CHECKED: std::ops::Range<usize> = 16..64;
/// The offset of the counter of registrations.
pub(crate) const REGISTRATIONS: usize = 64;
/// Entries of the ring start at multiples of this.
const ENTRY_ALIGNMENT: u64 = 64;

/// What a registry is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The number of pairs, at least 1 and at most [`MOST_PAIRS`].
    pub pairs: u32,
    /// The largest checkpoint of each pair, in bytes.
    pub checkpoint_bytes: Vec<u64>,
    /// The number of checkpoints that are kept of each pair, at least 2 and at most [`MOST_RING`].
    pub ring: u32,
}

/// Where things are in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub areas: Vec<AreaGeometry>,
    pub ring: u32,
    pub job_hash: u64,
    pub file_bytes: u64,
}

/// Where things are in the area of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaGeometry {
    /// From the beginning of the file.
    pub offset: u64,
    /// The whole area.
    pub bytes: u64,
    pub capacity: u64,
    /// From one entry to the next.
    pub stride: u64,
    /// From the beginning of the area to the first entry.
    pub data: u64,
    pub ring: u32,
}

impl Geometry {
    /// # Errors
    /// The numbers are out of range.
    pub fn of(layout: &Layout, job_hash: u64) -> Result<Self, ShmError> {
        let Layout { pairs, checkpoint_bytes, ring } = layout;
        if *pairs == 0 || *pairs > MOST_PAIRS {
            return Err(ShmError::Layout(format!("{pairs} pairs: write 1 to {MOST_PAIRS}")));
        }
        if checkpoint_bytes.len() != *pairs as usize {
            return Err(ShmError::Layout(format!("{} sizes of checkpoints for {pairs} pairs", checkpoint_bytes.len())));
        }
        if *ring < 2 || *ring > MOST_RING {
            return Err(ShmError::Layout(format!("{ring} checkpoints of a pair: write 2 to {MOST_RING}")));
        }
        let table_end = FIXED_BYTES as u64 + 8 * u64::from(*pairs);
        let mut offset = table_end.next_multiple_of(UNIT);
        let mut areas = Vec::with_capacity(checkpoint_bytes.len());
        for capacity in checkpoint_bytes {
            if *capacity > MOST_CHECKPOINT_BYTES {
                let most = MOST_CHECKPOINT_BYTES;
                return Err(ShmError::Layout(format!("checkpoints of {capacity} bytes: the most is {most}")));
            }
            // No overflow: at most 1024 areas of 32 entries of 2^36 bytes.
            let stride = capacity.next_multiple_of(ENTRY_ALIGNMENT);
            let bytes = UNIT + (stride * u64::from(*ring)).next_multiple_of(UNIT);
            areas.push(AreaGeometry { offset, bytes, capacity: *capacity, stride, data: UNIT, ring: *ring });
            offset += bytes;
        }
        Ok(Geometry { areas, ring: *ring, job_hash, file_bytes: offset })
    }

    /// The header with its table.
    pub fn header(&self) -> Vec<u8> {
        let mut header = vec![0; FIXED_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        header[16..24].copy_from_slice(&self.file_bytes.to_ne_bytes());
        header[24..28].copy_from_slice(&(self.areas.len() as u32).to_ne_bytes());
        header[28..32].copy_from_slice(&self.ring.to_ne_bytes());
        header[32..40].copy_from_slice(&self.job_hash.to_ne_bytes());
        header.extend(self.areas.iter().flat_map(|area| area.capacity.to_ne_bytes()));
        let crc = crc(&header);
        header[12..16].copy_from_slice(&crc.to_ne_bytes());
        header
    }

    /// The geometry of a file of this size that begins with `fixed`, whose table is read by `table`.
    pub fn read(
        fixed: &[u8; FIXED_BYTES],
        file_bytes: u64,
        table: impl FnOnce(usize) -> Result<Vec<u8>, String>,
    ) -> Result<Self, String> {
        if fixed[..8] != MAGIC {
            return Err("it does not begin as one".to_owned());
        }
        let version = u32_at(fixed, 8);
        if version != VERSION {
            return Err(format!(
                "its layout has version {version}, and this program knows version {VERSION}: link the program with \
                 the library of the Holdfast that runs the job"
            ));
        }
        let pairs = u32_at(fixed, 24);
        if pairs == 0 || pairs > MOST_PAIRS {
            return Err(format!("its header names {pairs} pairs"));
        }
        let table = table(8 * pairs as usize)?;
        let header = [fixed.as_slice(), table.as_slice()].concat();
        if crc(&header) != u32_at(fixed, 12) {
            return Err("the check sum of its header is wrong".to_owned());
        }
        let checkpoint_bytes = table.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
        let layout = Layout { pairs, checkpoint_bytes, ring: u32_at(fixed, 28) };
        let geometry = Geometry::of(&layout, u64_at(fixed, 32)).map_err(|error| error.to_string())?;
        if u64_at(fixed, 16) != geometry.file_bytes || file_bytes != geometry.file_bytes {
            return Err(format!("it has {file_bytes} bytes, and {} are expected", geometry.file_bytes));
        }
        Ok(geometry)
    }
}

fn crc(header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for range in [0..12, CHECKED, FIXED_BYTES..header.len()] {
        hasher.update(header.get(range).unwrap_or_default());
    }
    hasher.finalize()
}

fn u32_at(bytes: &[u8; FIXED_BYTES], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_ne_bytes(*chunk))
}

fn u64_at(bytes: &[u8; FIXED_BYTES], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_ne_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &[u8], file_bytes: u64) -> Result<Geometry, String> {
        let fixed = header.first_chunk().unwrap();
        Geometry::read(fixed, file_bytes, |bytes| {
            header.get(FIXED_BYTES..FIXED_BYTES + bytes).map(<[u8]>::to_vec).ok_or("short".to_owned())
        })
    }

    fn layout(checkpoint_bytes: &[u64]) -> Layout {
        Layout { pairs: checkpoint_bytes.len() as u32, checkpoint_bytes: checkpoint_bytes.to_vec(), ring: 10 }
    }

    #[test]
    fn the_header_describes_the_file() {
        let geometry = Geometry::of(&layout(&[400_000, 1, 0]), 7).unwrap();
        assert_eq!(geometry.areas[0].stride, 400_000);
        assert_eq!(geometry.areas[1].stride, 64);
        assert_eq!(geometry.areas[1].offset, 2 * UNIT + 4_063_232);
        assert_eq!(read(&geometry.header(), geometry.file_bytes), Ok(geometry));
    }

    #[test]
    fn every_changed_byte_of_the_header_is_refused() {
        let geometry = Geometry::of(&layout(&[100, 200]), 7).unwrap();
        let header = geometry.header();
        for at in (0..FIXED_BYTES).filter(|at| !(64..128).contains(at)).chain(FIXED_BYTES..header.len()) {
            for change in [1, 0x80, 0xff] {
                let mut changed = header.clone();
                changed[at] ^= change;
                let refused = read(&changed, geometry.file_bytes);
                assert!(refused.is_err(), "byte {at} changed by {change}: {refused:?}");
            }
        }
        assert!(read(&header, geometry.file_bytes - 1).unwrap_err().contains("are expected"));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(Geometry::of(&layout(&[]), 0).is_err());
        assert!(Geometry::of(&layout(&[0; 1025]), 0).is_err());
        assert!(Geometry::of(&layout(&[MOST_CHECKPOINT_BYTES + 1]), 0).is_err());
        for ring in [0, 1, 33] {
            assert!(Geometry::of(&Layout { ring, ..layout(&[1]) }, 0).is_err(), "{ring}");
        }
        assert!(Geometry::of(&Layout { pairs: 2, ..layout(&[1]) }, 0).is_err());
        let largest = Layout { ring: MOST_RING, ..layout(&[MOST_CHECKPOINT_BYTES; 1024]) };
        assert!(Geometry::of(&largest, 0).unwrap().file_bytes > 1 << 50);
    }
}
