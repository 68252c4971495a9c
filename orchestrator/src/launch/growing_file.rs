//! A file that another process appends lines to.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use holdfast_core::state_files;

/// What is read of it, and how far.
#[derive(Debug)]
pub(super) struct GrowingFile {
    pub(super) path: PathBuf,
    file: Option<File>,
    pub(super) offset: u64,
    /// What was read and not taken.
    pub(super) rest: Vec<u8>,
}

impl GrowingFile {
    /// The file from this offset on; it may not exist yet.
    pub(super) fn new(path: PathBuf, offset: u64) -> Self {
        GrowingFile { path, file: None, offset, rest: Vec::new() }
    }

    /// Reads at most this many bytes more; returns their number.
    pub(super) fn read(&mut self, most: u64) -> io::Result<u64> {
        let file = match &mut self.file {
            Some(file) => file,
            None => match state_files::open(&self.path)? {
                Some(file) => self.file.insert(file),
                None => return Ok(0),
            },
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let read = file.take(most).read_to_end(&mut self.rest)? as u64;
        self.offset += read;
        Ok(read)
    }

    /// The length of the complete lines in the rest.
    pub(super) fn complete(&self) -> usize {
        self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
    }
}
