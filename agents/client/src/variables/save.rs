//! Checkpoints of the variables.

use std::path::Path;
use std::time::SystemTime;

use holdfast_formats::FormatsError;
use holdfast_formats::fti_ff::differential::{CheckpointFile, Image, VariableSource, Written};
use holdfast_formats::fti_ff::layout::Layout;
use holdfast_formats::fti_ff::name::{FileName, FileRole};
use holdfast_model::{Level, SnapshotIntervals, VariablesLayout};

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
        self.client.start_level(level, id)?;
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
        let written = self.write(&path, id);
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
        match self.client.snapshot_level(intervals)? {
            Some(level) => self.checkpoint(self.last.saturating_add(1), level).map(Some),
            None => Ok(None),
        }
    }

    fn write(&mut self, path: &Path, id: u32) -> Result<(Image, Written), FormatsError> {
        if !self.client.enabled() {
            // Nothing is kept: there is no agent.
            return Ok((Image::of_file(Layout::A, &[]), Written::default()));
        }
        let layout = match self.client.layout() {
            VariablesLayout::Document => Layout::A,
            VariablesLayout::Chunked => Layout::F,
        };
        let next = self.files.open(path).map_err(FormatsError::writing(path))?;
        let (held, previous) = (next.held, next.previous);
        CheckpointFile { file: &next.file, path, layout, checkpoint: id, timestamp: now(), held, previous }
            .write(&Source(&self.protected))
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
