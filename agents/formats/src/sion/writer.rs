//! Creating a container, by one process or several.
//!
//! There are three steps: one process **creates** the files under temporary names, with their heads; any number of
//! processes **attach** to them ([`PlacedFiles`](super::dataset::PlacedFiles)) and write streams at the planned
//! offsets, in parallel and without communication; the creator **commits** with the byte counts of all tasks: it writes
//! the tails, synchronises and gives the files their names. The first file, by which readers open a set, gets its name
//! last, so that a set with this name is complete.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::store::{OpenDataset, StagedFile};

use super::attachment::Attachment;
use super::error::SionError;
use super::input_mismatch::InputMismatch;
use super::plan::Plan;
use super::planned_file::PlannedFile;
use super::slot::{dataset_of, part_name, place};
use super::task_writer::TaskWriter;
use super::usage::Usage;

/// A container that is being written. Dropping it without [`Creation::commit`] removes its files.
#[derive(Debug)]
pub struct Creation {
    dataset: Arc<dyn OpenDataset>,
    name: String,
    path: PathBuf,
    /// The plan it was created from.
    pub plan: Plan,
    staged: Vec<Box<dyn StagedFile>>,
    attachments: Vec<Attachment>,
}

impl Creation {
    /// Creates the files of a container under temporary names in the same directory, and writes their heads.
    ///
    /// # Errors
    /// When a file cannot be created, or a file of a set of several files exists.
    pub fn new(path: &Path, plan: Plan) -> Result<Creation, SionError> {
        Creation::new_in(dataset_of(path)?, &place(path), plan)
    }

    /// As [`Creation::new`], in a dataset.
    pub(super) fn new_in(dataset: Arc<dyn OpenDataset>, name: &str, plan: Plan) -> Result<Creation, SionError> {
        let (mut staged, mut attachments) = (Vec::new(), Vec::new());
        let several = plan.parts.len() > 1;
        for (number, part) in plan.parts.iter().enumerate() {
            let part_name = part_name(name, u32::try_from(number).unwrap_or(u32::MAX));
            // Several files do not get their names at once: a partly replaced set would be an undetectable mixture.
            if several && dataset.examine(&part_name, None).is_ok() {
                return Err(SionError::Exists { path: dataset.path_of(&part_name) });
            }
            let file = dataset.create(&part_name)?;
            let temporary = dataset.path_of(file.id());
            file.write_at(&part.head(), 0).map_err(SionError::io("write", &temporary))?;
            let attached = dataset.attach(file.id()).map_err(SionError::io("open", &temporary))?;
            attachments.push(Attachment::new(attached, &temporary, part));
            staged.push(file);
        }
        let (name, path) = (name.to_owned(), dataset.path_of(name));
        Ok(Creation { dataset, name, path, plan, staged, attachments })
    }

    /// The names by which other processes can open the files in the dataset until the container is committed, by file
    /// number.
    pub(super) fn temporary_names(&self) -> Vec<&str> {
        self.staged.iter().map(|file| file.id()).collect()
    }

    /// A writer for a task's stream, from its start.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn task(&self, task: usize) -> Result<TaskWriter, SionError> {
        let missing = || SionError::NoSuchTask { path: self.path.clone(), task, tasks: self.plan.tasks() };
        let slot = self.plan.slot(task).ok_or_else(missing)?;
        self.attachments.get(slot.part).ok_or_else(missing)?.task(slot.local)
    }

    /// Writes the byte counts, synchronises, and gives the files their names. `usages` has one entry per task, in the
    /// order of the plan.
    ///
    /// # Errors
    /// When a usage does not fit the plan, or a file cannot be written.
    pub fn commit(self, usages: &[Usage]) -> Result<(), SionError> {
        self.close(usages)?;
        for file in self.staged.into_iter().rev() {
            file.commit()?;
        }
        Ok(())
    }

    /// As [`Creation::commit`], and never replaces a file that another process made meanwhile.
    ///
    /// # Errors
    /// As for [`Creation::commit`], and [`SionError::Taken`]. Nothing is left then.
    pub fn commit_new(self, usages: &[Usage]) -> Result<(), SionError> {
        self.close(usages)?;
        let mut named = Vec::with_capacity(self.staged.len());
        for (number, file) in self.staged.into_iter().enumerate().rev() {
            let name = part_name(&self.name, u32::try_from(number).unwrap_or(u32::MAX));
            let failure = match file.commit_new() {
                Ok(true) => {
                    named.push(name);
                    continue;
                }
                Ok(false) => SionError::Taken { path: self.dataset.path_of(&name) },
                Err(error) => error.into(),
            };
            // A part without its first file is used by no reader.
            let ours: Vec<&str> = named.iter().map(String::as_str).collect();
            let _ = self.dataset.remove(&ours);
            return Err(failure);
        }
        Ok(())
    }

    /// Writes the byte counts and synchronises.
    fn close(&self, usages: &[Usage]) -> Result<(), SionError> {
        if usages.len() != self.plan.tasks() {
            let mismatch = InputMismatch::Reports { reported: usages.len(), tasks: self.plan.tasks() };
            return Err(SionError::Input { path: self.path.clone(), mismatch });
        }
        let parts = self.plan.parts.iter().zip(&self.attachments);
        for (part, attachment) in parts {
            close(part, attachment, usages.get(part.tasks.clone()).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Writes the tail and the last fields of the head, and synchronises.
fn close(part: &PlannedFile, attachment: &Attachment, usages: &[Usage]) -> Result<(), SionError> {
    let mismatched = |mismatch| SionError::Input { path: attachment.path.to_path_buf(), mismatch };
    for (position, bytes) in part.closing(usages).map_err(mismatched)? {
        attachment.write_to_file(position, &bytes)?;
    }
    attachment.synchronise()
}
