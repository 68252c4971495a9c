//! The code rows of level 3 over files ([`holdfast_core::galois::rows`]): linear combinations of rows, computed piece
//! by piece.
//!
//! The data of a member is its file, padded with zeros to the group's `maxFs`; from layout C on its last eight bytes
//! are the size of the file.

use std::path::Path;

#[cfg(test)]
use holdfast_core::galois::products::Kernel;
use holdfast_core::galois::products::Products;
use holdfast_core::galois::rows::{self, Row};

use super::checkpoint::{FtiFile, Parity, inspect};
use super::layout::Layout;
use crate::error::FormatsError;
use crate::input::{Input, PIECE_BYTES};

/// Bytes of the size field at the end of padded data, from layout C on.
pub(super) const SIZE_BYTES: u64 = 8;

/// A file as a row of the code.
#[derive(Debug)]
pub struct RowFile {
    input: Input,
    /// Bytes of the file that belong to the row; the rest of the row is zeros.
    bytes: u64,
    length: u64,
    /// True if the row ends with the size of the file.
    size_at_end: bool,
}

impl RowFile {
    /// The first `bytes` bytes of a member's file, padded to `length`.
    pub fn data(input: Input, layout: Layout, bytes: u64, length: u64) -> RowFile {
        RowFile { bytes: input.size.min(bytes).min(length), size_at_end: layout.is_data_first(), input, length }
    }

    /// The first `length` bytes of a parity file, without its trailer.
    pub fn parity(input: Input, length: u64) -> RowFile {
        RowFile { bytes: length, size_at_end: false, input, length }
    }

    /// Fills the buffer with the row's bytes.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatsError> {
        let there = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let (file, zeros) = buffer.split_at_mut(there);
        self.input.read_at(offset, file)?;
        zeros.fill(0);
        if let Some(start) = self.length.checked_sub(SIZE_BYTES).filter(|_| self.size_at_end) {
            for (at, byte) in (start..).zip(self.input.size.to_le_bytes()) {
                let place = at.checked_sub(offset).and_then(|place| usize::try_from(place).ok());
                if let Some(place) = place.and_then(|place| buffer.get_mut(place)) {
                    *place = byte;
                }
            }
        }
        Ok(())
    }
}

/// A linear combination of rows.
#[derive(Debug)]
pub struct Combination {
    terms: Vec<(RowFile, Products<u16>)>,
    row: Vec<u8>,
}

impl Combination {
    /// The sum of the rows times their factors; rows with factor zero are dropped.
    pub fn new(terms: Vec<(RowFile, u16)>) -> Combination {
        let terms = terms.into_iter().filter(|(_, factor)| *factor != 0);
        Combination { terms: terms.map(|(row, factor)| (row, Products::new(&[factor]))).collect(), row: Vec::new() }
    }

    /// What a parity file must contain whose place in its group is `index`, from the group's files.
    pub fn of_group(data: &[&Path], index: usize, parity: &Parity) -> Result<Combination, FormatsError> {
        let factors = rows::factors(Row::Parity(index), data.len());
        let mut terms = Vec::with_capacity(data.len());
        for (path, factor) in data.iter().zip(factors) {
            let input = Input::open(path)?;
            let bytes = match inspect(Input::open(path)?)? {
                FtiFile::Checkpoint(checkpoint) => u64::try_from(checkpoint.meta.file_size).unwrap_or(0),
                _ => input.size,
            };
            terms.push((RowFile::data(input, parity.meta.layout, bytes, parity.data_bytes()), factor));
        }
        Ok(Combination::new(terms))
    }

    /// With these vector instructions, instead of the fastest ones.
    #[cfg(test)]
    pub(super) fn with_kernel(mut self, kernel: Kernel<u16>) -> Combination {
        self.terms = self.terms.into_iter().map(|(row, factor)| (row, factor.with(kernel))).collect();
        self
    }

    /// Calls `each` with the pieces of the first `bytes` bytes of a combination of `length` bytes.
    ///
    /// # Errors
    /// When a row cannot be read, or `each` fails.
    pub fn each_piece<E: From<FormatsError>>(
        &mut self,
        bytes: u64,
        length: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut buffer, mut at) = (vec![0; PIECE_BYTES], 0);
        while at < bytes {
            let now = usize::try_from(bytes - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            // Only complete elements can be computed: the byte after an odd end is computed too, and left out.
            let words = now + usize::from(now % 2 == 1 && at.saturating_add(now as u64) < length);
            let Some(piece) = buffer.get_mut(..words) else { break };
            self.read(at, piece)?;
            each(piece.get(..now).unwrap_or_default())?;
            at = at.saturating_add(now as u64);
        }
        Ok(())
    }

    /// Fills the buffer with the bytes of the combination from `offset` on, which must be even.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatsError> {
        buffer.fill(0);
        self.row.resize(buffer.len(), 0);
        for (row, factor) in &self.terms {
            row.read(offset, &mut self.row)?;
            factor.add(&self.row, buffer, self.row.len());
        }
        Ok(())
    }
}
