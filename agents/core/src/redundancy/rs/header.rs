//! What the header of a Reed-Solomon file has of its own: how many members can be lost, and the files of as many left
//! neighbours, by distance.

use std::collections::BTreeMap;

use crate::kvtree::Tree;
use crate::redundancy::Result;
use crate::redundancy::files::{MAX_MEMBERS, MemberFiles, bad, number};
use crate::redundancy::parity::WriteFiles;
use crate::redundancy::parity::header::ParityHeader;

const FAILURES: &str = "FAILURES";
const PARTNER: &str = "PARTNER";

pub(super) fn put_left(tree: &mut Tree, header: &ParityHeader, files: WriteFiles) {
    tree.put(FAILURES, header.failures());
    let mut partners = Tree::new();
    for (distance, left) in (1..).zip(&header.left) {
        let distance: u32 = distance;
        partners.set(distance.to_string(), files(left));
    }
    tree.set(PARTNER, partners);
}

pub(super) fn read_left(tree: &Tree, origin: &str) -> Result<Vec<MemberFiles>> {
    let failures: u32 = number(tree, FAILURES, origin)?;
    if !(1..MAX_MEMBERS).contains(&failures) {
        return Err(bad(origin, format!("{FAILURES} is {failures}")));
    }
    let partners = tree.get(PARTNER).ok_or_else(|| bad(origin, format!("{PARTNER} is missing")))?;
    let left = (1..=failures).map(|distance| {
        let files = partners.get(&distance.to_string());
        MemberFiles::from_tree(files.ok_or_else(|| bad(origin, format!("{PARTNER} has no {distance}")))?, origin)
    });
    left.collect()
}

/// The headers of the `missing` members, from those of the others: each lists the files of as many left neighbours as
/// can be lost, so that one that is left lists those of every member.
pub fn rebuilt<'a>(
    survivors: impl IntoIterator<Item = &'a ParityHeader>,
    missing: &[u32],
) -> Result<Vec<ParityHeader>> {
    let (mut files, mut any) = (BTreeMap::new(), None);
    for header in survivors {
        files.extend(header.known().map(|(member, files)| (member, files.clone())));
        any = Some(header);
    }
    let any = any.ok_or_else(|| bad(ORIGIN, "there are none".into()))?;
    missing.iter().map(|member| of_member(any, *member, &files)).collect()
}

/// The header of a member, from that of any other and the files of members.
pub(super) fn of_member(any: &ParityHeader, member: u32, files: &BTreeMap<u32, MemberFiles>) -> Result<ParityHeader> {
    let size = any.size();
    let listed = |of: u32| {
        let why = || format!("the files of member {of} are not listed in any header");
        files.get(&of).cloned().ok_or_else(|| bad(ORIGIN, why()))
    };
    let left = (1..=any.failures()).map(|distance| listed((member + size - distance) % size));
    let (current, left) = (listed(member)?, left.collect::<Result<_, _>>()?);
    let header = ParityHeader { current, left, ..any.clone() };
    header.check(ORIGIN)?;
    match header.index() {
        Some(index) if index == member => Ok(header),
        _ => Err(bad(ORIGIN, format!("they do not describe member {member}"))),
    }
}

/// Where a header that was made again comes from, for messages.
pub(super) const ORIGIN: &str = "the set's remaining members";
