//! A member's place in its set: where the chunks of its files and of its redundancy data are.

use crate::redundancy::RedundancyError;
use crate::redundancy::piece::{BufferPool, DEFAULT_PIECE_BYTES, usable_piece};

/// One member's place in the computation. All members of a set must agree on everything but `index`.
#[derive(Clone, Debug)]
pub struct Member {
    /// Index in the set, from 0.
    pub index: u32,
    /// Members of the set, at least 2.
    pub members: u32,
    /// How many of them can be lost: from 1 to one less than there are.
    pub failures: u32,
    /// Bytes of a chunk ([`chunk_size`](super::header::chunk_size) of the largest member's total).
    pub chunk: u64,
    /// Bytes of a message: the pieces of several rows together.
    pub piece: usize,
    /// Encoding: compute the checksums of the files while they are read.
    pub checksums: bool,
    /// Buffers, shared with the links if they copy.
    pub pool: BufferPool,
}

/// What a member has in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InSlot {
    /// A chunk of its files: the number of the chunk.
    Files(u32),
    /// A chunk of its redundancy data: the number of the chunk.
    Redundancy(u32),
}

impl Member {
    /// A member of a set that survives one loss, with pieces of the default size.
    pub fn new(index: u32, members: u32, chunk: u64) -> Self {
        let pool = BufferPool::default();
        Member { index, members, failures: 1, chunk, piece: DEFAULT_PIECE_BYTES, checksums: false, pool }
    }

    /// Bytes of a piece, of which `rows` are sent together.
    pub(super) fn piece_of(&self, rows: usize) -> usize {
        let largest = usable_piece(self.piece).div_ceil(rows.max(1));
        largest.min(usize::try_from(self.chunk).unwrap_or(usize::MAX))
    }

    /// Chunks of a member's files.
    pub(super) fn file_chunks(&self) -> u32 {
        self.members - self.failures
    }

    pub(super) fn check(&self) -> Result<(), RedundancyError> {
        if self.members < 2 || self.index >= self.members || !(1..self.members).contains(&self.failures) {
            return Err(RedundancyError::NoSuchMember { members: self.members, index: self.index });
        }
        Ok(())
    }

    pub(super) fn check_fits(&self, bytes: u64) -> Result<(), RedundancyError> {
        match self.chunk.checked_mul(u64::from(self.file_chunks())) {
            Some(room) if bytes <= room => Ok(()),
            _ => Err(RedundancyError::ChunkTooSmall { bytes, members: self.members, chunk: self.chunk }),
        }
    }

    /// What this member has in a slot.
    pub fn in_slot(&self, slot: u32) -> InSlot {
        // Its redundancy data are in its own slot and the next ones.
        let own = || (0..self.failures).map(|row| (self.index + row) % self.members);
        let before = u32::try_from(own().filter(|own| *own < slot).count()).unwrap_or(u32::MAX);
        if own().any(|own| own == slot) { InSlot::Redundancy(before) } else { InSlot::Files(slot - before) }
    }

    /// Where a chunk begins.
    pub(super) fn start_of(&self, chunk: u32) -> u64 {
        u64::from(chunk) * self.chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_in_the_order_of_the_slots() {
        let member = |index, failures| Member { failures, ..Member::new(index, 5, 10) };
        let slots = |member: Member| (0..5).map(|slot| member.in_slot(slot)).collect::<Vec<_>>();
        use InSlot::{Files, Redundancy};
        assert_eq!(slots(member(1, 1)), [Files(0), Redundancy(0), Files(1), Files(2), Files(3)]);
        assert_eq!(slots(member(1, 2)), [Files(0), Redundancy(0), Redundancy(1), Files(1), Files(2)]);
        assert_eq!(slots(member(4, 3)), [Redundancy(0), Redundancy(1), Files(0), Files(1), Redundancy(2)]);
    }
}
