//! Which member of a set is missing, and whether the others can make its files again: a pure judgement.

use std::collections::BTreeMap;

use super::name::XorName;
use holdfast_model::Rank;

/// A member of an XOR set, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetMember {
    /// Index in the set, from 0.
    pub index: u32,
    /// World rank; unknown for a member of which nothing was found.
    pub rank: Option<Rank>,
    /// Name of its XOR file.
    pub xor_name: String,
}

/// What can be done with a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetVerdict {
    /// All members have all their files.
    Complete,
    /// One member is missing and can be rebuilt.
    Rebuild(SetMember),
    /// More than one is missing: the scheme cannot bring them back.
    Lost(Vec<SetMember>),
}

/// Judges a set from the members that have *all* their files, application and XOR, present and verified: the key is the
/// member's index. Members with a damaged file do not belong in `usable`.
pub fn judge(group_id: u32, members: u32, usable: &BTreeMap<u32, Rank>) -> SetVerdict {
    // Sizes come from file names: do not walk four billion members to find that nearly all are missing.
    const NAMED: usize = 16;
    let mut missing: Vec<SetMember> = (0..members)
        .filter(|index| !usable.contains_key(index))
        .take(NAMED)
        .map(|index| SetMember { index, rank: None, xor_name: XorName { group_id, members, index }.to_string() })
        .collect();
    match missing.len() {
        0 => SetVerdict::Complete,
        1 if members >= 2 => SetVerdict::Rebuild(missing.remove(0)),
        _ => SetVerdict::Lost(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_missing_member_can_be_rebuilt_and_two_cannot() {
        let mut usable: BTreeMap<u32, Rank> = (0..4).map(|index| (index, Rank(10 + index))).collect();
        assert_eq!(judge(10, 4, &usable), SetVerdict::Complete);
        usable.remove(&2);
        let SetVerdict::Rebuild(member) = judge(10, 4, &usable) else { panic!("one missing member") };
        assert_eq!((member.index, member.xor_name.as_str()), (2, "3_of_4_in_10.xor"));
        usable.remove(&0);
        let SetVerdict::Lost(members) = judge(10, 4, &usable) else { panic!("two missing members") };
        assert_eq!(members.iter().map(|m| m.index).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn an_absurd_set_size_is_judged_at_once() {
        assert!(matches!(judge(0, u32::MAX, &BTreeMap::new()), SetVerdict::Lost(_)));
    }
}
