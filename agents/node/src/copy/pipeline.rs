//! Moves the bytes of files: from file to file, and between a file and a connection to another node.
//!
//! The copies of one step share a [`Pipeline`]: the size of their buffers, how many run at a time, their bandwidth and
//! the token that cancels them. Each of its [`Lane`]s is one thread with its buffer. The recorded size and checksum
//! ([`RecordedContent`]) must agree with what is moved. A checksum is computed from the bytes that are in hand: where
//! one is recorded, and where the caller needs it ([`Checksum`]).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use holdfast_core::control::content::{FileContent, RecordedContent};
use holdfast_core::dataset_files::StoredFile;
use holdfast_core::durable::{CreationMode, Durability, Pending};
use holdfast_core::regular_file;
use holdfast_wire::peer::CopyLimits;
use tokio_util::sync::CancellationToken;

use super::bandwidth::Bandwidth;
use super::error::CopyFault;
use super::processor_share::ProcessorShare;
use crate::events::ProgressGuard;

/// Files that one node copies at a time unless a setting says how many: enough to use a parallel file system while one
/// file is synchronised, few enough for thousands of nodes at a time. Not more than it has processors, but at least 2.
const USUAL_WIDTH: usize = 4;
/// A setting is limited to this.
const LARGEST_WIDTH: usize = 64;
/// The smallest and the largest buffer: a setting is limited to this range.
const BUFFER_BYTES: (usize, usize) = (4 << 10, 64 << 20);
/// The longest wait between two checks of the token.
const WAIT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Pipeline {
    buffer_bytes: usize,
    /// Files that are copied at a time at most.
    width: usize,
    bandwidth: Bandwidth,
    processor: ProcessorShare,
    durability: Durability,
    cancelled: CancellationToken,
}

impl Pipeline {
    /// Copies to the prefix directory, so many at a time, with buffers of this size, that end when `cancelled` is.
    pub(crate) fn new(buffer_bytes: usize, threads: Option<u32>, cancelled: CancellationToken) -> Self {
        let width = threads.map_or_else(usual_width, |threads| {
            usize::try_from(threads).unwrap_or(LARGEST_WIDTH).clamp(1, LARGEST_WIDTH)
        });
        let buffer_bytes = self::buffer_bytes(buffer_bytes);
        let (bandwidth, processor) = (Bandwidth::new(0), ProcessorShare::new(0.0));
        Pipeline { buffer_bytes, width, bandwidth, processor, durability: Durability::Machine, cancelled }
    }

    /// Limits all its copies together.
    pub(crate) fn limited(mut self, limits: CopyLimits) -> Self {
        let CopyLimits { width, bandwidth, percent } = limits;
        self.width = self.width.min(usize::try_from(width).unwrap_or(usize::MAX)).max(1);
        self.bandwidth = Bandwidth::new(bandwidth);
        self.processor = ProcessorShare::new(percent);
        self
    }

    /// For copies into cache: they must survive the process, not the machine.
    pub(crate) fn into_cache(mut self) -> Self {
        self.durability = Durability::Process;
        self
    }

    /// Does `work` for every item, several at a time, and returns the results in the order of the items.
    pub(crate) fn each<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&mut Lane<'_>, &T) -> R + Sync) -> Vec<R> {
        let next = AtomicUsize::new(0);
        let run = || {
            let (mut lane, mut done) = (self.lane(), Vec::new());
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { return done };
                done.push((at, work(&mut lane, item)));
            }
        };
        let width = self.width.min(items.len());
        let mut all = thread::scope(|scope| {
            let others: Vec<_> = (1..width).map(|_| scope.spawn(run)).collect();
            let mut all = run();
            for other in others {
                // A panic in the work is passed on to the caller's thread.
                all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            all
        });
        all.sort_unstable_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, result)| result).collect()
    }

    /// A lane for the caller's thread.
    pub(crate) fn lane(&self) -> Lane<'_> {
        Lane { pipeline: self, buffer: Vec::new() }
    }
}

/// The size of the pieces in which files are copied, for a setting.
pub(crate) fn buffer_bytes(setting: usize) -> usize {
    setting.clamp(BUFFER_BYTES.0, BUFFER_BYTES.1)
}

fn usual_width() -> usize {
    let cores = thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    USUAL_WIDTH.min(cores)
}

/// Whether the checksum of a file is computed that has none recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    Compute,
    /// Only where one is recorded, to compare.
    IfRecorded,
}

impl Checksum {
    pub(crate) fn of(compute: bool) -> Checksum {
        if compute { Checksum::Compute } else { Checksum::IfRecorded }
    }

    fn is_needed(self, recorded: RecordedContent) -> bool {
        self == Checksum::Compute || recorded.crc.is_some()
    }
}

/// One thread of a pipeline.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    pipeline: &'a Pipeline,
    /// Allocated at the first use.
    buffer: Vec<u8>,
}

/// Which side of a copy failed.
enum MoveError {
    Source(io::Error),
    Sink(io::Error),
    Cancelled,
}

impl Lane<'_> {
    /// Copies a file; the copy replaces what is at `to` in one step, once it is written and agrees with the record. A
    /// file that is already there with this content is not copied again.
    pub(crate) fn copy(
        &mut self,
        from: &Path,
        to: &Path,
        recorded: RecordedContent,
        checksum: Checksum,
        working: &ProgressGuard,
    ) -> Result<RecordedContent, CopyFault> {
        self.copy_source(|| open(from), from, to, recorded, checksum, working)
    }

    /// As [`Lane::copy`], from a file of a dataset; `from` is its path in messages.
    pub(crate) fn copy_stored(
        &mut self,
        stored: &dyn StoredFile,
        from: &Path,
        to: &Path,
        recorded: RecordedContent,
        checksum: Checksum,
        working: &ProgressGuard,
    ) -> Result<RecordedContent, CopyFault> {
        self.copy_source(|| Ok(stored.reader()), from, to, recorded, checksum, working)
    }

    fn copy_source<R: Read>(
        &mut self,
        open: impl Fn() -> Result<R, CopyFault>,
        from: &Path,
        to: &Path,
        recorded: RecordedContent,
        checksum: Checksum,
        working: &ProgressGuard,
    ) -> Result<RecordedContent, CopyFault> {
        if let Some(content) = self.already_there(&open, from, to, recorded)? {
            working.advance(content.bytes);
            return Ok(content.into());
        }
        let mut source = open()?;
        let (pending, file) = Pending::create(to, CreationMode::of_dataset(self.pipeline.durability))?;
        let hash = checksum.is_needed(recorded);
        let found = self.pump(&mut source, &file, Some(working), hash).map_err(|broken| match broken {
            MoveError::Source(source) => CopyFault::Read { path: from.to_owned(), source },
            MoveError::Sink(source) => CopyFault::Write { path: to.to_owned(), source },
            MoveError::Cancelled => CopyFault::Cancelled,
        })?;
        let found = check(recorded, found, from)?;
        self.install(pending, &file, to)?;
        Ok(found)
    }

    /// Copies a file into `sink`, a part of the file at `to`. What was written counts only if this succeeds.
    pub(crate) fn write_into(
        &mut self,
        from: &Path,
        sink: impl Write,
        to: &Path,
        recorded: RecordedContent,
        checksum: Checksum,
        working: &ProgressGuard,
    ) -> Result<RecordedContent, CopyFault> {
        let hash = checksum.is_needed(recorded);
        let found = self.pump(open(from)?, sink, Some(working), hash).map_err(|broken| match broken {
            MoveError::Source(source) => CopyFault::Read { path: from.to_owned(), source },
            MoveError::Sink(source) => CopyFault::Write { path: to.to_owned(), source },
            MoveError::Cancelled => CopyFault::Cancelled,
        })?;
        check(recorded, found, from)
    }

    /// Sends a file of the recorded size over a connection, and behind it its checksum if that is computed; returns it.
    /// A file that does not agree with its record is not completed: the receiver must not keep it.
    pub(crate) fn send(
        &mut self,
        from: &Path,
        to: &mut impl Write,
        recorded: RecordedContent,
        checksum: Checksum,
        working: &ProgressGuard,
    ) -> Result<Option<u32>, CopyFault> {
        let source = open(from)?.take(recorded.bytes);
        let found =
            self.pump(source, &mut *to, Some(working), checksum.is_needed(recorded)).map_err(
                |broken| match broken {
                    MoveError::Source(source) => CopyFault::Read { path: from.to_owned(), source },
                    MoveError::Sink(error) => CopyFault::Peer(error),
                    MoveError::Cancelled => CopyFault::Cancelled,
                },
            )?;
        let RecordedContent { crc, .. } = check(recorded, found, from)?;
        if let Some(crc) = crc {
            to.write_all(&crc.to_be_bytes()).map_err(CopyFault::Peer)?;
        }
        Ok(crc)
    }

    /// Receives a file that [`Lane::send`] sends with the same record; it appears at `to` in one step, once it is
    /// written and has the checksum that the sender computed. Returns that.
    pub(crate) fn receive(
        &mut self,
        from: &mut impl Read,
        to: &Path,
        recorded: RecordedContent,
        checksum: Checksum,
        working: &ProgressGuard,
    ) -> Result<Option<u32>, CopyFault> {
        let (pending, file) = Pending::create(to, CreationMode::of_dataset(self.pipeline.durability))?;
        let hash = checksum.is_needed(recorded);
        let source = ExactLength::new(from, recorded.bytes);
        let RecordedContent { crc, .. } =
            self.pump(source, &file, Some(working), hash).map_err(|broken| match broken {
                MoveError::Source(error) => CopyFault::Peer(error),
                MoveError::Sink(source) => CopyFault::Write { path: to.to_owned(), source },
                MoveError::Cancelled => CopyFault::Cancelled,
            })?;
        if let Some(received) = crc {
            let mut sent = [0; 4];
            from.read_exact(&mut sent).map_err(CopyFault::Peer)?;
            let sent = u32::from_be_bytes(sent);
            if sent != received {
                return Err(CopyFault::DiffersFromOriginal { path: to.to_owned(), sent, received });
            }
        }
        self.install(pending, &file, to)?;
        Ok(crc)
    }

    /// The content of the file at `to`, if it equals `from`: then nothing has to be copied. If no checksum is recorded,
    /// `from` is read to compute it.
    fn already_there<R: Read>(
        &mut self,
        open: impl Fn() -> Result<R, CopyFault>,
        from: &Path,
        to: &Path,
        recorded: RecordedContent,
    ) -> Result<Option<FileContent>, CopyFault> {
        let same_size = fs::symlink_metadata(to).is_ok_and(|it| it.is_file() && it.len() == recorded.bytes);
        if !same_size {
            return Ok(None);
        }
        let crc = match recorded.crc {
            Some(crc) => crc,
            None => self.content_of(open()?, from)?.crc,
        };
        match self.content(to) {
            Ok(found) => Ok((found == FileContent { bytes: recorded.bytes, crc }).then_some(found)),
            // A file that cannot be read is replaced.
            Err(CopyFault::Read { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Checks a file against its record; without a recorded checksum only its size.
    pub(crate) fn verify(&mut self, path: &Path, recorded: RecordedContent) -> Result<(), CopyFault> {
        let found = if recorded.crc.is_some() {
            self.content(path)?.into()
        } else {
            let unreadable = |source| CopyFault::Read { path: path.to_owned(), source };
            RecordedContent { bytes: fs::metadata(path).map_err(unreadable)?.len(), crc: None }
        };
        check(recorded, found, path).map(drop)
    }

    /// As [`Lane::verify`], for a file of a dataset.
    pub(crate) fn verify_stored(
        &mut self,
        stored: &dyn StoredFile,
        path: &Path,
        recorded: RecordedContent,
    ) -> Result<(), CopyFault> {
        let found = match recorded.crc {
            Some(_) => self.content_of(stored.reader(), path)?.into(),
            None => RecordedContent { bytes: stored.length(), crc: None },
        };
        check(recorded, found, path).map(drop)
    }

    /// Reads a file to get its size and checksum.
    pub(crate) fn content(&mut self, path: &Path) -> Result<FileContent, CopyFault> {
        self.content_of(open(path)?, path)
    }

    fn content_of(&mut self, source: impl Read, path: &Path) -> Result<FileContent, CopyFault> {
        let found = self.pump(source, io::sink(), None, true).map_err(|broken| match broken {
            MoveError::Source(source) | MoveError::Sink(source) => CopyFault::Read { path: path.to_owned(), source },
            MoveError::Cancelled => CopyFault::Cancelled,
        })?;
        Ok(FileContent { bytes: found.bytes, crc: found.crc.unwrap_or_default() })
    }

    /// Syncs a file that was written under a temporary name, unless it goes into cache, and renames it.
    fn install(&self, pending: Pending, file: &File, to: &Path) -> Result<(), CopyFault> {
        let durability = self.pipeline.durability;
        if durability == Durability::Machine {
            file.sync_all().map_err(|source| CopyFault::Write { path: to.to_owned(), source })?;
        }
        Ok(pending.commit_as(durability)?)
    }

    /// Moves all of `source` into `sink`; the checksum is computed if `hash`.
    fn pump(
        &mut self,
        mut source: impl Read,
        mut sink: impl Write,
        working: Option<&ProgressGuard>,
        hash: bool,
    ) -> Result<RecordedContent, MoveError> {
        let Pipeline { buffer_bytes, bandwidth, processor, cancelled, .. } = self.pipeline;
        self.buffer.resize(*buffer_bytes, 0);
        let (mut hasher, mut bytes) = (hash.then(crc32fast::Hasher::new), 0);
        loop {
            if cancelled.is_cancelled() {
                return Err(MoveError::Cancelled);
            }
            let piece = processor.begin_piece();
            let read = match source.read(&mut self.buffer) {
                Ok(0) => return Ok(RecordedContent { bytes, crc: hasher.map(crc32fast::Hasher::finalize) }),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(MoveError::Source(error)),
            };
            if let Some(hasher) = &mut hasher {
                hasher.update(&self.buffer[..read]);
            }
            sink.write_all(&self.buffer[..read]).map_err(MoveError::Sink)?;
            bytes += read as u64;
            // Bytes that are only read, for a checksum, do not count as progress and are not limited.
            if let Some(working) = working {
                working.advance(read as u64);
                wait(bandwidth.moved(read as u64), cancelled);
            }
            wait(processor.end_piece(piece), cancelled);
        }
    }
}

fn wait(mut left: Duration, cancelled: &CancellationToken) {
    while !left.is_zero() && !cancelled.is_cancelled() {
        let now = left.min(WAIT);
        thread::sleep(now);
        left -= now;
    }
}

fn open(path: &Path) -> Result<File, CopyFault> {
    regular_file::open(path).map_err(|source| CopyFault::Read { path: path.to_owned(), source })
}

fn check(recorded: RecordedContent, found: RecordedContent, path: &Path) -> Result<RecordedContent, CopyFault> {
    recorded.check_copy(found).map_err(|mismatch| CopyFault::Mismatch { path: path.to_owned(), mismatch })
}

/// Reads exactly this many bytes of a connection; fewer are an error.
struct ExactLength<'a, R> {
    source: &'a mut R,
    left: u64,
}

impl<'a, R: Read> ExactLength<'a, R> {
    fn new(source: &'a mut R, bytes: u64) -> Self {
        ExactLength { source, left: bytes }
    }
}

impl<R: Read> Read for ExactLength<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        match self.source.read(&mut buffer[..most])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.left -= read as u64;
                Ok(read)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use holdfast_core::control::content::ContentMismatch;
    use holdfast_core::temporary;
    use holdfast_model::{CheckpointId, Task};

    use super::*;
    use crate::events::ProgressBoard;

    fn working() -> (Arc<ProgressBoard>, ProgressGuard) {
        let board: Arc<ProgressBoard> = Arc::default();
        let working = board.begin(Task::Copy, CheckpointId(1), 1 << 30);
        (board, working)
    }

    fn pipeline() -> Pipeline {
        Pipeline::new(4096, None, CancellationToken::new())
    }

    fn bytes(seed: u32) -> Vec<u8> {
        (0..100_000_u32).map(|at| (at.wrapping_mul(31).wrapping_add(seed) >> 3) as u8).collect()
    }

    fn recorded(bytes: &[u8]) -> RecordedContent {
        RecordedContent { bytes: bytes.len() as u64, crc: Some(crc32fast::hash(bytes)) }
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_copy_has_the_same_bytes_and_its_progress_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        let content = bytes(1);
        fs::write(&from, &content).unwrap();
        let (board, working) = working();
        let found = pipeline().lane().copy(&from, &to, recorded(&content), Checksum::IfRecorded, &working).unwrap();
        assert_eq!(found, recorded(&content));
        assert_eq!(fs::read(&to).unwrap(), content);
        assert_eq!(board.snapshot()[0].done, 100_000);
        assert_eq!(names(directory.path()), ["a", "b"]);
    }

    #[test]
    fn a_source_that_does_not_agree_with_its_record_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        let (pipeline, (_board, working)) = (pipeline(), working());
        fs::write(&from, bytes(1)).unwrap();
        fs::write(&to, "older").unwrap();
        let damaged = pipeline.lane().copy(&from, &to, recorded(&bytes(2)), Checksum::IfRecorded, &working);
        assert!(
            matches!(damaged, Err(CopyFault::Mismatch { path, mismatch: ContentMismatch::Crc { .. } }) if path == from)
        );
        let longer = RecordedContent { bytes: 100_001, crc: None };
        let shorter = pipeline.lane().copy(&from, &to, longer, Checksum::IfRecorded, &working);
        assert!(matches!(shorter, Err(CopyFault::Mismatch { mismatch: ContentMismatch::Size { .. }, .. })));
        let unreadable = pipeline.lane().copy(directory.path(), &to, longer, Checksum::Compute, &working);
        assert!(matches!(unreadable, Err(CopyFault::Read { .. })));
        assert_eq!(fs::read(&to).unwrap(), b"older");
        assert_eq!(names(directory.path()), ["a", "b"]);
    }

    #[test]
    fn a_copy_that_is_cancelled_stops_in_the_middle_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&from, bytes(1)).unwrap();
        let (board, working) = working();
        let cancelled = CancellationToken::new();
        // Cancelled while it waits for its bandwidth, for which it would need hours.
        let pipeline =
            Pipeline::new(4096, None, cancelled.clone()).limited(CopyLimits { bandwidth: 1, ..CopyLimits::NONE });
        let result = thread::scope(|scope| {
            let copying =
                scope.spawn(|| pipeline.lane().copy(&from, &to, recorded(&bytes(1)), Checksum::IfRecorded, &working));
            while board.snapshot()[0].done == 0 {
                thread::yield_now();
            }
            cancelled.cancel();
            copying.join().unwrap()
        });
        assert!(matches!(result, Err(CopyFault::Cancelled)));
        assert_eq!(board.snapshot()[0].done, 4096);
        assert_eq!(names(directory.path()), ["a"]);
    }

    #[test]
    fn an_existing_copy_is_recognised_by_its_content_not_by_its_size() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&from, bytes(1)).unwrap();
        let without_crc = RecordedContent { bytes: 100_000, crc: None };
        let pipeline = pipeline();
        let there = |recorded| pipeline.lane().already_there(|| open(&from), &from, &to, recorded).unwrap().is_some();
        assert!(!there(without_crc), "there is nothing");
        // Left by an earlier dataset of the same name and size.
        fs::write(&to, bytes(2)).unwrap();
        assert!(!there(without_crc) && !there(recorded(&bytes(1))));
        fs::write(&to, bytes(1)).unwrap();
        assert!(there(without_crc) && there(recorded(&bytes(1))));
    }

    #[test]
    fn a_file_is_received_as_it_was_sent() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        let content = bytes(3);
        fs::write(&from, &content).unwrap();
        let (pipeline, (_board, working)) = (pipeline(), working());
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let without_crc = RecordedContent { crc: None, ..recorded(&content) };
        let variants = [
            (recorded(&content), Checksum::IfRecorded),
            (without_crc, Checksum::Compute),
            (without_crc, Checksum::IfRecorded),
        ];
        for (record, checksum) in variants {
            let (sent, received) = thread::scope(|scope| {
                let sending = scope.spawn(|| pipeline.lane().send(&from, &mut near, record, checksum, &working));
                let received = pipeline.lane().receive(&mut far, &to, record, checksum, &working).unwrap();
                (sending.join().unwrap().unwrap(), received)
            });
            assert_eq!(fs::read(&to).unwrap(), content);
            fs::remove_file(&to).unwrap();
            let expected = checksum.is_needed(record).then(|| crc32fast::hash(&content));
            assert_eq!((sent, received), (expected, expected));
        }
    }

    #[test]
    fn a_file_that_differs_from_its_record_is_not_completed_by_the_sender_and_not_kept_by_the_receiver() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&from, bytes(3)).unwrap();
        let (pipeline, (_board, working)) = (pipeline(), working());
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let record = recorded(&bytes(4));
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let sent = pipeline.lane().send(&from, &mut near, record, Checksum::IfRecorded, &working);
                drop(near);
                sent
            });
            let received = pipeline.lane().receive(&mut far, &to, record, Checksum::IfRecorded, &working);
            assert!(matches!(received, Err(CopyFault::Peer(_))), "{received:?}");
            let sent = sending.join().unwrap();
            assert!(matches!(sent, Err(CopyFault::Mismatch { ref path, .. }) if *path == from), "{sent:?}");
        });
        assert!(!to.exists());
    }

    #[test]
    fn a_copy_that_differs_from_what_was_sent_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("b");
        let (_board, working) = working();
        let mut changed = bytes(3);
        changed[70_000] ^= 4;
        changed.extend(crc32fast::hash(&bytes(3)).to_be_bytes());
        let record = RecordedContent { bytes: 100_000, crc: None };
        let received = pipeline().lane().receive(&mut &changed[..], &to, record, Checksum::Compute, &working);
        let Err(fault @ CopyFault::DiffersFromOriginal { .. }) = received else { panic!("{received:?}") };
        assert!(fault.to_string().contains("differs from its original"), "{fault}");
        assert_eq!(names(directory.path()), [""; 0]);
    }

    #[test]
    fn a_connection_that_breaks_leaves_no_file_and_is_reported_as_a_lost_peer() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("b");
        let (near, mut far) = UnixStream::pair().unwrap();
        (&near).write_all(&bytes(3)[..5000]).unwrap();
        drop(near);
        let (_board, working) = working();
        let result = pipeline().lane().receive(&mut far, &to, recorded(&bytes(3)), Checksum::IfRecorded, &working);
        assert!(matches!(result, Err(CopyFault::Peer(_))));
        assert_eq!(names(directory.path()).iter().filter(|name| !temporary::is_temporary(name)).count(), 0);
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(pipeline().each(&items, |_, item| item * 2), items.iter().map(|it| it * 2).collect::<Vec<_>>());
        assert!(pipeline().each(&Vec::<u32>::new(), |_, item| *item).is_empty());
    }
}
