//! Who gets which entries when a run begins (`SCR manual §11.4.1`), without an instant at which an entry is nowhere.

use std::path::{Path, PathBuf};

use holdfast_core::control::filemap::{Filemap, MasterFilemap};
use holdfast_core::durable;
use holdfast_model::Rank;

use super::StoreError;
use super::loading::OnDisk;
use super::names::{master_path, slot_name, slot_path};
use crate::paths::Paths;

/// One filemap of the node.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// The local rank that it belongs to; none on a spare, or before a run began.
    pub(super) owner: Option<Rank>,
    /// The number in the file's name: the rank's position among the local ranks.
    pub(super) level: usize,
    /// Its entries.
    pub(super) map: Filemap,
}

impl Slot {
    /// Changes the file, then the memory of it. A change that changes nothing writes nothing.
    pub(super) fn change(&mut self, paths: &Paths, change: impl FnOnce(&mut Filemap)) -> Result<(), StoreError> {
        let mut changed = self.map.clone();
        change(&mut changed);
        if changed != self.map {
            changed.write(&slot_path(paths, self.level))?;
            self.map = changed;
        }
        Ok(())
    }
}

/// The slots of a run with these local ranks: each gets its own entries; those of ranks that live elsewhere stay in their
/// slot if it is still there, and go around otherwise.
pub(super) fn distribute(on_disk: &OnDisk, local: &[Rank]) -> Vec<Slot> {
    let mut slots: Vec<Slot> =
        local.iter().enumerate().map(|(level, rank)| Slot { owner: Some(*rank), level, map: Filemap::new() }).collect();
    if slots.is_empty() {
        slots.push(Slot { owner: None, level: 0, map: Filemap::new() });
    }
    let mut homeless = 0;
    for (level, map) in &on_disk.slots {
        // An untouched slot keeps the order of its elements.
        let stays = |rank: &Rank| local.iter().position(|other| other == rank).is_none_or(|home| home == *level);
        if slots.get(*level).is_some_and(|slot| slot.map.is_empty()) && map.all_ranks().iter().all(stays) {
            slots[*level].map = map.clone();
            continue;
        }
        let mut rest = map.clone();
        for rank in map.all_ranks() {
            let home = local.iter().position(|other| *other == rank);
            let at = home.or_else(|| (*level < slots.len()).then_some(*level)).unwrap_or_else(|| {
                homeless += 1;
                (homeless - 1) % slots.len()
            });
            // Taking out and putting in reverse the order once each: the files keep theirs.
            slots[at].map.merge(&rest.extract_rank(rank));
        }
    }
    for slot in &mut slots {
        if let Some(rank) = slot.owner {
            forget_partners(&mut slot.map, rank);
        }
    }
    slots
}

/// The rank lives here now: what were copies for another node are its own files.
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
    // It was a filemap before, and less is in it now.
    if let Ok(without) = Filemap::from_tree(tree) {
        *map = without;
    }
}

/// Writes the slots of a run, then the master filemap, then deletes what is in neither.
///
/// When entries change their slot, a file with all of them is listed first: between two writes an entry could otherwise be
/// in neither of its slots, and a crash would lose the files for good.
pub(super) fn write_all(paths: &Paths, on_disk: &OnDisk, slots: &[Slot]) -> Result<(), StoreError> {
    let as_it_was = on_disk.slots.iter().map(|(level, map)| (*level, map));
    let as_it_is = slots.iter().map(|slot| (slot.level, &slot.map));
    if on_disk.faults.is_empty() && on_disk.master_is_sound && as_it_was.eq(as_it_is) {
        return Ok(());
    }
    set_aside(&on_disk.damaged);
    let spare_level = on_disk.slots.iter().map(|(level, _)| level + 1).max().unwrap_or(0).max(slots.len());
    let moving = !on_disk.slots.is_empty();
    if moving {
        let mut all = Filemap::new();
        for (_, map) in &on_disk.slots {
            // Twice reversed is the order on disk.
            let mut copy = map.clone();
            for rank in map.all_ranks() {
                all.merge(&copy.extract_rank(rank));
            }
        }
        all.write(&slot_path(paths, spare_level))?;
        let levels = on_disk.slots.iter().map(|(level, _)| *level).chain([spare_level]);
        write_master(paths, levels)?;
    }
    for slot in slots {
        slot.map.write(&slot_path(paths, slot.level))?;
    }
    write_master(paths, slots.iter().map(|slot| slot.level))?;
    let gone = on_disk.slots.iter().map(|(level, _)| *level).filter(|level| *level >= slots.len());
    for level in gone.chain(moving.then_some(spare_level)) {
        durable::remove(&slot_path(paths, level))?;
    }
    Ok(())
}

fn write_master(paths: &Paths, levels: impl Iterator<Item = usize>) -> Result<(), StoreError> {
    let mut master = MasterFilemap::new();
    for level in levels {
        master.add(&format!("{}/{}", paths.control_node_path(), slot_name(level)));
    }
    Ok(master.write(&master_path(paths))?)
}

/// Keeps damaged control files for whoever wants to look at them, out of the way of the new ones.
pub(super) fn set_aside(damaged: &[PathBuf]) {
    for path in damaged {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".damaged");
        if let Err(error) = std::fs::rename(path, Path::new(&aside)) {
            tracing::warn!(path = %path.display(), %error, "damaged_file_not_kept");
        }
    }
}
