//! Creating and completing a container in the directory of a dataset.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_core::control::meta::Meta;
use holdfast_core::store::OpenDataset;
use holdfast_model::{ContainerPlaces, PackedRank, Rank};

use super::super::error::{Result, SionError};
use super::super::join::block_size;
use super::super::key_value::RECORD_HEADER;
use super::super::slot::part_name;
use super::super::usage::Usage;
use super::super::writer::Creation;
use super::contents;
use super::names::{container_name, containers, is_rank_file};
use super::packed_files::{Listing, contents_of, is_complete};
use super::plan::{DatasetPlan, plan_dataset};

/// A part without the first file of its set that was not modified for so long is of a process that was killed: the
/// names are given one right after the other.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A container of a dataset that is being written. Dropping it without [`DatasetCreation::commit`] removes its files.
#[derive(Debug)]
pub struct DatasetCreation {
    dataset: Arc<dyn OpenDataset>,
    name: String,
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
        dataset: Arc<dyn OpenDataset>,
        ranks: u32,
        streams: &BTreeMap<Rank, u64>,
        files: u32,
    ) -> Result<DatasetCreation> {
        let unreadable = || SionError::io("read the directory", dataset.location());
        let listing = Listing::of(&*dataset).map_err(unreadable())?;
        let present = containers(listing.names());
        let number = present.last_key_value().map_or(0, |(last, _)| *last).saturating_add(1);
        let name = container_name(number);
        let block_size = block_size(dataset.block_bytes().map_err(unreadable())?);
        let plan = plan_dataset(ranks, streams, files, block_size, &name)
            .map_err(|source| SionError::Plan { path: dataset.path_of(&name), source })?;
        let creation = Creation::new_in(Arc::clone(&dataset), &name, plan.plan.clone())?;
        Ok(DatasetCreation { dataset, name, plan, creation })
    }

    /// Where the ranks' files are written until the container is committed.
    pub fn places(&self) -> ContainerPlaces {
        let files = self.creation.temporary_names().into_iter().map(str::to_owned).collect();
        ContainerPlaces { files, ranks: self.plan.places() }
    }

    /// Completes the container with what was written. Removes plain files of the names that it holds: readers would
    /// prefer them, and they can be of another state of the application. Then removes containers of the directory that
    /// hold no other files; if that fails, it returns why: they do no harm. Without any file, nothing is left.
    ///
    /// # Errors
    /// When a rank's files do not fit its place, a file cannot be written, a container of this number was completed
    /// meanwhile, or a plain file cannot be removed.
    pub fn commit(self, packed: &BTreeMap<Rank, PackedRank>) -> Result<Option<SionError>> {
        let packed: BTreeMap<Rank, PackedRank> = packed
            .iter()
            .filter(|(_, rank)| !rank.files.is_empty())
            .map(|(rank, files)| (*rank, files.clone()))
            .collect();
        if packed.is_empty() {
            return Ok(None);
        }
        let ranks = self.plan.ranks;
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
        let dataset = &self.dataset;
        let listing = Listing::of(&**dataset).map_err(SionError::io("read the directory", dataset.location()))?;
        remove_plain(&**dataset, &listing, &packed)?;
        Ok(remove_superseded(dataset, &self.name, &listing).err())
    }
}

/// Removes the plain files of the names that a container holds, backwards: each file after its meta file and the file
/// map are gone for good, so that a repetition after a kill or a loss of power finds what is left.
fn remove_plain(dataset: &dyn OpenDataset, listing: &Listing, packed: &BTreeMap<Rank, PackedRank>) -> Result<()> {
    let present: HashSet<&str> = listing.names().collect();
    let names = packed.values().flat_map(|rank| rank.files.iter().rev()).map(|file| file.name.as_str());
    let (files, records): (Vec<&str>, Vec<&str>) =
        names.filter(|name| present.contains(name)).partition(|name| present.contains(Meta::name_for(name).as_str()));
    dataset.remove(&records)?;
    Ok(dataset.remove(&files)?)
}

/// Removes the containers of which every file is also in the container at `newest`, and parts that killed processes
/// left. A part can also be what remains of a container that lost its first file: it is kept until the dataset is
/// complete without it.
fn remove_superseded(dataset: &Arc<dyn OpenDataset>, newest: &str, listing: &Listing) -> Result<()> {
    let sets = containers(listing.names());
    let without_first = sets.values().filter(|parts| !parts.contains_key(&0)).flat_map(BTreeMap::values).copied();
    let is_left = |name: &&str| is_abandoned(&**dataset, name) && !is_rank_file(&**dataset, name);
    let abandoned: Vec<&str> = without_first.filter(is_left).collect();
    if !abandoned.is_empty() && is_complete(dataset) {
        dataset.remove(&abandoned)?;
    }
    // Most directories have no other one, and tables of contents are long.
    if !sets.values().filter_map(|parts| parts.get(&0)).any(|first| *first != newest) {
        return Ok(());
    }
    let Some(all) = contents_of(dataset, newest) else { return Ok(()) };
    for parts in sets.into_values() {
        let Some(first) = parts.get(&0).copied().filter(|first| *first != newest) else { continue };
        // One that cannot be read is kept: its files may be recovered by hand.
        let Some(old) = contents_of(dataset, first) else { continue };
        if old.keys().all(|name| all.contains_key(name)) {
            // The first file first, for good: the others are then parts that no reader uses.
            dataset.remove(&[first])?;
            let names: Vec<String> = parts.keys().map(|number| part_name(first, *number)).collect();
            let others: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != first).collect();
            dataset.remove(&others)?;
        }
    }
    Ok(())
}

fn is_abandoned(dataset: &dyn OpenDataset, name: &str) -> bool {
    let modified = dataset.modified(name).ok();
    let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
    age.is_some_and(|age| age > ABANDONED_AFTER)
}
