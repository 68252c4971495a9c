//! A file that several threads can read at any offset, in pieces of bounded size.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_core::regular_file;

use super::destination::FillError;
use super::error::FormatsError;

/// Long ranges are read in pieces of this size: large enough for a disk, small enough for the processor's cache.
pub const PIECE_BYTES: usize = 256 * 1024;

/// An open regular file, and its size at the time of opening.
#[derive(Debug)]
pub struct Input {
    /// The path it was opened by.
    pub path: PathBuf,
    file: File,
    /// Its size in bytes at the time of opening.
    pub size: u64,
}

impl Input {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a regular file: reading a pipe could block for ever.
    pub fn open(path: &Path) -> Result<Input, FormatsError> {
        let open = || -> io::Result<(File, u64)> {
            let file = regular_file::open(path)?;
            let size = file.metadata()?.len();
            Ok((file, size))
        };
        let (file, size) = open().map_err(FormatsError::reading("open", path))?;
        Ok(Input { path: path.to_owned(), file, size })
    }

    /// An open file, read as if it had this size.
    pub(crate) fn over(path: &Path, file: File, size: u64) -> Input {
        Input { path: path.to_owned(), file, size }
    }

    /// Fills the buffer with the bytes from this offset on.
    ///
    /// # Errors
    /// When the file ends inside the range, or reading fails.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatsError> {
        self.file.read_exact_at(buffer, offset).map_err(FormatsError::reading("read", &self.path))
    }

    /// The given number of bytes from this offset on. A range beyond the end of the file is rejected before memory is
    /// allocated for it.
    ///
    /// # Errors
    /// When the file ends inside the range, or reading fails.
    pub fn bytes_at(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, FormatsError> {
        if !self.holds(offset, bytes as u64) {
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(FormatsError::reading("read", &self.path)(error));
        }
        let mut buffer = vec![0; bytes];
        self.read_at(offset, &mut buffer)?;
        Ok(buffer)
    }

    /// The file as a stream from its start.
    pub fn stream(&self) -> impl io::Read + '_ {
        Stream { input: self, at: 0 }
    }

    /// True if the file has at least this many bytes from this offset on.
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.size)
    }

    /// Calls `each` with the pieces of a range, in order. Holds at most [`PIECE_BYTES`] in memory.
    ///
    /// # Errors
    /// When the file ends inside the range, reading fails, or `each` fails.
    pub fn each_piece<E: From<FormatsError>>(
        &self,
        offset: u64,
        bytes: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)];
        let (mut at, mut left) = (offset, bytes);
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(PIECE_BYTES).min(buffer.len());
            let piece = &mut buffer[..now];
            self.read_at(at, piece)?;
            each(piece)?;
            at = at.saturating_add(now as u64);
            left -= now as u64;
        }
        Ok(())
    }

    /// Calls `differs` with the offset of each of the first bytes that is another one than `read` returns.
    ///
    /// # Errors
    /// When either cannot be read.
    pub(crate) fn each_difference(
        &self,
        bytes: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), FormatsError>,
        mut differs: impl FnMut(u64),
    ) -> Result<(), FormatsError> {
        let (mut at, mut other) = (0_u64, vec![0; PIECE_BYTES]);
        self.each_piece(0, bytes, |piece| {
            let other = other.get_mut(..piece.len()).unwrap_or_default();
            read(at, other)?;
            let pairs = (at..).zip(piece.iter().zip(other.iter()));
            pairs.filter(|(_, (one, other))| one != other).for_each(|(offset, _)| differs(offset));
            at = at.saturating_add(piece.len() as u64);
            Ok::<_, FormatsError>(())
        })
    }

    /// Copies a range; `seen` is called with each piece before it is written.
    pub(crate) fn copy<R>(
        &self,
        offset: u64,
        bytes: u64,
        out: &mut impl Write,
        mut seen: impl FnMut(&[u8]),
    ) -> Result<(), FillError<R>> {
        self.each_piece(offset, bytes, |piece| {
            seen(piece);
            Ok(out.write_all(piece)?)
        })
    }
}

/// A reader with its own offset, so that several can read one file.
struct Stream<'a> {
    input: &'a Input,
    at: u64,
}

impl io::Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.file.read_at(buffer, self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}
