//! The initial field, and field files.
//!
//! A field file is a header of 48 bytes and the rows, numbers little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | `HEATFLD\0` |
//! | 8..12 | version, 1 |
//! | 12..16 | CRC32 of the rows |
//! | 16..24, 24..32 | columns, rows |
//! | 32..40 | steps computed |
//! | 40..44 | 0 |
//! | 44..48 | CRC32 of bytes 0..44 |

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use holdfast_core::durable::check_replaceable;

use crate::error::{HeatError, InputError};
use crate::geometry::Size;
use crate::partial::Partial;
use crate::slab::Slab;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 48;
const MAGIC: &[u8; 8] = b"HEATFLD\0";
const VERSION: u32 = 1;

/// The header of a field file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Columns and rows.
    pub size: Size,
    /// Steps computed; 0 for an initial field.
    pub step: u64,
    /// CRC32 of the rows' bytes.
    pub crc: u32,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&(self.size.width as u64).to_le_bytes());
        bytes[24..32].copy_from_slice(&(self.size.height as u64).to_le_bytes());
        bytes[32..40].copy_from_slice(&self.step.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..44]);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, InputError> {
        if &bytes[..8] != MAGIC {
            return Err(InputError::NotAField);
        }
        let found = u32_at(bytes, 8);
        if found != VERSION {
            return Err(InputError::Version { found, known: VERSION });
        }
        if crc32fast::hash(&bytes[..44]) != u32_at(bytes, 44) {
            return Err(InputError::DamagedHeader);
        }
        let (width, height) = (u64_at(bytes, 16), u64_at(bytes, 24));
        let size = Size::new(width, height).ok_or(InputError::ImpossibleSize { width, height })?;
        Ok(Header { size, step: u64_at(bytes, 32), crc: u32_at(bytes, 12) })
    }

    fn file_bytes(&self) -> u64 {
        (self.size.row_bytes() as u64) * (self.size.height as u64) + HEADER_BYTES as u64
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(long)
}

/// The initial field from row `first` on: a hot disc on an uneven background. Computed with integers and one division
/// by a power of two, so that the bits are equal on every machine.
pub fn fill_initial(size: Size, first: usize, cells: &mut [f64]) {
    let radius = (size.width.min(size.height) / 2) as i64;
    for (index, cell) in cells.iter_mut().enumerate() {
        let (x, y) = (index % size.width, first + index / size.width);
        let (dx, dy) = (2 * x as i64 - size.width as i64, 2 * y as i64 - size.height as i64);
        // The finalizer of SplitMix64, a hash function for neighbouring inputs.
        let mut bits = ((y * size.width + x) as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let noise = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let disc = if dx * dx + dy * dy < radius * radius { 100.0 } else { 0.0 };
        *cell = disc + 10.0 * noise;
    }
}

/// The cells' bytes, as in files.
pub fn to_bytes(cells: &[f64]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_le_bytes()).collect()
}

/// Sets cells from their bytes.
pub fn from_bytes(bytes: &[u8], cells: &mut [f64]) {
    for (cell, bytes) in cells.iter_mut().zip(bytes.as_chunks().0) {
        *cell = f64::from_le_bytes(*bytes);
    }
}

/// CRC32 of the cells' bytes.
pub fn checksum(cells: &[f64]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    // In pieces: a slab may need most of the memory.
    for piece in cells.chunks(8192) {
        crc.update(&to_bytes(piece));
    }
    crc.finalize()
}

/// Writes the initial field to a file; an existing file is replaced.
pub fn write_initial(path: &Path, size: Size) -> Result<(), HeatError> {
    let mut row = vec![0.0; size.width];
    let mut crc = crc32fast::Hasher::new();
    for y in 0..size.height {
        fill_initial(size, y, &mut row);
        crc.update(&to_bytes(&row));
    }
    let header = Header { size, step: 0, crc: crc.finalize() };
    check_replaceable(path)?;
    let partial = Partial::of(path);
    let mut write = || -> io::Result<()> {
        let mut file = BufWriter::new(partial.create()?);
        file.write_all(&header.encode())?;
        for y in 0..size.height {
            fill_initial(size, y, &mut row);
            file.write_all(&to_bytes(&row))?;
        }
        partial.place(&file.into_inner()?)
    };
    write().map_err(|error| {
        partial.discard();
        HeatError::file("writing the initial field", path)(error)
    })
}

/// Opens a field file, reads its header, and checks the length of the file against it.
pub fn open(path: &Path) -> Result<(File, Header), HeatError> {
    let input = |problem| HeatError::Input { path: path.to_owned(), problem };
    let mut file = File::open(path).map_err(HeatError::file("opening the initial field", path))?;
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact(&mut bytes).map_err(|error| input(InputError::NoHeader(error)))?;
    let header = Header::decode(&bytes).map_err(input)?;
    let length = file.metadata().map_err(HeatError::file("looking at", path))?.len();
    if length != header.file_bytes() {
        return Err(input(InputError::Length { length, expected: header.file_bytes(), size: header.size }));
    }
    Ok((file, header))
}

/// Reads the slab's rows from an open field file.
pub fn read_rows(file: &File, path: &Path, slab: &mut Slab) -> Result<(), HeatError> {
    let row_bytes = slab.size().row_bytes();
    let mut offset = (HEADER_BYTES + slab.rows().start * row_bytes) as u64;
    let mut bytes = vec![0; row_bytes];
    let width = slab.size().width;
    for row in slab.cells_mut().chunks_mut(width) {
        file.read_exact_at(&mut bytes, offset).map_err(HeatError::file("reading the initial field", path))?;
        from_bytes(&bytes, row);
        offset += row_bytes as u64;
    }
    Ok(())
}

/// Writes the header into an open field file.
pub fn write_header(file: &File, header: Header) -> io::Result<()> {
    file.write_all_at(&header.encode(), 0)
}

/// Writes the slab's rows at their place in an open field file.
pub fn write_rows(file: &File, slab: &Slab) -> io::Result<()> {
    let row_bytes = slab.size().row_bytes();
    let mut offset = (HEADER_BYTES + slab.rows().start * row_bytes) as u64;
    for row in slab.cells().chunks(slab.size().width) {
        file.write_all_at(&to_bytes(row), offset)?;
        offset += row_bytes as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rows_of_each_rank_from_field_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("start.heat");
        let size = Size { width: 9, height: 12 };
        write_initial(&path, size).unwrap();
        let (file, header) = open(&path).unwrap();
        assert_eq!((header.size, header.step), (size, 0));
        for rows in [0..12, 0..1, 5..9, 11..12] {
            let mut slab = Slab::new(size, rows.clone());
            read_rows(&file, &path, &mut slab).unwrap();
            let mut expected = vec![0.0; rows.len() * 9];
            fill_initial(size, rows.start, &mut expected);
            assert_eq!(slab.cells(), expected);
        }
        let mut all_rows = vec![0.0; 108];
        fill_initial(size, 0, &mut all_rows);
        assert_eq!(header.crc, checksum(&all_rows));
    }

    #[test]
    fn initial_field_has_known_checksum() {
        let size = Size { width: 64, height: 48 };
        let mut cells = vec![0.0; 64 * 48];
        fill_initial(size, 0, &mut cells);
        // Computed by an independent program.
        assert_eq!(checksum(&cells), 0x7b9b0264);
    }

    #[test]
    fn rejects_damaged_header_or_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("start.heat");
        write_initial(&path, Size { width: 4, height: 4 }).unwrap();
        let all_rows = std::fs::read(&path).unwrap();
        for at in 0..HEADER_BYTES {
            let mut bytes = all_rows.clone();
            bytes[at] ^= 0x20;
            std::fs::write(&path, bytes).unwrap();
            let error = open(&path).unwrap_err();
            assert!(error.to_string().contains("start.heat"), "byte {at}: {error}");
        }
        for length in 0..all_rows.len() {
            std::fs::write(&path, &all_rows[..length]).unwrap();
            assert!(open(&path).is_err(), "{length} bytes");
        }
    }
}
