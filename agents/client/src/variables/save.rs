//! Checkpoints of the variables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

use holdfast_formats::FormatsError;
use holdfast_formats::fti_ff::differential::{CheckpointFile, OpenCheckpoint, VariableSource, file_size};
use holdfast_formats::fti_ff::layout::Layout;
use holdfast_formats::fti_ff::name::{FileName, FileRole};
use holdfast_model::{Level, SnapshotIntervals, VariablesLayout};
use holdfast_wire::rank::GroupPlace;

use super::{Protected, VariableId, Variables, VariablesError};
use crate::ClientError;
use crate::client::Completed;

/// A checkpoint that was started, and not completed.
#[derive(Debug)]
pub(super) struct Started {
    /// The program's id.
    id: u32,
    /// This rank's file; `None` if it could not be written, or nothing is kept because there is no agent.
    file: Option<(PathBuf, OpenCheckpoint)>,
    /// The bytes of the variables for which the file has room.
    sizes: BTreeMap<VariableId, u64>,
    /// The variables that must be added.
    missing: BTreeSet<VariableId>,
}

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
    /// ids or levels, another checkpoint was started and not completed, or the agent cannot be reached.
    pub fn checkpoint(&mut self, id: u32, level: Level) -> Result<Completed, VariablesError> {
        self.start_checkpoint(id, level)?;
        for variable in self.ids() {
            // What failed is the reason for which the checkpoint is dropped.
            if self.write(variable).is_err() {
                break;
            }
        }
        self.complete_checkpoint()
    }

    /// Starts a checkpoint whose variables are added one by one, each with the content that it has then. All protected
    /// variables must be added, in any order, before [`Variables::complete_checkpoint`]; they keep their sizes until
    /// then. The program may compute in between, and use variables that were added. Collective, as
    /// [`Variables::checkpoint`].
    ///
    /// If this rank cannot write its file, [`Variables::write_error`] has the reason; the checkpoint must nevertheless
    /// be completed, as the other ranks wait for that.
    ///
    /// # Errors
    /// As [`Variables::checkpoint`]. No checkpoint was started then.
    pub fn start_checkpoint(&mut self, id: u32, level: Level) -> Result<(), VariablesError> {
        self.check_start(id)?;
        self.files.link();
        let mirrored = self.client.start_level(level, id)?;
        let partner_size = match level {
            Level::Partner => self.partner_size(mirrored).inspect_err(|_| self.files.unlink())?,
            Level::Local | Level::Parity | Level::Prefix => None,
        };
        let sizes = Source(&self.protected).variables();
        let opened = self.open_own_file(id, partner_size, &sizes);
        self.files.unlink();
        self.write_error = None;
        let file = match opened {
            Ok(file) => file,
            // The other ranks wait for this one.
            Err(error) if error.drops_checkpoint() => {
                self.write_error = Some(error);
                None
            }
            Err(error) => return Err(error),
        };
        let sizes: BTreeMap<_, _> = sizes.into_iter().map(|(id, bytes)| (VariableId(id), bytes)).collect();
        let missing = sizes.keys().copied().collect();
        self.started = Some(Started { id, file, sizes, missing });
        self.last = id;
        Ok(())
    }

    /// Whether a checkpoint of this id can be started, as far as this rank knows. Not collective.
    ///
    /// # Errors
    /// As [`Variables::start_checkpoint`].
    pub fn check_start(&self, id: u32) -> Result<(), VariablesError> {
        self.expect_none_started()?;
        if self.protected.is_empty() && !self.is_idle {
            return Err(VariablesError::NoVariables);
        }
        if i32::try_from(id).is_err() {
            return Err(VariablesError::CheckpointId { id });
        }
        // A forked process must not link the files of the rank.
        Ok(self.client.check_process("checkpoint")?)
    }

    /// Writes the current content of a variable into the checkpoint that was started. Not collective.
    ///
    /// # Errors
    /// When no checkpoint was started, the variable is not protected, was protected since then or has another size, or
    /// was added before: the checkpoint can still be completed with the right ones. When this rank cannot write its
    /// file: it is dropped when it is completed.
    pub fn add_variable(&mut self, id: impl Into<VariableId>) -> Result<(), VariablesError> {
        let id = id.into();
        self.client.check_process("add_variable")?;
        let started = self.started.as_ref().ok_or(VariablesError::NotStarted { call: "add_variable" })?;
        let bytes = self.size(id).ok_or(VariablesError::Unprotected { call: "add_variable", id })? as u64;
        match started.sizes.get(&id) {
            None => Err(VariablesError::ProtectedSince { id, checkpoint: started.id }),
            Some(room) if *room != bytes => {
                Err(VariablesError::SizeSince { id, checkpoint: started.id, bytes, room: *room })
            }
            Some(_) if !started.missing.contains(&id) => Err(VariablesError::AddedTwice { id, checkpoint: started.id }),
            Some(_) => self.write(id),
        }
    }

    /// Completes the checkpoint that was started. It is dropped on all ranks if a rank has not added all its variables,
    /// or could not write its file; see [`Variables::checkpoint`]. Collective.
    ///
    /// # Errors
    /// When no checkpoint was started, or the agent cannot be reached.
    pub fn complete_checkpoint(&mut self) -> Result<Completed, VariablesError> {
        self.client.check_process("complete_checkpoint")?;
        let started = self.started.take().ok_or(VariablesError::NotStarted { call: "complete_checkpoint" })?;
        if self.write_error.is_none() && !started.missing.is_empty() {
            let missing = started.missing.into_iter().collect();
            self.write_error = Some(VariablesError::NotAdded { missing, checkpoint: started.id });
        }
        if let Some(error) = &self.write_error {
            return Ok(self.client.drop_checkpoint(&error.reason())?);
        }
        let Some((path, file)) = started.file else { return Ok(self.client.complete_checkpoint(true)?) };
        let completed = match file.finish() {
            Ok((image, written)) => {
                self.files.add(&path, image);
                self.written = written;
                self.client.complete_checkpoint(true)?
            }
            Err(source) => {
                let error = self.write_error.insert(VariablesError::Writing { source });
                self.client.drop_checkpoint(&error.reason())?
            }
        };
        if !completed.kept {
            self.files.forget(&path);
        }
        Ok(completed)
    }

    /// The program's id of the checkpoint that was started and not completed.
    pub fn started(&self) -> Option<u32> {
        self.started.as_ref().map(|started| started.id)
    }

    fn expect_none_started(&self) -> Result<(), VariablesError> {
        self.started().map_or(Ok(()), |checkpoint| Err(VariablesError::Incomplete { checkpoint }))
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
        self.expect_none_started()?;
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
        let size =
            file_size(self.layout(), self.files.newest().as_deref(), &Source(&self.protected).variables()).unwrap_or(0);
        let own = mirrored.filter(|_| !self.is_idle);
        let own = own.map(|place| MirroredFile { group: place.group, index: place.index, size });
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

    /// Opens this rank's files of the checkpoint that was started; `None` if nothing is kept: there is no agent, or
    /// this rank has no variables.
    fn open_own_file(
        &mut self,
        id: u32,
        partner_size: Option<u64>,
        sizes: &[(i32, u64)],
    ) -> Result<Option<(PathBuf, OpenCheckpoint)>, VariablesError> {
        if !self.client.enabled() || self.is_idle {
            return Ok(None);
        }
        self.write_descriptions(id)?;
        let name = FileName { checkpoint: Some(id), role: FileRole::Rank, rank: self.client.rank().0 };
        let path = self.client.route_file(name.to_string())?;
        let layout = self.layout();
        let next = self.files.open(&path).map_err(FormatsError::writing(&path));
        let opened = next.and_then(|next| {
            let (held, previous) = (next.held, next.previous);
            let file = CheckpointFile {
                file: &next.file,
                path: &path,
                layout,
                checkpoint: id,
                timestamp: now(),
                partner_size,
                held,
                previous,
            };
            file.begin(sizes)
        });
        let file = opened.map_err(|source| VariablesError::Writing { source })?;
        Ok(Some((path, file)))
    }

    /// Writes the content of a variable into the checkpoint that was started.
    fn write(&mut self, id: VariableId) -> Result<(), VariablesError> {
        let Some(started) = &mut self.started else { return Err(VariablesError::NotStarted { call: "checkpoint" }) };
        if let Some(error) = &self.write_error {
            return Err(VariablesError::NotWritten { checkpoint: started.id, reason: error.reason() });
        }
        if let Some((_, file)) = &mut started.file {
            let mut result = Ok(());
            Source(&self.protected).read(id.0, &mut |bytes| result = file.add(id.0, bytes));
            if let Err(source) = result {
                let error = self.write_error.insert(VariablesError::Writing { source });
                return Err(VariablesError::NotWritten { checkpoint: started.id, reason: error.reason() });
            }
        }
        started.missing.remove(&id);
        Ok(())
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
