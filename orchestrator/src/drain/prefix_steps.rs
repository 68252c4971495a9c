//! The steps of a drain that the orchestrator itself carries out on the prefix directory. They block.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use chrono::Local;
use holdfast_core::prefix::flushed::FlushedCopy;
use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::prefix::publish::{Publication, Published};
use holdfast_core::prefix::scan::{self, FileDamage, Scan, ScanOptions, scan};
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::prefix::window::{LeftOut, Window};
use holdfast_core::prefix::{flushed, index, new_directory, outputs, reindex, unfinished};
use holdfast_core::redundancy::directory;
use holdfast_core::store::{self, DatasetAccess, DatasetFiles, DirectoryName, OpenDataset, PrefixError};
use holdfast_formats::sion::SionError;
use holdfast_formats::sion::dataset::{self, DatasetCreation, RepackError};
use holdfast_model::{CheckpointId, ContainerRequest, PackedRank, Rank, Unplaced};

use super::action::Findings;
use super::error::PrefixStepError;
use super::event::Answer;
use super::resume;

/// The directory of a dataset that is being drained.
pub(super) struct OpenedDirectory {
    pub(super) directory: DirectoryName,
    /// It existed.
    pub(super) resumed: bool,
    /// The container that was requested. One that cannot be created must not prevent the drain: the files are then
    /// copied as they are.
    pub(super) container: Option<Result<DatasetCreation, String>>,
}

/// What is known of the copy of a dataset that was flushed.
pub(super) fn examine_flushed(
    prefix: PathBuf,
    job_id: &str,
    checkpoint: CheckpointId,
) -> Result<FlushedCopy, PrefixStepError> {
    Ok(flushed::examine(&*store::open(prefix)?, job_id, checkpoint, dataset::open)?)
}

/// The checkpoint that a restart takes from the prefix directory.
pub(super) fn find_older(prefix: PathBuf) -> Result<Option<CheckpointId>, PrefixStepError> {
    Ok(flushed::newest_usable(&*store::open(prefix)?, dataset::open)?)
}

/// Records which directories a restart supersedes: see [`resume::supersede`].
///
/// # Errors
/// As [`resume::supersede`].
pub fn supersede(prefix: PathBuf, job_id: &str, from: Option<CheckpointId>) -> Result<(), PrefixStepError> {
    // Without a prefix directory there is nothing; it is not created for that.
    if prefix.try_exists().is_ok_and(|exists| !exists) {
        return Ok(());
    }
    resume::supersede(&*store::open(prefix)?, job_id, from)
}

/// Finds or creates the directory of a dataset, and records that it is being written. A directory that was left
/// incomplete is only used if the drain `continues`.
pub(super) fn open(
    prefix: PathBuf,
    job_id: &str,
    (checkpoint, name): (CheckpointId, Option<&str>),
    container: Option<&ContainerRequest>,
    continues: bool,
) -> Result<OpenedDirectory, PrefixStepError> {
    let store = store::open(prefix)?;
    let entered = reindex::restore(&*store, Local::now().naive_local(), dataset::open)?;
    if entered > 0 {
        tracing::warn!(entered, "the index was missing, and was made again from the directories");
    }
    let found = if continues { resume::directory_of(&*store, job_id, checkpoint)? } else { None };
    let resumed = found.is_some();
    let directory = match found {
        // What was cut off there is completed by the agents, or removed with the publication.
        Some(directory) => directory,
        None => new_directory::create(&*store, Local::now().naive_local(), job_id, checkpoint, name)?,
    };
    resume::begin(&*store, job_id, checkpoint, &directory)?;
    let opened = store.open(&directory, DatasetAccess::Write)?;
    let container = container.map(|ContainerRequest { ranks, streams, files }| {
        DatasetCreation::new(opened, *ranks, streams, *files).map_err(|error| error.to_string())
    });
    Ok(OpenedDirectory { directory, resumed, container })
}

/// Completes a container with what the nodes wrote to it.
pub(super) fn commit(container: DatasetCreation, packed: &BTreeMap<Rank, PackedRank>) -> Result<(), PrefixStepError> {
    warn_of_superseded(container.commit(packed)?);
    Ok(())
}

/// A container that is left though a newer one has all its files does no harm.
fn warn_of_superseded(left: Option<SionError>) {
    if let Some(error) = left {
        tracing::warn!(%error, "a superseded container cannot be removed");
    }
}

/// A file that was to be moved is damaged.
pub(super) struct FoundDamage {
    /// The rank, if it is known.
    pub(super) rank: Option<Rank>,
    pub(super) reason: String,
}

/// Moves plain files into another container, if none of them is damaged.
pub(super) fn repack(
    prefix: PathBuf,
    directory: &DirectoryName,
    request: &ContainerRequest,
    of_rank: &BTreeMap<Rank, Vec<String>>,
) -> Result<Option<FoundDamage>, PrefixStepError> {
    let files = open_files(prefix, directory, DatasetAccess::Write)?;
    let damaged = |rank, error: RepackError| Ok(Some(FoundDamage { rank, reason: error.to_string() }));
    match dataset::repack(&*files, request, of_rank) {
        Ok(left) => {
            warn_of_superseded(left);
            Ok(None)
        }
        Err(error @ RepackError::Mismatch { rank, .. }) => damaged(Some(rank), error),
        Err(error @ (RepackError::Read { .. } | RepackError::Meta(_))) => damaged(None, error),
        Err(error @ (RepackError::Container(_) | RepackError::NoPlace(_))) => Err(error.into()),
    }
}

/// Removes the directories of flushes that did not end, if the job has a complete dataset. Returns their names.
pub(super) fn abandon_flushes(prefix: PathBuf, job_id: &str) -> Result<Vec<DirectoryName>, PrefixStepError> {
    let removed = unfinished::abandon_all(&*store::open(prefix)?, job_id, dataset::open);
    Ok(removed.inspect_err(|error| tracing::warn!(%error, "unfinished flushes cannot be removed"))?)
}

pub(super) fn read(prefix: PathBuf, directory: &DirectoryName) -> Result<Scan, PrefixStepError> {
    let dataset = open_dataset(prefix, directory, DatasetAccess::Read)?;
    Ok(scan(&dataset, ScanOptions { open: dataset::open, ..ScanOptions::default() })?)
}

pub(super) fn verify(
    prefix: PathBuf,
    directory: &DirectoryName,
    units: &[VerifyUnit],
) -> Result<BTreeMap<String, FileDamage>, PrefixStepError> {
    let files = open_files(prefix, directory, DatasetAccess::Read)?;
    let damage = |unit: &VerifyUnit| Some((unit.name.clone(), unit.check(&*files, &|_| {}).err()?));
    Ok(units.iter().filter_map(damage).collect())
}

pub(super) fn rebuild(prefix: PathBuf, directory: &DirectoryName, set: &SetRebuild) -> Result<(), PrefixStepError> {
    let files = open_files(prefix, directory, DatasetAccess::Write)?;
    Ok(directory::rebuild(&files, set.set, &set.missing, &mut |_, _| ControlFlow::Continue(())).map(drop)?)
}

fn open_dataset(
    prefix: PathBuf,
    directory: &DirectoryName,
    access: DatasetAccess,
) -> Result<Arc<dyn OpenDataset>, PrefixStepError> {
    Ok(store::open(prefix)?.open(directory, access)?)
}

fn open_files(
    prefix: PathBuf,
    directory: &DirectoryName,
    access: DatasetAccess,
) -> Result<Arc<dyn DatasetFiles>, PrefixStepError> {
    let opened = open_dataset(prefix, directory, access)?;
    let location = opened.location().to_owned();
    Ok(dataset::open(opened).map_err(scan::unlisted(&location))?)
}

/// Records what a directory contains. An output with all its files may be refused, and is recorded as incomplete then.
/// A complete checkpoint is entered into the window of this job: all of its files were verified.
pub(super) fn publish(prefix: PathBuf, findings: Findings, window_of: Option<&str>) -> Result<Answer, PrefixStepError> {
    let Findings { directory, scan, inspection, make_current } = findings;
    let now = Local::now().naive_local();
    let publication = Publication::of_scan(directory, &scan, &inspection, make_current, now);
    let store = store::open(prefix)?;
    match publication.publish(&*store) {
        Ok(Published { unplaced, complete }) => {
            if let Some(job) = window_of.filter(|_| complete && make_current) {
                index::update(&*store, |index| {
                    index.mark_of_window(&publication.directory, job);
                    index.mark_verified(&publication.directory);
                })?;
            }
            Ok(Answer::Published { refused: None, unplaced })
        }
        // It is recorded as incomplete, and its files stay in its directory. Other datasets are drained nevertheless.
        Err(refused @ (PrefixError::OutputPathTaken { .. } | PrefixError::InDataset { .. })) => {
            Ok(Answer::Published { refused: Some(refused.to_string()), unplaced: None })
        }
        Err(error) => Err(error.into()),
    }
}

/// Deletes the checkpoints of the job that its window leaves out.
pub(super) fn keep_window(prefix: PathBuf, job_id: &str, keep: u32) -> Result<Vec<LeftOut>, PrefixStepError> {
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    let window = Window { job: job_id, keep, open: dataset::open, is_container: dataset::is_container_name };
    let left_out = window.enforce(&*store::open(prefix)?);
    Ok(left_out.inspect_err(|error| tracing::warn!(%error, "older checkpoints cannot be deleted"))?)
}

/// The complete outputs of a job with files that are not at their paths.
pub(super) fn unplaced(prefix: PathBuf, job_id: &str) -> Result<Vec<Unplaced>, PrefixStepError> {
    Ok(outputs::unplaced_of_job(&*store::open(prefix)?, job_id)?)
}

/// Removes the record that a directory is being written.
pub(super) fn close(prefix: PathBuf) -> Result<(), PrefixStepError> {
    resume::end(&*store::open(prefix)?)
}
