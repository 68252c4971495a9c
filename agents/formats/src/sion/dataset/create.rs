//! Creating and completing a container in the directory of a dataset.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_core::durable;
use holdfast_model::{ContainerPlaces, PackedRank, Rank};

use super::super::SionError;
use super::super::join::file_system_block;
use super::super::slot::part_path;
use super::super::usage::Usage;
use super::super::writer::Creation;
use super::names::{container_name, containers};
use super::packed_files::Listing;
use super::plan::{DatasetPlan, plan_dataset};
use super::{RECORD_HEADER, contents};

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
    /// gives the bytes. Parts that a killed process left without their first file are removed.
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
        for parts in present.values().filter(|parts| !parts.contains_key(&0)) {
            // No reader uses them: a set is complete when its first file has its name.
            for name in parts.values() {
                durable::remove(&directory.join(name))?;
            }
        }
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

    /// Completes the container with what was written, and removes containers of the directory that hold no other files.
    /// Without any file, nothing is left.
    ///
    /// # Errors
    /// When a rank's files do not fit its place, or a file cannot be written.
    pub fn commit(self, packed: &BTreeMap<Rank, PackedRank>) -> Result<(), SionError> {
        let packed: BTreeMap<Rank, PackedRank> = packed
            .iter()
            .filter(|(_, rank)| !rank.files.is_empty())
            .map(|(rank, files)| (*rank, files.clone()))
            .collect();
        if packed.is_empty() {
            return Ok(());
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
        self.creation.commit(&usages)?;
        remove_superseded(&self.directory, &self.path)
    }
}

/// Removes the containers of which every file is also in the container at `newest`.
fn remove_superseded(directory: &Path, newest: &Path) -> Result<(), SionError> {
    let listing = Listing::of(directory).map_err(SionError::io("read the directory", directory))?;
    let sets = containers(listing.names());
    let first_of = |parts: &BTreeMap<u32, &str>| parts.get(&0).map(|name| directory.join(name));
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
