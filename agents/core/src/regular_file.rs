//! Opening files that must be regular ones.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::calls;

/// Opens a regular file for reading. A pipe is refused: opening it would wait for a writer for ever.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::RDONLY)
}

/// Opens a regular file for reading and writing.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_writable(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::RDWR)
}

/// Opens a regular file for reading. No link is followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_no_link(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::RDONLY | OFlags::NOFOLLOW)
}

/// Opens a regular file for appending, made with mode 0600 if it is missing. No link is followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn append(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW)
}

/// Opens a regular file for writing, empty, made with mode 0600 if it is missing. No link is followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open_or_create(path)?;
    // Not truncated before it is known to be a regular file.
    calls::ftruncate(&file, 0)?;
    Ok(file)
}

/// Opens a regular file for writing with the content that it has, made with mode 0600 if it is missing. No link is
/// followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW)
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    let opened = calls::openat(CWD, path, flags | OFlags::NONBLOCK, Mode::from_raw_mode(0o600));
    opened.map_err(|errno| refusal(errno, flags)).and_then(|opened| regular(File::from(opened)))
}

/// The error of an opening that followed no link.
pub(crate) fn refusal(errno: Errno, flags: OFlags) -> io::Error {
    match errno {
        Errno::LOOP if flags.contains(OFlags::NOFOLLOW) => {
            io::Error::new(io::ErrorKind::InvalidInput, "it is a link, which is not followed")
        }
        errno => errno.into(),
    }
}

/// The file, if it is a regular one.
pub(crate) fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}
