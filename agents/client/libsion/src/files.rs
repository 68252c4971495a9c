//! The open files of the process, by handle.

use std::collections::BTreeMap;
use std::ffi::c_int;

use holdfast_boundary::{Boundary, Session};

use crate::error::{CallError, Result};
use crate::parallel::{Joined, Mapped, Share};
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
    /// Those of the mapped functions, which are not in the field above.
    mapped: BTreeMap<c_int, Mapped>,
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
        Files {
            next: 0,
            open: BTreeMap::new(),
            mapped: BTreeMap::new(),
            shares: BTreeMap::new(),
            joined: BTreeMap::new(),
        }
    }

    /// The handle of a file that was opened. A handle is not given again soon after it was closed.
    pub fn insert(&mut self, file: OpenFile) -> c_int {
        let handle = self.unused();
        self.open.insert(handle, file);
        handle
    }

    fn unused(&mut self) -> c_int {
        while self.is_used(self.next) {
            self.next = self.next.checked_add(1).unwrap_or(0);
        }
        let handle = self.next;
        self.next = handle.checked_add(1).unwrap_or(0);
        handle
    }

    fn is_used(&self, handle: c_int) -> bool {
        self.open.contains_key(&handle) || self.mapped.contains_key(&handle) || self.joined.contains_key(&handle)
    }

    /// The handle of a file of the mapped functions.
    pub fn insert_mapped(&mut self, mapped: Mapped) -> c_int {
        let handle = self.unused();
        self.mapped.insert(handle, mapped);
        handle
    }

    /// # Errors
    /// There is no such file, or it was opened by another function.
    pub fn mapped(&mut self, handle: c_int) -> Result<&mut Mapped> {
        let other = if self.is_used(handle) { CallError::NotMapped } else { CallError::Handle(handle) };
        self.mapped.get_mut(&handle).ok_or(other)
    }

    /// # Errors
    /// There is no such file, or it was opened by another function.
    pub fn take_mapped(&mut self, handle: c_int) -> Result<Mapped> {
        self.mapped(handle)?;
        self.mapped.remove(&handle).ok_or(CallError::Handle(handle))
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
    ///
    /// # Errors
    /// There is no such file, or it was opened by another function.
    pub fn share(&self, handle: c_int) -> Result<Share> {
        let other = match () {
            () if self.mapped.contains_key(&handle) => CallError::OpenedMapped,
            () if self.is_used(handle) => CallError::NotOpenedInParallel,
            () => CallError::Handle(handle),
        };
        self.shares.get(&handle).copied().ok_or(other)
    }

    /// True for a file of which this process has some tasks only.
    pub fn is_parallel(&self, handle: c_int) -> bool {
        self.shares.contains_key(&handle) || self.mapped.contains_key(&handle)
    }

    /// # Errors
    /// The process has some tasks of the file only.
    pub fn all_tasks(&self, handle: c_int) -> Result<()> {
        if self.is_parallel(handle) { Err(CallError::OwnTaskOnly) } else { Ok(()) }
    }

    /// Makes the physical file with a task the current one. Returns the index of the task there, `None` for the
    /// current one. `rank`: as the program gave it; `None` for that of the current task.
    ///
    /// # Errors
    /// This process does not have the task.
    pub fn go_to(&mut self, handle: c_int, rank: Option<i64>) -> Result<Option<i64>> {
        if let Some(mapped) = self.mapped.get_mut(&handle) {
            return rank.map(|rank| mapped.go_to(rank)).transpose();
        }
        match (rank, self.shares.get(&handle)) {
            (Some(rank), Some(share)) if rank != i64::from(share.local_rank) => {
                Err(CallError::OtherTask { rank, own: share.local_rank })
            }
            // The only task of this process.
            (_, Some(_)) => Ok(None),
            (rank, None) => Ok(rank),
        }
    }

    /// The file with the current task.
    ///
    /// # Errors
    /// There is no such file, or this process has no task of it.
    pub fn get(&mut self, handle: c_int) -> Result<&mut OpenFile> {
        if let Some(mapped) = self.mapped.get_mut(&handle) {
            return mapped.current();
        }
        self.open.get_mut(&handle).ok_or(CallError::Handle(handle))
    }

    /// # Errors
    /// There is no such file, or the mapped functions opened it.
    pub fn take(&mut self, handle: c_int) -> Result<OpenFile> {
        if self.mapped.contains_key(&handle) {
            return Err(CallError::OpenedMapped);
        }
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
