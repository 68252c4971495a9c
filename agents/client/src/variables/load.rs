//! Recovery of the variables.

use std::path::{Path, PathBuf};

use holdfast_formats::FormatsError;
use holdfast_formats::fti_ff::checkpoint::Checkpoint;
use holdfast_formats::fti_ff::differential::Image;
use holdfast_formats::fti_ff::name::{FileName, FileRole};
use holdfast_formats::fti_ff::verify;
use holdfast_model::{CheckpointId, Level, Rank};

use super::Variables;
use super::error::VariablesError;
use super::types::{RecoverOutcome, VariableId};

/// This rank's file of a checkpoint, and the variables that are in memory or in the file only.
struct OpenedFile {
    path: PathBuf,
    file: Checkpoint,
    absent: Vec<VariableId>,
    unclaimed: Vec<VariableId>,
}

/// Sent to the other ranks before a recovery: the variables of this rank fit.
const FIT: u8 = 0;
/// A variable has another size.
const OTHER_SIZE: u8 = 1;
/// The variables are not those of the checkpoint.
const DIFFERENT: u8 = 2;

impl Variables {
    /// The bytes of a variable in the newest checkpoint: the one that [`Variables::recover`] would load, or the last
    /// one of this process. `None` if there is none, or it does not contain the variable.
    pub fn stored_size(&self, id: impl Into<VariableId>) -> Option<u64> {
        let id = id.into();
        self.stored().into_iter().find(|(stored, _)| *stored == id).map(|(_, bytes)| bytes)
    }

    /// Ids and sizes in bytes of all variables of the newest checkpoint; see [`Variables::stored_size`].
    pub fn stored(&self) -> Vec<(VariableId, u64)> {
        if self.client.have_restart().is_none() {
            let sizes = self.files.newest().map(Image::sizes).unwrap_or_default();
            return sizes.into_iter().map(|(id, bytes)| (VariableId(id), bytes)).collect();
        }
        let file = self.restart_file().and_then(|(path, _)| Checkpoint::open(&path).ok());
        let variables = file.map(|file| file.variables()).unwrap_or_default();
        variables.into_iter().map(|variable| (VariableId(variable.id), variable.size())).collect()
    }

    /// Loads the newest checkpoint whose files are intact on all ranks. Every hash is verified before a variable is
    /// changed; if a file of any rank is damaged, that checkpoint is dropped and the next older one is used.
    ///
    /// # Errors
    /// When there is no checkpoint, a variable in memory does not have its size in the checkpoint, or the agent cannot
    /// be reached. After an error of size, recover can be called again.
    pub fn recover(&mut self) -> Result<RecoverOutcome, VariablesError> {
        self.recover_if(|_, _| true)
    }

    /// As [`Variables::recover`], but the protected variables of each rank must be those of the checkpoint, as FTI
    /// demands. If they are not on any rank, no variable is changed on any rank, and recover can be called again.
    ///
    /// # Errors
    /// As [`Variables::recover`], and when the variables differ.
    pub fn recover_exactly(&mut self) -> Result<RecoverOutcome, VariablesError> {
        self.recover_if(|absent, unclaimed| absent.is_empty() && unclaimed.is_empty())
    }

    /// `accepts` judges the variables that are absent from the checkpoint, and those that only it contains.
    fn recover_if(
        &mut self,
        accepts: impl Fn(&[VariableId], &[VariableId]) -> bool,
    ) -> Result<RecoverOutcome, VariablesError> {
        self.client.check_process("recover")?;
        let mut skipped = Vec::new();
        loop {
            let Some(checkpoint) = self.client.have_restart() else {
                if skipped.is_empty() {
                    return Err(VariablesError::NothingToRecover);
                }
                let (absent, unclaimed) = (Vec::new(), Vec::new());
                return Ok(RecoverOutcome { checkpoint: None, id: None, level: None, skipped, absent, unclaimed });
            };
            let level = self.client.restart().level;
            let intact = self.intact_file();
            let opened = intact.as_ref().ok().map(|(path, _)| self.open(checkpoint, path, &accepts)).transpose();
            let opened = self.agree_on(checkpoint, opened)?;
            self.client.start_restart()?;
            match (intact, opened) {
                (Ok((_, id)), Some(opened)) => {
                    if self.client.complete_restart(true)?.accepted() {
                        return self.load((checkpoint, level), opened, id, skipped);
                    }
                }
                (Err(reason), _) => drop(self.client.refuse_restart(&reason)?),
                (Ok(_), None) => {}
            }
            skipped.push(checkpoint);
        }
    }

    /// This rank's file of the checkpoint to restart from, and the program's id of the checkpoint.
    fn restart_file(&self) -> Option<(PathBuf, u32)> {
        let restart = self.client.restart();
        let directory = restart.directory.as_ref()?;
        let rank = self.client.rank().0;
        restart.files.iter().find_map(|file| {
            let name = FileName::parse(file)?;
            (name.role == FileRole::Rank && name.rank == rank).then_some(())?;
            Some((directory.join(file), name.checkpoint?))
        })
    }

    /// This rank's file, with the program's id, if every hash of it is correct; otherwise the reason.
    fn intact_file(&self) -> Result<(PathBuf, u32), String> {
        let Some((path, id)) = self.restart_file() else {
            return Err("the checkpoint has no file of variables of this rank".to_owned());
        };
        let check = verify::verify_own(&path, &mut |_, _| {}).map_err(|error| error.to_string())?;
        match check.damages.first() {
            None => Ok((path, id)),
            Some(damage) => Err(format!("{} is damaged: {damage}", path.display())),
        }
    }

    /// If the variables of any rank do not fit, all ranks return an error: none must wait for the others in the next
    /// call.
    fn agree_on<T>(
        &mut self,
        checkpoint: CheckpointId,
        checked: Result<T, VariablesError>,
    ) -> Result<T, VariablesError> {
        let own = match &checked {
            Ok(_) => FIT,
            Err(VariablesError::Different { .. }) => DIFFERENT,
            Err(_) => OTHER_SIZE,
        };
        let all = self.client.allgather(&[own])?;
        let checked = checked?;
        match (0..).map(Rank).zip(all).find(|(_, part)| *part != [FIT]) {
            None => Ok(checked),
            Some((rank, part)) if part == [DIFFERENT] => Err(VariablesError::DifferentOnOtherRank { rank, checkpoint }),
            Some((rank, _)) => Err(VariablesError::SizeOnOtherRank { rank, checkpoint }),
        }
    }

    /// Opens this rank's file, whose variables must fit those that are protected.
    fn open(
        &self,
        checkpoint: CheckpointId,
        path: &Path,
        accepts: &impl Fn(&[VariableId], &[VariableId]) -> bool,
    ) -> Result<OpenedFile, VariablesError> {
        let file = Checkpoint::open(path).map_err(reading(path))?;
        let mut absent: Vec<VariableId> = self.ids();
        let mut unclaimed = Vec::new();
        for stored in file.variables() {
            let Some(known) = self.protected.iter().find(|known| known.id.0 == stored.id) else {
                unclaimed.push(VariableId(stored.id));
                continue;
            };
            absent.retain(|id| *id != known.id);
            if !known.memory.accepts(stored.size()) {
                let (id, protected, stored) = (known.id, known.memory.bytes(), stored.size());
                return Err(VariablesError::Size { id, protected, stored, checkpoint });
            }
        }
        if !accepts(&absent, &unclaimed) {
            return Err(VariablesError::Different { checkpoint, absent, unclaimed });
        }
        Ok(OpenedFile { path: path.to_owned(), file, absent, unclaimed })
    }

    fn load(
        &mut self,
        (checkpoint, level): (CheckpointId, Option<Level>),
        opened: OpenedFile,
        id: u32,
        skipped: Vec<CheckpointId>,
    ) -> Result<RecoverOutcome, VariablesError> {
        let OpenedFile { path, file, absent, unclaimed } = opened;
        let mut image = Image::of_file(file.meta.layout, file.blocks());
        for stored in file.variables() {
            let Some(variable) = self.protected.iter_mut().find(|known| known.id.0 == stored.id) else { continue };
            let bytes = usize::try_from(stored.size()).unwrap_or(usize::MAX);
            let mut result = Ok(());
            let fits = variable.memory.fill(bytes, &mut |mut room| {
                for (offset, bytes) in stored.chunks.iter().filter_map(|chunk| chunk.range) {
                    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(room.len());
                    let (here, rest) = std::mem::take(&mut room).split_at_mut(bytes);
                    result = file.input.read_at(offset, here);
                    if result.is_err() {
                        return;
                    }
                    room = rest;
                }
            });
            if result.is_ok() && fits {
                variable.memory.read(&mut |bytes| image.learn(stored.id, bytes));
            }
            result.map_err(reading(&path))?;
            if !fits {
                let (id, protected, stored) = (variable.id, variable.memory.bytes(), stored.size());
                return Err(VariablesError::Size { id, protected, stored, checkpoint });
            }
        }
        self.files.add(&path, image);
        self.last = id;
        Ok(RecoverOutcome { checkpoint: Some(checkpoint), id: Some(id), level, skipped, absent, unclaimed })
    }
}

fn reading(path: &Path) -> impl FnOnce(FormatsError) -> VariablesError + use<> {
    let path = path.to_owned();
    |source| VariablesError::Reading { path, source }
}
