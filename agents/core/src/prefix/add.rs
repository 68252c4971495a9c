//! `scr_index --add` as one call: judge a checkpoint directory, rebuild what can be rebuilt, and index it.

use std::fmt;
use std::ops::ControlFlow;

use chrono::NaiveDateTime;
use serde::Serialize;

use super::inspect::{Completeness, Inspection, LossReason, SetRebuild, inspect};
use super::publish::{self, Publication, Published};
use super::scan::{DamagedFile, Scan, ScanOptions, scan};
use super::verify::Verified;
use super::{index, outputs, rebuild};
use crate::redundancy::directory;
use crate::store::dataset_files::open_plain;
use crate::store::{DatasetAccess, DatasetOpener, DatasetStore, DirectoryName, PrefixError, Staged};
use crate::workers;
use holdfast_model::{CheckpointId, Unplaced};

#[derive(Clone, Copy, Debug)]
pub struct AddOptions {
    /// Threads that scan, verify and rebuild.
    pub threads: usize,
    /// Verify the contents of all files whose CRC is known. Without it, survivors are verified only while a rebuild
    /// reads them.
    pub verify: bool,
    /// Only report what would be done.
    pub dry_run: bool,
    /// Point `scr.current` at the directory if it is complete, as a drain does. `scr_index --add` alone does not.
    pub make_current: bool,
    /// Scan a directory again that the index records as complete.
    pub rescan: bool,
    /// Opens the files of the dataset.
    pub open: DatasetOpener,
}

impl Default for AddOptions {
    fn default() -> Self {
        AddOptions {
            threads: workers::default_threads(),
            verify: true,
            dry_run: false,
            make_current: false,
            rescan: false,
            open: open_plain,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum AddStep<'a> {
    /// That many more bytes were verified.
    Verified {
        /// Bytes since the last call.
        bytes: u64,
        /// Bytes of all files with a checksum.
        total: u64,
    },
    Rebuilding {
        set: &'a SetRebuild,
        /// Bytes since its beginning.
        bytes: u64,
        /// Bytes that are rebuilt in this set.
        total: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AddOutcome {
    /// The index records it as complete already; nothing was read.
    AlreadyComplete,
    /// Every file is there, rebuilt where it was lost.
    Complete,
    /// Dry run: what is missing can be rebuilt.
    Rebuildable,
    /// Files are lost; indexed as such.
    Incomplete,
    /// No usable file; not indexed.
    NothingUsable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RebuildFailure {
    pub set: SetRebuild,
    /// Why, as a sentence with its remedy.
    pub error: String,
}

impl fmt::Display for RebuildFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was not rebuilt: {}", self.set, self.error)
    }
}

/// What an add found and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddReport {
    pub directory: DirectoryName,
    /// The checkpoint in it, if any.
    pub id: Option<CheckpointId>,
    /// How many ranks wrote it; 0 if that was not looked at.
    pub ranks: u32,
    pub outcome: AddOutcome,
    /// What was rebuilt; on a dry run, what would be.
    pub rebuilt: Vec<SetRebuild>,
    /// What could not be rebuilt although it should.
    pub failures: Vec<RebuildFailure>,
    /// Why it is not complete.
    pub reasons: Vec<LossReason>,
    /// The files that did not count when it was first looked at; a rebuild may have replaced them.
    pub damaged: Vec<DamagedFile>,
    pub verified: Verified,
    /// Files of a complete output that are not at their paths.
    pub unplaced: Option<Unplaced>,
}

impl AddReport {
    /// Whether a restart can use the directory: the exit code of `scr_index --add`.
    pub fn is_complete(&self) -> bool {
        matches!(self.outcome, AddOutcome::AlreadyComplete | AddOutcome::Complete)
    }
}

/// Adds a checkpoint directory to the index: scan, verify, rebuild, summary, index, link. Can be repeated after a kill
/// at any point; a directory that is indexed, but not as complete, is looked at again, which the original never does.
///
/// # Errors
/// If the directory cannot be read, or a step of writing down fails. Lost and damaged files are no error but in the
/// report.
pub fn add(
    store: &dyn DatasetStore,
    name: &DirectoryName,
    now: NaiveDateTime,
    options: &AddOptions,
    on_step: &(dyn Fn(AddStep<'_>) + Sync),
) -> Result<AddReport, PrefixError> {
    let indexed = index::read(store)?.unwrap_or_default().entry(name);
    if let Some(entry) = indexed.filter(|entry| entry.complete == Some(true) && !options.rescan) {
        // A kill between the index and the link leaves the link to be moved now.
        if options.make_current && !options.dry_run && store.current()?.as_ref() != Some(name) {
            publish::make_current(store, name)?;
        }
        let unplaced = outputs::unplaced(store, name)?;
        return Ok(AddReport { unplaced, ..AddReport::new(name, Some(entry.id), AddOutcome::AlreadyComplete) });
    }
    let access = if options.dry_run { DatasetAccess::Read } else { DatasetAccess::Write };
    let dataset = store.open(name, access)?;
    if !options.dry_run {
        // Left by a rebuild or copy that was killed. No reader uses them: a failure must not prevent the rest.
        let _ = dataset.remove_staged(Staged::Abandoned);
    }
    let scan_options = ScanOptions { threads: options.threads, open: options.open };
    let mut scanned = scan(&dataset, scan_options)?;
    let verified = if options.verify {
        let total = scanned.bytes_with_checksum();
        scanned.verify(options.threads, &|bytes| on_step(AddStep::Verified { bytes, total }))
    } else {
        Verified::default()
    };
    let mut inspection = inspect(&scanned);
    let mut report = AddReport::new(name, scanned.identity.map(|it| it.id), outcome_of(&inspection));
    report.ranks = scanned.identity.map_or(0, |it| it.ranks);
    report.damaged = inspection.damaged.clone();
    if options.dry_run {
        report.rebuilt = inspection.rebuildable.clone();
        report.reasons = inspection.reasons;
        report.verified = verified;
        return Ok(report);
    }
    if !inspection.rebuildable.is_empty() {
        rebuild_all(&scanned, &inspection, options.threads, on_step, &mut report);
        scanned = rebuild::rescan(&scanned, scan_options, &verified.failures, &report.rebuilt)?;
        inspection = inspect(&scanned);
    }
    report.verified = verified;
    let publication = Publication::of_scan(name.clone(), &scanned, &inspection, options.make_current, now);
    let Published { complete, unplaced } = publication.publish(store)?;
    report.unplaced = unplaced;
    report.outcome = match inspection.completeness {
        _ if complete => AddOutcome::Complete,
        Completeness::NothingUsable => AddOutcome::NothingUsable,
        _ => AddOutcome::Incomplete,
    };
    report.reasons = inspection.reasons;
    Ok(report)
}

/// Runs the planned rebuilds, several at a time. One that fails does not keep the others from being done.
fn rebuild_all(
    scanned: &Scan,
    inspection: &Inspection,
    threads: usize,
    on_step: &(dyn Fn(AddStep<'_>) + Sync),
    report: &mut AddReport,
) {
    let planned = &inspection.rebuildable;
    let outcomes = workers::map(planned, threads, 1, |set| {
        let mut progress = |bytes, total| {
            on_step(AddStep::Rebuilding { set, bytes, total });
            ControlFlow::Continue(())
        };
        directory::rebuild(&scanned.files, set.set, &set.missing, &mut progress).map_err(|error| error.to_string())
    });
    for (set, outcome) in planned.iter().cloned().zip(outcomes) {
        match outcome {
            Ok(_) => report.rebuilt.push(set),
            Err(error) => report.failures.push(RebuildFailure { set, error }),
        }
    }
}

fn outcome_of(inspection: &Inspection) -> AddOutcome {
    match inspection.completeness {
        Completeness::Complete => AddOutcome::Complete,
        Completeness::Rebuildable => AddOutcome::Rebuildable,
        Completeness::Incomplete => AddOutcome::Incomplete,
        Completeness::NothingUsable => AddOutcome::NothingUsable,
    }
}

impl AddReport {
    fn new(directory: &DirectoryName, id: Option<CheckpointId>, outcome: AddOutcome) -> Self {
        AddReport {
            directory: directory.clone(),
            id,
            ranks: 0,
            outcome,
            rebuilt: Vec::new(),
            failures: Vec::new(),
            reasons: Vec::new(),
            damaged: Vec::new(),
            verified: Verified::default(),
            unplaced: None,
        }
    }
}
