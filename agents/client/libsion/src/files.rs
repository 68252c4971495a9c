//! The open files of the process, by handle.

use std::collections::BTreeMap;
use std::ffi::c_int;

use holdfast_boundary::{Boundary, Session};

use crate::error::{CallError, Result};
use crate::parallel::{Joined, Share};
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
    /// Of the open files of the parallel functions.
    shares: BTreeMap<c_int, Share>,
    /// Files of the parallel functions that are being created.
    joined: BTreeMap<c_int, Joined>,
}

impl Session for Files {
    fn rank(&self) -> Option<u32> {
        None
    }
}

impl Files {
    const fn new() -> Files {
        Files { next: 0, open: BTreeMap::new(), shares: BTreeMap::new(), joined: BTreeMap::new() }
    }

    /// The handle of a file that was opened. A handle is not given again soon after it was closed.
    pub fn insert(&mut self, file: OpenFile) -> c_int {
        let handle = self.unused();
        self.open.insert(handle, file);
        handle
    }

    fn unused(&mut self) -> c_int {
        while self.open.contains_key(&self.next) || self.joined.contains_key(&self.next) {
            self.next = self.next.checked_add(1).unwrap_or(0);
        }
        let handle = self.next;
        self.next = handle.checked_add(1).unwrap_or(0);
        handle
    }

    /// The handle of a file of the parallel functions that is being created.
    pub fn join(&mut self, joined: Joined) -> c_int {
        let handle = self.unused();
        self.joined.insert(handle, joined);
        handle
    }

    /// # Errors
    /// There is no such file.
    pub fn joined(&mut self, handle: c_int) -> Result<&mut Joined> {
        self.joined.get_mut(&handle).ok_or(CallError::Handle(handle))
    }

    /// Takes a file of the parallel functions that is being created; `None` if there is none, or it is open.
    pub fn leave(&mut self, handle: c_int) -> Option<Joined> {
        self.joined.remove(&handle)
    }

    /// Opens a file of the parallel functions by its handle; `None` for a new one.
    pub fn share_as(&mut self, handle: Option<c_int>, file: OpenFile, share: Share) -> c_int {
        let handle = handle.unwrap_or_else(|| self.unused());
        self.open.insert(handle, file);
        self.shares.insert(handle, share);
        handle
    }

    /// What a file of the parallel functions has besides its stream.
    pub fn share(&self, handle: c_int) -> Option<Share> {
        self.shares.get(&handle).copied()
    }

    /// # Errors
    /// The process has one task of the file.
    pub fn all_tasks(&self, handle: c_int) -> Result<()> {
        if self.share(handle).is_some() { Err(CallError::OwnTaskOnly) } else { Ok(()) }
    }

    /// # Errors
    /// There is no such file.
    pub fn get(&mut self, handle: c_int) -> Result<&mut OpenFile> {
        self.open.get_mut(&handle).ok_or(CallError::Handle(handle))
    }

    /// # Errors
    /// There is no such file.
    pub fn take(&mut self, handle: c_int) -> Result<OpenFile> {
        self.shares.remove(&handle);
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
