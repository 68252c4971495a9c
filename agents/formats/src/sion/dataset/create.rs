//! Creating and completing a container in the directory of a dataset.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use holdfast_core::durable;
use holdfast_model::{ContainerPlaces, PackedRank, Rank};

use super::super::SionError;
use super::super::join::file_system_block;
use super::super::slot::part_path;
use super::super::usage::Usage;
use super::super::writer::Creation;
use super::names::{container_name, containers, is_rank_file};
use super::packed_files::{Listing, is_complete};
use super::plan::{DatasetPlan, plan_dataset};
use super::{RECORD_HEADER, contents};

/// A part without the first file of its set that was not modified for so long is of a process that was killed: the
/// names are given one right after the other.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A container of a dataset that is being written. Dropping it without [`DatasetCreation::commit`] removes its files.
#[derive(Debug)]
pub struct DatasetCreation {
    directory: PathBuf,
    path: PathBuf,
    plan: DatasetPlan,
    creation: Creation,
}

impl DatasetCreation {
    /// Creates the physical files, at most `files`, of a container for a dataset of so many ranks, of which `streams`
    /// gives the bytes. Its number is higher than that of any other in the directory, and than that of any part: a
    /// part without the first file of its set can belong to a process that completes a container at this instant.
    ///
    /// # Errors
    /// When the container is impossible, or a file cannot be created.
    pub fn new(
        directory: &Path,
        ranks: u32,
        streams: &BTreeMap<Rank, u64>,
        files: u32,
    ) -> Result<DatasetCreation, SionError> {
        let listing = Listing::of(directory).map_err(SionError::io("read the directory", directory))?;
        let present = containers(listing.names());
        let number = present.last_key_value().map_or(0, |(last, _)| *last).saturating_add(1);
        let name = container_name(number);
        let path = directory.join(&name);
        let block_size = file_system_block(&path)?;
        let plan = plan_dataset(ranks, streams, files, block_size, &name)
            .map_err(|source| SionError::Plan { path: path.clone(), source })?;
        let creation = Creation::new(&path, plan.plan().clone())?;
        Ok(DatasetCreation { directory: directory.to_owned(), path, plan, creation })
    }

    /// Where the ranks' files are written until the container is committed.
    pub fn places(&self) -> ContainerPlaces {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let files = self.creation.temporary_paths().into_iter().map(name).collect();
        ContainerPlaces { files, ranks: self.plan.places() }
    }

    /// Completes the container with what was written. Removes plain files of the names that it holds: readers would
    /// prefer them, and they can be of another state of the application. Then removes containers of the directory that
    /// hold no other files; if that fails, it returns why: they do no harm. Without any file, nothing is left.
    ///
    /// # Errors
    /// When a rank's files do not fit its place, a file cannot be written, a container of this number was completed
    /// meanwhile, or a plain file cannot be removed.
    pub fn commit(self, packed: &BTreeMap<Rank, PackedRank>) -> Result<Option<SionError>, SionError> {
        let packed: BTreeMap<Rank, PackedRank> = packed
            .iter()
            .filter(|(_, rank)| !rank.files.is_empty())
            .map(|(rank, files)| (*rank, files.clone()))
            .collect();
        if packed.is_empty() {
            return Ok(None);
        }
        let ranks = self.plan.ranks();
        let usage = |rank: u32| {
            let Some(PackedRank { first_chunk, files }) = packed.get(&Rank(rank)) else { return Usage::default() };
            let bytes = files.iter().map(|file| file.bytes.saturating_add(RECORD_HEADER)).fold(0, u64::saturating_add);
            let task = usize::try_from(rank).unwrap_or(usize::MAX);
            Usage::filled(bytes, self.plan.chunk_bytes(task)).after_empty(*first_chunk)
        };
        let mut usages: Vec<Usage> = (0..ranks).map(usage).collect();
        let mut writer = self.creation.task(usages.len())?;
        writer.record(0, &contents::encode(ranks, &packed))?;
        usages.push(writer.finish());
        self.creation.commit_new(&usages)?;
        // Once: a container is to save operations on names.
        let listing = Listing::of(&self.directory).map_err(SionError::io("read the directory", &self.directory))?;
        remove_plain(&self.directory, &listing, &packed)?;
        Ok(remove_superseded(&self.directory, &self.path, &listing).err())
    }
}

/// Removes the plain files of the names that a container holds, backwards: each file after its meta file and the file
/// map, so that a repetition after a kill finds what is left.
fn remove_plain(directory: &Path, listing: &Listing, packed: &BTreeMap<Rank, PackedRank>) -> Result<(), SionError> {
    let present: HashSet<&str> = listing.names().collect();
    let names = packed.values().flat_map(|rank| rank.files.iter().rev()).map(|file| file.name.as_str());
    for name in names.filter(|name| present.contains(name)) {
        durable::remove(&directory.join(name))?;
    }
    Ok(())
}

/// Removes the containers of which every file is also in the container at `newest`, and parts that killed processes
/// left. A part can also be what remains of a container that lost its first file: it is kept until the dataset is
/// complete without it.
fn remove_superseded(directory: &Path, newest: &Path, listing: &Listing) -> Result<(), SionError> {
    let sets = containers(listing.names());
    let first_of = |parts: &BTreeMap<u32, &str>| parts.get(&0).map(|name| directory.join(name));
    let without_first = sets.values().filter(|parts| !parts.contains_key(&0)).flat_map(BTreeMap::values);
    let without_first = without_first.map(|name| directory.join(name));
    let abandoned: Vec<PathBuf> = without_first.filter(|path| is_abandoned(path) && !is_rank_file(path)).collect();
    if !abandoned.is_empty() && is_complete(directory) {
        for path in abandoned {
            durable::remove(&path)?;
        }
    }
    // Most directories have no other one, and tables of contents are long.
    if !sets.values().filter_map(first_of).any(|first| first != newest) {
        return Ok(());
    }
    let Some(all) = listing.contents_of(newest) else { return Ok(()) };
    for parts in sets.into_values() {
        let Some(first) = first_of(&parts).filter(|first| first != newest) else { continue };
        // One that cannot be read is kept: its files may be recovered by hand.
        let Some(old) = listing.contents_of(&first) else { continue };
        if old.keys().all(|name| all.contains_key(name)) {
            // The first file first: the others are then parts that no reader uses.
            for number in parts.keys() {
                durable::remove(&part_path(&first, *number))?;
            }
        }
    }
    Ok(())
}

fn is_abandoned(path: &Path) -> bool {
    let modified = path.symlink_metadata().and_then(|metadata| metadata.modified()).ok();
    let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
    age.is_some_and(|age| age > ABANDONED_AFTER)
}
