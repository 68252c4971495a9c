//! The mapped memory. Everything behind this module is safe code: words are atomics, which other processes may change
//! at any time, and bytes are copied, never borrowed.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use holdfast_model::pair::Side;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::checksum::copy_out;
use crate::control::{Control, ControlPage, Slot};
use crate::error::ShmError;
use crate::layout::{AreaGeometry, REGISTRATIONS};

/// A mapped part of the file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is shared with other processes anyway: words are accessed as atomics, and bytes as described at
// `Area::write` and `Area::read`. Nothing depends on the thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps these bytes of the file, which the caller has checked to be there; `offset` is a multiple of the page size.
    pub fn new(file: &File, offset: u64, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, offset) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Mapping { base, bytes })
    }

    /// Makes all pages present, so that the first stores cause no page faults. Older kernels (before 5.14) cannot do
    /// it: the first checkpoints are then slower.
    pub fn populate(&self) {
        // SAFETY: the range is that of the mapping; the advice changes no content.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxPopulateWrite) };
    }

    /// The counter of registrations, in a mapping that begins with the file; `None` if it is shorter.
    pub fn registrations(&self) -> Option<&AtomicU32> {
        if self.bytes < REGISTRATIONS + 4 {
            return None;
        }
        // SAFETY: within the mapping, which lives as long as the reference, and aligned, because the mapping is aligned
        // to pages. Every bit pattern is valid, and all processes access it as an atomic.
        Some(unsafe { self.base.add(REGISTRATIONS).cast().as_ref() })
    }

    /// The area of a pair that begins at this offset of the mapping; `None` if the mapping does not contain it.
    pub fn area(&self, offset: u64, geometry: &AreaGeometry) -> Option<Area<'_>> {
        let offset = usize::try_from(offset).ok()?;
        let bytes = usize::try_from(geometry.bytes).ok()?;
        let (stride, data) = (usize::try_from(geometry.stride).ok()?, usize::try_from(geometry.data).ok()?);
        let capacity = usize::try_from(geometry.capacity).ok()?;
        let data_bytes = stride.checked_mul(geometry.ring as usize)?;
        let fits = offset.checked_add(bytes)? <= self.bytes
            && data.checked_add(data_bytes)? <= bytes
            && data >= size_of::<ControlPage>()
            && capacity <= stride
            && offset.is_multiple_of(align_of::<ControlPage>());
        if !fits {
            return None;
        }
        // SAFETY: within the mapping, as was just checked.
        let base = unsafe { self.base.add(offset) };
        // SAFETY: as above.
        let data = unsafe { base.add(data) };
        Some(Area { base, data, stride, capacity, ring: geometry.ring, mapping: PhantomData })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; all references into it borrow `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The area of a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area<'a> {
    base: NonNull<u8>,
    data: NonNull<u8>,
    stride: usize,
    capacity: usize,
    ring: u32,
    mapping: PhantomData<&'a Mapping>,
}

impl<'a> Area<'a> {
    /// The words of the pair.
    pub fn words(&self) -> &'a ControlPage {
        // SAFETY: `Mapping::area` has checked that the page is within the mapping and aligned. It consists of atomics,
        // so that every bit pattern is valid, and other processes may change it.
        unsafe { self.base.cast().as_ref() }
    }

    /// The word with the heartbeats of a copy.
    pub fn beats(&self, side: Side) -> &'a AtomicU64 {
        &self.words().beats[side.index()].0
    }

    /// The words that the agent writes for a copy.
    pub fn control(&self, side: Side) -> &'a Control {
        &self.words().controls[side.index()].0
    }

    /// The words that a copy writes for the agent.
    pub fn slot(&self, side: Side) -> &'a Slot {
        &self.words().slots[side.index()].0
    }

    /// The number of entries of the ring.
    pub fn ring(&self) -> u32 {
        self.ring
    }

    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Copies into an entry of the ring, and returns the CRC32 of the bytes.
    pub fn write(&self, entry: u32, bytes: &[u8]) -> Result<u32, ShmError> {
        if entry >= self.ring || bytes.len() > self.capacity {
            return Err(ShmError::TooLarge { bytes: bytes.len() as u64, most: self.capacity() });
        }
        // SAFETY: the entry is within the mapping: `Mapping::area` has checked all of them. Another process may read
        // the bytes meanwhile; it uses none of them, because the entry's head says that it is being written. The bytes
        // do not overlap the program's memory: the mapping is private to this module.
        Ok(unsafe { copy_out(bytes, self.data.as_ptr().add(entry as usize * self.stride)) })
    }

    /// Copies an entry of the ring, which replaces the content of `into`.
    ///
    /// # Errors
    /// The entry is not that long, or there is no memory.
    pub fn read(&self, entry: u32, bytes: u64, into: &mut Vec<u8>) -> Result<(), ShmError> {
        into.clear();
        let length = usize::try_from(bytes).ok().filter(|length| entry < self.ring && *length <= self.capacity);
        let length = length.ok_or(ShmError::TooLarge { bytes, most: self.capacity() })?;
        into.try_reserve_exact(length).map_err(|_| ShmError::NoMemory(bytes))?;
        // SAFETY: the source is within the mapping, as in `write`; the vector has this capacity, and what was copied is
        // initialised. Another process may write to the source meanwhile: the copy then contains a mixture of bytes,
        // which the caller finds by the entry's sequence and by the CRC of the copy.
        unsafe {
            let from = self.data.as_ptr().add(entry as usize * self.stride);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), length);
            into.set_len(length);
        }
        Ok(())
    }
}
