//! The checkpoints of a pair.
//!
//! Checkpoint number *n* is in entry *n* mod ring. The writer clears the sequence in the entry's head, copies the
//! bytes, fills the head, and stores the sequence last. A writer that is killed at any point leaves an entry without a
//! sequence, and all others unchanged. A reader copies the bytes, and uses the copy if the head is the same before and
//! after, and the CRC32 of the copy is right; otherwise it takes the next older entry.
//!
//! A pair has one writer: the copy that is awake, or the agent while the pair's other copy is awake on another node.

use std::sync::atomic::{Ordering, fence};

use holdfast_model::pair::Side;
use rustix::time::ClockId;

use crate::error::ShmError;
use crate::mapping::Area;
use crate::process::nanoseconds;

/// How often a reader that was overtaken by the writer starts again. The writer overtakes it only if it writes a whole
/// round while the reader copies one entry.
const ATTEMPTS: u32 = 100;

const MAIN: u64 = 1;
const REPLICA: u64 = 2;
const MIRRORED: u64 = 3;

/// A checkpoint that is in the ring; its bytes have not been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointView {
    /// Its number, from 1.
    pub sequence: u64,
    /// The copy that wrote it; `None`: it was mirrored from another node.
    pub side: Option<Side>,
    pub bytes: u64,
    /// What the program gave with it, such as a step.
    pub tag: i64,
    /// When it was stored in this registry, nanoseconds of `CLOCK_BOOTTIME`.
    pub stored_at: u64,
}

/// A checkpoint that was read and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number, from 1.
    pub sequence: u64,
    /// The copy that wrote it; `None`: it was mirrored from another node.
    pub side: Option<Side>,
    /// What the program gave with it, such as a step.
    pub tag: i64,
    /// The number of newer checkpoints that were there and damaged, so that this one was taken.
    pub damaged: u32,
}

/// A valid head, with the CRC32 of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    index: u32,
    view: CheckpointView,
    crc: u32,
}

impl Area<'_> {
    /// A valid head; `None` if it is being written, empty, or garbage.
    fn entry(&self, index: u32) -> Option<Entry> {
        let head = self.words().heads.get(index as usize)?;
        let sequence = head.sequence.load(Ordering::Acquire);
        if sequence == 0 || sequence % u64::from(self.ring()) != u64::from(index) {
            return None;
        }
        let fields = [
            sequence,
            head.length.load(Ordering::Relaxed),
            head.tag.load(Ordering::Relaxed) as u64,
            head.origin.load(Ordering::Relaxed),
            head.stored_at.load(Ordering::Relaxed),
        ];
        let sums = head.sums.load(Ordering::Relaxed);
        let [_, length, tag, origin, stored_at] = fields;
        let crc = (sums >> 32) as u32;
        if head_crc(fields, crc) != sums as u32 || length > self.capacity() {
            return None;
        }
        let side = match origin {
            MAIN => Some(Side::Main),
            REPLICA => Some(Side::Replica),
            MIRRORED => None,
            _ => return None,
        };
        let view = CheckpointView { sequence, side, bytes: length, tag: tag as i64, stored_at };
        Some(Entry { index, view, crc })
    }

    /// Valid heads, the newest first.
    fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = (0..self.ring()).filter_map(|index| self.entry(index)).collect();
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.view.sequence));
        entries
    }

    pub fn newest(&self) -> Option<CheckpointView> {
        (0..self.ring()).filter_map(|index| self.entry(index)).map(|entry| entry.view).max_by_key(|view| view.sequence)
    }

    /// Stores a checkpoint.
    ///
    /// # Errors
    /// It is too large.
    pub fn store(&self, sequence: u64, side: Option<Side>, tag: i64, bytes: &[u8]) -> Result<(), ShmError> {
        let (length, most) = (bytes.len() as u64, self.capacity());
        let index = (sequence % u64::from(self.ring())) as u32;
        let head = self.words().heads.get(index as usize).filter(|_| length <= most);
        let head = head.ok_or(ShmError::TooLarge { bytes: length, most })?;
        head.sequence.store(0, Ordering::Relaxed);
        // Readers must not see new bytes under the old sequence.
        fence(Ordering::SeqCst);
        let crc = self.write(index, bytes)?;
        let origin = match side {
            Some(Side::Main) => MAIN,
            Some(Side::Replica) => REPLICA,
            None => MIRRORED,
        };
        let stored_at = nanoseconds(ClockId::Boottime);
        let sum = head_crc([sequence, length, tag as u64, origin, stored_at], crc);
        head.length.store(length, Ordering::Relaxed);
        head.tag.store(tag, Ordering::Relaxed);
        head.origin.store(origin, Ordering::Relaxed);
        head.stored_at.store(stored_at, Ordering::Relaxed);
        head.sums.store(u64::from(crc) << 32 | u64::from(sum), Ordering::Relaxed);
        head.sequence.store(sequence, Ordering::Release);
        self.words().newest.0.store(sequence, Ordering::Release);
        Ok(())
    }

    /// Reads the newest checkpoint that is intact. `into` is empty if there is none.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn load(&self, into: &mut Vec<u8>) -> Result<Option<Checkpoint>, ShmError> {
        for _ in 0..ATTEMPTS {
            let (mut damaged, mut overtaken) = (0, false);
            for entry in self.entries() {
                self.read(entry.index, entry.view.bytes, into)?;
                // The bytes were read before the head is read again.
                fence(Ordering::SeqCst);
                if self.entry(entry.index) != Some(entry) {
                    overtaken = true;
                } else if crc32fast::hash(into) != entry.crc {
                    damaged += 1;
                } else {
                    let CheckpointView { sequence, side, tag, .. } = entry.view;
                    return Ok(Some(Checkpoint { sequence, side, tag, damaged }));
                }
            }
            if !overtaken {
                break;
            }
        }
        into.clear();
        Ok(None)
    }

    /// Stores a checkpoint of another node, whose numbers hold: newer ones in the ring are those of a copy that lost
    /// its turn before they had been mirrored, and are dropped. With `alone`, older ones are dropped as well.
    ///
    /// It is stored before others are dropped: an agent that is killed in between leaves one of them at least.
    ///
    /// # Errors
    /// It is too large, or its number is 0.
    pub fn store_mirrored(
        &self,
        pair: u32,
        sequence: u64,
        tag: i64,
        bytes: &[u8],
        alone: bool,
    ) -> Result<(), ShmError> {
        if sequence == 0 {
            return Err(ShmError::NoNextSequence(pair));
        }
        let (entries, crc) = (self.entries(), crc32fast::hash(bytes));
        let of_node = |entry: &&Entry| (entry.view.sequence, entry.view.side) == (sequence, None);
        let same = entries
            .iter()
            .find(of_node)
            .is_some_and(|entry| (entry.view.tag, entry.view.bytes, entry.crc) == (tag, bytes.len() as u64, crc));
        if !same {
            self.store(sequence, None, tag, bytes)?;
        }
        let place = sequence % u64::from(self.ring());
        let dropped = |entry: &&Entry| (alone || entry.view.sequence > sequence) && u64::from(entry.index) != place;
        for entry in entries.iter().filter(dropped) {
            if let Some(head) = self.words().heads.get(entry.index as usize) {
                head.sequence.store(0, Ordering::Release);
            }
        }
        self.words().newest.0.store(sequence, Ordering::Release);
        Ok(())
    }
}

fn head_crc(fields: [u64; 5], crc: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for field in fields {
        hasher.update(&field.to_ne_bytes());
    }
    hasher.update(&crc.to_ne_bytes());
    hasher.finalize()
}

/// For tests: a writer that is killed while it writes.
#[cfg(test)]
pub(crate) fn begin_torn(area: &Area<'_>, sequence: u64, bytes: &[u8]) {
    let index = (sequence % u64::from(area.ring())) as u32;
    let head = &area.words().heads[index as usize];
    head.sequence.store(0, Ordering::SeqCst);
    area.write(index, bytes).unwrap();
}
