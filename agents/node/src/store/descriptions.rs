//! What the application said of its datasets: names, and which of them are output. Read anew each time: an agent that
//! drains what an earlier one left needs it too.

use std::collections::BTreeMap;

use holdfast_wire::{CheckpointId, Dataset};

use super::StoreError;
use crate::collective::memory::{read_datasets, write_datasets};
use crate::paths::Paths;

pub(super) fn read(paths: &Paths) -> BTreeMap<CheckpointId, Dataset> {
    read_datasets(&paths.control())
}

pub(super) fn note(paths: &Paths, checkpoint: CheckpointId, dataset: Dataset) -> Result<(), StoreError> {
    let mut known = read(paths);
    if known.insert(checkpoint, dataset.clone()).as_ref() == Some(&dataset) {
        return Ok(());
    }
    write(paths, &known)
}

pub(super) fn forget(paths: &Paths, checkpoint: CheckpointId) -> Result<(), StoreError> {
    let mut known = read(paths);
    if known.remove(&checkpoint).is_some() { write(paths, &known) } else { Ok(()) }
}

fn write(paths: &Paths, known: &BTreeMap<CheckpointId, Dataset>) -> Result<(), StoreError> {
    let control = paths.control();
    write_datasets(&control, known).map_err(|source| StoreError::Describe { directory: control, source })
}
