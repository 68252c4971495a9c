//! Checkpoints of the variables.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use holdfast_formats::fti_ff::containers;
use holdfast_formats::fti_ff::name::{FileName, FileRole};
use holdfast_formats::fti_ff::writer::{self, Stamp};
use holdfast_model::Level;

use super::{Variables, VariablesError};
use crate::client::Completed;

impl Variables {
    /// Saves all protected variables as checkpoint `id`, protected as `level` demands. The id is the program's own; it
    /// is part of the file's name. All ranks must pass the same values. Ends the process with exit code 0 when a halt
    /// condition holds, unless built with [`Builder::exit_on_halt`](crate::Builder::exit_on_halt)`(false)`.
    ///
    /// If this rank cannot write its file, the checkpoint is dropped on all ranks ([`Completed::kept`] is false), and
    /// the older ones are kept.
    ///
    /// # Errors
    /// When no variable is protected, or the agent cannot be reached.
    pub fn checkpoint(&mut self, id: u32, level: Level) -> Result<Completed, VariablesError> {
        if self.protected.is_empty() {
            return Err(VariablesError::NoVariables);
        }
        let _ = level;
        self.client.start_checkpoint()?;
        let name = FileName { checkpoint: Some(id), role: FileRole::Rank, rank: self.client.rank().0 };
        let path = self.client.route_file(name.to_string())?;
        let written = self.write(&path);
        self.last = id;
        Ok(self.client.complete_checkpoint(written.is_ok())?)
    }

    /// Saves all variables if a checkpoint is due by the intervals of the job; `None` if none is due.
    ///
    /// # Errors
    /// As [`Variables::checkpoint`].
    pub fn snapshot(&mut self) -> Result<Option<Completed>, VariablesError> {
        if !self.client.need_checkpoint()? {
            return Ok(None);
        }
        self.checkpoint(self.last.saturating_add(1), Level::Local).map(Some)
    }

    fn write(&self, path: &Path) -> Result<(), VariablesError> {
        let sizes: Vec<(i32, u64)> =
            self.protected.iter().map(|variable| (variable.id.0, variable.memory.bytes() as u64)).collect();
        let blocks = containers::next(&[], &sizes).map_err(|source| VariablesError::Containers { source })?;
        writer::write(path, blocks, Stamp::at(now()), |out| {
            for variable in &self.protected {
                let mut written = Ok(());
                variable.memory.read(&mut |bytes| written = out.write(variable.id.0, 0, bytes));
                written?;
            }
            Ok::<(), io::Error>(())
        })
        .map_err(|source| VariablesError::Writing { path: path.to_owned(), source })?;
        Ok(())
    }
}

/// The time in nanoseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(-1)
}
