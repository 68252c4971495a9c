//! Opening files that must be regular ones.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading. A pipe is refused: opening it would wait for a writer for ever.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, File::options().read(true))
}

/// Opens a regular file for reading and writing.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_writable(path: &Path) -> io::Result<File> {
    open_with(path, File::options().read(true).write(true))
}

/// Opens a regular file for reading. No link is followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_no_link(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let opened = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    regular(opened.map_err(|error| match path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
        true => io::Error::new(error.kind(), "it is a link, which is not followed"),
        false => error,
    })?)
}

/// Opens a regular file for appending, made with mode 0600 if it is missing. No link is followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = File::options();
    let options = options.append(true).create(true).mode(0o600);
    regular(options.custom_flags(flags.bits().cast_signed()).open(path)?)
}

/// Opens a regular file for writing, empty, made with mode 0600 if it is missing. No link is followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open_or_create(path)?;
    // Not truncated before it is known to be a regular file.
    file.set_len(0)?;
    Ok(file)
}

/// Opens a regular file for writing with the content that it has, made with mode 0600 if it is missing. No link is
/// followed.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    regular(options.custom_flags(flags.bits().cast_signed()).open(path)?)
}

fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    regular(options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?)
}

/// The file, if it is a regular one.
pub(crate) fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}
