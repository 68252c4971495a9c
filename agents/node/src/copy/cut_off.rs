//! Copies that were cut off, because their process was killed: another copy of the same file goes on where its content
//! ends.
//!
//! A file that was not committed has no name. One whose first and last bytes are those of the source at the same places
//! is taken; every piece of it is read and compared before it is left as it is. So it does not matter whether it is of
//! this source, or what the loss of a machine has left of it: at the first difference, the source is written.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;

use holdfast_core::durable::DurableError;
use holdfast_core::store::{OpenDataset, Staged, StagedFile};
use parking_lot::Mutex;

use super::pipeline::CopyTarget;
use crate::directories::paths::Paths;

/// Bytes at the begin and at the end of a file by which its source is recognised.
const PROBE: u64 = 4096;

/// What earlier copies to a dataset have left.
#[derive(Debug, Default)]
pub(crate) struct CutOffCopies(Mutex<Vec<CutOff>>);

#[derive(Clone, Debug)]
struct CutOff {
    /// Its name until it is committed.
    id: String,
    bytes: u64,
}

/// A copy that is to be completed.
#[derive(Debug)]
pub(crate) struct BegunCopy {
    pub(crate) staged: Box<dyn StagedFile>,
    /// How much of it was written.
    pub(crate) bytes: u64,
}

impl CutOffCopies {
    /// Those in a dataset; none if it cannot be listed.
    pub(crate) fn in_dataset(dataset: &dyn OpenDataset) -> Self {
        let left = dataset.abandoned().unwrap_or_default().into_iter();
        CutOffCopies(Mutex::new(left.map(|(id, bytes)| CutOff { id, bytes }).collect()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Removes those that were not completed. Other virtual nodes may still complete theirs; the publication, on the
    /// same machine, removes the rest.
    pub(crate) fn remove_rest(&self, dataset: &dyn OpenDataset, paths: &Paths) {
        if !paths.is_virtual()
            && let Err(error) = dataset.remove_staged(Staged::Abandoned)
        {
            tracing::warn!(%error, "temporary_files_not_removed");
        }
    }

    /// Takes the longest that seems to be of this source.
    ///
    /// # Errors
    /// A file cannot be made at the target.
    pub(crate) fn take(
        &self,
        to: CopyTarget<'_>,
        source: &File,
        source_bytes: u64,
    ) -> Result<Option<BegunCopy>, DurableError> {
        let found = {
            let mut left = self.0.lock();
            let fitting = left.iter().enumerate().filter(|(_, left)| left.bytes <= source_bytes);
            let matching = fitting.filter(|(_, left)| seems_of(to.dataset, left, source).unwrap_or(false));
            let longest = matching.max_by_key(|(_, left)| left.bytes).map(|(at, _)| at);
            longest.map(|at| left.swap_remove(at))
        };
        let Some(CutOff { id, bytes }) = found else { return Ok(None) };
        Ok(to.dataset.take_over(to.name, &id)?.map(|staged| BegunCopy { staged, bytes }))
    }
}

/// Compares the first and the last bytes.
fn seems_of(dataset: &dyn OpenDataset, left: &CutOff, source: &File) -> io::Result<bool> {
    let file = dataset.attach(&left.id)?;
    let length = left.bytes.min(PROBE);
    let [mut there, mut expected] = [(); 2].map(|()| vec![0; length as usize]);
    for offset in [0, left.bytes - length] {
        file.read_at(&mut there, offset)?;
        source.read_exact_at(&mut expected, offset)?;
        if there != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes a staged file from its beginning. Where it has the same bytes already, they are left as they are.
#[derive(Debug)]
pub(crate) struct ComparingAppender<'a> {
    file: &'a dyn StagedFile,
    offset: u64,
    /// Up to here the file may have the same bytes.
    same: u64,
    there: Vec<u8>,
    kept: u64,
}

impl<'a> ComparingAppender<'a> {
    /// The first `there` bytes of the file were written earlier.
    pub(crate) fn new(file: &'a dyn StagedFile, there: u64) -> Self {
        ComparingAppender { file, offset: 0, same: there, there: Vec::new(), kept: 0 }
    }

    /// How far it has come.
    pub(crate) fn reached(&self) -> u64 {
        self.offset
    }

    /// The bytes that were left as they are.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }
}

impl Write for ComparingAppender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let known =
            usize::try_from(self.same.saturating_sub(self.offset)).map_or(bytes.len(), |it| it.min(bytes.len()));
        let piece = if known == 0 { bytes } else { bytes.get(..known).unwrap_or(bytes) };
        if known > 0 {
            self.there.resize(piece.len(), 0);
            if self.file.read_at(&mut self.there, self.offset).is_ok() && self.there == piece {
                self.kept += piece.len() as u64;
            } else {
                self.same = self.offset;
            }
        }
        if self.same <= self.offset {
            self.file.write_at(piece, self.offset)?;
        }
        self.offset = self.offset.saturating_add(piece.len() as u64);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::sync::Arc;

    use holdfast_core::control::content::RecordedContent;
    use holdfast_core::store::PosixDataset;
    use holdfast_model::{CheckpointId, Task};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::copy::pipeline::{Checksum, Moved, Pipeline};
    use crate::report::events::ProgressBoard;

    const BYTES: usize = 100_000;

    fn content(seed: usize) -> Vec<u8> {
        (0..BYTES).map(|at| ((at * 31 + seed) >> 3) as u8).collect()
    }

    /// A file that a process left which has ended.
    fn leave(dataset: &PosixDataset, directory: &Path, bytes: &[u8]) -> u64 {
        let staged = dataset.create("any").unwrap();
        let parts: Vec<&str> = staged.id().split('-').collect();
        // The first process of the machine began at another time.
        let path = directory.join(format!("{}-{}-1-1-{}", parts[0], parts[1], parts[4]));
        fs::write(&path, bytes).unwrap();
        fs::metadata(&path).unwrap().ino()
    }

    /// Copies a file to a dataset with these cut-off copies; returns whether one of them was completed.
    fn completes(left: &[&[u8]]) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("to"));
        fs::create_dir(&to).unwrap();
        fs::write(&from, content(1)).unwrap();
        let dataset = PosixDataset::at(&to).unwrap();
        let left: Vec<u64> = left.iter().map(|bytes| leave(&dataset, &to, bytes)).collect();
        let cut_off = CutOffCopies::in_dataset(&dataset);
        let board: Arc<ProgressBoard> = Arc::default();
        let working = board.begin(Task::Copy, CheckpointId(1), BYTES as u64);
        let recorded = RecordedContent { bytes: BYTES as u64, crc: Some(crc32fast::hash(&content(1))) };
        let target = CopyTarget { dataset: &dataset, name: "b" };
        let pipeline = Pipeline::new(4096, None, CancellationToken::new());
        let moved = Moved { recorded, checksum: Checksum::IfRecorded, working: &working };
        let copied = pipeline.lane().copy(&from, target, moved, &cut_off).unwrap();
        assert_eq!(copied, recorded);
        assert!(fs::read(to.join("b")).unwrap() == content(1));
        left.contains(&fs::metadata(to.join("b")).unwrap().ino())
    }

    #[test]
    fn a_copy_that_was_cut_off_is_completed_whatever_it_contains_in_between() {
        assert!(completes(&[&content(1)[..60_001]]));
        assert!(completes(&[&content(1)]), "only its name was missing");
        assert!(completes(&[&[]]), "it had only begun");
        let mut lost = content(1);
        lost[40_000..50_000].fill(0);
        assert!(completes(&[&lost[..60_000]]), "a machine lost power");
        assert!(completes(&[&content(2)[..9_000], &content(1)[..7]]), "the second one is of this file");
    }

    #[test]
    fn a_copy_of_another_file_is_not_completed() {
        assert!(!completes(&[]));
        assert!(!completes(&[&content(2)[..60_000]]));
        let other_end = [&content(1)[..50_000], &content(2)[50_000..60_000]].concat();
        let longer = [content(1), vec![0]].concat();
        assert!(!completes(&[&other_end, &longer]));
    }

    #[test]
    fn bytes_that_are_there_are_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let dataset = PosixDataset::at(directory.path()).unwrap();
        let staged = dataset.create("a").unwrap();
        staged.write_at(&content(1)[..60_000], 0).unwrap();
        let mut sink = ComparingAppender::new(&*staged, 60_000);
        for piece in content(1).chunks(4096) {
            sink.write_all(piece).unwrap();
        }
        assert_eq!(sink.kept(), 60_000);
        let mut sink = ComparingAppender::new(&*staged, 60_000);
        for piece in content(2).chunks(4096) {
            sink.write_all(piece).unwrap();
        }
        assert_eq!(sink.kept(), 0);
        let mut written = vec![0; BYTES];
        staged.read_at(&mut written, 0).unwrap();
        assert!(written == content(2));
    }
}
