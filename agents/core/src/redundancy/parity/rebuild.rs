//! A member's part in making the files of lost members again, with the set's files on their nodes: a pipelined
//! reduction along a chain of the survivors, and from there to the new homes of the lost members, the *roots* (`SCR
//! manual §11.4.6`).
//!
//! Slot after slot, each survivor passes on the partial results, one for each lost member, with its own chunk added to
//! each. So every file is read front to back exactly once, its checksum is verified on the way, and the roots write
//! front to back. Each root keeps the last result and passes on the others. It keeps what it wrote under temporary
//! names until all survivors have confirmed that their files are intact: see [`Unconfirmed`].

use std::ops::ControlFlow;

use super::code::Code;
use super::member::{InSlot, Member};
use super::survivor::{Reader, Survivor};
use super::{Progress, receive, with_own};
use crate::galois::products::Products;
use crate::redundancy::RedundancyError;
use crate::redundancy::link::{LinkReceiver, LinkSender};
use crate::redundancy::lost_member::{LostMember, Unconfirmed};
use crate::redundancy::piece::pieces;

const DOING: &str = "rebuilding";

/// The members in the order in which the pieces pass them: the survivors to the right of the first missing member, then
/// the missing ones, the last one first. `missing` is ascending.
pub fn chain(members: u32, missing: &[u32]) -> Vec<u32> {
    let first = missing.first().copied().unwrap_or(0);
    let around = (1..members).map(|distance| (first + distance) % members);
    around.filter(|member| !missing.contains(member)).chain(missing.iter().rev().copied()).collect()
}

/// What survivors multiply their chunks by.
pub(super) struct Restoration {
    code: Code,
    missing: Vec<u32>,
}

impl Restoration {
    pub(super) fn of(code: Code, members: u32, missing: &[u32], group_id: u32) -> Result<Self, RedundancyError> {
        if missing.len() as u64 > u64::from(code.failures()) {
            return Err(RedundancyError::TooManyMissing { group_id, members, missing: missing.len() });
        }
        Ok(Restoration { code, missing: missing.to_vec() })
    }

    /// The products of what these members have in a slot, one for each missing member.
    pub(super) fn products(&self, slot: u32, members: &[u32]) -> Vec<Products<u8>> {
        // No more are missing than can be restored.
        let factors = self.code.solve(slot, &self.missing).unwrap_or_default();
        let of_member = |member: &u32| {
            let factors = factors.iter().map(|of_missing| of_missing[*member as usize]);
            Products::new(&factors.collect::<Vec<u8>>())
        };
        members.iter().map(of_member).collect()
    }
}

/// A survivor's part. `left` is `None` where the chain begins; the `right` of the last survivor is a root. `Ok` means
/// that all own files are intact, as far as checksums are known: the roots' files may be installed only when every
/// survivor returned it. Progress counts bytes of slots.
pub fn rebuild_survivor(
    member: &Member,
    missing: &[u32],
    survivor: &mut Survivor,
    mut left: Option<&mut dyn LinkReceiver>,
    right: &mut dyn LinkSender,
    progress: &mut Progress<'_>,
) -> Result<(), RedundancyError> {
    member.check()?;
    member.check_fits(survivor.data.total_bytes())?;
    let header = &survivor.file.header;
    if member.chunk != header.chunk || member.index != survivor.index || member.failures != header.failures() {
        return Err(survivor.damaged_file("the set does not agree on its chunk size or members".into()));
    }
    let code = (header.scheme.code)(member.members, member.failures);
    let restoration = Restoration::of(code, member.members, missing, header.group_id())?;
    let mut reader = Reader::new(survivor)?;
    let size = member.piece_of(missing.len());
    let mut scratch = member.pool.take(size);
    let mut done = 0;
    for slot in 0..member.members {
        let products = restoration.products(slot, &[member.index]);
        for (offset, length) in pieces(member.chunk, size) {
            let arrived = left.as_mut().map(|left| receive(*left, missing.len() * length)).transpose()?;
            let read = |at: u64, own: &mut [u8]| reader.read(member, slot, offset + at, own);
            let sums = with_own(member, &products[0], arrived, (missing.len(), length), &mut scratch, read)?;
            right.send(sums).map_err(RedundancyError::right(DOING))?;
            done += length as u64;
            if progress(done) == ControlFlow::Break(()) {
                return Err(RedundancyError::Stopped);
            }
        }
    }
    member.pool.give(scratch);
    reader.finish()
}

/// A root's part: writes the lost member's files and redundancy file under temporary names. `lost` was made from the
/// headers of others. The pieces of `missing` members arrive, of which the last one in `missing` is the own; the others
/// are passed on to the `right`. Progress counts bytes of slots.
pub fn rebuild_root(
    member: &Member,
    missing: &[u32],
    mut lost: LostMember,
    left: &mut dyn LinkReceiver,
    mut right: Option<&mut dyn LinkSender>,
    progress: &mut Progress<'_>,
) -> Result<Unconfirmed, RedundancyError> {
    member.check()?;
    let arriving = missing.iter().take_while(|other| **other <= member.index).count();
    let mut done = 0;
    for slot in 0..member.members {
        let is_redundancy = matches!(member.in_slot(slot), InSlot::Redundancy(_));
        for (_, length) in pieces(member.chunk, member.piece_of(missing.len())) {
            let mut sums = receive(left, arriving * length)?;
            let others = sums.len() - length;
            lost.take(is_redundancy, &sums[others..])?;
            match &mut right {
                Some(right) => {
                    sums.truncate(others);
                    right.send(sums).map_err(RedundancyError::right(DOING))?;
                }
                None => member.pool.give(sums),
            }
            done += length as u64;
            if progress(done) == ControlFlow::Break(()) {
                return Err(RedundancyError::Stopped);
            }
        }
    }
    lost.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_passes_every_survivor_and_ends_with_the_missing_members() {
        assert_eq!(chain(4, &[2]), [3, 0, 1, 2]);
        assert_eq!(chain(6, &[1, 4]), [2, 3, 5, 0, 4, 1]);
    }
}
