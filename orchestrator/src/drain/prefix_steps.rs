//! The steps of a drain that the orchestrator itself carries out on the prefix directory. They block.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::Local;
use holdfast_agent::dataset_directory::OPEN_DATASET;
use holdfast_core::dataset_files::DatasetFiles;
use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::prefix::publish::Publication;
use holdfast_core::prefix::scan::{self, FileDamage, Scan, ScanOptions, scan};
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::prefix::{DirectoryName, Prefix, PrefixError, flushed, rebuild, unfinished};
use holdfast_core::temporary;
use holdfast_formats::sion::SionError;
use holdfast_formats::sion::dataset::{self, DatasetCreation, RepackError};
use holdfast_model::{CheckpointId, ContainerRequest, PackedRank, Rank};

use super::action::Findings;
use super::error::PrefixStepError;
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

/// Why no copy of a dataset that was flushed can be used; `None` if one can.
pub(super) fn examine_flushed(
    prefix: PathBuf,
    job_id: &str,
    checkpoint: CheckpointId,
) -> Result<Option<String>, PrefixStepError> {
    Ok(flushed::damage(&Prefix::open(prefix)?, job_id, checkpoint, OPEN_DATASET)?)
}

/// The checkpoint that a restart takes from the prefix directory.
pub(super) fn find_older(prefix: PathBuf) -> Result<Option<CheckpointId>, PrefixStepError> {
    Ok(flushed::newest_usable(&Prefix::open(prefix)?, OPEN_DATASET)?)
}

/// Finds or creates the directory of a dataset, and records that it is being written.
pub(super) fn open(
    prefix: PathBuf,
    job_id: &str,
    checkpoint: CheckpointId,
    name: Option<&str>,
    container: Option<&ContainerRequest>,
) -> Result<OpenedDirectory, PrefixStepError> {
    let prefix = Prefix::open(prefix)?;
    let found = resume::directory_of(&prefix, job_id, checkpoint)?;
    let resumed = found.is_some();
    let directory = match found {
        Some(directory) => {
            // Of the process that was killed. No reader uses them: a failure must not prevent the drain.
            let _ = temporary::remove_abandoned(&prefix.checkpoint_path(&directory));
            directory
        }
        None => prefix.create_dataset_directory(Local::now().naive_local(), job_id, checkpoint, name)?,
    };
    resume::begin(&prefix, job_id, checkpoint, &directory)?;
    let path = prefix.checkpoint_path(&directory);
    let container = container.map(|ContainerRequest { ranks, streams, files }| {
        DatasetCreation::new(&path, *ranks, streams, *files).map_err(|error| error.to_string())
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
    directory: &Path,
    request: &ContainerRequest,
    of_rank: &BTreeMap<Rank, Vec<String>>,
) -> Result<Option<FoundDamage>, PrefixStepError> {
    let files = open_files(directory)?;
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
    let removed = unfinished::abandon_all(&Prefix::open(prefix)?, job_id, OPEN_DATASET);
    Ok(removed.inspect_err(|error| tracing::warn!(%error, "unfinished flushes cannot be removed"))?)
}

pub(super) fn read(directory: &Path) -> Result<Scan, PrefixStepError> {
    Ok(scan(directory, ScanOptions { open: OPEN_DATASET, ..ScanOptions::default() })?)
}

pub(super) fn verify(directory: &Path, units: &[VerifyUnit]) -> Result<BTreeMap<String, FileDamage>, PrefixStepError> {
    let files = open_files(directory)?;
    let damage = |unit: &VerifyUnit| Some((unit.name.clone(), unit.check(&*files, &|_| {}).err()?));
    Ok(units.iter().filter_map(damage).collect())
}

pub(super) fn rebuild(directory: &Path, set: &SetRebuild) -> Result<(), PrefixStepError> {
    let files = open_files(directory)?;
    Ok(rebuild::run(&files, set, &mut |_, _| ControlFlow::Continue(())).map(drop)?)
}

fn open_files(directory: &Path) -> Result<Arc<dyn DatasetFiles>, PrefixStepError> {
    Ok(OPEN_DATASET(directory).map_err(scan::unlisted(directory))?)
}

/// Records what a directory contains. Returns why an output with all its files cannot be complete.
pub(super) fn publish(prefix: PathBuf, findings: Findings) -> Result<Option<String>, PrefixStepError> {
    let Findings { directory, scan, inspection, make_current } = findings;
    let now = Local::now().naive_local();
    let publication = Publication::of_scan(directory, &scan, &inspection, make_current, now);
    match publication.publish(&Prefix::open(prefix)?) {
        Ok(_) => Ok(None),
        // It is recorded as incomplete, and its files stay in its directory. Other datasets are drained nevertheless.
        Err(refused @ (PrefixError::OutputPathTaken { .. } | PrefixError::InDataset { .. })) => {
            Ok(Some(refused.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the record that a directory is being written.
pub(super) fn close(prefix: PathBuf) -> Result<(), PrefixStepError> {
    resume::end(&Prefix::open(prefix)?)
}
