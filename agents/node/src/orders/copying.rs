//! Copying and checking whole files in bounded memory.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Result, Trouble};

/// Smallest and largest buffer: what a setting asks for is kept between.
const BUFFER: (usize, usize) = (4 << 10, 64 << 20);

/// A buffer as large as the settings say, within reason.
pub(super) fn buffer(bytes: usize) -> Vec<u8> {
    vec![0; bytes.clamp(BUFFER.0, BUFFER.1)]
}

/// Size and CRC32 of a file.
pub(super) fn checksum(path: &Path, buffer_bytes: usize) -> Result<(u64, u32)> {
    let mut file = File::open(path).map_err(Trouble::file("open", path))?;
    let mut crc = crc32fast::Hasher::new();
    let mut size = 0;
    let mut buffer = buffer(buffer_bytes);
    loop {
        match file.read(&mut buffer).map_err(Trouble::file("read", path))? {
            0 => return Ok((size, crc.finalize())),
            read => {
                crc.update(&buffer[..read]);
                size += read as u64;
            }
        }
    }
}

/// Copies a file, keeping to `pace`, and tells `progress` of every buffer. Returns size and, if asked for, CRC32. The
/// destination is on disk when this returns.
pub(super) fn copy(
    from: &Path,
    to: &Path,
    buffer: &mut [u8],
    crc: bool,
    pace: &mut Pace,
    mut progress: impl FnMut(u64),
) -> Result<(u64, Option<u32>)> {
    let mut source = File::open(from).map_err(Trouble::file("open", from))?;
    let mut target = File::create(to).map_err(Trouble::file("create", to))?;
    let mut hasher = crc32fast::Hasher::new();
    let mut size = 0;
    loop {
        let read = source.read(buffer).map_err(Trouble::file("read", from))?;
        if read == 0 {
            break;
        }
        if crc {
            hasher.update(&buffer[..read]);
        }
        target.write_all(&buffer[..read]).map_err(Trouble::file("write", to))?;
        size += read as u64;
        progress(read as u64);
        pace.spent(read as u64);
    }
    target.sync_all().map_err(Trouble::file("bring to disk", to))?;
    Ok((size, crc.then(|| hasher.finalize())))
}

/// Keeps a transfer below a bandwidth.
pub(super) struct Pace {
    bytes_per_second: u64,
    begun: Instant,
    bytes: u64,
}

impl Pace {
    /// 0 is no limit.
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Pace { bytes_per_second, begun: Instant::now(), bytes: 0 }
    }

    /// Bytes were moved: waits as long as they are ahead of the limit.
    pub(super) fn spent(&mut self, bytes: u64) {
        self.bytes += bytes;
        let ahead = ahead(self.bytes, self.bytes_per_second).saturating_sub(self.begun.elapsed());
        if !ahead.is_zero() {
            std::thread::sleep(ahead);
        }
    }
}

/// How long `bytes` should take.
fn ahead(bytes: u64, bytes_per_second: u64) -> Duration {
    if bytes_per_second == 0 { Duration::ZERO } else { Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_same_bytes_and_the_checksum_of_both() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        let bytes: Vec<u8> = (0..100_000u32).map(|at| ((at * 31) >> 3) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        let mut told = 0;
        let (size, crc) = copy(&from, &to, &mut buffer(4096), true, &mut Pace::new(0), |bytes| told += bytes).unwrap();
        assert_eq!((size, told), (100_000, 100_000));
        assert_eq!(crc, Some(crc32fast::hash(&bytes)));
        assert_eq!(checksum(&to, 8192).unwrap(), (100_000, crc32fast::hash(&bytes)));
    }

    #[test]
    fn a_bandwidth_says_how_long_bytes_should_take() {
        assert_eq!(ahead(1 << 20, 1 << 20), Duration::from_secs(1));
        assert_eq!(ahead(1 << 30, 0), Duration::ZERO);
    }
}
