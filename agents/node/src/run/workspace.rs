//! Directories for the own files of rank processes: what a program writes for a checkpoint, and what it restarts from.
//!
//! They are in the cache of the checkpoints, so that files are moved into a checkpoint without a copy. The name of each
//! contains its rank. All are removed when the next generation begins.

use std::path::PathBuf;

use holdfast_model::Rank;
use holdfast_wire::run::Settings;

use crate::directories::claim::{self, ClaimError};
use crate::directories::paths::Paths;

const PREFIX: &str = "workspace_";

/// The directory of a rank, empty. Blocks.
pub(crate) fn open(paths: &Paths, settings: &Settings, rank: Rank) -> Result<Option<PathBuf>, ClaimError> {
    let base = settings.descriptors.first().map(|descriptor| &descriptor.base);
    let directory = base.map(|base| paths.cache_node_path(base));
    directory.map(|directory| claim::emptied_part(paths, &directory, &format!("{PREFIX}{rank}"))).transpose()
}

/// Removes those of all ranks. Blocks.
pub(crate) fn remove_all(paths: &Paths, bases: &[String]) -> Result<(), ClaimError> {
    bases
        .iter()
        .try_for_each(|base| claim::remove_parts(paths, &paths.cache_node_path(base), |name| name.starts_with(PREFIX)))
}
