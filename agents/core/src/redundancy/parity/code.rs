//! The code of a slot: which factors the members' chunks have in each row of redundancy data, and what restores missing
//! chunks.

use crate::galois::{Element, invert};

/// The factors of the redundancy data of a set.
#[derive(Clone, Debug)]
pub struct Code {
    /// `rows[i][j]` is the factor of the chunk of member j in row i.
    rows: Vec<Vec<u8>>,
    members: u32,
}

impl Code {
    /// One row: the sum of all chunks.
    pub fn xor(members: u32) -> Code {
        Code { rows: vec![vec![1; members as usize]], members }
    }

    /// Reed-Solomon: the chunks of a slot are the values of a polynomial at the places 0 to N-1, where members that
    /// have redundancy data of the slot count as zero; the rows are its values at the places N to N+k-1. These are the
    /// factors of SCR 3.1 (`redset`), which makes them from a Vandermonde matrix. At most N places determine the
    /// polynomial, so that any N-k of the slot's N chunks do, since the other k values are known to be zero.
    ///
    /// There must be no more than 256 places: [`PLACES`].
    pub fn reed_solomon(members: u32, failures: u32) -> Code {
        let place = |at: u32| u8::try_from(at).unwrap_or(u8::MAX);
        let product = |factors: &mut dyn Iterator<Item = u8>| factors.fold(1_u8, u8::times);
        // Lagrange's polynomials: that of member j is the product of x-i over all i but j, divided by its value at j.
        let at_own = |own: u32| product(&mut (0..members).filter(|other| *other != own).map(|i| place(own) ^ place(i)));
        let divisors: Vec<u8> = (0..members).map(at_own).collect();
        let row = |row: u32| {
            let x = place(members + row);
            let all = product(&mut (0..members).map(|i| x ^ place(i)));
            let factor =
                |(own, divisor): (u32, &u8)| all.times((x ^ place(own)).times(*divisor).inverse().unwrap_or(0));
            (0..).zip(&divisors).map(factor).collect()
        };
        Code { rows: (0..failures).map(row).collect(), members }
    }

    /// How many members can be lost.
    pub fn failures(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    /// The factors of a member's chunks, row by row.
    pub fn factors_of(&self, member: u32) -> Vec<u8> {
        self.rows.iter().map(|row| row[member as usize]).collect()
    }

    /// The row of redundancy data that a member has in a slot; `None` if it has a chunk of its files.
    pub fn row(&self, member: u32, slot: u32) -> Option<u32> {
        let distance = (slot + self.members - member) % self.members;
        (distance < self.failures()).then_some(distance)
    }

    /// What restores a slot: for each of the `missing` members the factor of what each member has in the slot, zero
    /// where it is not needed. `None` if more is missing than can be restored.
    pub fn solve(&self, slot: u32, missing: &[u32]) -> Option<Vec<Vec<u8>>> {
        let row_of = |member: u32| self.row(member, slot);
        let is_missing = |member: &u32| missing.contains(member);
        let members = || 0..self.members;
        let lost: Vec<u32> = missing.iter().copied().filter(|member| row_of(*member).is_none()).collect();
        // As many rows as chunks are missing: in each of them, the missing chunks are the row and all other chunks.
        let rows = members().filter(|member| !is_missing(member)).filter_map(|member| Some((member, row_of(member)?)));
        let rows: Vec<(u32, u32)> = rows.take(lost.len()).collect();
        if rows.len() < lost.len() {
            return None;
        }
        let factor = |row: u32, member: u32| self.rows[row as usize][member as usize];
        let inverse = invert(rows.iter().map(|(_, row)| lost.iter().map(|of| factor(*row, *of)).collect()).collect())?;
        // The sum of the rows, each times its factor, in terms of what the survivors have.
        let combined = |factors: &[u8], sums: &mut Vec<u8>| {
            for ((keeper, row), times) in rows.iter().zip(factors) {
                sums[*keeper as usize] ^= *times;
                for member in members().filter(|member| !is_missing(member) && row_of(*member).is_none()) {
                    sums[member as usize] ^= times.times(factor(*row, member));
                }
            }
        };
        let restored = |member: &u32| {
            let mut sums = vec![0; self.members as usize];
            match (row_of(*member), lost.iter().position(|lost| lost == member)) {
                (None, Some(at)) => combined(&inverse[at], &mut sums),
                // The row of all chunks, of which those that are missing are restored first.
                (row, _) => {
                    let row = row.unwrap_or(0);
                    for of in members().filter(|of| !is_missing(of) && row_of(*of).is_none()) {
                        sums[of as usize] = factor(row, of);
                    }
                    for (at, of) in lost.iter().enumerate() {
                        let scaled: Vec<u8> = inverse[at].iter().map(|times| times.times(factor(row, *of))).collect();
                        combined(&scaled, &mut sums);
                    }
                }
            }
            sums
        };
        Some(missing.iter().map(restored).collect())
    }
}

/// Members and rows together, at most: the elements of the field.
pub const PLACES: u32 = 256;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// What the members have in a slot: one byte each.
    fn codeword(code: &Code, slot: u32, data: &[u8]) -> Vec<u8> {
        let members = 0..code.members;
        let of_data = |member: u32| if code.row(member, slot).is_none() { data[member as usize] } else { 0 };
        let value = |member: u32| match code.row(member, slot) {
            None => of_data(member),
            Some(row) => {
                (0..code.members).fold(0, |sum, of| sum ^ of_data(of).times(code.rows[row as usize][of as usize]))
            }
        };
        members.map(value).collect()
    }

    fn restores(code: &Code, slot: u32, word: &[u8], missing: &[u32]) -> bool {
        let Some(factors) = code.solve(slot, missing) else { return false };
        missing.iter().zip(factors).all(|(member, factors)| {
            assert!(missing.iter().all(|of| factors[*of as usize] == 0), "what is missing is not read");
            let restored = factors.iter().zip(word).fold(0, |sum, (factor, byte)| sum ^ factor.times(*byte));
            restored == word[*member as usize]
        })
    }

    fn data(members: u32) -> Vec<u8> {
        (0..members).map(|member| (member * 37 + 11) as u8).collect()
    }

    #[test]
    fn factors_are_those_of_redset() {
        // What `build_vandermonde` of redset (commit bdf77a1b) prints for these sets.
        assert_eq!(Code::reed_solomon(4, 2).rows, [[27, 28, 18, 20], [28, 27, 20, 18]]);
        let of_ten = [[129, 150, 175, 184, 210, 196, 254, 232, 3, 2], [150, 129, 184, 175, 196, 210, 232, 254, 2, 3]];
        assert_eq!(Code::reed_solomon(10, 2).rows, of_ten);
        let last = [204, 9, 94, 124, 34, 174, 5, 100, 22, 164, 205, 114, 72, 78];
        assert_eq!(Code::reed_solomon(14, 4).rows[3], last);
    }

    #[test]
    fn every_loss_of_small_sets_is_restored_in_every_slot() {
        for members in 2..=8_u32 {
            for failures in 1..members {
                let code = Code::reed_solomon(members, failures);
                for slot in 0..members {
                    let word = codeword(&code, slot, &data(members));
                    for mask in 1_u32..1 << members {
                        let missing: Vec<u32> = (0..members).filter(|member| mask >> member & 1 == 1).collect();
                        let expected = missing.len() as u32 <= failures;
                        assert_eq!(
                            restores(&code, slot, &word, &missing),
                            expected,
                            "{members} {failures} {missing:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn xor_restores_one() {
        let code = Code::xor(5);
        for slot in 0..5 {
            let word = codeword(&code, slot, &data(5));
            assert!((0..5).all(|missing| restores(&code, slot, &word, &[missing])));
            assert!(code.solve(slot, &[1, 3]).is_none());
        }
    }

    #[test]
    fn the_largest_sets_are_restored() {
        let code = Code::reed_solomon(251, 5);
        let word = codeword(&code, 3, &data(251));
        assert!(restores(&code, 3, &word, &[0, 2, 3, 100, 250]));
    }

    proptest! {
        #[test]
        fn losses_of_large_sets_are_restored(
            members in 9_u32..=14,
            failures in 1_u32..=4,
            slot in any::<prop::sample::Index>(),
            lost in prop::collection::vec(any::<prop::sample::Index>(), 1..=4),
            data in prop::collection::vec(any::<u8>(), 14),
        ) {
            let code = Code::reed_solomon(members, failures);
            let slot = slot.index(members as usize) as u32;
            let missing: BTreeSet<u32> =
                lost.iter().take(failures as usize).map(|at| at.index(members as usize) as u32).collect();
            let word = codeword(&code, slot, &data);
            prop_assert!(restores(&code, slot, &word, &Vec::from_iter(missing)));
        }
    }
}
