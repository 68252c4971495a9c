//! Removing the files of a dataset that are at the paths which the application named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_model::OutputPath;

use super::{by_directory, examine, failed, has_file, is_inside, is_of_a_dataset, is_output};
use crate::control::meta::{self, Meta};
use crate::prefix::summary::{self, SUMMARY_FILE, Summary, SummaryFile, exists};
use crate::prefix::{dataset, index, ownership};
use crate::store::dataset_files::read_meta;
use crate::store::{
    DatasetAccess, DatasetFiles, DatasetStore, DirectoryName, OpenDataset, OutputOccupant, PrefixError, Result, Staged,
    known,
};

const REMOVE: &str = "remove";
const REMOVE_REMEDY: &str = "check that you may write to the directory, then repeat the command";

/// Removes the files of an output, those at their paths and those in its directory, and the directories that are then
/// empty. What other datasets or the user have put there stays. The summary and the record are removed last, so that
/// the call can be repeated.
pub(in crate::prefix) fn remove(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<()> {
    let Some(here) = opened(store, directory)? else { return Ok(()) };
    let files = files_of(&*here)?;
    for paths in by_directory(placed(store, directory, &*here, &files)?.into_iter()) {
        let Some(first) = paths.first() else { continue };
        let Some(parent) = store.output_directory(first).map_err(failed(store, REMOVE, first, REMOVE_REMEDY))? else {
            continue;
        };
        for path in &paths {
            parent.remove(path.base_name()).map_err(failed(store, REMOVE, path, REMOVE_REMEDY))?;
        }
        parent.sync(None).map_err(failed(store, REMOVE, first, REMOVE_REMEDY))?;
    }
    remove_own_files(&*here, &files)?;
    store.remove_if_empty(directory);
    for paths in by_directory(files.keys()) {
        if let Some(first) = paths.first() {
            store.remove_empty_directories(first);
        }
    }
    Ok(())
}

/// Takes out the paths at which other datasets of the index have files.
fn leave_to_others(store: &dyn DatasetStore, own: &DirectoryName, paths: &mut BTreeSet<&OutputPath>) -> Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    for entry in index::read(store)?.unwrap_or_default().entries() {
        let directory = &entry.directory;
        if directory == own {
            continue;
        }
        let here = known(store.open(directory, DatasetAccess::Read))?;
        let theirs = here.as_ref().map(|here| known(summary::read(&**here))).transpose()?.flatten();
        let theirs = theirs.as_ref().map(Summary::output_files).unwrap_or_default();
        let leads_inside = |path: &OutputPath| path.parents().next() == Some(directory.as_str());
        let is_output = paths.iter().any(|path| leads_inside(path)) && is_output(store, directory)?;
        let mut kept = BTreeSet::new();
        for path in std::mem::take(paths) {
            // A file in the dataset's directory was not moved, unless that is where its path leads.
            let is_here = || here.as_ref().map_or(Ok(false), |here| exists(&**here, path.base_name()));
            let has_it = theirs.contains_key(path) && (is_inside(directory, path) || !is_here()?);
            let disturbs = leads_inside(path) && (!is_output || has_file(store, directory, path)?);
            if !has_it && !disturbs {
                kept.insert(path);
            }
        }
        *paths = kept;
    }
    Ok(())
}

/// The output files of a dataset, from its summary or, if that is damaged, from the meta files that are there. A
/// dataset without a summary has none: files are moved after it is written.
fn files_of(here: &dyn DatasetFiles) -> Result<BTreeMap<OutputPath, SummaryFile>> {
    let summary = match summary::read(here) {
        Err(PrefixError::NoSummary { .. } | PrefixError::OldSummary { .. }) => return Ok(BTreeMap::new()),
        summary => known(summary)?,
    };
    if let Some(summary) = summary {
        let files = summary.output_files().into_iter();
        return Ok(files.map(|(path, file)| (path.clone(), file.clone())).collect());
    }
    let listed = here.list().map_err(PrefixError::io("list", here.location(), REMOVE_REMEDY))?.into_iter();
    let metas = listed.filter_map(|file| read_meta(here, file.name.strip_suffix(meta::EXTENSION)?).ok());
    let files = metas.filter_map(|meta| {
        let path = meta.output_path.clone()?;
        let Meta { file: name, size, crc, .. } = meta;
        let output_path = Some(path.clone());
        Some((path, SummaryFile { name, size: Some(size), crc, fetch: true, failed: false, output_path }))
    });
    Ok(files.collect())
}

fn remove_own_files(here: &dyn OpenDataset, files: &BTreeMap<OutputPath, SummaryFile>) -> Result<()> {
    let unlisted = || PrefixError::io("list", here.location(), REMOVE_REMEDY);
    let own: BTreeSet<&str> = files.values().map(|file| file.name.as_str()).collect();
    let names: Vec<String> = here.list().map_err(unlisted())?.into_iter().map(|file| file.name).collect();
    let listed: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let belongs =
        |name: &str| is_of_a_dataset(name) || own.contains(name) || listed.contains(Meta::name_for(name).as_str());
    let mut removed: Vec<&str> = names.iter().map(String::as_str).filter(|name| belongs(name)).collect();
    removed.sort_by_key(|name| (*name == dataset::DATASET_FILE, *name == SUMMARY_FILE));
    here.remove_staged(Staged::All).map_err(unlisted())?;
    // The record after all others are gone for good: what a loss of power left would not be known as an output.
    let others = removed.iter().take_while(|name| **name != dataset::DATASET_FILE).count();
    let (others, record) = removed.split_at(others);
    here.remove(others)?;
    if !record.is_empty() {
        here.remove(record)?;
    }
    Ok(())
}

/// The files outside its directory that the removal of a dataset removes, too.
///
/// # Errors
/// As the removal: it belongs to another user, or cannot be read.
pub fn outside(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<Vec<OutputPath>> {
    if !is_output(store, directory)? {
        return Ok(Vec::new());
    }
    let Some(here) = opened(store, directory)? else { return Ok(Vec::new()) };
    let files = files_of(&*here)?;
    let placed = placed(store, directory, &*here, &files)?.into_iter();
    Ok(placed.filter(|path| !is_inside(directory, path)).cloned().collect())
}

/// A dataset of this user whose records are, too; `None` if it does not exist.
fn opened(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<Option<Arc<dyn OpenDataset>>> {
    let here = match store.open(directory, DatasetAccess::Write) {
        Err(error) if error.is_missing() => return Ok(None),
        here => here?,
    };
    ownership::check_records(&*here)?;
    Ok(Some(here))
}

/// The paths at which there are files of this dataset.
fn placed<'a>(
    store: &dyn DatasetStore,
    directory: &DirectoryName,
    here: &dyn OpenDataset,
    files: &'a BTreeMap<OutputPath, SummaryFile>,
) -> Result<BTreeSet<&'a OutputPath>> {
    let mut placed = BTreeSet::new();
    for path in files.keys() {
        // One that is still in the dataset's directory was not moved: what is at its path belongs to another dataset.
        if !exists(here, path.base_name())? {
            placed.insert(path);
        }
    }
    leave_to_others(store, directory, &mut placed)?;
    let mut found = BTreeSet::new();
    for path in placed {
        // A file of another size was written by another program since, one of another user by that user.
        let recorded = files.get(path).and_then(|file| file.size);
        if let OutputOccupant::File { bytes, own: true } = examine(store, path)?
            && recorded.is_none_or(|recorded| recorded == bytes)
        {
            found.insert(path);
        }
    }
    Ok(found)
}
