//! Moves the bytes of files: from file to file, and between a file and a connection to another node.
//!
//! The copies of one step share a [`Pipeline`]: the size of their buffers, how many run at a time, their bandwidth and
//! the token that cancels them. Each of its [`Lane`]s is one thread with its buffer. The recorded size and checksum
//! ([`RecordedContent`]) must agree with what is moved. A checksum is computed from the bytes that are in hand: where
//! one is recorded, and where the caller needs it ([`Checksum`]).

use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use holdfast_core::control::content::{FileContent, RecordedContent};
use holdfast_core::store::{FoundFile, OpenDataset, StagedAppender, StagedFile, StoredFile};
use holdfast_core::{regular_file, workers};
use holdfast_wire::peer::CopyLimits;
use tokio_util::sync::CancellationToken;

use super::cut_off::{BegunCopy, ComparingAppender, CutOffCopies};
use super::error::CopyFault;
use super::pace::{OrderControl, Pace};
use crate::report::events::ProgressGuard;

/// Files that one node copies at a time unless a setting says how many: enough to use a parallel file system while one
/// file is synchronised, few enough for thousands of nodes at a time. Not more than it has processors, but at least 2.
const USUAL_WIDTH: usize = 4;
/// A setting is limited to this.
const LARGEST_WIDTH: usize = 64;
/// The smallest and the largest buffer: a setting is limited to this range.
const BUFFER_BYTES: (usize, usize) = (4 << 10, 64 << 20);

#[derive(Debug)]
pub(crate) struct Pipeline {
    buffer_bytes: usize,
    /// Files that are copied at a time at most.
    width: usize,
    pace: Pace,
    /// The limit of bandwidth is also for bytes that are only read.
    limits_reads: bool,
}

impl Pipeline {
    /// Copies so many files at a time, with buffers of this size, that end when `cancelled` is.
    pub(crate) fn new(buffer_bytes: usize, threads: Option<u32>, cancelled: CancellationToken) -> Self {
        Self::of_order(buffer_bytes, threads, OrderControl { cancelled, ..OrderControl::default() })
    }

    /// The same for an order, whose limits can be lifted.
    pub(crate) fn of_order(buffer_bytes: usize, threads: Option<u32>, control: OrderControl) -> Self {
        let width = threads.map_or_else(usual_width, |threads| {
            usize::try_from(threads).unwrap_or(LARGEST_WIDTH).clamp(1, LARGEST_WIDTH)
        });
        let buffer_bytes = self::buffer_bytes(buffer_bytes);
        Pipeline { buffer_bytes, width, pace: Pace::unlimited(control), limits_reads: false }
    }

    /// Limits all its copies together.
    pub(crate) fn limited(mut self, limits: CopyLimits) -> Self {
        self.width = self.width.min(usize::try_from(limits.width).unwrap_or(usize::MAX)).max(1);
        self.pace = Pace::new(limits, self.pace.control().clone());
        self
    }

    /// Does `work` for every item, several at a time, and returns the results in the order of the items.
    pub(crate) fn each<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&mut Lane<'_>, &T) -> R + Sync) -> Vec<R> {
        workers::map_with(items, self.width, 1, || self.lane(), work)
    }

    /// For files that are only read, to compare their checksums.
    pub(crate) fn limiting_reads(self) -> Self {
        Pipeline { limits_reads: true, ..self }
    }

    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
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

/// How the bytes of a file are moved: what they must agree with, and where they are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved<'a> {
    pub(crate) recorded: RecordedContent,
    pub(crate) checksum: Checksum,
    pub(crate) working: &'a ProgressGuard,
}

/// One thread of a pipeline.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    pipeline: &'a Pipeline,
    /// Allocated at the first use.
    buffer: Vec<u8>,
}

/// Where a copy goes: a file of a dataset, in cache or in a store, which says what the copy has to survive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyTarget<'a> {
    pub(crate) dataset: &'a dyn OpenDataset,
    pub(crate) name: &'a str,
}

impl CopyTarget<'_> {
    fn path(&self) -> PathBuf {
        self.dataset.path_of(self.name)
    }
}

/// Which side of a copy failed.
enum MoveError {
    Source(io::Error),
    Sink(io::Error),
    Cancelled,
}

impl MoveError {
    fn fault(
        self,
        source: impl FnOnce(io::Error) -> CopyFault,
        sink: impl FnOnce(io::Error) -> CopyFault,
    ) -> CopyFault {
        match self {
            MoveError::Source(error) => source(error),
            MoveError::Sink(error) => sink(error),
            MoveError::Cancelled => CopyFault::Cancelled,
        }
    }
}

fn reading(path: &Path) -> impl Fn(io::Error) -> CopyFault {
    move |source| CopyFault::Read { path: path.to_owned(), source }
}

fn writing(path: &Path) -> impl Fn(io::Error) -> CopyFault {
    move |source| CopyFault::Write { path: path.to_owned(), source }
}

impl Lane<'_> {
    /// Copies a file; the copy replaces what is at `to` in one step, once it is written and agrees with the record. A
    /// file that is already there with this content is not copied again, and a copy that was cut off is completed. One
    /// that is cancelled is left for the next.
    pub(crate) fn copy(
        &mut self,
        from: &Path,
        to: CopyTarget<'_>,
        moved: Moved<'_>,
        cut_off: &CutOffCopies,
    ) -> Result<RecordedContent, CopyFault> {
        let (source, bytes) = (|| open(from), moved.recorded.bytes);
        let begun = || if cut_off.is_empty() { Ok(None) } else { Ok(cut_off.take(to, &source()?, bytes)?) };
        self.copy_source(source, Some(begun), (from, to), moved)
    }

    /// As [`Lane::copy`], from a file of a dataset; `from` is its path in messages.
    pub(crate) fn copy_stored(
        &mut self,
        stored: &dyn StoredFile,
        from: &Path,
        to: CopyTarget<'_>,
        moved: Moved<'_>,
    ) -> Result<RecordedContent, CopyFault> {
        self.copy_source(|| Ok(stored.reader()), None::<fn() -> _>, (from, to), moved)
    }

    /// `begun` is asked for a copy that was cut off; with it, one that is cancelled is left for the next.
    fn copy_source<R: Read>(
        &mut self,
        open: impl Fn() -> Result<R, CopyFault>,
        begun: Option<impl FnOnce() -> Result<Option<BegunCopy>, CopyFault>>,
        (from, to): (&Path, CopyTarget<'_>),
        moved: Moved<'_>,
    ) -> Result<RecordedContent, CopyFault> {
        let Moved { recorded, checksum, working } = moved;
        if let Some(content) = self.already_there(&open, from, to, recorded)? {
            working.advance(content.bytes);
            return Ok(content.into());
        }
        let is_kept = begun.is_some();
        let (staged, there) = match begun.map(|begun| begun()).transpose()?.flatten() {
            Some(BegunCopy { staged, bytes }) => (staged, bytes),
            None => (to.dataset.create(to.name)?, 0),
        };
        let hash = checksum.is_needed(recorded);
        let mut sink = ComparingAppender::new(&*staged, there);
        let found = match self.pump(open()?, &mut sink, Some(working), hash) {
            Ok(found) => found,
            Err(broken) => {
                if is_kept && there.max(sink.reached()) > 0 && matches!(broken, MoveError::Cancelled) {
                    staged.abandon();
                }
                return Err(broken.fault(reading(from), writing(&to.path())));
            }
        };
        if there > 0 {
            tracing::info!(file = %to.path().display(), bytes = sink.kept(), "copy_continued");
        }
        let found = check(recorded, found, from)?;
        install(staged, to)?;
        Ok(found)
    }

    /// Copies a file into `sink`, a part of the file at `to`. What was written counts only if this succeeds.
    pub(crate) fn write_into(
        &mut self,
        from: &Path,
        sink: impl Write,
        to: &Path,
        Moved { recorded, checksum, working }: Moved<'_>,
    ) -> Result<RecordedContent, CopyFault> {
        let hash = checksum.is_needed(recorded);
        let found = self.pump(open(from)?, sink, Some(working), hash);
        let found = found.map_err(|broken| broken.fault(reading(from), writing(to)))?;
        check(recorded, found, from)
    }

    /// Sends a file of the recorded size over a connection, and behind it its checksum if that is computed; returns it.
    /// A file that does not agree with its record is not completed: the receiver must not keep it.
    pub(crate) fn send(
        &mut self,
        from: &Path,
        to: &mut impl Write,
        Moved { recorded, checksum, working }: Moved<'_>,
    ) -> Result<Option<u32>, CopyFault> {
        let source = open(from)?.take(recorded.bytes);
        let found = self.pump(source, &mut *to, Some(working), checksum.is_needed(recorded));
        let found = found.map_err(|broken| broken.fault(reading(from), CopyFault::Peer))?;
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
        to: CopyTarget<'_>,
        Moved { recorded, checksum, working }: Moved<'_>,
    ) -> Result<Option<u32>, CopyFault> {
        let staged = to.dataset.create(to.name)?;
        let hash = checksum.is_needed(recorded);
        let source = ExactLength::new(from, recorded.bytes);
        let sink = StagedAppender::new(&*staged);
        let found = self.pump(source, sink, Some(working), hash);
        let RecordedContent { crc, .. } = found.map_err(|broken| broken.fault(CopyFault::Peer, writing(&to.path())))?;
        if let Some(received) = crc {
            let mut sent = [0; 4];
            from.read_exact(&mut sent).map_err(CopyFault::Peer)?;
            let sent = u32::from_be_bytes(sent);
            if sent != received {
                return Err(CopyFault::DiffersFromOriginal { path: to.path(), sent, received });
            }
        }
        install(staged, to)?;
        Ok(crc)
    }

    /// Copies the next piece of a file that is copied in place, to the same offset, and syncs it; the caller records
    /// how far it is, and waits as long as the result says before the next piece.
    pub(crate) fn copy_in_place(
        &mut self,
        from: (&Path, &File),
        to: (&Path, &File),
        offset: u64,
        end: u64,
        working: Option<&ProgressGuard>,
    ) -> Result<(u64, Duration), CopyFault> {
        let ((from_path, mut source), (to_path, mut sink)) = (from, to);
        let (read, write) = (reading(from_path), writing(to_path));
        source.seek(SeekFrom::Start(offset)).map_err(&read)?;
        sink.seek(SeekFrom::Start(offset)).map_err(&write)?;
        let mut left = source.take(end.saturating_sub(offset));
        let moved = self.move_piece(&mut left, &mut sink, None, working);
        let (piece, pause) = moved.map_err(|broken| broken.fault(&read, &write))?;
        let written = offset + piece as u64;
        if written == end {
            // What an earlier, larger file left.
            sink.set_len(end).map_err(&write)?;
        }
        sink.sync_data().map_err(write)?;
        Ok((written, pause))
    }

    /// The content of the file at `to`, if it equals `from`: then nothing has to be copied. If no checksum is recorded,
    /// `from` is read to compute it.
    fn already_there<R: Read>(
        &mut self,
        open: impl Fn() -> Result<R, CopyFault>,
        from: &Path,
        to: CopyTarget<'_>,
        recorded: RecordedContent,
    ) -> Result<Option<FileContent>, CopyFault> {
        if to.dataset.examine(to.name, None).ok() != Some(FoundFile::Regular(recorded.bytes)) {
            return Ok(None);
        }
        let crc = match recorded.crc {
            Some(crc) => crc,
            None => self.content_of(open()?, from)?.crc,
        };
        let Ok(there) = to.dataset.open(to.name, None) else { return Ok(None) };
        match self.content_of(there.reader(), &to.path()) {
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
            RecordedContent { bytes: fs::metadata(path).map_err(reading(path))?.len(), crc: None }
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
        let found = self.pump(source, io::sink(), None, true);
        let found = found.map_err(|broken| broken.fault(reading(path), reading(path)))?;
        Ok(FileContent { bytes: found.bytes, crc: found.crc.unwrap_or_default() })
    }

    /// Moves all of `source` into `sink`; the checksum is computed if `hash`.
    fn pump(
        &mut self,
        mut source: impl Read,
        mut sink: impl Write,
        working: Option<&ProgressGuard>,
        hash: bool,
    ) -> Result<RecordedContent, MoveError> {
        let (mut hasher, mut bytes) = (hash.then(crc32fast::Hasher::new), 0);
        loop {
            let (piece, pause) = self.move_piece(&mut source, &mut sink, hasher.as_mut(), working)?;
            if piece == 0 {
                return Ok(RecordedContent { bytes, crc: hasher.map(crc32fast::Hasher::finalize) });
            }
            bytes += piece as u64;
            self.pipeline.pace.wait(pause);
        }
    }

    /// Moves what one call of `source` reads. Returns its length, 0 at the end, and how long to wait before the next
    /// piece.
    fn move_piece(
        &mut self,
        source: &mut impl Read,
        sink: &mut impl Write,
        hasher: Option<&mut crc32fast::Hasher>,
        working: Option<&ProgressGuard>,
    ) -> Result<(usize, Duration), MoveError> {
        let Pipeline { buffer_bytes, pace, limits_reads, .. } = self.pipeline;
        if pace.is_cancelled() {
            return Err(MoveError::Cancelled);
        }
        self.buffer.resize(*buffer_bytes, 0);
        let begun = pace.begin_piece();
        let read = loop {
            match source.read(&mut self.buffer) {
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(MoveError::Source(error)),
            }
        };
        let piece = &self.buffer[..read];
        if let Some(hasher) = hasher {
            hasher.update(piece);
        }
        sink.write_all(piece).map_err(MoveError::Sink)?;
        // Bytes that are only read, for a checksum, do not count as progress.
        working.inspect(|working| working.advance(read as u64));
        let limited = if working.is_some() || *limits_reads { read } else { 0 };
        Ok((read, pace.end_piece(begun, limited as u64)))
    }
}

/// Synchronises a file that was written, and gives it its name.
fn install(staged: Box<dyn StagedFile>, to: CopyTarget<'_>) -> Result<(), CopyFault> {
    staged.sync().map_err(writing(&to.path()))?;
    Ok(staged.commit()?)
}

fn open(path: &Path) -> Result<File, CopyFault> {
    regular_file::open(path).map_err(reading(path))
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
    use holdfast_core::crash::{ALL_ERRORS, Subject};
    use holdfast_core::store::{PosixDataset, Staged};
    use holdfast_core::temporary;
    use holdfast_model::{CheckpointId, Task};

    use super::*;
    use crate::report::events::ProgressBoard;

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

    /// A file, and where it is copied to, in one directory.
    struct Files {
        directory: tempfile::TempDir,
        from: PathBuf,
        to: PathBuf,
        dataset: PosixDataset,
    }

    impl Files {
        /// Neither file exists.
        fn new() -> Files {
            let directory = tempfile::tempdir().unwrap();
            let (from, to) = (directory.path().join("a"), directory.path().join("b"));
            let dataset = PosixDataset::at(directory.path()).unwrap();
            Files { directory, from, to, dataset }
        }

        fn of(content: &[u8]) -> Files {
            let files = Files::new();
            fs::write(&files.from, content).unwrap();
            files
        }

        fn target(&self) -> CopyTarget<'_> {
            CopyTarget { dataset: &self.dataset, name: "b" }
        }

        fn copy(&self, pipeline: &Pipeline, moved: Moved<'_>) -> Result<RecordedContent, CopyFault> {
            pipeline.lane().copy(&self.from, self.target(), moved, &CutOffCopies::default())
        }

        fn names(&self) -> Vec<String> {
            names(self.directory.path())
        }
    }

    fn if_recorded(recorded: RecordedContent, working: &ProgressGuard) -> Moved<'_> {
        Moved { recorded, checksum: Checksum::IfRecorded, working }
    }

    #[test]
    fn a_copy_has_the_same_bytes_and_its_progress_is_shown() {
        let content = bytes(1);
        let files = Files::of(&content);
        let (board, working) = working();
        let found = files.copy(&pipeline(), if_recorded(recorded(&content), &working)).unwrap();
        assert_eq!(found, recorded(&content));
        assert_eq!(fs::read(&files.to).unwrap(), content);
        assert_eq!(board.snapshot()[0].done, 100_000);
        assert_eq!(files.names(), ["a", "b"]);
    }

    #[test]
    fn crash_a_copy_leaves_the_older_file_or_the_new_one() {
        let scratch = tempfile::tempdir().unwrap();
        let (from, content) = (scratch.path().join("a"), bytes(1));
        fs::write(&from, &content).unwrap();
        let (_board, working) = working();
        let prepare = |path: &Path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("b"), "older").unwrap();
        };
        let work = |path: &Path| {
            let dataset = PosixDataset::at(path).map_err(|error| error.to_string())?;
            let cut_off = CutOffCopies::in_dataset(&dataset);
            let target = CopyTarget { dataset: &dataset, name: "b" };
            let moved = if_recorded(recorded(&content), &working);
            pipeline().lane().copy(&from, target, moved, &cut_off).map_err(|error| format!("{error:?}"))?;
            dataset.remove_staged(Staged::Abandoned).map_err(|error| error.to_string())
        };
        let check = |path: &Path| {
            let found = fs::read(path.join("b")).map_err(|error| error.to_string())?;
            (found == b"older" || found == content).then_some(()).ok_or(format!("{} bytes", found.len()))
        };
        let result = |path: &Path| format!("{:?} {}", names(path), fs::read(path.join("b")).unwrap() == content);
        let (prepare, work, check, result): (&dyn Fn(&Path), _, _, _) = (&prepare, &work, &check, &result);
        let subject = Subject { name: "copy", prepare, work, check, result, power: true, errors: ALL_ERRORS };
        let tried = subject.interrupt();
        assert!(tried.losses > 20 && tried.errors > 50, "{tried:?}");
    }

    #[test]
    fn a_source_that_does_not_agree_with_its_record_replaces_nothing() {
        let files = Files::of(&bytes(1));
        let (pipeline, (_board, working)) = (pipeline(), working());
        fs::write(&files.to, "older").unwrap();
        let damaged = files.copy(&pipeline, if_recorded(recorded(&bytes(2)), &working));
        let Err(CopyFault::Mismatch { path, mismatch: ContentMismatch::Crc { .. } }) = damaged else { panic!() };
        assert_eq!(path, files.from);
        let longer = RecordedContent { bytes: 100_001, crc: None };
        let shorter = files.copy(&pipeline, if_recorded(longer, &working));
        assert!(matches!(shorter, Err(CopyFault::Mismatch { mismatch: ContentMismatch::Size { .. }, .. })));
        let moved = Moved { recorded: longer, checksum: Checksum::Compute, working: &working };
        let from = files.directory.path();
        let unreadable = pipeline.lane().copy(from, files.target(), moved, &CutOffCopies::default());
        assert!(matches!(unreadable, Err(CopyFault::Read { .. })));
        assert_eq!(fs::read(&files.to).unwrap(), b"older");
        assert_eq!(files.names(), ["a", "b"]);
    }

    #[test]
    fn a_copy_that_is_cancelled_stops_in_the_middle_and_the_next_goes_on_with_it() {
        let files = Files::of(&bytes(1));
        let (board, working) = working();
        let cancelled = CancellationToken::new();
        // Cancelled while it waits for its bandwidth, for which it would need hours.
        let pipeline =
            Pipeline::new(4096, None, cancelled.clone()).limited(CopyLimits { bandwidth: 1, ..CopyLimits::NONE });
        let result = thread::scope(|scope| {
            let copying = scope.spawn(|| files.copy(&pipeline, if_recorded(recorded(&bytes(1)), &working)));
            while board.snapshot()[0].done == 0 {
                thread::yield_now();
            }
            cancelled.cancel();
            copying.join().unwrap()
        });
        assert!(matches!(result, Err(CopyFault::Cancelled)));
        assert_eq!(board.snapshot()[0].done, 4096);
        let left = files.names();
        assert!(left.len() == 2 && left.contains(&"a".to_owned()), "{left:?}");
        // The next one goes on with it.
        let cut_off = CutOffCopies::in_dataset(&files.dataset);
        assert!(!cut_off.is_empty());
        let pipeline = Pipeline::new(4096, None, CancellationToken::new());
        let moved = if_recorded(recorded(&bytes(1)), &working);
        let copied = pipeline.lane().copy(&files.from, files.target(), moved, &cut_off);
        assert!(copied.is_ok() && cut_off.is_empty());
        assert_eq!(files.names(), ["a", "b"]);
        assert_eq!(fs::read(&files.to).unwrap(), bytes(1));
    }

    #[test]
    fn an_existing_copy_is_recognised_by_its_content_not_by_its_size() {
        let files = Files::of(&bytes(1));
        let without_crc = RecordedContent { bytes: 100_000, crc: None };
        let pipeline = pipeline();
        let (from, to) = (&files.from, files.target());
        let there = |recorded| pipeline.lane().already_there(|| open(from), from, to, recorded).unwrap().is_some();
        assert!(!there(without_crc), "there is nothing");
        // Left by an earlier dataset of the same name and size.
        fs::write(&files.to, bytes(2)).unwrap();
        assert!(!there(without_crc) && !there(recorded(&bytes(1))));
        fs::write(&files.to, bytes(1)).unwrap();
        assert!(there(without_crc) && there(recorded(&bytes(1))));
    }

    #[test]
    fn a_file_is_received_as_it_was_sent() {
        let content = bytes(3);
        let files = Files::of(&content);
        let (pipeline, (_board, working)) = (pipeline(), working());
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let without_crc = RecordedContent { crc: None, ..recorded(&content) };
        let variants = [
            (recorded(&content), Checksum::IfRecorded),
            (without_crc, Checksum::Compute),
            (without_crc, Checksum::IfRecorded),
        ];
        for (record, checksum) in variants {
            let moved = Moved { recorded: record, checksum, working: &working };
            let (sent, received) = thread::scope(|scope| {
                let sending = scope.spawn(|| pipeline.lane().send(&files.from, &mut near, moved));
                let received = pipeline.lane().receive(&mut far, files.target(), moved).unwrap();
                (sending.join().unwrap().unwrap(), received)
            });
            assert_eq!(fs::read(&files.to).unwrap(), content);
            fs::remove_file(&files.to).unwrap();
            let expected = checksum.is_needed(record).then(|| crc32fast::hash(&content));
            assert_eq!((sent, received), (expected, expected));
        }
    }

    #[test]
    fn a_file_that_differs_from_its_record_is_not_completed_by_the_sender_and_not_kept_by_the_receiver() {
        let files = Files::of(&bytes(3));
        let (pipeline, (_board, working)) = (pipeline(), working());
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let moved = if_recorded(recorded(&bytes(4)), &working);
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let sent = pipeline.lane().send(&files.from, &mut near, moved);
                drop(near);
                sent
            });
            let received = pipeline.lane().receive(&mut far, files.target(), moved);
            assert!(matches!(received, Err(CopyFault::Peer(_))), "{received:?}");
            let sent = sending.join().unwrap();
            assert!(matches!(sent, Err(CopyFault::Mismatch { ref path, .. }) if *path == files.from), "{sent:?}");
        });
        assert!(!files.to.exists());
    }

    #[test]
    fn a_copy_that_differs_from_what_was_sent_is_not_kept() {
        let files = Files::new();
        let (_board, working) = working();
        let mut changed = bytes(3);
        changed[70_000] ^= 4;
        changed.extend(crc32fast::hash(&bytes(3)).to_be_bytes());
        let recorded = RecordedContent { bytes: 100_000, crc: None };
        let moved = Moved { recorded, checksum: Checksum::Compute, working: &working };
        let received = pipeline().lane().receive(&mut &changed[..], files.target(), moved);
        let Err(fault @ CopyFault::DiffersFromOriginal { .. }) = received else { panic!("{received:?}") };
        assert!(fault.to_string().contains("differs from its original"), "{fault}");
        assert_eq!(files.names(), [""; 0]);
    }

    #[test]
    fn a_connection_that_breaks_leaves_no_file_and_is_reported_as_a_lost_peer() {
        let files = Files::new();
        let (near, mut far) = UnixStream::pair().unwrap();
        (&near).write_all(&bytes(3)[..5000]).unwrap();
        drop(near);
        let (_board, working) = working();
        let result = pipeline().lane().receive(&mut far, files.target(), if_recorded(recorded(&bytes(3)), &working));
        assert!(matches!(result, Err(CopyFault::Peer(_))));
        assert_eq!(files.names().iter().filter(|name| !temporary::is_temporary(name)).count(), 0);
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(pipeline().each(&items, |_, item| item * 2), items.iter().map(|it| it * 2).collect::<Vec<_>>());
        assert!(pipeline().each(&Vec::<u32>::new(), |_, item| *item).is_empty());
    }
}
