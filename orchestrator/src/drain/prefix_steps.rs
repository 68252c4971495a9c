//! The steps of a drain that the orchestrator itself carries out on the prefix directory. They block.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use chrono::NaiveDateTime;
use holdfast_core::prefix::inspect::SetRebuild;
use holdfast_core::prefix::publish::{Publication, Published};
use holdfast_core::prefix::scan::{self, FileDamage, Scan, ScanOptions, scan};
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::prefix::window::{LeftOut, Window};
use holdfast_core::prefix::{flushed, index, new_directory, outputs, reindex, unfinished};
use holdfast_core::redundancy::directory;
use holdfast_core::store::{self, DatasetAccess, DatasetFiles, DatasetStore, DirectoryName, OpenDataset, PrefixError};
use holdfast_formats::sion::SionError;
use holdfast_formats::sion::dataset::{self, DatasetCreation, RepackError};
use holdfast_model::{CheckpointId, ContainerRequest, PackedRank, Rank, Unplaced};
use parking_lot::Mutex;

use super::action::{DrainRequest, Findings};
use super::driver::DrainOrder;
use super::error::{PrefixStepError, RequestFailure};
use super::event::Answer;
use super::resume;

/// Where a drain works below the prefix directory.
#[derive(Debug)]
pub struct PrefixSteps {
    prefix: PathBuf,
    /// The job id, part of the names of directories.
    job_id: String,
    /// Incomplete directories are completed; otherwise a new one is created.
    continues: bool,
    /// Complete checkpoints belong to the window of the job.
    has_window: bool,
    /// The containers that are being written, by directory. Those that are not completed are removed with this.
    containers: Mutex<HashMap<DirectoryName, DatasetCreation>>,
}

impl PrefixSteps {
    pub fn new(order: &DrainOrder) -> Self {
        let DrainOrder { prefix, job_id, continues, copies, .. } = order;
        Self::at(prefix.clone(), job_id.clone(), *continues, copies.keep > 0)
    }

    /// Below this prefix directory, for the job with this id: see the fields of the same names.
    pub fn at(prefix: PathBuf, job_id: String, continues: bool, has_window: bool) -> Self {
        PrefixSteps { prefix, job_id, continues, has_window, containers: Mutex::default() }
    }

    /// Carries out a request that is for no agent. Blocks. `now` is the local time, for names and the index.
    ///
    /// # Errors
    /// Why it failed, and whether the prefix directory cannot be written.
    pub fn carry_out(&self, request: DrainRequest, now: NaiveDateTime) -> Result<Answer, RequestFailure> {
        let (prefix, job_id) = (self.prefix.clone(), self.job_id.as_str());
        let answer = match request {
            DrainRequest::ExamineFlushed { checkpoint } => Answer::FlushedExamined {
                copy: flushed::examine(&*open_store(prefix)?, job_id, checkpoint, dataset::open)
                    .map_err(PrefixStepError::from)?,
            },
            DrainRequest::OpenDirectory { checkpoint, name, container } => {
                self.open_directory((checkpoint, name.as_deref()), container.as_deref(), now)?
            }
            DrainRequest::CommitContainer { directory, packed } => {
                let container = self.containers.lock().remove(&directory);
                commit(container.ok_or("the container is not under way")?, &packed)?;
                Answer::ContainerCommitted
            }
            DrainRequest::Repack { directory, container, files } => repack(prefix, &directory, &container, &files)?,
            DrainRequest::Scan { directory } => Answer::Scanned(Box::new(read(prefix, &directory)?)),
            DrainRequest::Verify { directory, files, .. } => {
                Answer::Verified { damaged: verify(prefix, &directory, &files)? }
            }
            DrainRequest::Rebuild { directory, set, .. } => {
                rebuild(prefix, &directory, &set)?;
                Answer::Rebuilt
            }
            DrainRequest::Publish { findings } => publish(prefix, *findings, self.has_window.then_some(job_id), now)?,
            DrainRequest::CloseDirectory => {
                close(prefix)?;
                Answer::DirectoryClosed
            }
            DrainRequest::FindOlder => Answer::OlderFound {
                checkpoint: flushed::newest_usable(&*open_store(prefix)?, dataset::open)
                    .map_err(PrefixStepError::from)?,
            },
            DrainRequest::AbandonFlushes => Answer::FlushesAbandoned { directories: abandon_flushes(prefix, job_id)? },
            DrainRequest::KeepWindow { keep } => Answer::WindowKept { left_out: keep_window(prefix, job_id, keep)? },
            DrainRequest::TakeInventory { .. } | DrainRequest::Copy { .. } | DrainRequest::NoteFlushed { .. } => {
                return Err("only an agent can do that".into());
            }
        };
        Ok(answer)
    }

    /// Finds or creates the directory of a dataset, and records that it is being written. A container that cannot be
    /// created must not prevent the drain: the files are then copied as they are.
    fn open_directory(
        &self,
        (checkpoint, name): (CheckpointId, Option<&str>),
        container: Option<&ContainerRequest>,
        now: NaiveDateTime,
    ) -> Result<Answer, PrefixStepError> {
        let (store, job_id) = (store::open(&self.prefix)?, self.job_id.as_str());
        let entered = reindex::restore(&*store, now, dataset::open)?;
        if entered > 0 {
            tracing::warn!(entered, "the index was missing, and was made again from the directories");
        }
        let found = if self.continues { resume::directory_of(&*store, job_id, checkpoint)? } else { None };
        let resumed = found.is_some();
        let directory = match found {
            // What was cut off there is completed by the agents, or removed with the publication.
            Some(directory) => directory,
            None => new_directory::create(&*store, now, job_id, checkpoint, name)?,
        };
        resume::begin(&*store, job_id, checkpoint, &directory)?;
        let opened = store.open(&directory, DatasetAccess::Write)?;
        let mut under_way = self.containers.lock();
        // One dataset is drained at a time: the container of another one was not completed.
        under_way.clear();
        let container = container.map(|ContainerRequest { ranks, streams, files }| {
            let created = DatasetCreation::new(opened, *ranks, streams, *files).map_err(|error| error.to_string())?;
            let places = Arc::new(created.places());
            under_way.insert(directory.clone(), created);
            Ok(places)
        });
        Ok(Answer::DirectoryOpened { directory, resumed, container })
    }
}

fn open_store(prefix: PathBuf) -> Result<Arc<dyn DatasetStore>, PrefixStepError> {
    Ok(store::open(prefix)?)
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

/// Completes a container with what the nodes wrote to it.
fn commit(container: DatasetCreation, packed: &BTreeMap<Rank, PackedRank>) -> Result<(), PrefixStepError> {
    warn_of_superseded(container.commit(packed)?);
    Ok(())
}

/// A container that is left though a newer one has all its files does no harm.
fn warn_of_superseded(left: Option<SionError>) {
    if let Some(error) = left {
        tracing::warn!(%error, "a superseded container cannot be removed");
    }
}

/// Moves plain files into another container, if none of them is damaged.
fn repack(
    prefix: PathBuf,
    directory: &DirectoryName,
    request: &ContainerRequest,
    of_rank: &BTreeMap<Rank, Vec<String>>,
) -> Result<Answer, PrefixStepError> {
    let files = open_files(prefix, directory, DatasetAccess::Write)?;
    let damaged = |rank, error: RepackError| Ok(Answer::RepackFoundDamage { rank, reason: error.to_string() });
    match dataset::repack(&*files, request, of_rank) {
        Ok(left) => {
            warn_of_superseded(left);
            Ok(Answer::ContainerCommitted)
        }
        Err(error @ RepackError::Mismatch { rank, .. }) => damaged(Some(rank), error),
        Err(error @ (RepackError::Read { .. } | RepackError::Meta(_))) => damaged(None, error),
        Err(error @ (RepackError::Container(_) | RepackError::NoPlace(_))) => Err(error.into()),
    }
}

/// Removes the directories of flushes that did not end, if the job has a complete dataset. Returns their names.
fn abandon_flushes(prefix: PathBuf, job_id: &str) -> Result<Vec<DirectoryName>, PrefixStepError> {
    let removed = unfinished::abandon_all(&*store::open(prefix)?, job_id, dataset::open);
    Ok(removed.inspect_err(|error| tracing::warn!(%error, "unfinished flushes cannot be removed"))?)
}

fn read(prefix: PathBuf, directory: &DirectoryName) -> Result<Scan, PrefixStepError> {
    let dataset = open_dataset(prefix, directory, DatasetAccess::Read)?;
    Ok(scan(&dataset, ScanOptions { open: dataset::open, ..ScanOptions::default() })?)
}

fn verify(
    prefix: PathBuf,
    directory: &DirectoryName,
    units: &[VerifyUnit],
) -> Result<BTreeMap<String, FileDamage>, PrefixStepError> {
    let files = open_files(prefix, directory, DatasetAccess::Read)?;
    let damage = |unit: &VerifyUnit| Some((unit.name.clone(), unit.check(&*files, &|_| {}).err()?));
    Ok(units.iter().filter_map(damage).collect())
}

fn rebuild(prefix: PathBuf, directory: &DirectoryName, set: &SetRebuild) -> Result<(), PrefixStepError> {
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
fn publish(
    prefix: PathBuf,
    findings: Findings,
    window_of: Option<&str>,
    now: NaiveDateTime,
) -> Result<Answer, PrefixStepError> {
    let Findings { directory, scan, inspection, make_current } = findings;
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
fn keep_window(prefix: PathBuf, job_id: &str, keep: u32) -> Result<Vec<LeftOut>, PrefixStepError> {
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
fn close(prefix: PathBuf) -> Result<(), PrefixStepError> {
    resume::end(&*store::open(prefix)?)
}
