//! MD5 over ranges of a file, distributed over threads.
//!
//! One MD5 cannot run in parallel. The calling thread computes the checksum of the file while other threads hash the
//! chunks, so that a verification takes the time of one MD5 over the file. A thread hashes small chunks several at a
//! time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use md5::{Digest, Md5};

use super::md5_lanes;
use crate::error::{FormatsError, Result};
use crate::format::Progress;
use crate::input::Input;

/// Below this number of bytes, starting threads takes longer than hashing on one.
const WORTH_THREADS: u64 = 4 << 20;
/// More reading threads do not increase the throughput of a disk.
const MAX_THREADS: usize = 8;
/// Bytes of chunks that a thread reads into memory, in order to hash them together.
const TOGETHER: u64 = 4 << 20;

/// A range of a file: offset and length in bytes.
pub type Range = (u64, u64);

#[derive(Debug, Default)]
pub struct HashRequest {
    /// Ranges with a hash each.
    pub chunks: Vec<Range>,
    /// Ranges with one hash for all of them, in this order.
    pub combined: Vec<Range>,
}

/// The hashes of a [`HashRequest`].
#[derive(Debug)]
pub struct Hashes {
    /// The hash of each chunk.
    pub chunks: Vec<[u8; 16]>,
    /// The hash of all bytes of `combined`.
    pub combined: [u8; 16],
}

/// Computes all hashes. The ranges must lie in the file.
pub fn hash(input: &Input, request: &HashRequest, progress: Progress<'_>) -> Result<Hashes> {
    hash_with(thread::Builder::new, input, request, progress)
}

/// If a thread cannot be created, those that there are do its work.
fn hash_with(
    thread: impl Fn() -> thread::Builder,
    input: &Input,
    request: &HashRequest,
    progress: Progress<'_>,
) -> Result<Hashes> {
    let bytes = |ranges: &[Range]| ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.1));
    let total = bytes(&request.chunks).saturating_add(bytes(&request.combined));
    let groups = groups(&request.chunks);
    let shared = Shared { input, groups: &groups, next: AtomicUsize::new(0), done: AtomicU64::new(0) };
    let extra_threads = match total {
        0..WORTH_THREADS => 0,
        _ => thread::available_parallelism().map_or(1, usize::from).clamp(2, MAX_THREADS) - 1,
    };
    let mut hashes = vec![[0; 16]; request.chunks.len()];
    let combined = thread::scope(|scope| -> Result<[u8; 16]> {
        let start = |_| thread().spawn_scoped(scope, || shared.take_chunks(&mut |_| {})).ok();
        let threads: Vec<_> = (0..extra_threads.min(groups.len())).map_while(start).collect();
        let mut report = |done: u64| progress(done, total);
        let combined = shared.stream(&request.combined, &mut report)?;
        let mut found = shared.take_chunks(&mut report)?;
        for thread in threads {
            match thread.join() {
                Ok(more) => found.extend(more?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        for (index, hash) in found {
            if let Some(place) = hashes.get_mut(index) {
                *place = hash;
            }
        }
        Ok(combined)
    })?;
    progress(total, total);
    Ok(Hashes { chunks: hashes, combined })
}

/// Chunks that one thread hashes.
struct Group<'a> {
    /// The number of the first.
    first: usize,
    chunks: &'a [Range],
    bytes: u64,
}

/// Successive chunks, as many as are hashed together; large ones alone.
fn groups(chunks: &[Range]) -> Vec<Group<'_>> {
    let mut groups = Vec::new();
    let mut rest = chunks;
    while let Some((first, others)) = rest.split_first() {
        let (mut count, mut bytes) = (1, first.1);
        for chunk in others.iter().take(md5_lanes::count() - 1) {
            let more = bytes.saturating_add(chunk.1);
            if more > TOGETHER {
                break;
            }
            (count, bytes) = (count + 1, more);
        }
        let (chunks_of_group, others) = rest.split_at(count);
        groups.push(Group { first: chunks.len() - rest.len(), chunks: chunks_of_group, bytes });
        rest = others;
    }
    groups
}

struct Shared<'a> {
    input: &'a Input,
    groups: &'a [Group<'a>],
    next: AtomicUsize,
    done: AtomicU64,
}

impl Shared<'_> {
    /// Hashes chunks until none is left.
    fn take_chunks(&self, report: &mut dyn FnMut(u64)) -> Result<Vec<(usize, [u8; 16])>> {
        let mut found = Vec::new();
        let mut buffer = Vec::new();
        while let Some(group) = self.groups.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let hashes = match group.chunks {
                [_] => vec![self.stream(group.chunks, report)?],
                _ => self.together(group, &mut buffer, report)?,
            };
            found.extend((group.first..).zip(hashes));
        }
        Ok(found)
    }

    /// The hash of each chunk of a group.
    fn together(&self, group: &Group<'_>, buffer: &mut Vec<u8>, report: &mut dyn FnMut(u64)) -> Result<Vec<[u8; 16]>> {
        buffer.resize(usize::try_from(group.bytes).unwrap_or(usize::MAX), 0);
        let mut room = buffer.as_mut_slice();
        let mut contents = Vec::with_capacity(group.chunks.len());
        for &(offset, bytes) in group.chunks {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(room.len());
            let (content, rest) = std::mem::take(&mut room).split_at_mut(bytes);
            self.input.read_at(offset, content)?;
            contents.push(&*content);
            room = rest;
        }
        report(self.done.fetch_add(group.bytes, Ordering::Relaxed).saturating_add(group.bytes));
        Ok(md5_lanes::of_each(&contents))
    }

    fn stream(&self, ranges: &[Range], report: &mut dyn FnMut(u64)) -> Result<[u8; 16]> {
        let mut hasher = Md5::new();
        for &(offset, bytes) in ranges {
            self.input.each_piece(offset, bytes, |piece| {
                hasher.update(piece);
                let bytes = piece.len() as u64;
                report(self.done.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes));
                Ok::<_, FormatsError>(())
            })?;
        }
        Ok(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_has_its_hash_whatever_the_sizes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("content");
        let content: Vec<u8> = (0..9 << 20_u32).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        // Many of one size, odd ones, empty ones, more than are read together, and overlapping ones.
        let sizes = [[64 << 10; 40].as_slice(), &[0, 0, 1, 63, 64, 64, 64, 5 << 20, 100, 3 << 20, 64 << 10]].concat();
        let chunks: Vec<Range> = (0..).map(|number| number * 77_777).zip(sizes).collect();
        let of = |(offset, bytes): Range| &content[offset as usize..(offset + bytes) as usize];
        let expected: Vec<[u8; 16]> = chunks.iter().map(|chunk| Md5::digest(of(*chunk)).into()).collect();
        let combined = vec![(5, 70), (1 << 20, 2 << 20)];
        let expected_combined: [u8; 16] = Md5::digest([of(combined[0]), of(combined[1])].concat()).into();
        let mut last = (0, 0);
        let request = HashRequest { chunks, combined };
        let input = Input::open(&path).unwrap();
        let found = hash(&input, &request, &mut |done, total| last = (done, total)).unwrap();
        assert!(found.chunks == expected && found.combined == expected_combined);
        assert_eq!(last.0, last.1);
        // No address space has room for such a stack.
        let refused = || thread::Builder::new().stack_size(1 << 60);
        assert!(refused().spawn(|| ()).is_err());
        let found = hash_with(refused, &input, &request, &mut |_, _| {}).unwrap();
        assert!(found.chunks == expected && found.combined == expected_combined, "the caller does all the work");
    }
}
