//! Copying streams in pieces, with several threads and progress reports.

use std::io::{self, Read, Write};
use std::path::Path;

use super::error::SionError;
use crate::Progress;
use crate::input::PIECE_BYTES;
use holdfast_core::workers;

/// Jobs between two progress reports.
const ROUND: usize = 64;

/// Copies exactly this many bytes.
pub(super) fn copy_exactly(from: &mut impl Read, to: &mut impl Write, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)];
    let mut left = bytes;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(PIECE_BYTES).min(buffer.len());
        let piece = buffer.get_mut(..want).unwrap_or(&mut []);
        from.read_exact(piece)?;
        to.write_all(piece)?;
        left -= piece.len() as u64;
    }
    Ok(())
}

/// [`copy_exactly`] between two files. An error names the file that failed.
pub(super) fn copy_between(
    (from, from_path): (&mut impl Read, &Path),
    (to, to_path): (&mut impl Write, &Path),
    bytes: u64,
) -> Result<(), SionError> {
    let mut failed = None;
    let mut reader = TrackedReader { from, failed: &mut failed };
    match copy_exactly(&mut reader, to, bytes) {
        Ok(()) => Ok(()),
        Err(_) if failed.is_some() => {
            let error = failed.unwrap_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof));
            Err(SionError::io("read", from_path)(error))
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(SionError::io("read", from_path)(error)),
        Err(error) => Err(SionError::io("write", to_path)(error)),
    }
}

/// Records an error of the reader, to distinguish it from one of the writer.
struct TrackedReader<'a, R> {
    from: &'a mut R,
    failed: &'a mut Option<io::Error>,
}

impl<R: Read> Read for TrackedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.from.read(buffer).inspect_err(|error| *self.failed = Some(io::Error::from(error.kind())))
    }
}

/// Runs jobs on several threads, in rounds. Stops after the first round with an error.
pub(super) fn each<T: Sync, R: Send>(
    jobs: &[T],
    threads: Option<usize>,
    total_bytes: u64,
    progress: Progress<'_>,
    work: impl Fn(&T) -> Result<(R, u64), SionError> + Sync,
) -> Result<Vec<R>, SionError> {
    let threads = threads.unwrap_or_else(workers::default_threads);
    let (mut results, mut done) = (Vec::with_capacity(jobs.len()), 0_u64);
    for round in jobs.chunks(ROUND) {
        for result in workers::map(round, threads, 1, &work) {
            let (result, bytes) = result?;
            done = done.saturating_add(bytes);
            results.push(result);
        }
        progress(done, total_bytes);
    }
    Ok(results)
}
