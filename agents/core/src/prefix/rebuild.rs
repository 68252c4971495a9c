//! Computing lost ranks of a drained checkpoint from their redundancy sets (`SCR manual §11.10.5`,
//! `docs/scr-files.md` §13).
//!
//! The steps are [`scan`](mod@super::scan), verify, [`inspect`](mod@super::inspect), [`run`] for each planned set,
//! [`rescan`], [`publish`](super::publish). Each leaves the directory so that all of them can be done again: a rebuilt
//! file appears complete or not at all. A kill between any two is mended by [`add`](fn@super::add::add) once more.

use std::collections::HashSet;
use std::sync::Arc;

use super::error::PrefixError;
use super::inspect::{Inspection, SetRebuild};
use super::scan::{FileDamage, Scan, ScanOptions, scan};
use super::verify::VerifyUnit;
use crate::dataset_files::DatasetFiles;
use crate::redundancy::files::RebuiltMember;
use crate::redundancy::scheme::Progress;
use crate::redundancy::{RedundancyError, registry};
use holdfast_model::Rank;

/// The rebuilds that an inspection allows, one a set. Sets are independent: they can run at the same time, on this
/// machine or on several that share the file system.
pub fn plan(inspection: &Inspection) -> Vec<SetRebuild> {
    inspection.rebuildable.clone()
}

/// Computes the missing members of one set: their files, meta files, redundancy files and filemaps. Survivors are
/// verified while they are read. `progress` gets the bytes done so far and of all, and may stop the rebuild.
///
/// # Errors
/// The error of the redundancy layer; no file of the members has then been replaced.
pub fn run(
    files: &Arc<dyn DatasetFiles>,
    rebuild: &SetRebuild,
    progress: &mut Progress<'_>,
) -> Result<Vec<RebuiltMember>, RedundancyError> {
    let SetRebuild { set, missing, .. } = rebuild;
    let scheme = registry::get(set.scheme).ok_or(RedundancyError::NotComputed { scheme: set.scheme })?;
    scheme.rebuild_in(files, *set, missing, progress)
}

/// Scans after the rebuilds. What was verified before is not read again; what failed then still does not count, but
/// for the ranks that were rebuilt.
///
/// # Errors
/// Those of [`scan`].
pub fn rescan(
    before: &Scan,
    options: ScanOptions,
    failures: &[(VerifyUnit, FileDamage)],
    rebuilt: &[SetRebuild],
) -> Result<Scan, PrefixError> {
    let rebuilt: HashSet<Rank> = rebuilt.iter().flat_map(|set| set.ranks.iter().copied()).collect();
    let mut scanned = scan(before.files.directory(), options)?;
    for (unit, damage) in failures.iter().filter(|(unit, _)| !rebuilt.contains(&unit.rank)) {
        scanned.apply_failure(unit, damage.clone());
    }
    Ok(scanned)
}
