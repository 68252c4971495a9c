//! Computing lost ranks of a drained checkpoint from their redundancy sets (`SCR manual §11.10.5`,
//! `docs/scr-files.md` §13).
//!
//! The steps are [`scan`](mod@super::scan), verify, [`inspect`](mod@super::inspect),
//! [`rebuild`](crate::redundancy::directory::rebuild) of each set that was found rebuildable, [`rescan`],
//! [`publish`](super::publish). Each leaves the directory so that all of them can be done again: a rebuilt
//! file appears complete or not at all. A kill between any two is mended by [`add`](fn@super::add::add) once more.

use std::collections::HashSet;

use super::inspect::SetRebuild;
use super::scan::{FileDamage, Scan, ScanOptions, scan};
use super::verify::VerifyUnit;
use crate::store::PrefixError;
use holdfast_model::Rank;

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
    let mut scanned = scan(&before.files.stored(), options)?;
    for (unit, damage) in failures.iter().filter(|(unit, _)| !rebuilt.contains(&unit.rank)) {
        scanned.apply_failure(unit, damage.clone());
    }
    Ok(scanned)
}
