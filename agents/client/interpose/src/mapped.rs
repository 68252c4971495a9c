//! Parts of memory that are writable shared mappings of checkpoint files.
//!
//! A program writes to such memory without a call. A file is therefore open until its mappings are removed, even if its
//! descriptors were closed before.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

const SLOTS: usize = 256;

/// The mappings of checkpoint files, for a test without a lock: allocators call `munmap` while they hold their own.
pub static MAPPED: MappedMemory = MappedMemory::new();

/// A set of address ranges.
#[derive(Debug)]
pub struct MappedMemory {
    slots: [Slot; SLOTS],
    used: AtomicUsize,
}

/// Free if the end is 0.
#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl MappedMemory {
    const fn new() -> Self {
        let slots = [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; SLOTS];
        MappedMemory { slots, used: AtomicUsize::new(0) }
    }

    /// True if a member overlaps the range.
    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        self.used.load(Ordering::Acquire) > 0
            && self.slots.iter().any(|slot| {
                let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
                range.start < end && start < range.end
            })
    }

    /// Adds a range; false if there are too many. Not to be called by two threads at a time.
    pub fn insert(&self, range: &Range<usize>) -> bool {
        let Some(free) = self.slots.iter().find(|slot| slot.end.load(Ordering::Acquire) == 0) else { return false };
        free.start.store(range.start, Ordering::Release);
        free.end.store(range.end, Ordering::Release);
        self.used.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Removes a member. Not to be called by two threads at a time.
    pub fn remove(&self, range: &Range<usize>) {
        let is_it = |slot: &&Slot| {
            slot.start.load(Ordering::Acquire) == range.start && slot.end.load(Ordering::Acquire) == range.end
        };
        if let Some(slot) = self.slots.iter().find(is_it) {
            slot.end.store(0, Ordering::Release);
            self.used.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// A mapping of a file: the parts that were not removed.
#[derive(Debug)]
pub struct Mapping {
    parts: Vec<Range<usize>>,
}

impl Mapping {
    /// `None` if there are too many mappings.
    pub fn new(memory: Range<usize>, known: &MappedMemory) -> Option<Self> {
        known.insert(&memory).then(|| Mapping { parts: vec![memory] })
    }

    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        self.parts.iter().any(|part| part.start < range.end && range.start < part.end)
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Removes a part; false if what is left are too many parts.
    pub fn remove(&mut self, range: &Range<usize>, known: &MappedMemory) -> bool {
        if !self.overlaps(range) {
            return true;
        }
        let before = std::mem::take(&mut self.parts);
        let cut =
            before.iter().flat_map(|part| [part.start..part.end.min(range.start), part.start.max(range.end)..part.end]);
        self.parts = cut.filter(|part| !part.is_empty()).collect();
        // The memory that was removed may be that of an allocator next.
        let are_known = self.parts.iter().all(|part| known.insert(part));
        before.iter().for_each(|part| known.remove(part));
        are_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_any_part_until_they_are_removed() {
        let memory = MappedMemory::new();
        assert!(!memory.overlaps(&(0..usize::MAX)));
        assert!(memory.insert(&(4096..8192)) && memory.insert(&(16384..20480)));
        assert!(memory.overlaps(&(8191..8192)) && memory.overlaps(&(0..4097)) && memory.overlaps(&(0..usize::MAX)));
        assert!(!memory.overlaps(&(0..4096)) && !memory.overlaps(&(8192..16384)));
        memory.remove(&(4096..8192));
        assert!(!memory.overlaps(&(0..16384)) && memory.overlaps(&(16384..16385)));
    }

    #[test]
    fn more_ranges_than_there_is_space_for_are_refused() {
        let memory = MappedMemory::new();
        let page = |number: usize| number * 4096..(number + 1) * 4096;
        assert!((1..=SLOTS).all(|number| memory.insert(&page(number))));
        assert!(!memory.insert(&page(SLOTS + 1)));
        memory.remove(&page(7));
        assert!(memory.insert(&page(SLOTS + 1)));
    }

    #[test]
    fn a_mapping_is_gone_when_all_its_parts_were_removed() {
        let memory = MappedMemory::new();
        let mut mapping = Mapping::new(10..50, &memory).unwrap();
        assert!(mapping.remove(&(20..30), &memory));
        assert!(!mapping.overlaps(&(20..30)) && mapping.overlaps(&(10..11)) && mapping.overlaps(&(0..100)));
        assert!(!memory.overlaps(&(20..30)) && memory.overlaps(&(10..20)) && memory.overlaps(&(30..31)));
        assert!(mapping.remove(&(0..20), &memory) && !mapping.is_empty(), "its end is left");
        assert!(mapping.remove(&(0..20), &memory) && !mapping.is_empty(), "what was removed before");
        assert!(mapping.remove(&(30..60), &memory) && mapping.is_empty());
        assert!(!memory.overlaps(&(0..usize::MAX)));
    }
}
