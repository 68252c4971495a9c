//! A set that lost more members than its scheme can compute again, in words.

use std::fmt;

use holdfast_model::{Rank, Scheme};

use super::inventory::{in_words, named};
use super::registry;

/// What is known of such a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LostSet {
    pub scheme: Scheme,
    /// World rank of its member 0.
    pub group_id: u32,
    /// Members of the set.
    pub size: u32,
    /// How many of them it can lose.
    pub tolerance: u32,
    /// The members whose rank is known.
    pub members: Vec<Rank>,
    /// How many are lost.
    pub missing: u32,
    /// The lost ones whose rank is known.
    pub lost: Vec<Rank>,
}

impl fmt::Display for LostSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = registry::get(self.scheme);
        if self.tolerance == 0 {
            match self.lost.as_slice() {
                [] => write!(f, "{} of group {} lost all files", ranks_in_words(self.missing), self.group_id)?,
                lost => write!(f, "{} lost all files", named(lost))?,
            }
            return scheme.map_or(Ok(()), |scheme| write!(f, ", and {}", scheme.limit()));
        }
        let (members, were) = if self.missing == 1 { ("member", "was") } else { ("members", "were") };
        write!(f, "{} {members} of the {} set ", counted(self.missing), self.scheme)?;
        match self.members.len() as u64 == u64::from(self.size) {
            true => write!(f, "of {}", in_ranges(&self.members))?,
            false => write!(f, "that begins with rank {}", self.group_id)?,
        }
        write!(f, " {were} lost")?;
        match self.lost.len() as u64 {
            0 => {}
            all if all == u64::from(self.missing) => write!(f, " ({})", in_words(&self.lost))?,
            _ => write!(f, " ({} among them)", named(&self.lost))?,
        }
        write!(f, ", and it survives {}", counted(self.tolerance))?;
        scheme.map_or(Ok(()), |scheme| write!(f, "; {}", scheme.remedy()))
    }
}

/// `ranks 0-3`, `ranks 0, 4 and 8`, `ranks 0-3 and 9`.
fn in_ranges(ranks: &[Rank]) -> String {
    let mut sorted: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
    sorted.sort_unstable();
    let ranges: Vec<String> = sorted
        .chunk_by(|one, next| next.checked_sub(1) == Some(*one))
        .flat_map(|range| match range {
            [first, .., last] if range.len() > 2 => vec![format!("{first}-{last}")],
            few => few.iter().map(ToString::to_string).collect(),
        })
        .collect();
    let text = match ranges.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => ranges.concat(),
    };
    format!("{} {text}", if ranks.len() == 1 { "rank" } else { "ranks" })
}

fn ranks_in_words(count: u32) -> String {
    format!("{} {}", counted(count), if count == 1 { "rank" } else { "ranks" })
}

/// `two`, `10`.
fn counted(count: u32) -> String {
    const WORDS: [&str; 10] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    WORDS.get(count as usize).map_or_else(|| count.to_string(), |word| (*word).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{partner, rs, xor};

    fn set(scheme: Scheme, tolerance: u32, members: &[u32], lost: &[u32]) -> LostSet {
        let ranks = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect::<Vec<_>>();
        let (members, lost) = (ranks(members), ranks(lost));
        LostSet { scheme, group_id: 0, size: 4, tolerance, members, missing: lost.len() as u32, lost }
    }

    #[test]
    fn a_lost_set_is_named_with_its_members_what_it_survives_and_what_survives_more() {
        let of_xor = set(xor::NAME, 1, &[0, 1, 2, 3], &[1, 3]).to_string();
        let expected = "two members of the XOR set of ranks 0-3 were lost (1 and 3), and it survives one; \
                        see `scheme: rs`";
        assert_eq!(of_xor, expected);
        let of_rs = set(rs::NAME, 2, &[0, 1, 8, 12], &[0, 1, 12]).to_string();
        let expected = "three members of the RS set of ranks 0, 1, 8 and 12 were lost (0, 1 and 12), and it survives \
                        two; see `failures`";
        assert_eq!(of_rs, expected);
    }

    #[test]
    fn what_is_unknown_is_left_out() {
        let known = LostSet { missing: 2, ..set(xor::NAME, 1, &[0, 1], &[]) };
        let expected = "two members of the XOR set that begins with rank 0 were lost, and it survives one; \
                        see `scheme: rs`";
        assert_eq!(known.to_string(), expected);
        let copies = set(partner::NAME, 0, &[], &[1]).to_string();
        assert_eq!(copies, "rank 1 lost all files, and neither files nor partner copies are left");
    }
}
