//! CRC32 over a file's contents, read in pieces.

use std::io::{self, Read as _};

use crate::control::content::FileContent;
use crate::store::dataset_files::StoredFile;

/// Read size: large enough that a parallel file system sees few calls, small enough to stay in a cache.
const PIECE_BYTES: usize = 256 * 1024;

/// Length and CRC32 of a file. `progress` gets the number of bytes of each piece.
pub fn of_file(file: &dyn StoredFile, progress: &(dyn Fn(u64) + Sync)) -> io::Result<FileContent> {
    let mut hasher = crc32fast::Hasher::new();
    // Thousands of small files are verified: a large buffer for each would cost more than the reading.
    let length = usize::try_from(file.length()).unwrap_or(PIECE_BYTES);
    let mut piece = vec![0; length.saturating_add(1).clamp(512, PIECE_BYTES)];
    let mut total = 0_u64;
    let mut reader = file.reader();
    loop {
        let read = match reader.read(&mut piece) {
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
