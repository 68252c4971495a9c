//! Opening physical files, and reading them at offsets.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_core::regular_file;

use super::error::SionError;

/// Opens a regular file for reading.
pub(super) fn open_regular(path: &Path) -> Result<File, SionError> {
    regular_file::open(path).map_err(SionError::io("open", path))
}

/// Opens a regular file for reading. No link is followed: what is checked is then what was written there.
pub(super) fn open_no_link(path: &Path) -> Result<File, SionError> {
    regular_file::open_no_link(path).map_err(|error| {
        let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let error = if is_link { io::Error::new(error.kind(), "it is a link, which is not followed") } else { error };
        SionError::io("open", path)(error)
    })
}

/// Fills the buffer from an offset; the caller has checked that the range is inside the file.
pub(super) fn read_exactly(file: &File, path: &Path, position: u64, buffer: &mut [u8]) -> Result<(), SionError> {
    file.read_exact_at(buffer, position).map_err(SionError::io("read", path))
}

/// Reads a file from an offset on, without changing the file's own position.
pub(super) struct FileAt<'a> {
    pub file: &'a File,
    pub position: u64,
}

impl Read for FileAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.position)?;
        self.position = self.position.saturating_add(read as u64);
        Ok(read)
    }
}
