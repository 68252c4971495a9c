//! From the copies of a dataset to its report: the files to verify, the damage, the rebuilds, the reasons. The requests
//! are made by [`DrainMachine`](super::DrainMachine).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_core::prefix::inspect::{Completeness, Inspection, SetRebuild};
use holdfast_core::prefix::scan::{FileDamage, Scan};
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_formats::sion::dataset::stream_bytes;
use holdfast_model::{ContainerRequest, Rank};

use super::agenda::DrainTarget;
use super::error::RequestFailure;
use super::report::DrainReport;
use super::requests::Destination;
use super::rounds::Copied;
use crate::events::DrainResult;

/// Files in a request to verify: few enough to distribute them evenly.
const FILES_A_REQUEST: usize = 16;
/// Requests to verify files of a container: each reads the table of contents, which is as long as there are files.
const REQUESTS_OF_CONTAINER: usize = 256;

/// A dataset that is being drained.
#[derive(Clone, Debug)]
pub(super) struct Dataset {
    pub(super) target: DrainTarget,
    pub(super) destination: Arc<Destination>,
    pub(super) copied: Copied,
    /// Rebuilt files could not be written.
    pub(super) unwritable_rebuilds: bool,
    /// Plain files were moved into a container, or cannot be.
    pub(super) repacked: bool,
    /// Ranks that were rebuilt before a file was found damaged and all were verified again.
    pub(super) rebuilt_before: BTreeSet<Rank>,
}

impl Dataset {
    pub(super) fn new(target: DrainTarget, destination: Arc<Destination>, copied: Copied) -> Self {
        Dataset {
            target,
            destination,
            copied,
            unwritable_rebuilds: false,
            repacked: false,
            rebuilt_before: BTreeSet::new(),
        }
    }
}

/// Files that failed their checksum, by rank and name.
pub(super) type Failures = BTreeMap<(Rank, String), (VerifyUnit, FileDamage)>;

/// The files to verify, in requests: all but those of ranks that were just `copied` with checksums. With a container, a
/// plain file was not copied now: an earlier drain left it.
pub(super) fn batches(scan: &Scan, copied: Option<&Copied>, container: bool) -> Vec<Arc<[VerifyUnit]>> {
    let is_copied = |unit: &VerifyUnit, copied: &Copied| {
        copied.ranks.contains_key(&unit.rank) && (!container || scan.files.is_packed(&unit.name))
    };
    let mut units = scan.verify_units();
    units.retain(|unit| copied.is_none_or(|copied| !is_copied(unit, copied)));
    // The largest first, so that the last request is not the longest.
    units.sort_by_key(|unit| Reverse(unit.size));
    let most = if container { REQUESTS_OF_CONTAINER } else { usize::MAX };
    let count = units.len().div_ceil(FILES_A_REQUEST).min(most);
    let mut batches: Vec<Vec<VerifyUnit>> = vec![Vec::new(); count];
    for (at, unit) in units.into_iter().enumerate() {
        batches[at % count].push(unit);
    }
    batches.into_iter().map(Arc::from).collect()
}

/// Removes files that failed their checksum, except those of ranks that were rebuilt since.
pub(super) fn apply(scan: &mut Scan, failures: &Failures, rebuilt: &BTreeSet<Rank>) {
    for (unit, damage) in failures.values().filter(|(unit, _)| !rebuilt.contains(&unit.rank)) {
        scan.apply_failure(unit, damage.clone());
    }
}

/// The plain files of each rank that has some.
pub(super) fn plain_files(scan: &Scan) -> BTreeMap<Rank, Vec<String>> {
    let mut plain: BTreeMap<Rank, Vec<String>> = BTreeMap::new();
    for (rank, known) in &scan.ranks {
        let names = known.present.iter().filter(|(_, file)| file.output_path.is_none()).map(|(name, _)| name);
        let names: Vec<String> = names.filter(|name| !scan.files.is_packed(name)).cloned().collect();
        if !names.is_empty() {
            plain.insert(*rank, names);
        }
    }
    plain
}

/// A container for these files, in at most so many physical files.
pub(super) fn container_for(scan: &Scan, plain: &BTreeMap<Rank, Vec<String>>, files: u32) -> Option<ContainerRequest> {
    let bytes = |rank: &Rank, names: &[String]| {
        let present = &scan.ranks.get(rank)?.present;
        Some(stream_bytes(names.iter().filter_map(|name| Some(present.get(name)?.size))))
    };
    let streams: BTreeMap<Rank, u64> =
        plain.iter().filter_map(|(rank, names)| Some((*rank, bytes(rank, names)?))).collect();
    let files = files.min(u32::try_from(plain.len()).unwrap_or(u32::MAX));
    Some(ContainerRequest { ranks: scan.identity?.ranks, streams, files })
}

/// The rebuilds of a dataset's redundancy sets with their results, by position.
pub(super) type Rebuilds = BTreeMap<usize, (SetRebuild, Result<(), RequestFailure>)>;

/// True if rebuilt files could not be written.
pub(super) fn are_unwritable(rebuilds: &Rebuilds) -> bool {
    rebuilds.values().any(|(_, end)| matches!(end, Err(RequestFailure { unwritable: true, .. })))
}

/// The ranks that were rebuilt, in the order of the sets, and why others were not.
pub(super) fn outcome(rebuilds: Rebuilds) -> (Vec<Rank>, Vec<String>) {
    let (mut rebuilt, mut reasons) = (Vec::new(), Vec::new());
    for (set, end) in rebuilds.into_values() {
        match end {
            Ok(()) => rebuilt.extend(set.ranks),
            Err(failure) => reasons.push(format!("{set} was not rebuilt: {}", failure.reason)),
        }
    }
    (rebuilt, reasons)
}

/// Why the directory is not complete; empty if it is.
pub(super) fn reasons(inspection: &Inspection) -> Vec<String> {
    let mut reasons: Vec<String> = inspection.reasons.iter().map(ToString::to_string).collect();
    if inspection.completeness == Completeness::NothingUsable {
        reasons.push("no usable file could be copied".to_owned());
    }
    reasons
}

/// A dataset after its publication.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) dataset: Dataset,
    pub(super) rebuilt: BTreeSet<Rank>,
    /// Why it is not complete.
    pub(super) reasons: Vec<String>,
    pub(super) complete: bool,
}

impl Published {
    /// The report. `all_answered`: every node reported what it holds.
    pub(super) fn report(&self, all_answered: bool) -> DrainReport {
        let Dataset { target: DrainTarget { candidate, .. }, destination, copied, unwritable_rebuilds, .. } =
            &self.dataset;
        let checkpoint = candidate.checkpoint;
        let result = if self.complete {
            DrainResult::Complete { checkpoint }
        } else {
            let mut reason = candidate.incomplete.clone().unwrap_or_else(|| self.reasons.join("; "));
            if let Some((rank, why)) = copied.failed.first_key_value() {
                reason = format!("rank {rank} was not copied: {why}; {reason}");
            }
            if let Some((node, why)) = copied.unreachable.first_key_value() {
                reason = format!("{node} did not copy: {why}; {reason}");
            }
            let unwritable = *unwritable_rebuilds || copied.is_unwritable();
            DrainResult::Incomplete { checkpoint, reason, unwritable, older: None }
        };
        // Otherwise everything that the nodes have was copied, and is not enough.
        let more_is_held =
            *unwritable_rebuilds || !copied.failed.is_empty() || !copied.unreachable.is_empty() || !all_answered;
        DrainReport {
            result,
            directory: Some(destination.directory.to_string()),
            bytes: copied.ranks.values().sum(),
            copied: copied.ranks.keys().copied().collect(),
            rebuilt: self.rebuilt.iter().copied().collect(),
            failed_nodes: copied.unreachable.clone(),
            retry_may_help: !self.complete && more_is_held,
            left: BTreeSet::new(),
            flushed: None,
            unplaced: Vec::new(),
        }
    }
}
