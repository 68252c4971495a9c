//! The flush file: where each checkpoint is (`FORMATS.md` §7). Read anew each time, since LLNL's library writes it too.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_core::kvtree::{Tree, file};
use holdfast_wire::CheckpointId;
use holdfast_wire::agent::Locations;

use super::StoreError;
use crate::paths::Paths;

const CKPT: &str = "CKPT";
const LOCATION: &str = "LOCATION";
const CACHE: &str = "CACHE";
const PFS: &str = "PFS";
const FLUSHING: &str = "FLUSHING";

fn path(paths: &Paths) -> PathBuf {
    paths.control().join("flush.scrinfo")
}

fn read_tree(paths: &Paths) -> Result<Tree, StoreError> {
    Ok(file::read_if_there(&path(paths))?.unwrap_or_default())
}

pub(super) fn read(paths: &Paths) -> Result<BTreeMap<CheckpointId, Locations>, StoreError> {
    let tree = read_tree(paths)?;
    let entries = tree.get(CKPT).into_iter().flat_map(Tree::iter);
    Ok(entries.filter_map(|(id, entry)| Some((id.parse().ok()?, of(entry)))).collect())
}

fn of(entry: &Tree) -> Locations {
    let known = |place| entry.get_kv(LOCATION, place).is_some();
    Locations { cache: known(CACHE), pfs: known(PFS), flushing: known(FLUSHING) }
}

/// Changes the entry of a checkpoint; what stays as it is keeps its place.
pub(super) fn note(
    paths: &Paths,
    checkpoint: CheckpointId,
    change: impl FnOnce(&mut Locations),
) -> Result<(), StoreError> {
    let mut tree = read_tree(paths)?;
    let entry = tree.set_kv(CKPT, checkpoint);
    let mut locations = of(entry);
    change(&mut locations);
    for (place, wanted) in [(CACHE, locations.cache), (PFS, locations.pfs), (FLUSHING, locations.flushing)] {
        if wanted {
            entry.set_kv(LOCATION, place);
        } else {
            entry.unset_kv(LOCATION, place);
        }
    }
    Ok(file::write(&path(paths), &tree)?)
}

pub(super) fn forget(paths: &Paths, checkpoint: CheckpointId) -> Result<(), StoreError> {
    let mut tree = read_tree(paths)?;
    if tree.unset_kv(CKPT, checkpoint) {
        file::write(&path(paths), &tree)?;
    }
    Ok(())
}
