//! What a restart may take from the prefix directory, in which order, and the marks that it leaves in the index
//! (`docs/scr-files.md` §12).

use chrono::NaiveDateTime;

use super::index::{self, Index};
use super::{Summary, dataset, summary};
use crate::store::{DatasetStore, DirectoryName, Result};
use holdfast_model::CheckpointId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartCandidate {
    pub directory: DirectoryName,
    /// The checkpoint in it, if the index or the name contains its id.
    pub id: Option<CheckpointId>,
    /// Whether it is in the index; if not, attempts are recorded nowhere.
    pub indexed: bool,
    /// Whether the current link chose it.
    pub from_link: bool,
}

/// The directories in the order of the attempts: what `current` names, whatever its flags, because the user may have
/// set the link by hand; then complete ones without a failure, highest id first and newest first within an id, never
/// newer than the first.
pub fn order(index: &Index, current: Option<&DirectoryName>) -> Vec<RestartCandidate> {
    let mut candidates = Vec::new();
    let mut limit = None;
    if let Some(directory) = current {
        let indexed = index.id_of(directory);
        let id = indexed.or_else(|| directory.parts().map(|parts| parts.id));
        limit = id;
        candidates.push(RestartCandidate {
            directory: directory.clone(),
            id,
            indexed: indexed.is_some(),
            from_link: true,
        });
    }
    for entry in index.entries() {
        let older = limit.is_none_or(|limit| entry.id <= limit);
        if entry.is_usable() && older && current != Some(&entry.directory) {
            candidates.push(RestartCandidate {
                directory: entry.directory,
                id: Some(entry.id),
                indexed: true,
                from_link: false,
            });
        }
    }
    candidates
}

/// [`order`] for a store as it is now. A current dataset that is missing is ignored.
///
/// # Errors
/// Those of reading the records.
pub fn candidates(store: &dyn DatasetStore) -> Result<Vec<RestartCandidate>> {
    let index = index::read(store)?.unwrap_or_default();
    let current = store.current()?.filter(|directory| store.contains(directory));
    Ok(order(&index, current.as_ref()))
}

/// The summary of the checkpoint that a restart would try first, whatever the number of its ranks. What cannot be read,
/// or is not complete, is passed over, as a restart does.
///
/// # Errors
/// Those of reading the index and the link.
pub fn first_complete(store: &dyn DatasetStore) -> Result<Option<(DirectoryName, Summary)>> {
    let mut found = candidates(store)?.into_iter().map(|candidate| candidate.directory).filter_map(|directory| {
        let is_checkpoint = dataset::read(store, &directory).ok().flatten().is_none_or(|dataset| dataset.checkpoint);
        let summary = summary::of(store, &directory).ok().filter(|summary| summary.accept(summary.ranks).is_ok())?;
        is_checkpoint.then_some((directory, summary))
    });
    Ok(found.next())
}

/// Stamps FETCHED, before the attempt, so that a run that dies in it leaves its trace. Does nothing for a directory
/// that is not indexed.
///
/// # Errors
/// Those of [`index::update`].
pub fn begin(store: &dyn DatasetStore, directory: &DirectoryName, now: NaiveDateTime) -> Result<()> {
    index::update(store, |index| index.mark_fetched(directory, now)).map(drop)
}

/// After a failed attempt: the link is removed if it names this directory, and FAILED is stamped with the reason. Only
/// for a defect of the data: a dataset that does not fit the job is not marked.
///
/// # Errors
/// Those of the link and of [`index::update`].
pub fn failed(store: &dyn DatasetStore, directory: &DirectoryName, now: NaiveDateTime, reason: &str) -> Result<()> {
    index::change(store, |index| {
        // The mark first: killed in between, the link still leads to the mark's directory and the attempt is repeated.
        index.update(|index| index.mark_failed(directory, now, Some(reason)))?;
        index.remove_current_if(directory)
    })
}

/// After a success: the link is made if there is none.
///
/// # Errors
/// Those of a change of the records.
pub fn succeeded(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<()> {
    index::change(store, |index| match index.current()? {
        Some(_) => Ok(()),
        None => index.set_current(directory),
    })
}
