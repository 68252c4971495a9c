//! Computing lost ranks of a drained checkpoint from their XOR sets, and recording what came of it
//! (`SCR manual §11.10.5, §11.10.9`, `FORMATS.md` §13).
//!
//! The steps are [`scan`](mod@super::scan), verify, [`inspect`](mod@super::inspect), [`run`] for each planned set, [`rescan`],
//! [`finish`]. Each leaves the directory so that all of them can be done again: a rebuilt file appears whole or not at
//! all, the summary is written when all files stand, the index says COMPLETE when the summary stands, and the link
//! moves last. A kill between any two is mended by [`add`](fn@super::add::add) once more.

use std::collections::HashSet;
use std::path::Path;

use chrono::NaiveDateTime;

use super::directory::{DirectoryName, Prefix};
use super::error::PrefixError;
use super::index;
use super::inspect::{Inspection, SetRebuild, Verdict, summary_of};
use super::rank_filemap::Origin;
use super::scan::{Damage, Scan, ScanOptions, scan};
use super::summary::{self, Summary};
use super::verify::VerifyUnit;
use crate::ids::Rank;
use crate::redundancy::RedundancyError;
use crate::redundancy::xor::Progress;
use crate::redundancy::xor::directory::{RebuildOptions, rebuild_member};

/// The rebuilds that an inspection allows, one a set. Sets are independent: they can run at the same time, on this
/// machine or on several that share the file system.
pub fn plan(inspection: &Inspection) -> Vec<SetRebuild> {
    inspection.rebuildable.clone()
}

/// Computes the missing member of one set: its files, their meta files, its XOR file and its filemap. Survivors are
/// verified while they are read. `progress` gets the bytes done so far, and may stop the rebuild.
///
/// # Errors
/// What the redundancy layer says; nothing of the member has then been replaced.
pub fn run(directory: &Path, rebuild: &SetRebuild, progress: &mut Progress<'_>) -> Result<(), RedundancyError> {
    let SetRebuild { group_id, members, missing, .. } = *rebuild;
    rebuild_member(directory, group_id, members, missing, &RebuildOptions::default(), progress)?;
    Ok(())
}

/// Scans after the rebuilds. What was verified before is not read again; what failed then still does not count, but
/// for the ranks that were rebuilt.
///
/// # Errors
/// Those of [`scan`].
pub fn rescan(
    before: &Scan,
    options: ScanOptions,
    failures: &[(VerifyUnit, Damage)],
    rebuilt: &[SetRebuild],
) -> Result<Scan, PrefixError> {
    let rebuilt: HashSet<Rank> = rebuilt.iter().map(|set| set.rank).collect();
    let mut scanned = scan(&before.directory, options)?;
    for (unit, damage) in failures.iter().filter(|(unit, _)| !rebuilt.contains(&unit.rank)) {
        scanned.apply_failure(unit, damage.clone());
    }
    Ok(scanned)
}

/// Writes down what the last scan found: lost filemaps that are known again, the summary, the entry in the index with
/// COMPLETE 1 or 0, and, if the checkpoint is complete and `make_current` is set, the current link. Says whether the
/// checkpoint is complete.
///
/// An incomplete checkpoint gets a summary without COMPLETE that lists what is there, and the link stays where it is.
/// A directory without any usable file gets no summary, and only an entry that exists already is marked.
///
/// # Errors
/// The first step that failed; the steps before it stay done, and the whole can be repeated.
pub fn finish(
    prefix: &Prefix,
    name: &DirectoryName,
    scan: &Scan,
    inspection: &Inspection,
    now: NaiveDateTime,
    make_current: bool,
) -> Result<bool, PrefixError> {
    let complete = inspection.verdict == Verdict::Complete;
    let directory = prefix.checkpoint_path(name);
    let Some(summary) = summary_of(scan, inspection) else {
        index::update(prefix, |index| index.set_complete(name, false))?;
        return Ok(false);
    };
    for filemap in scan.lost_filemaps() {
        filemap.write(&directory, Origin::Copy)?;
    }
    // What a flush by the library wrote stays, if it is as true as ours.
    if !summary::read(&directory).is_ok_and(|old| says_the_same(&old, &summary)) {
        summary::write(&directory, &summary)?;
    }
    index::update(prefix, |index| {
        index.add(summary.id, name, now);
        index.set_complete(name, complete);
    })?;
    if complete && make_current {
        prefix.set_current(name)?;
    }
    Ok(complete)
}

/// Whether two summaries list the same files of the same ranks. How many files a rank should have may be said by one
/// only, and so may a CRC.
fn says_the_same(old: &Summary, new: &Summary) -> bool {
    (old.id, old.ranks, old.complete) == (new.id, new.ranks, new.complete)
        && old.by_rank.len() == new.by_rank.len()
        && old.by_rank.iter().zip(&new.by_rank).all(|((old_rank, old), (new_rank, new))| {
            let counts = old.expected.is_none() || old.expected == new.expected;
            let mut old: Vec<_> = old.files.iter().collect();
            old.sort_unstable_by(|left, right| left.name.cmp(&right.name));
            old_rank == new_rank
                && counts
                && old.len() == new.files.len()
                && old.iter().zip(&new.files).all(|(old, new)| {
                    old.name == new.name
                        && old.size == new.size
                        && old.fetch == new.fetch
                        && !old.failed
                        && (old.crc == new.crc || new.crc.is_none())
                })
        })
}
