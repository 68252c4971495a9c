//! Recovery of the variables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_formats::FormatsError;
use holdfast_formats::fti_ff::checkpoint::{Checkpoint, Variable};
use holdfast_formats::fti_ff::differential::Image;
use holdfast_formats::fti_ff::name::{FileName, FileRole};
use holdfast_formats::fti_ff::verify;
use holdfast_model::{CheckpointId, Level, Rank};

use super::error::{Result, VariablesError};
use super::others::{Origin, Placed, Survey};
use super::types::{RecoverOutcome, VariableId};
use super::{Protected, Variables, descriptions};

/// A checkpoint whose variables fit, and the variables that are in memory or in the checkpoint only.
struct Opened {
    content: Content,
    absent: Vec<VariableId>,
    unclaimed: Vec<VariableId>,
}

/// What this rank loads.
enum Content {
    /// Its own file, of this id of the program.
    Own { path: PathBuf, id: u32, file: Box<Checkpoint> },
    /// Nothing: it has no variables.
    Nothing,
    /// Parts of the files of other ranks.
    Placed(Survey, Vec<(VariableId, Origin)>),
}

/// Sent to the other ranks before a recovery: the variables of this rank fit.
const FIT: u8 = 0;
/// A variable has another size.
const OTHER_SIZE: u8 = 1;
/// The variables are not those of the checkpoint.
const DIFFERENT: u8 = 2;

impl Variables {
    /// The bytes of a variable in the newest checkpoint: the one that [`Variables::recover`] would load, or the last
    /// one of this process. `None` if there is none, or it does not contain the variable. If another number of ranks
    /// wrote the checkpoint, that of this rank's block, where the blocks of all ranks are equally long; `None` for
    /// variables that are not protected, and neither distributed nor uniform.
    pub fn stored_size(&self, id: impl Into<VariableId>) -> Option<u64> {
        let id = id.into();
        self.stored().into_iter().find(|(stored, _)| *stored == id).map(|(_, bytes)| bytes)
    }

    /// Ids and sizes in bytes of all variables of the newest checkpoint; see [`Variables::stored_size`].
    pub fn stored(&self) -> Vec<(VariableId, u64)> {
        if self.client.have_restart().is_none() {
            let sizes = self.files.newest().map(|image| image.sizes()).unwrap_or_default();
            return sizes.into_iter().map(|(id, bytes)| (VariableId(id), bytes)).collect();
        }
        if let Some(survey) = &self.others {
            let Ok(others) = &**survey else { return Vec::new() };
            let own = (self.client.rank(), self.client.ranks());
            let bytes = |variable: &Protected| others.bytes_for(variable.id.0, variable.distribution, own);
            return self.protected.iter().filter_map(|variable| Some((variable.id, bytes(variable)?))).collect();
        }
        let file = self.restart_file().and_then(|(path, _)| Checkpoint::open(&path).ok());
        let variables = file.map(|file| file.variables()).unwrap_or_default();
        variables.into_iter().map(|variable| (VariableId(variable.id), variable.size())).collect()
    }

    /// Loads the newest checkpoint whose files are intact on all ranks. Every hash is verified before a variable is
    /// changed; if a file of any rank is damaged, that checkpoint is dropped and the next older one is used.
    ///
    /// If another number of ranks wrote the checkpoint, each variable must be distributed or uniform
    /// ([`Variables::distribute`], [`Variables::uniform`]). A distributed one keeps its size in memory; that of the
    /// blocks of all ranks must be that in the checkpoint.
    ///
    /// # Errors
    /// When there is no checkpoint, a variable in memory does not have its size in the checkpoint, or the agent cannot
    /// be reached. After an error of size, recover can be called again.
    pub fn recover(&mut self) -> Result<RecoverOutcome> {
        self.recover_if(|_, _| true)
    }

    /// As [`Variables::recover`], but the protected variables of each rank must be those of the checkpoint, as FTI
    /// demands. If they are not on any rank, no variable is changed on any rank, and recover can be called again.
    ///
    /// # Errors
    /// As [`Variables::recover`], and when the variables differ.
    pub fn recover_exactly(&mut self) -> Result<RecoverOutcome> {
        self.recover_if(|absent, unclaimed| absent.is_empty() && unclaimed.is_empty())
    }

    /// Verifies the files of the checkpoint to recover from, on all ranks. While a file of any rank is damaged, that
    /// checkpoint is dropped, and the next older one is verified. Afterwards [`Variables::status`] names an intact one,
    /// which [`Variables::recover`] does not verify again. A checkpoint of another number of ranks is not verified
    /// here. Returns the checkpoints that were dropped. Collective.
    ///
    /// # Errors
    /// When the agent cannot be reached.
    pub fn verify_restart(&mut self) -> Result<Vec<CheckpointId>> {
        self.client.check_process("verify_restart")?;
        let mut dropped = Vec::new();
        while let Some(checkpoint) = self.client.have_restart().filter(|_| self.others.is_none()) {
            let intact = if self.is_idle { Ok(()) } else { self.intact_file().map(drop) };
            let all = self.client.allgather(&[u8::from(intact.is_ok())])?;
            if all.iter().all(|part| *part == [1]) {
                self.verified = Some(checkpoint);
                break;
            }
            self.client.start_restart()?;
            match intact {
                Ok(()) => self.client.complete_restart(true)?,
                Err(reason) => self.client.refuse_restart(&reason)?,
            };
            dropped.push(checkpoint);
            self.survey()?;
        }
        Ok(dropped)
    }

    /// Loads one variable of the checkpoint to recover from; the others are unchanged, and the checkpoint stays the one
    /// to recover from until the next one is begun. Not collective: call [`Variables::verify_restart`] before, on all
    /// ranks. Without it this rank's file alone is verified, in each call.
    ///
    /// # Errors
    /// When there is no checkpoint to recover from, this rank's file is damaged, another number of ranks wrote the
    /// checkpoint, the variable is not protected or not in the checkpoint, or has another size there. It is unchanged
    /// then, and the call can be repeated.
    pub fn recover_variable(&mut self, id: impl Into<VariableId>) -> Result<()> {
        let id = id.into();
        self.client.check_process("recover_variable")?;
        let checkpoint = self.client.have_restart().ok_or(VariablesError::NothingToRecover)?;
        if let Some(written) = self.client.restart().written_by.filter(|_| self.others.is_some()) {
            return Err(VariablesError::OneOfOtherRanks { id, checkpoint, written, running: self.client.ranks() });
        }
        let intact = self.intact_unless_verified(checkpoint);
        let (path, number) = intact.map_err(|reason| VariablesError::NotIntact { checkpoint, reason })?;
        let file = Checkpoint::open(&path).map_err(reading(&path))?;
        let known = self.protected.iter_mut().find(|known| known.id == id);
        let variable = known.ok_or(VariablesError::Unprotected { call: "recover_variable", id })?;
        let stored = file.variables().into_iter().find(|stored| stored.id == id.0);
        fill(variable, &file, &stored.ok_or(VariablesError::NotStored { id, checkpoint })?, &path, checkpoint)?;
        self.last = number;
        Ok(())
    }

    /// `accepts` judges the variables that are absent from the checkpoint, and those that only it contains.
    fn recover_if(&mut self, accepts: impl Fn(&[VariableId], &[VariableId]) -> bool) -> Result<RecoverOutcome> {
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
            let (intact, opened) = self.look(checkpoint, &accepts)?;
            let opened = self.agree_on(checkpoint, opened)?;
            self.client.start_restart()?;
            match (intact, opened) {
                (Ok(()), Some(opened)) => {
                    if self.client.complete_restart(true)?.accepted() {
                        return self.load((checkpoint, level), opened, skipped);
                    }
                }
                (Err(reason), _) => drop(self.client.refuse_restart(&reason)?),
                (Ok(()), None) => {}
            }
            skipped.push(checkpoint);
            self.survey()?;
        }
    }

    /// Whether the files that this rank looks at are intact, and its variables in the files.
    #[allow(clippy::type_complexity, reason = "the two results that the ranks agree on, one after the other")]
    fn look(
        &mut self,
        checkpoint: CheckpointId,
        accepts: &impl Fn(&[VariableId], &[VariableId]) -> bool,
    ) -> Result<(Result<(), String>, Result<Option<Opened>>)> {
        if self.is_idle {
            let (absent, unclaimed) = (Vec::new(), Vec::new());
            return Ok((Ok(()), Ok(Some(Opened { content: Content::Nothing, absent, unclaimed }))));
        }
        let Some(survey) = self.others.clone() else {
            return Ok(match self.intact_unless_verified(checkpoint) {
                Ok((path, id)) => (Ok(()), self.open(checkpoint, &path, id, accepts).map(Some)),
                Err(reason) => (Err(reason), Ok(None)),
            });
        };
        let others = match &*survey {
            Ok(others) => others,
            Err(reason) => return Ok((Err(reason.clone()), Ok(None))),
        };
        let intact = self.verify_share(others)?;
        let placed = self.place(checkpoint, others)?.and_then(|placed| {
            let Placed { variables, absent, unclaimed } = placed;
            judge(checkpoint, absent, unclaimed, accepts, Content::Placed(Arc::clone(&survey), variables))
        });
        Ok((intact, placed.map(Some)))
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

    /// As [`Variables::intact_file`]; a file that [`Variables::verify_restart`] has verified is not read again.
    fn intact_unless_verified(&self, checkpoint: CheckpointId) -> Result<(PathBuf, u32), String> {
        if self.verified == Some(checkpoint) { self.file_to_read() } else { self.intact_file() }
    }

    fn file_to_read(&self) -> Result<(PathBuf, u32), String> {
        self.restart_file().ok_or_else(|| "the checkpoint has no file of variables of this rank".to_owned())
    }

    /// This rank's file, with the program's id, if every hash of it is correct; otherwise the reason.
    fn intact_file(&self) -> Result<(PathBuf, u32), String> {
        let (path, id) = self.file_to_read()?;
        if let Some(names) = self.descriptions_file() {
            descriptions::read(&names)?;
        }
        let check = verify::verify_own(&path, &mut |_, _| {}).map_err(|error| error.to_string())?;
        match check.damages.first() {
            None => Ok((path, id)),
            Some(damage) => Err(format!("{} is damaged: {damage}", path.display())),
        }
    }

    /// If the variables of any rank do not fit, all ranks return an error: none must wait for the others in the next
    /// call.
    fn agree_on<T>(&mut self, checkpoint: CheckpointId, checked: Result<T>) -> Result<T> {
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
        id: u32,
        accepts: &impl Fn(&[VariableId], &[VariableId]) -> bool,
    ) -> Result<Opened> {
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
        judge(checkpoint, absent, unclaimed, accepts, Content::Own { path: path.to_owned(), id, file: Box::new(file) })
    }

    fn load(
        &mut self,
        (checkpoint, level): (CheckpointId, Option<Level>),
        opened: Opened,
        skipped: Vec<CheckpointId>,
    ) -> Result<RecoverOutcome> {
        let Opened { content, absent, unclaimed } = opened;
        let id = match content {
            Content::Own { path, id, file } => {
                self.load_own(checkpoint, &path, &file)?;
                Some(id)
            }
            Content::Nothing => None,
            Content::Placed(survey, variables) => match &*survey {
                Ok(others) => {
                    self.load_placed(checkpoint, others, &variables)?;
                    Some(others.id)
                }
                Err(_) => None,
            },
        };
        self.others = None;
        self.last = id.unwrap_or(self.last);
        Ok(RecoverOutcome { checkpoint: Some(checkpoint), id, level, skipped, absent, unclaimed })
    }

    fn load_own(&mut self, checkpoint: CheckpointId, path: &Path, file: &Checkpoint) -> Result<()> {
        let mut image = Image::of_file(file.meta.layout, file.blocks());
        for stored in file.variables() {
            let Some(variable) = self.protected.iter_mut().find(|known| known.id.0 == stored.id) else { continue };
            fill(variable, file, &stored, path, checkpoint)?;
            variable.memory.read(&mut |bytes| image.learn(stored.id, bytes));
        }
        self.files.add(path, image);
        Ok(())
    }
}

/// Loads a variable of an open file.
fn fill(
    variable: &mut Protected,
    file: &Checkpoint,
    stored: &Variable,
    path: &Path,
    checkpoint: CheckpointId,
) -> Result<()> {
    let bytes = usize::try_from(stored.size()).unwrap_or(usize::MAX);
    let mut result = Ok(());
    let fits = variable.memory.fill(bytes, &mut |room| result = file.read(stored, 0, room));
    result.map_err(reading(path))?;
    if fits {
        return Ok(());
    }
    let (id, protected, stored) = (variable.id, variable.memory.bytes(), stored.size());
    Err(VariablesError::Size { id, protected, stored, checkpoint })
}

/// The result if the variables that are in memory or in the checkpoint only are acceptable.
fn judge(
    checkpoint: CheckpointId,
    absent: Vec<VariableId>,
    unclaimed: Vec<VariableId>,
    accepts: &impl Fn(&[VariableId], &[VariableId]) -> bool,
    content: Content,
) -> Result<Opened> {
    match accepts(&absent, &unclaimed) {
        true => Ok(Opened { content, absent, unclaimed }),
        false => Err(VariablesError::Different { checkpoint, absent, unclaimed }),
    }
}

pub(super) fn reading(path: &Path) -> impl FnOnce(FormatsError) -> VariablesError + use<> {
    let path = path.to_owned();
    |source| VariablesError::Reading { path, source }
}
