//! The names and purposes that the application gave its datasets. The file is read each time: an agent also needs the
//! descriptions that an earlier one wrote.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use holdfast_model::{CheckpointId, Dataset};
use parking_lot::Mutex;

use super::error::StoreError;
use crate::directories::paths::Paths;
use crate::state::state_file;

/// The state file in the control directory; it belongs to the job, not to a run.
const FILE: &str = "holdfast.datasets";

#[derive(Debug)]
pub struct Descriptions {
    control: PathBuf,
    /// Held while the file is read, changed and replaced.
    changing: Mutex<()>,
}

impl Descriptions {
    pub(super) fn open(paths: &Paths) -> Self {
        Descriptions { control: paths.control(), changing: Mutex::default() }
    }

    /// The descriptions; checkpoints without name and output are not listed. A damaged file counts as absent.
    ///
    /// # Errors
    /// When descriptors or memory are exhausted.
    pub fn read(&self) -> Result<BTreeMap<CheckpointId, Dataset>, StoreError> {
        Ok(state_file::read(&self.control.join(FILE)).map_err(|source| self.failed(source))?.unwrap_or_default())
    }

    /// True for a dataset that the application marked as output.
    ///
    /// # Errors
    /// As [`Descriptions::read`].
    pub fn is_output(&self, checkpoint: CheckpointId) -> Result<bool, StoreError> {
        Ok(self.read()?.get(&checkpoint).is_some_and(|dataset| dataset.output))
    }

    /// Records the description of a dataset.
    pub fn note(&self, checkpoint: CheckpointId, dataset: Dataset) -> Result<(), StoreError> {
        self.update(|known| known.insert(checkpoint, dataset.clone()).as_ref() != Some(&dataset))
    }

    pub(super) fn forget(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        self.update(|known| known.remove(&checkpoint).is_some())
    }

    pub(super) fn clear(&self) -> Result<(), StoreError> {
        self.update(|known| !std::mem::take(known).is_empty())
    }

    /// Changes the file; `change` returns whether it is to be written.
    fn update(&self, change: impl FnOnce(&mut BTreeMap<CheckpointId, Dataset>) -> bool) -> Result<(), StoreError> {
        let _changing = self.changing.lock();
        let mut known = self.read()?;
        if !change(&mut known) {
            return Ok(());
        }
        state_file::write(&self.control.join(FILE), &known).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Describe { directory: self.control.clone(), source }
    }
}
