//! The filemaps of the node, one for each local rank, and the distribution of the entries when a run begins
//! (`SCR manual §11.4.1`). At every instant each entry is in a listed filemap.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_core::control::filemap::log::{FilemapLog, LogPosition};
use holdfast_core::control::filemap::{Filemap, FilemapChange, MasterFilemap};
use holdfast_core::durable;
use holdfast_model::{CheckpointId, Rank};

use super::error::StoreError;
use super::loading::OnDisk;
use super::names::{log_path, master_path, slot_name, slot_path};
use crate::directories::paths::Paths;

#[derive(Debug)]
pub(super) struct Slot {
    /// The local rank to which it belongs; none on a spare, or before the first run.
    pub(super) owner: Option<Rank>,
    /// The number in the file's name: the rank's position among the local ranks.
    level: usize,
    pub(super) map: Filemap,
    log: FilemapLog,
}

impl Slot {
    /// `map` is what is on disk.
    pub(super) fn new(paths: &Paths, level: usize, owner: Option<Rank>, map: Filemap, position: LogPosition) -> Self {
        Slot { owner, level, map, log: FilemapLog::new(log_path(paths, level), position) }
    }

    /// Makes a change, on disk first; if it cannot be written, nothing changes. Takes constant time: it is appended to
    /// the log.
    pub(super) fn change(&mut self, change: &FilemapChange) -> Result<(), StoreError> {
        if !change.is_void(&self.map) {
            self.log.append(change)?;
            change.apply(&mut self.map);
        }
        Ok(())
    }

    /// Brings the filemap file up to date with the log.
    pub(super) fn fold(&mut self, paths: &Paths) -> Result<(), StoreError> {
        if !self.log.position.is_folded() {
            self.log.fold(&slot_path(paths, self.level), &self.map)?;
        }
        Ok(())
    }

    /// Replaces all entries, and the filemap file.
    pub(super) fn replace(&mut self, paths: &Paths, map: Filemap) -> Result<(), StoreError> {
        if map != self.map {
            self.log.fold(&slot_path(paths, self.level), &map)?;
            self.map = map;
        }
        Ok(())
    }

    /// True if it lists files of the rank, or their expected number.
    pub(super) fn holds(&self, checkpoint: CheckpointId, rank: Rank) -> bool {
        self.map.expected(checkpoint, rank).is_some() || self.map.files(checkpoint, rank).next().is_some()
    }
}

/// The entries of a slot in a run that begins.
#[derive(Debug)]
struct Share {
    owner: Option<Rank>,
    map: Filemap,
}

/// Writes the slots of a run with these local ranks. Each rank gets its own entries; those of ranks on other nodes stay
/// in their slot if it still exists, and are otherwise distributed in turn.
pub(super) fn begin_run(paths: &Paths, on_disk: OnDisk, local: &[Rank]) -> Result<Vec<Slot>, StoreError> {
    let shares = distribute(&on_disk, local);
    let positions = write_all(paths, &on_disk, &shares)?;
    let position = |level| positions.get(&level).copied().unwrap_or_default();
    let slots = (0..).zip(shares);
    Ok(slots.map(|(level, share)| Slot::new(paths, level, share.owner, share.map, position(level))).collect())
}

fn distribute(on_disk: &OnDisk, local: &[Rank]) -> Vec<Share> {
    let mut shares: Vec<Share> = local.iter().map(|rank| Share { owner: Some(*rank), map: Filemap::new() }).collect();
    if shares.is_empty() {
        shares.push(Share { owner: None, map: Filemap::new() });
    }
    let homes: BTreeMap<Rank, usize> = local.iter().enumerate().map(|(level, rank)| (*rank, level)).collect();
    let mut distributed = 0;
    for (level, map) in &on_disk.slots {
        // An unchanged slot keeps the order of its elements.
        let stays = |rank: &Rank| homes.get(rank).is_none_or(|home| home == level);
        if shares.get(*level).is_some_and(|share| share.map.is_empty()) && map.all_ranks().iter().all(stays) {
            shares[*level].map = map.clone();
            continue;
        }
        let mut rest = map.clone();
        for rank in map.all_ranks() {
            let home = homes.get(&rank).copied();
            let at = home.or_else(|| (*level < shares.len()).then_some(*level)).unwrap_or_else(|| {
                distributed += 1;
                (distributed - 1) % shares.len()
            });
            // `extract_rank` and `merge` each reverse the order, so that the files keep theirs.
            shares[at].map.merge(&rest.extract_rank(rank));
        }
    }
    for share in &mut shares {
        if let Some(rank) = share.owner {
            forget_partners(&mut share.map, rank);
        }
    }
    shares
}

/// The rank now runs on this node: copies for another node become its own files.
pub(super) fn forget_partners(map: &mut Filemap, rank: Rank) {
    if map.checkpoints_of(rank).iter().all(|checkpoint| map.partner(*checkpoint, rank).is_none()) {
        return;
    }
    let mut tree = map.tree().clone();
    for checkpoint in map.checkpoints_of(rank) {
        let entry = tree.get_kv_mut("RANK", rank).and_then(|entry| entry.get_kv_mut("CKPT", checkpoint));
        if let Some(entry) = entry {
            entry.unset("PARTNER");
        }
    }
    // This cannot fail: it was a filemap before, and only keys were removed.
    if let Ok(without) = Filemap::from_tree(tree) {
        *map = without;
    }
}

/// Writes the slots of a run, then the master filemap, then deletes the other filemaps. Returns the positions of the
/// logs.
///
/// When entries change their slot, a file with all of them is listed first: otherwise an entry could be in neither slot
/// between two writes, and a crash would lose its file.
fn write_all(paths: &Paths, on_disk: &OnDisk, shares: &[Share]) -> Result<BTreeMap<usize, LogPosition>, StoreError> {
    let as_it_was = on_disk.slots.iter().map(|(level, map)| (*level, map));
    let as_it_is = shares.iter().map(|share| &share.map).enumerate();
    if on_disk.faults.is_empty() && on_disk.master_is_readable && as_it_was.eq(as_it_is) {
        return Ok(on_disk.logs.clone());
    }
    set_aside(&on_disk.damaged);
    let spare_level = on_disk.slots.iter().map(|(level, _)| level + 1).max().unwrap_or(0).max(shares.len());
    let moving = !on_disk.slots.is_empty();
    if moving {
        let mut all = Filemap::new();
        for (_, map) in &on_disk.slots {
            // Reversed twice, this is the order on disk.
            let mut copy = map.clone();
            for rank in map.all_ranks() {
                all.merge(&copy.extract_rank(rank));
            }
        }
        write_slot(paths, spare_level, &all)?;
        let levels = on_disk.slots.iter().map(|(level, _)| *level).chain([spare_level]);
        write_master(paths, levels)?;
    }
    let mut positions = BTreeMap::new();
    for (level, share) in shares.iter().enumerate() {
        positions.insert(level, write_slot(paths, level, &share.map)?);
    }
    write_master(paths, 0..shares.len())?;
    let removed = on_disk.slots.iter().map(|(level, _)| *level).filter(|level| *level >= shares.len());
    for level in removed.chain(moving.then_some(spare_level)) {
        durable::remove_unsynced(&slot_path(paths, level))?;
        durable::remove_unsynced(&log_path(paths, level))?;
    }
    Ok(positions)
}

/// Writes a filemap file, and removes its log first: an old log would match if the new file equals an earlier one.
fn write_slot(paths: &Paths, level: usize, map: &Filemap) -> Result<LogPosition, StoreError> {
    durable::remove_unsynced(&log_path(paths, level))?;
    let mut log = FilemapLog::new(log_path(paths, level), LogPosition::default());
    log.fold(&slot_path(paths, level), map)?;
    Ok(log.position)
}

fn write_master(paths: &Paths, levels: impl Iterator<Item = usize>) -> Result<(), StoreError> {
    let mut master = MasterFilemap::new();
    for level in levels {
        master.add(&format!("{}/{}", paths.control_node_path(), slot_name(level)));
    }
    Ok(master.write(&master_path(paths))?)
}

/// Renames damaged control files, so that they are kept for inspection.
pub(super) fn set_aside(damaged: &[PathBuf]) {
    for path in damaged {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".damaged");
        if let Err(error) = std::fs::rename(path, Path::new(&aside)) {
            tracing::warn!(path = %path.display(), %error, "damaged_file_not_kept");
        }
    }
}
