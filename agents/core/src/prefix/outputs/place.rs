//! Moving the files of a complete dataset to the paths that the application named.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::dataset::default_name;
use holdfast_model::{CheckpointId, OutputPath, Unplaced};

use super::{PLACE_REMEDY, add_unplaced, by_directory, failed, is_inside, is_of_a_dataset, remove, replaced, unplaced};
use crate::prefix::index::{self, Index, IndexChange};
use crate::prefix::summary::{self, Summary, SummaryFile, exists};
use crate::prefix::{dataset, ownership};
use crate::store::{DatasetAccess, DatasetOccupant, DatasetStore, DirectoryName, Occupied, PrefixError, Taken, known};

/// Moves the files of a complete dataset of this user to their paths: what the user requests for files that stayed in
/// the directory of the dataset. Returns how many were moved, and those that stay because something else is at their
/// paths.
///
/// # Errors
/// [`PrefixError::NotComplete`], and those of moving the files. The call can be repeated.
pub fn place(
    store: &dyn DatasetStore,
    directory: &DirectoryName,
    occupied: Occupied,
) -> Result<(u64, Option<Unplaced>), PrefixError> {
    index::change(store, |index| {
        if index.read()?.entry(directory).is_none_or(|entry| entry.complete != Some(true)) {
            return Err(PrefixError::NotComplete { directory: directory.clone() });
        }
        // Only those of this user are placed.
        store.open(directory, DatasetAccess::Write)?;
        let waiting = |unplaced: &Option<Unplaced>| unplaced.as_ref().map_or(0, |unplaced| unplaced.files);
        let before = waiting(&unplaced(store, directory)?);
        let left = move_files(index, directory, &summary::of(store, directory)?, occupied)?;
        Ok((before.saturating_sub(waiting(&left)), left))
    })
}

/// Moves the files of a complete dataset to their paths. Can be repeated. Returns those that stay because something
/// else is at their paths.
pub(in crate::prefix) fn move_files(
    change: &mut IndexChange<'_>,
    directory: &DirectoryName,
    summary: &Summary,
    occupied: Occupied,
) -> Result<Option<Unplaced>, PrefixError> {
    let store = change.store;
    let mut files: BTreeMap<&OutputPath, &SummaryFile> = summary.output_files();
    files.retain(|path, _| !is_inside(directory, path));
    if files.is_empty() {
        return Ok(None);
    }
    let here = store.open(directory, DatasetAccess::Write)?;
    ownership::check_records(&*here)?;
    let record = dataset::read(store, directory)?;
    // A copy of another user's output is none.
    if record.as_ref().is_some_and(|record| !record.output) {
        return Ok(None);
    }
    // Others are at their paths already: moved before, or written there by the ranks.
    let mut waiting = BTreeMap::new();
    for (path, file) in &files {
        if exists(&*here, &file.name)? {
            waiting.insert(*path, *file);
        }
    }
    let bypasses_the_cache = record.as_ref().is_some_and(|record| record.direct.is_some());
    let claimed = if bypasses_the_cache { &files } else { &waiting };
    if claimed.is_empty() {
        return Ok(None);
    }
    let name = record.and_then(|record| record.name).unwrap_or_else(|| default_name(summary.id));
    make_room(change, directory, summary.id, &name, claimed)?;
    let mut unplaced = None;
    const ACTION: &str = "move a file of the output to";
    for paths in by_directory(waiting.into_keys()) {
        let Some(first) = paths.first() else { continue };
        let target = store.create_output_directory(first).map_err(failed(store, ACTION, first, PLACE_REMEDY))?;
        for path in &paths {
            let taken = target.take(directory, path.base_name(), occupied);
            if taken.map_err(failed(store, ACTION, path, PLACE_REMEDY))? == Taken::Kept {
                unplaced = add_unplaced(unplaced, directory, path);
            }
        }
        target.sync(Some(directory)).map_err(failed(store, ACTION, first, PLACE_REMEDY))?;
    }
    Ok(unplaced)
}

/// Deletes the datasets whose paths this one replaces.
fn make_room(
    change: &mut IndexChange<'_>,
    directory: &DirectoryName,
    id: CheckpointId,
    name: &str,
    files: &BTreeMap<&OutputPath, &SummaryFile>,
) -> Result<(), PrefixError> {
    let (store, index) = (change.store, change.read()?);
    let mut earlier = half_deleted(store, &index, directory, name)?;
    earlier.extend(replaced(store, &index, Some(directory), id, name, files.keys().copied())?);
    for earlier in &earlier {
        // Killed in between, the next publication finds an entry that is not complete, and repeats it.
        mark_incomplete(change, earlier)?;
        remove::remove(store, earlier)?;
        change.update(|index| index.remove(earlier))?;
    }
    Ok(())
}

fn mark_incomplete(change: &mut IndexChange<'_>, directory: &DirectoryName) -> Result<(), PrefixError> {
    let store = change.store;
    change.remove_current_if(directory)?;
    change.update(|index| index.set_complete(directory, false))?;
    // Otherwise it would be marked as complete again: `unfinished::abandon`.
    if matches!(store.occupant(directory), Ok(DatasetOccupant::Dataset))
        && let Some(summary) = known(summary::of(store, directory))?
    {
        let here = store.open(directory, DatasetAccess::Write)?;
        summary::write(&*here, &Summary { complete: false, ..summary })?;
    }
    Ok(())
}

/// Marks earlier attempts of an output as not complete: the application is about to write over a file of each.
///
/// # Errors
/// Those of changing the index and the summaries. The call can be repeated.
pub fn give_up(store: &dyn DatasetStore, earlier: &BTreeSet<DirectoryName>) -> Result<(), PrefixError> {
    if earlier.is_empty() {
        return Ok(());
    }
    let index = index::read(store)?.unwrap_or_default();
    for directory in earlier {
        // This is called for each file of each rank; for all but the first, nothing is left to do.
        let is_listed = index.entry(directory).is_some_and(|entry| entry.complete == Some(true));
        if is_listed || known(summary::of(store, directory))?.is_some_and(|summary| summary.complete) {
            index::change(store, |index| mark_incomplete(index, directory))?;
        }
    }
    Ok(())
}

/// The earlier attempts of an output that are not complete: the deletion of one was interrupted, or it was never
/// complete. Of an entry without any file of a dataset, only the entry is left.
fn half_deleted(
    store: &dyn DatasetStore,
    index: &Index,
    own: &DirectoryName,
    name: &str,
) -> Result<BTreeSet<DirectoryName>, PrefixError> {
    let mut earlier = BTreeSet::new();
    for entry in index.entries() {
        let directory = &entry.directory;
        if entry.complete != Some(false) || directory == own || !ownership::is_own(store, directory)? {
            continue;
        }
        let is_earlier = match known(dataset::read(store, directory))? {
            Some(Some(record)) => record.output && record.name.unwrap_or_else(|| default_name(entry.id)) == name,
            Some(None) => holds_nothing(store, directory)?,
            None => false,
        };
        if is_earlier {
            earlier.insert(entry.directory);
        }
    }
    Ok(earlier)
}

/// True if a dataset is missing, or contains no file of a dataset.
fn holds_nothing(store: &dyn DatasetStore, directory: &DirectoryName) -> Result<bool, PrefixError> {
    let here = match store.open(directory, DatasetAccess::Read) {
        Err(error) if error.is_missing() => return Ok(true),
        here => here,
    };
    let Some(here) = known(here)? else { return Ok(false) };
    let listed = here.list().map_err(PrefixError::io("list", here.location(), PLACE_REMEDY))?;
    Ok(!listed.iter().any(|file| is_of_a_dataset(&file.name)))
}
