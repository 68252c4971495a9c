//! The size of the grid, and the rows of each rank.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use holdfast_client::Rank;

/// The longest side of a field.
const LONGEST_SIDE: usize = 1 << 20;
/// The most cells of a field: 32 GiB.
const MOST_CELLS: usize = 1 << 32;

/// A text is not the size of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected columns x rows, each 3 to {LONGEST_SIDE}, 32 GiB of numbers at most; for example 256x128")]
pub struct InvalidSize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ranks} ranks cannot share {height} rows: use at most one rank a row, or a larger --size")]
pub struct TooFewRows {
    /// Ranks of the run.
    pub ranks: u32,
    /// Rows of the field.
    pub height: usize,
}

/// Columns and rows of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub height: usize,
}

impl Size {
    pub const DEFAULT: Size = Size { width: 256, height: 256 };

    /// A size within the limits: at least one cell between the edges, at most 32 GiB in all.
    pub fn new(width: u64, height: u64) -> Option<Size> {
        let side = |n: u64| usize::try_from(n).ok().filter(|n| (3..=LONGEST_SIDE).contains(n));
        let (width, height) = (side(width)?, side(height)?);
        (width.checked_mul(height)? <= MOST_CELLS).then_some(Size { width, height })
    }

    /// Bytes of one row.
    pub fn row_bytes(self) -> usize {
        self.width * size_of::<f64>()
    }

    /// The rows of a rank: as even as possible, the first ranks have one more.
    pub fn rows_of(self, rank: Rank, ranks: u32) -> Result<Range<usize>, TooFewRows> {
        let (index, count) = (rank.index(), ranks as usize);
        if count == 0 || count > self.height {
            return Err(TooFewRows { ranks, height: self.height });
        }
        let (each, more) = (self.height / count, self.height % count);
        let first = index * each + index.min(more);
        Ok(first..first + each + usize::from(index < more))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

impl FromStr for Size {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Self, InvalidSize> {
        let parts = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
        parts.and_then(|(width, height)| Size::new(width, height)).ok_or(InvalidSize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_distributed_evenly_and_in_order() {
        for height in [3, 7, 16, 101] {
            let size = Size { width: 5, height };
            for ranks in 1..=height as u32 {
                let mut next = 0;
                for rank in 0..ranks {
                    let rows = size.rows_of(Rank(rank), ranks).unwrap();
                    assert_eq!(rows.start, next);
                    assert!(rows.len().abs_diff(height / ranks as usize) <= 1 && !rows.is_empty());
                    next = rows.end;
                }
                assert_eq!(next, height);
            }
            assert!(size.rows_of(Rank(0), height as u32 + 1).is_err());
        }
    }

    #[test]
    fn parses_and_prints_sizes_within_limits() {
        assert_eq!("256x128".parse(), Ok(Size { width: 256, height: 128 }));
        assert_eq!(Size { width: 4, height: 9 }.to_string().parse(), Ok(Size { width: 4, height: 9 }));
        for text in ["", "x", "3", "3x", "2x9", "-3x3", "3x3x3", "1048577x3", "1048576x1048576", "1e3x5"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
