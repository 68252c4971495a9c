//! Opening physical files, and reading them at offsets.

use std::io::{self, Read};
use std::path::Path;

use holdfast_core::regular_file;
use holdfast_core::store::StoredFile;
use holdfast_core::store::posix::dataset::RegularFile;

use super::error::{Result, SionError};

/// Opens a regular file for reading.
pub(super) fn open_regular(path: &Path) -> Result<RegularFile> {
    regular_file::open(path).and_then(RegularFile::of).map_err(SionError::io("open", path))
}

/// Fills the buffer from an offset; the caller has checked that the range is inside the file.
pub(super) fn read_exactly(file: &dyn StoredFile, path: &Path, position: u64, buffer: &mut [u8]) -> Result<()> {
    file.read_exact_at(buffer, position).map_err(SionError::io("read", path))
}

/// Reads a file from an offset on.
pub(super) struct FileAt<'a> {
    pub file: &'a dyn StoredFile,
    pub position: u64,
}

impl Read for FileAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.position)?;
        self.position = self.position.saturating_add(read as u64);
        Ok(read)
    }
}
