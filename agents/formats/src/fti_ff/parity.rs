//! Code rows of level 3 over files: the factors of each row, and linear combinations of rows, computed piece by piece.
//!
//! Row `i` of the parity is the sum over the members `j` of `data_j / (i xor (members + j))`. `data_j` is the member's
//! file, padded with zeros to the group's `maxFs`; from layout C on its last eight bytes are the size of the file.

use super::galois::{self, Multiplier};
use super::layout::Layout;
use crate::{FormatsError, Input};

/// The largest supported group; FTI's groups have four to eight members.
pub const MAX_MEMBERS: usize = 256;

/// Bytes of the size field at the end of padded data, from layout C on.
pub(super) const SIZE_BYTES: u64 = 8;

/// A row of the code: a member's data, or a row of parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// The data of the member at this index of the group.
    Data(usize),
    /// The parity stored by the member at this index.
    Parity(usize),
}

/// The factors of a row over the data of all members.
pub fn factors(row: Row, members: usize) -> Vec<u16> {
    match row {
        Row::Data(index) => (0..members).map(|member| u16::from(member == index)).collect(),
        Row::Parity(index) => (0..members)
            .map(|member| u16::try_from(index ^ (members + member)).ok().and_then(galois::inverse).unwrap_or(0))
            .collect(),
    }
}

/// The factors with which the given rows, as many as the group has members, combine to the data of the member
/// `wanted`; `None` if the rows do not determine it.
pub fn solve(wanted: usize, rows: &[Row], members: usize) -> Option<Vec<u16>> {
    if rows.len() != members || members > MAX_MEMBERS {
        return None;
    }
    galois::invert(rows.iter().map(|row| factors(*row, members)).collect())?.into_iter().nth(wanted)
}

/// A file as a row of the code.
#[derive(Debug)]
pub struct RowFile {
    input: Input,
    /// Bytes of the file that belong to the row; the rest of the row is zeros.
    bytes: u64,
    /// Bytes of the row.
    length: u64,
    /// True if the row ends with the size of the file.
    size_at_end: bool,
}

impl RowFile {
    /// The first `bytes` bytes of a member's file, padded to `length`.
    pub fn data(input: Input, layout: Layout, bytes: u64, length: u64) -> RowFile {
        RowFile { bytes: input.size().min(bytes).min(length), size_at_end: layout.is_data_first(), input, length }
    }

    /// The first `length` bytes of a parity file, without its trailer.
    pub fn parity(input: Input, length: u64) -> RowFile {
        RowFile { bytes: length, size_at_end: false, input, length }
    }

    /// Fills the buffer with the row's bytes.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatsError> {
        let there = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let (file, zeros) = buffer.split_at_mut(there);
        self.input.read_at(offset, file)?;
        zeros.fill(0);
        if let Some(start) = self.length.checked_sub(SIZE_BYTES).filter(|_| self.size_at_end) {
            for (at, byte) in (start..).zip(self.input.size().to_le_bytes()) {
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
    terms: Vec<(RowFile, Multiplier)>,
    row: Vec<u8>,
}

impl Combination {
    /// The sum of the rows times their factors; rows with factor zero are dropped.
    pub fn new(terms: Vec<(RowFile, u16)>) -> Combination {
        let terms = terms.into_iter().filter(|(_, factor)| *factor != 0);
        Combination { terms: terms.map(|(row, factor)| (row, Multiplier::new(factor))).collect(), row: Vec::new() }
    }

    /// Fills the buffer with the bytes of the combination from `offset` on, which must be even.
    ///
    /// # Errors
    /// When a row cannot be read.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatsError> {
        buffer.fill(0);
        self.row.resize(buffer.len(), 0);
        for (row, factor) in &self.terms {
            row.read(offset, &mut self.row)?;
            factor.add_product(&self.row, buffer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_factors_match_format() {
        let row = |index, members| factors(Row::Parity(index), members);
        assert_eq!(row(0, 3), [61446, 52231, 20482]);
        assert_eq!(row(2, 3), [1, 30723, 27502]);
        assert_eq!(row(1, 4), [20482, 52231, 27502, 30723]);
        assert_eq!(row(4, 5), [1, 34821, 61446, 46084, 14802]);
    }

    #[test]
    fn any_half_of_rows_determines_data() {
        for members in 1..6_usize {
            let all: Vec<Row> = (0..members).map(Row::Data).chain((0..members).map(Row::Parity)).collect();
            for mask in 0..1_u32 << all.len() {
                let rows: Vec<Row> =
                    all.iter().enumerate().filter(|(n, _)| mask >> n & 1 == 1).map(|(_, row)| *row).collect();
                for wanted in 0..members {
                    let solved = solve(wanted, &rows, members);
                    assert_eq!(solved.is_some(), rows.len() == members, "{rows:?}");
                    // The combination is exactly the data of `wanted`.
                    for member in solved.iter().flat_map(|_| 0..members) {
                        let sum = solved.iter().flatten().zip(&rows).fold(0, |sum, (factor, row)| {
                            sum ^ galois::multiply(*factor, factors(*row, members)[member])
                        });
                        assert_eq!(sum, u16::from(member == wanted));
                    }
                }
            }
        }
    }
}
