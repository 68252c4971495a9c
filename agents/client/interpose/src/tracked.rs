//! File descriptors of checkpoint files, as bits: the test for other descriptors takes no lock.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const WORDS: usize = 1024;
const BITS: usize = 64;

/// A set of file descriptors.
#[derive(Debug)]
pub struct DescriptorSet {
    words: [AtomicU64; WORDS],
    /// Members that have no bit.
    large: AtomicUsize,
}

/// The descriptors of checkpoint files that are open for writing, or for update.
pub static TRACKED: DescriptorSet = DescriptorSet::new();
/// Those of [`TRACKED`] that are open for update and have not been written to.
pub static UNCHANGED: DescriptorSet = DescriptorSet::new();

impl DescriptorSet {
    const fn new() -> Self {
        DescriptorSet { words: [const { AtomicU64::new(0) }; WORDS], large: AtomicUsize::new(0) }
    }

    /// True if the descriptor may be a member: one that is too large for a bit may be one while any such is.
    pub fn may_contain(&self, descriptor: RawFd) -> bool {
        match self.bit(descriptor) {
            Some((word, bit)) => word.load(Ordering::Acquire) & bit != 0,
            None => descriptor >= 0 && self.large.load(Ordering::Acquire) > 0,
        }
    }

    /// Adds a descriptor that is not a member.
    pub fn insert(&self, descriptor: RawFd) {
        match self.bit(descriptor) {
            Some((word, bit)) => drop(word.fetch_or(bit, Ordering::AcqRel)),
            None => drop(self.large.fetch_add(1, Ordering::AcqRel)),
        }
    }

    pub fn remove(&self, descriptor: RawFd) {
        match self.bit(descriptor) {
            Some((word, bit)) => drop(word.fetch_and(!bit, Ordering::AcqRel)),
            None => drop(self.large.fetch_sub(1, Ordering::AcqRel)),
        }
    }

    fn bit(&self, descriptor: RawFd) -> Option<(&AtomicU64, u64)> {
        let descriptor = usize::try_from(descriptor).ok()?;
        Some((self.words.get(descriptor / BITS)?, 1 << (descriptor % BITS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_any_size_are_found_until_they_are_removed() {
        let set = DescriptorSet::new();
        for descriptor in [0, 63, 64, 65_535, 65_536, 1_000_000] {
            assert!(!set.may_contain(descriptor), "{descriptor}");
            set.insert(descriptor);
            assert!(set.may_contain(descriptor), "{descriptor}");
            set.remove(descriptor);
            assert!(!set.may_contain(descriptor), "{descriptor}");
        }
        assert!(!set.may_contain(-1));
    }
}
