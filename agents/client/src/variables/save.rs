//! Checkpoints of the variables.

use std::path::Path;
use std::time::SystemTime;

use holdfast_formats::FormatsError;
use holdfast_formats::fti_ff::differential::{CheckpointFile, Image, VariableSource, Written, file_size};
use holdfast_formats::fti_ff::layout::Layout;
use holdfast_formats::fti_ff::name::{FileName, FileRole};
use holdfast_model::{Level, SnapshotIntervals, VariablesLayout};
use holdfast_wire::rank::GroupPlace;

use super::{Protected, Variables, VariablesError};
use crate::ClientError;
use crate::client::Completed;

impl Variables {
    /// Saves all protected variables as checkpoint `id`, protected as `level` demands. The id is the program's own; it
    /// is part of the file's name. All ranks must pass the same values. Ends the process with exit code 0 when a halt
    /// condition holds, unless built with [`Builder::exit_on_halt`](crate::Builder::exit_on_halt)`(false)`.
    ///
    /// If a rank cannot write its file, the checkpoint is dropped on all ranks ([`Completed::kept`] is false), and the
    /// older ones are kept; [`Variables::write_error`] is the reason on that rank.
    ///
    /// # Errors
    /// When no variable is protected, the id is larger than `i32::MAX` (FTI-FF stores an `int`), ranks pass different
    /// ids or levels, or the agent cannot be reached.
    pub fn checkpoint(&mut self, id: u32, level: Level) -> Result<Completed, VariablesError> {
        if self.protected.is_empty() {
            return Err(VariablesError::NoVariables);
        }
        if i32::try_from(id).is_err() {
            return Err(VariablesError::CheckpointId { id });
        }
        // A forked process must not link the files of the rank.
        self.client.check_process("checkpoint")?;
        self.files.link();
        let mirrored = self.client.start_level(level, id)?;
        let partner_size = match level {
            Level::Partner => self.partner_size(mirrored).inspect_err(|_| self.files.unlink())?,
            Level::Local | Level::Parity | Level::Prefix => None,
        };
        let name = FileName { checkpoint: Some(id), role: FileRole::Rank, rank: self.client.rank().0 };
        let path = match self.client.route_file(name.to_string()) {
            Ok(path) => path,
            // The other ranks wait for this one.
            Err(error @ ClientError::Failed { .. }) => {
                self.files.unlink();
                let completed = self.client.drop_checkpoint(&error.to_string())?;
                self.write_error = Some(error.into());
                self.last = id;
                return Ok(completed);
            }
            Err(error) => {
                self.files.unlink();
                return Err(error.into());
            }
        };
        let written = self.write(&path, id, partner_size);
        self.files.unlink();
        let completed = match written {
            Ok((image, written)) => {
                self.files.add(&path, image);
                (self.written, self.write_error) = (written, None);
                self.client.complete_checkpoint(true)?
            }
            Err(source) => {
                let reason = source.to_string();
                self.write_error = Some(VariablesError::Writing { source });
                self.client.drop_checkpoint(&reason)?
            }
        };
        if !completed.kept {
            self.files.forget(&path);
        }
        self.last = id;
        Ok(completed)
    }

    /// Saves all variables if a checkpoint is due by the intervals of the job (`checkpoint.variables.snapshots`), at
    /// the highest level that is due; `None` if none is due. Its id is one more than that of the last checkpoint.
    ///
    /// # Errors
    /// As [`Variables::checkpoint`].
    pub fn snapshot(&mut self) -> Result<Option<Completed>, VariablesError> {
        self.snapshot_if_due(None)
    }

    /// As [`Variables::snapshot`], with intervals of the program, equal on all ranks, in place of those of the job.
    ///
    /// # Errors
    /// As [`Variables::checkpoint`].
    pub fn snapshot_by(&mut self, intervals: SnapshotIntervals) -> Result<Option<Completed>, VariablesError> {
        self.snapshot_if_due(Some(intervals))
    }

    fn snapshot_if_due(&mut self, intervals: Option<SnapshotIntervals>) -> Result<Option<Completed>, VariablesError> {
        let level = self.client.snapshot_level(intervals)?;
        level.map(|level| self.checkpoint(self.last.saturating_add(1), level)).transpose()
    }

    /// Level 2: the bytes of the file whose copy this rank's node keeps, that of the left neighbour in the group. FTI
    /// records it in the file (`ptFs`). `None` if no neighbour has one. Collective.
    fn partner_size(&mut self, mirrored: Option<GroupPlace>) -> Result<Option<u64>, ClientError> {
        if !self.client.enabled() {
            return Ok(None);
        }
        // Variables that are too large for a file are refused when it is written.
        let size = file_size(self.layout(), self.files.newest(), &Source(&self.protected).variables()).unwrap_or(0);
        let own = mirrored.map(|place| MirroredFile { group: place.group, index: place.index, size });
        let all = self.client.allgather(&own.map(MirroredFile::to_bytes).unwrap_or_default())?;
        let left =
            mirrored.map(|place| (place.group, place.index.checked_sub(1).unwrap_or(place.size.saturating_sub(1))));
        let mut all = all.iter().filter_map(|bytes| MirroredFile::from_bytes(bytes));
        let found = all.find(|file| Some((file.group, file.index)) == left && own != Some(*file));
        Ok(found.map(|file| file.size))
    }

    fn layout(&self) -> Layout {
        match self.client.layout() {
            VariablesLayout::Document => Layout::A,
            VariablesLayout::Chunked => Layout::F,
        }
    }

    fn write(&mut self, path: &Path, id: u32, partner_size: Option<u64>) -> Result<(Image, Written), FormatsError> {
        if !self.client.enabled() {
            // Nothing is kept: there is no agent.
            return Ok((Image::of_file(Layout::A, &[]), Written::default()));
        }
        let layout = self.layout();
        let next = self.files.open(path).map_err(FormatsError::writing(path))?;
        let (held, previous) = (next.held, next.previous);
        CheckpointFile {
            file: &next.file,
            path,
            layout,
            checkpoint: id,
            timestamp: now(),
            partner_size,
            held,
            previous,
        }
        .write(&Source(&self.protected))
    }
}

/// The place and size of a rank's file, sent to all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MirroredFile {
    group: u32,
    index: u32,
    size: u64,
}

impl MirroredFile {
    fn to_bytes(self) -> Vec<u8> {
        [&self.group.to_le_bytes()[..], &self.index.to_le_bytes(), &self.size.to_le_bytes()].concat()
    }

    /// `None` for a rank whose files no neighbour keeps.
    fn from_bytes(bytes: &[u8]) -> Option<MirroredFile> {
        let (group, rest) = bytes.split_first_chunk()?;
        let (index, size) = rest.split_first_chunk()?;
        Some(MirroredFile {
            group: u32::from_le_bytes(*group),
            index: u32::from_le_bytes(*index),
            size: u64::from_le_bytes(size.try_into().ok()?),
        })
    }
}

/// The protected variables as the writer reads them.
struct Source<'a>(&'a [Protected]);

impl VariableSource for Source<'_> {
    fn variables(&self) -> Vec<(i32, u64)> {
        self.0.iter().map(|variable| (variable.id.0, variable.memory.bytes() as u64)).collect()
    }

    fn read(&self, id: i32, read: &mut dyn FnMut(&[u8])) {
        if let Some(variable) = self.0.iter().find(|variable| variable.id.0 == id) {
            variable.memory.read(read);
        }
    }
}

/// The time in nanoseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(-1)
}
