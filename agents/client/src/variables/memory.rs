//! The memory of protected variables. All `unsafe` code of this crate is here.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;

/// The bytes of a variable.
pub(super) trait VariableMemory: fmt::Debug + Send {
    /// Passes the current bytes to `read`.
    fn read(&self, read: &mut dyn FnMut(&[u8]));

    /// Makes room for this number of bytes, and passes the room to `fill`. False if the variable cannot have this size;
    /// it is then unchanged.
    fn fill(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool;

    /// True if `fill` accepts this number of bytes.
    fn accepts(&self, bytes: u64) -> bool;

    /// Bytes of the variable now.
    fn bytes(&self) -> usize {
        let mut bytes = 0;
        self.read(&mut |content| bytes = content.len());
        bytes
    }
}

/// Memory at an address. Its size is fixed.
#[derive(Debug)]
pub(super) struct RawMemory {
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the caller of `RawMemory::new` guarantees that the memory may be accessed by any thread that calls the API.
unsafe impl Send for RawMemory {}

impl RawMemory {
    /// # Safety
    /// `address` must be valid for reads and writes of `bytes` bytes, all initialised, as long as the value exists, and
    /// no other thread may access them during a call that reads or fills.
    pub(super) unsafe fn new(address: *mut c_void, bytes: usize) -> Self {
        RawMemory { address: address.cast(), bytes }
    }
}

impl VariableMemory for RawMemory {
    fn accepts(&self, bytes: u64) -> bool {
        bytes == self.bytes as u64
    }

    fn read(&self, read: &mut dyn FnMut(&[u8])) {
        if self.bytes == 0 {
            // The address of an empty variable may be null.
            return read(&[]);
        }
        // SAFETY: see `new`.
        read(unsafe { std::slice::from_raw_parts(self.address, self.bytes) });
    }

    fn fill(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        if bytes != self.bytes {
            return false;
        }
        if bytes == 0 {
            fill(&mut []);
            return true;
        }
        // SAFETY: see `new`.
        fill(unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) });
        true
    }
}

/// A vector that the program and the API share.
#[derive(Debug)]
pub(super) struct SharedMemory<T>(pub(super) Arc<Mutex<Vec<T>>>);

impl<T: Pod + Send + fmt::Debug> VariableMemory for SharedMemory<T> {
    fn accepts(&self, bytes: u64) -> bool {
        bytes.checked_rem(size_of::<T>() as u64) == Some(0)
    }

    fn read(&self, read: &mut dyn FnMut(&[u8])) {
        let elements = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read(bytemuck::cast_slice(&elements));
    }

    fn fill(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        let Some(0) = bytes.checked_rem(size_of::<T>()) else { return false };
        let mut elements = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        elements.resize(bytes / size_of::<T>(), T::zeroed());
        fill(bytemuck::cast_slice_mut(&mut elements));
        true
    }
}
