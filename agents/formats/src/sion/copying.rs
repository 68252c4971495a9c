//! Copying streams in pieces, with several threads and progress reports.

use std::io::{self, Read, Write};
use std::path::Path;

use super::error::SionError;
use crate::format::Progress;
use crate::input::PIECE_BYTES;
use holdfast_core::workers;

/// Jobs between two progress reports.
const ROUND: usize = 64;

/// Copies exactly this many bytes.
pub(super) fn copy_exactly(from: &mut impl Read, to: &mut impl Write, bytes: u64) -> io::Result<()> {
    copy(from, to, bytes, |error| error, |error| error)
}

/// [`copy_exactly`] between two files. An error names the file that failed.
pub(super) fn copy_between(
    (from, from_path): (&mut impl Read, &Path),
    (to, to_path): (&mut impl Write, &Path),
    bytes: u64,
) -> Result<(), SionError> {
    let unreadable = |error| SionError::io("read", from_path)(error);
    copy(from, to, bytes, unreadable, |error| SionError::io("write", to_path)(error))
}

fn copy<E>(
    from: &mut impl Read,
    to: &mut impl Write,
    bytes: u64,
    unreadable: impl Fn(io::Error) -> E,
    unwritable: impl Fn(io::Error) -> E,
) -> Result<(), E> {
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)];
    let mut left = bytes;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(PIECE_BYTES).min(buffer.len());
        let piece = buffer.get_mut(..want).unwrap_or(&mut []);
        from.read_exact(piece).map_err(&unreadable)?;
        to.write_all(piece).map_err(&unwritable)?;
        left -= piece.len() as u64;
    }
    Ok(())
}

/// Runs jobs on several threads, in rounds. Stops after the first round with an error.
pub(super) fn each<T: Sync, R: Send>(
    jobs: &[T],
    total_bytes: u64,
    progress: Progress<'_>,
    work: impl Fn(&T) -> Result<(R, u64), SionError> + Sync,
) -> Result<Vec<R>, SionError> {
    let (mut results, mut done) = (Vec::with_capacity(jobs.len()), 0_u64);
    for round in jobs.chunks(ROUND) {
        for result in workers::map(round, workers::default_threads(), 1, &work) {
            let (result, bytes) = result?;
            done = done.saturating_add(bytes);
            results.push(result);
        }
        progress(done, total_bytes);
    }
    Ok(results)
}
