//! The flush file: where each checkpoint is (`FORMATS.md` §7). Read anew each time, since LLNL's library writes it too.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_core::control::flush::{FlushFile, Location};
use holdfast_wire::CheckpointId;
use holdfast_wire::agent::Locations;

use super::StoreError;
use super::slots::set_aside;
use crate::paths::Paths;

fn path(paths: &Paths) -> PathBuf {
    paths.control().join("flush.scrinfo")
}

pub(super) fn read(paths: &Paths) -> Result<BTreeMap<CheckpointId, Locations>, StoreError> {
    let flush = FlushFile::read(&path(paths))?.unwrap_or_default();
    Ok(flush.checkpoints().into_iter().map(|id| (id, of(&flush, id))).collect())
}

fn of(flush: &FlushFile, checkpoint: CheckpointId) -> Locations {
    Locations {
        cache: flush.is_in(checkpoint, Location::Cache),
        pfs: flush.is_in(checkpoint, Location::ParallelFileSystem),
        flushing: flush.is_in(checkpoint, Location::Flushing),
    }
}

/// The flush file, to change it. A damaged one is put aside and begun anew: what it costs is a flush too many, while
/// refusing would cost every further checkpoint.
fn to_change(paths: &Paths) -> FlushFile {
    FlushFile::read(&path(paths))
        .unwrap_or_else(|error| {
            tracing::warn!(%error, "flush_file_begun_anew");
            set_aside(&[path(paths)]);
            None
        })
        .unwrap_or_default()
}

/// Changes the entry of a checkpoint; what stays as it is keeps its place.
pub(super) fn note(
    paths: &Paths,
    checkpoint: CheckpointId,
    change: impl FnOnce(&mut Locations),
) -> Result<(), StoreError> {
    let mut flush = to_change(paths);
    let mut locations = of(&flush, checkpoint);
    change(&mut locations);
    let wanted = [
        (Location::Cache, locations.cache),
        (Location::ParallelFileSystem, locations.pfs),
        (Location::Flushing, locations.flushing),
    ];
    for (location, wanted) in wanted {
        if wanted {
            flush.set(checkpoint, location);
        } else {
            flush.unset(checkpoint, location);
        }
    }
    Ok(flush.write(&path(paths))?)
}

pub(super) fn forget(paths: &Paths, checkpoint: CheckpointId) -> Result<(), StoreError> {
    let mut flush = to_change(paths);
    if flush.remove(checkpoint) {
        flush.write(&path(paths))?;
    }
    Ok(())
}
