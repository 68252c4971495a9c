//! The open files of the process, by handle.

use std::collections::BTreeMap;
use std::ffi::c_int;

use holdfast_boundary::{Boundary, Session};

use crate::error::{CallError, Result};
use crate::reading::Reading;
use crate::writing::Writing;

pub static BOUNDARY: Boundary<Files> = Boundary::new("SION", Files::new());

/// An open file.
#[derive(Debug)]
pub enum OpenFile {
    Reading(Box<Reading>),
    Writing(Box<Writing>),
}

/// The open files of the process.
#[derive(Debug)]
pub struct Files {
    next: c_int,
    open: BTreeMap<c_int, OpenFile>,
}

impl Session for Files {
    fn rank(&self) -> Option<u32> {
        None
    }
}

impl Files {
    const fn new() -> Files {
        Files { next: 0, open: BTreeMap::new() }
    }

    /// The handle of a file that was opened. A handle is not given again soon after it was closed.
    pub fn insert(&mut self, file: OpenFile) -> c_int {
        while self.open.contains_key(&self.next) {
            self.next = self.next.checked_add(1).unwrap_or(0);
        }
        let handle = self.next;
        self.open.insert(handle, file);
        self.next = handle.checked_add(1).unwrap_or(0);
        handle
    }

    /// # Errors
    /// There is no such file.
    pub fn get(&mut self, handle: c_int) -> Result<&mut OpenFile> {
        self.open.get_mut(&handle).ok_or(CallError::Handle(handle))
    }

    /// # Errors
    /// There is no such file.
    pub fn take(&mut self, handle: c_int) -> Result<OpenFile> {
        self.open.remove(&handle).ok_or(CallError::Handle(handle))
    }

    /// # Errors
    /// There is no such file, or it is being written.
    pub fn reading(&mut self, handle: c_int) -> Result<&mut Reading> {
        match self.get(handle)? {
            OpenFile::Reading(file) => Ok(file),
            OpenFile::Writing(_) => Err(CallError::OpenedToWrite),
        }
    }

    /// # Errors
    /// There is no such file, or it was opened to read.
    pub fn writing(&mut self, handle: c_int) -> Result<&mut Writing> {
        match self.get(handle)? {
            OpenFile::Writing(file) => Ok(file),
            OpenFile::Reading(_) => Err(CallError::OpenedToRead),
        }
    }
}
