//! CRC32 over a file's contents, read in pieces.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::control::content::FileContent;

/// Read size: large enough that a parallel file system sees few calls, small enough to stay in a cache.
const PIECE_BYTES: usize = 256 * 1024;

/// Length and CRC32 of a file. `progress` gets the number of bytes of each piece.
///
/// # Errors
/// What opening or reading the file said.
pub fn of_file(path: &Path, progress: &(dyn Fn(u64) + Sync)) -> io::Result<FileContent> {
    // Between the scan and now something else may have taken the name: never follow a link, never wait for a pipe.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut hasher = crc32fast::Hasher::new();
    // Thousands of small files are verified: a large buffer for each would cost more than the reading.
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(PIECE_BYTES);
    let mut piece = vec![0; length.saturating_add(1).clamp(512, PIECE_BYTES)];
    let mut total = 0_u64;
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => return Ok(FileContent { bytes: total, crc: hasher.finalize() }),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&piece[..read]);
        total += read as u64;
        progress(read as u64);
    }
}
