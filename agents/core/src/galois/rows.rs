//! The rows of a code over GF(2^16): the data of the members of a group, and their parity. As many rows as the group
//! has members determine all others.
//!
//! Row `i` of the parity is the sum over the members `j` of `data_j / (i xor (members + j))`, as in FTI's level 3.

use super::{Element, invert};

/// The largest supported group; usual ones have four to eight members.
pub const MAX_MEMBERS: usize = 256;

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
            .map(|member| u16::try_from(index ^ (members + member)).ok().and_then(u16::inverse).unwrap_or(0))
            .collect(),
    }
}

/// The factors with which the given rows, as many as the group has members, combine to the data of the member
/// `wanted`; `None` if the rows do not determine it.
pub fn solve(wanted: usize, rows: &[Row], members: usize) -> Option<Vec<u16>> {
    if rows.len() != members || members > MAX_MEMBERS {
        return None;
    }
    invert(rows.iter().map(|row| factors(*row, members)).collect())?.into_iter().nth(wanted)
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
                        let sum = solved
                            .iter()
                            .flatten()
                            .zip(&rows)
                            .fold(0, |sum, (factor, row)| sum ^ factor.times(factors(*row, members)[member]));
                        assert_eq!(sum, u16::from(member == wanted));
                    }
                }
            }
        }
    }
}
