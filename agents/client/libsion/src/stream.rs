//! The open physical file: a `FILE`, which the program may use too, or a descriptor.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::error::{CallError, Result};

/// SIONlib's limit for the block size of a file system.
const LARGEST_BLOCK: u64 = 32 << 20;
/// The block size above the limit.
const DEFAULT_BLOCK: u32 = 2 << 20;

/// An open physical file. Its position is the program's: it can move it by the `FILE`.
#[derive(Debug)]
pub struct Stream {
    path: PathBuf,
    kind: Kind,
    /// The block size of the file system, in bytes.
    pub block_size: u32,
}

#[derive(Debug)]
enum Kind {
    Buffered(Buffered),
    Descriptor(File),
}

/// A `FILE` that is open, until it is closed by [`Buffered::close`] or by dropping it.
#[derive(Debug)]
struct Buffered(NonNull<libc::FILE>);

// SAFETY: the functions of stdio lock the FILE, and do not depend on the thread.
unsafe impl Send for Buffered {}

impl Stream {
    /// Creates a file, or empties it.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(path: &Path, descriptor: bool) -> Result<Stream> {
        let file = File::create(path).map_err(CallError::io("create", path))?;
        Stream::of(file, path, descriptor, c"w")
    }

    /// Opens a file to write, as it is.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn reopen(path: &Path, descriptor: bool) -> Result<Stream> {
        let file = File::options().write(true).open(path).map_err(CallError::io("open", path))?;
        Stream::of(file, path, descriptor, c"w")
    }

    /// Opens a file to read.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path, descriptor: bool) -> Result<Stream> {
        let file = File::open(path).map_err(CallError::io("open", path))?;
        Stream::of(file, path, descriptor, c"r")
    }

    fn of(file: File, path: &Path, descriptor: bool, mode: &std::ffi::CStr) -> Result<Stream> {
        let block_size = file.metadata().map_err(CallError::io("examine", path))?.blksize();
        let kind = if descriptor {
            Kind::Descriptor(file)
        } else {
            Kind::Buffered(Buffered::of(file, mode).map_err(CallError::io("open", path))?)
        };
        Ok(Stream { path: path.to_owned(), kind, block_size: fitting_block_size(block_size) })
    }

    /// The `FILE`; null for a descriptor.
    pub fn file_pointer(&self) -> *mut libc::FILE {
        match &self.kind {
            Kind::Buffered(file) => file.0.as_ptr(),
            Kind::Descriptor(_) => std::ptr::null_mut(),
        }
    }

    /// The descriptor; -1 for a `FILE`, as from SIONlib.
    pub fn descriptor(&self) -> c_int {
        match &self.kind {
            Kind::Buffered(_) => -1,
            Kind::Descriptor(file) => file.as_raw_fd(),
        }
    }

    /// The position in the file, in bytes.
    ///
    /// # Errors
    /// The system has none: the program closed the file.
    pub fn position(&mut self) -> Result<u64> {
        let position = match &mut self.kind {
            Kind::Buffered(file) => file.position(),
            Kind::Descriptor(file) => file.stream_position(),
        };
        position.map_err(CallError::io("find the position in", &self.path))
    }

    /// # Errors
    /// What was written before cannot be passed to the system, or the file has no such position.
    pub fn set_position(&mut self, position: u64) -> Result<()> {
        let moved = match &mut self.kind {
            Kind::Buffered(file) => file.set_position(position),
            Kind::Descriptor(file) => file.seek(SeekFrom::Start(position)).map(drop),
        };
        moved.map_err(CallError::io("move in", &self.path))
    }

    /// Writes all bytes at the position.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = match &mut self.kind {
            Kind::Buffered(file) => file.write(bytes),
            Kind::Descriptor(file) => file.write_all(bytes),
        };
        written.map_err(CallError::io("write", &self.path))
    }

    /// Reads at the position until the buffer is full or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = match &mut self.kind {
            Kind::Buffered(file) => file.read(buffer),
            Kind::Descriptor(file) => read_all(file, buffer),
        };
        read.map_err(CallError::io("read", &self.path))
    }

    /// Passes what was written to the system.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.kind {
            Kind::Buffered(file) => file.flush().map_err(CallError::io("write", &self.path)),
            Kind::Descriptor(_) => Ok(()),
        }
    }

    /// Closes the file.
    ///
    /// # Errors
    /// What was written before cannot be passed to the system.
    pub fn close(self) -> Result<()> {
        match self.kind {
            Kind::Buffered(file) => file.close().map_err(CallError::io("write", &self.path)),
            Kind::Descriptor(_) => Ok(()),
        }
    }
}

/// The block size of a file system as SIONlib uses it, from the one that the system returns.
pub fn fitting_block_size(bytes: u64) -> u32 {
    let fits = u32::try_from(bytes).ok().filter(|size| *size > 0 && u64::from(*size) <= LARGEST_BLOCK);
    fits.unwrap_or(DEFAULT_BLOCK)
}

fn read_all(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl Buffered {
    fn of(file: File, mode: &std::ffi::CStr) -> io::Result<Buffered> {
        let descriptor = file.into_raw_fd();
        // SAFETY: the descriptor is open, and belongs to the FILE from now on.
        let opened = unsafe { libc::fdopen(descriptor, mode.as_ptr()) };
        NonNull::new(opened).map(Buffered).ok_or_else(|| {
            let error = io::Error::last_os_error();
            // SAFETY: the descriptor is open, and nothing else has it.
            unsafe { libc::close(descriptor) };
            error
        })
    }

    fn position(&mut self) -> io::Result<u64> {
        // SAFETY: the FILE is open.
        let position = unsafe { libc::ftello(self.0.as_ptr()) };
        u64::try_from(position).map_err(|_| io::Error::last_os_error())
    }

    fn set_position(&mut self, position: u64) -> io::Result<()> {
        let position = position.try_into().map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: the FILE is open.
        match unsafe { libc::fseeko(self.0.as_ptr(), position, libc::SEEK_SET) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the FILE is open, and the bytes are there.
        let written = unsafe { libc::fwrite(bytes.as_ptr().cast::<c_void>(), 1, bytes.len(), self.0.as_ptr()) };
        if written == bytes.len() { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let file = self.0.as_ptr();
        // SAFETY: the FILE is open, and the buffer is writable.
        let read = unsafe { libc::fread(buffer.as_mut_ptr().cast::<c_void>(), 1, buffer.len(), file) };
        // SAFETY: the FILE is open.
        let failed = read < buffer.len() && unsafe { libc::ferror(file) } != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(read) }
    }

    fn flush(&mut self) -> io::Result<()> {
        // SAFETY: the FILE is open.
        match unsafe { libc::fflush(self.0.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn close(self) -> io::Result<()> {
        let file = self.0.as_ptr();
        std::mem::forget(self);
        // SAFETY: the FILE is open; it is not used any more.
        match unsafe { libc::fclose(file) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        // SAFETY: the FILE is open; it is not used any more.
        unsafe { libc::fclose(self.0.as_ptr()) };
    }
}
