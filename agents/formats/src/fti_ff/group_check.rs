//! Verifies the files of a group against each other: all of them are present, each partner copy equals the file it
//! copies, and the parity equals the combination of the data. [`super::verify`] checks each file by itself.

use std::path::Path;

use super::checkpoint::{FtiFile, inspect};
use super::name::FileRole;
use super::parity::Combination;
use super::restore::own_bytes;
use super::survivors::Survivors;
use super::verify;
use crate::error::Result;
use crate::file_check::{Damage, FileCheck};
use crate::input::Input;

/// The kind of the note on a group without copies and parity: each file was checked by its own hashes.
pub const NO_REDUNDANCY: &str = "no-redundancy";

/// Checks the partner copies and parities of a group's checkpoint. A file that the checkpoint's level requires and that
/// is missing is a damage. At levels 1 and 4, which have neither copies nor parity, each file is checked by its hashes.
pub fn check(survivors: &Survivors, group: &[u32], checkpoint: u32) -> Result<FileCheck> {
    let mut check = FileCheck::default();
    let path = |role, rank| survivors.of(checkpoint, role, rank).map(|file| file.path.as_path()).next();
    let redundancy = Redundancy::of(survivors, group, checkpoint)?;
    for (rank, left, _) in ring(group) {
        let place = || format!("rank {rank}");
        if path(FileRole::Rank, rank).is_none() {
            let what = "its file is missing: it is lost, or the run has fewer ranks than these groups";
            check.damage(Damage::new("missing", place(), what));
        }
        if redundancy.copies && path(FileRole::Partner, rank).is_none() {
            check.damage(Damage::new("missing", place(), format!("its copy of the file of rank {left} is missing")));
        }
        if redundancy.parity && path(FileRole::Parity, rank).is_none() {
            check.damage(Damage::new("missing", place(), "its parity is missing"));
        }
    }
    if [FileRole::Rank, FileRole::Partner, FileRole::Parity]
        .into_iter()
        .all(|role| group.iter().all(|rank| path(role, *rank).is_none()))
    {
        // Nothing is known of its redundancy.
        return Ok(check);
    }
    if redundancy.copies || redundancy.parity {
        // Without redundancy, the hashes of the file are checked, and this is a note on it.
        let checkpoints = [FileRole::Rank, FileRole::Partner];
        let files = group.iter().flat_map(|rank| checkpoints.map(|role| path(role, *rank)));
        files.flatten().try_for_each(|path| appended(path, &mut check))?;
    }
    for (rank, _, right) in ring(group) {
        if let (Some(own), Some(copy)) = (path(FileRole::Rank, rank), path(FileRole::Partner, right)) {
            compare_copy(own, copy, &mut check)?;
        }
    }
    let own: Option<Vec<&Path>> = group.iter().map(|rank| path(FileRole::Rank, *rank)).collect();
    match own {
        Some(data) if redundancy.parity => {
            let mut different = Vec::new();
            for (index, rank) in group.iter().enumerate() {
                if let Some(parity) = path(FileRole::Parity, *rank)
                    && let Some(damage) = compare_parity(&data, index, parity, &mut check)?
                {
                    different.push((parity, damage));
                }
            }
            // Damaged data make all parity files look wrong.
            let files: Vec<&Path> = different.iter().map(|(parity, _)| *parity).collect();
            if different.is_empty() || !add_damaged(&data, &mut check)? {
                different.into_iter().for_each(|(_, damage)| check.damage(damage));
            } else {
                add_damaged(&files, &mut check)?;
            }
        }
        None if redundancy.parity => {
            let what = "parity was not compared: the files of some ranks are missing";
            check.note(Damage::new("incomplete", "group", what));
        }
        _ if !redundancy.copies => {
            check.note(Damage::new(
                NO_REDUNDANCY,
                "group",
                "there are neither copies nor parity: levels 1 and 4 have none",
            ));
            group
                .iter()
                .filter_map(|rank| path(FileRole::Rank, *rank))
                .try_for_each(|own| own_hashes(own, &mut check))?;
        }
        _ => {}
    }
    Ok(check)
}

/// Checks the files of these ranks in the differential checkpoint by their hashes: it has no copies and no parity. A
/// rank without a file is a damage.
pub fn check_differential(survivors: &Survivors, ranks: &[u32]) -> Result<FileCheck> {
    let mut check = FileCheck::default();
    for rank in ranks {
        let mut files = survivors.differential().filter(|file| file.name.rank == *rank).peekable();
        if files.peek().is_none() {
            let what =
                "its differential checkpoint is missing: it is lost, or the run has fewer ranks than these groups";
            check.damage(Damage::new("missing", format!("rank {rank}"), what));
        }
        files.try_for_each(|file| own_hashes(&file.path, &mut check))?;
    }
    Ok(check)
}

/// Each rank of a group with its left and right neighbours.
fn ring(group: &[u32]) -> impl Iterator<Item = (u32, u32, u32)> {
    let neighbour = move |index: usize| group.get(index % group.len().max(1)).copied().unwrap_or_default();
    let left = move |index: usize| index.checked_sub(1).unwrap_or(group.len() - 1);
    group.iter().enumerate().map(move |(index, rank)| (*rank, neighbour(left(index)), neighbour(index + 1)))
}

/// The redundancy files that a group's checkpoint must have.
#[derive(Clone, Copy, Default)]
struct Redundancy {
    copies: bool,
    parity: bool,
}

impl Redundancy {
    /// Derived from the files that are present, their directories (`l2`, `l3`) and their metadata. A file of level 4
    /// may have the metadata of level 2 or 3: FTI writes the last checkpoint of a run there, unchanged.
    fn of(survivors: &Survivors, group: &[u32], checkpoint: u32) -> Result<Redundancy> {
        let mut found = Redundancy::default();
        for rank in group {
            for role in [FileRole::Rank, FileRole::Partner, FileRole::Parity] {
                for file in survivors.of(checkpoint, role, *rank) {
                    found.copies |= role == FileRole::Partner || file.level == "l2";
                    found.parity |= role == FileRole::Parity || file.level == "l3";
                    if role == FileRole::Rank
                        && !matches!(file.level.as_str(), "l1" | "l4")
                        && let FtiFile::Checkpoint(own) = inspect(Input::open(&file.path)?)?
                        && own.hash_valid
                    {
                        found.copies |= own.meta.partner_size >= 0;
                        found.parity |= own.meta.largest_size >= 0;
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Checks a file by its hashes and adds the damages and notes.
fn own_hashes(path: &Path, check: &mut FileCheck) -> Result<()> {
    let own = verify::verify(path, &mut |_, _| {})?;
    let placed = |damage: Damage| Damage { place: format!("{}: {}", path.display(), damage.place), ..damage };
    own.damages.into_iter().for_each(|damage| check.damage(placed(damage)));
    own.notes.into_iter().for_each(|note| check.note(placed(note)));
    check.unlisted = check.unlisted.saturating_add(own.unlisted);
    check.checked_bytes = check.checked_bytes.saturating_add(own.checked_bytes);
    Ok(())
}

/// Adds the damages of the files whose hashes are wrong. Returns whether there are any.
fn add_damaged(paths: &[&Path], check: &mut FileCheck) -> Result<bool> {
    let mut found = false;
    for path in paths {
        if !verify::verify(path, &mut |_, _| {})?.is_intact() {
            own_hashes(path, check)?;
            found = true;
        }
    }
    Ok(found)
}

fn compare_copy(own: &Path, copy: &Path, check: &mut FileCheck) -> Result<()> {
    if let Some(damage) = difference(own, copy, check)? {
        // The one whose hashes are wrong is damaged; if both are intact, the copy is of another file.
        if damage.kind == "empty" || !add_damaged(&[own], check)? {
            check.damage(damage);
        } else {
            add_damaged(&[copy], check)?;
        }
    }
    Ok(())
}

/// Adds a damage if bytes were appended to a file. Neither its hashes nor the parity include them.
fn appended(path: &Path, check: &mut FileCheck) -> Result<()> {
    let (own, size) = (own_bytes(path)?, Input::open(path)?.size);
    if own < size {
        let what = format!("{} bytes after the end of the checkpoint are not part of it", size - own);
        check.damage(Damage::new("trailing", path.display().to_string(), what).at(own));
    }
    Ok(())
}

/// How a copy differs from the file it copies, without what was appended to them.
fn difference(own: &Path, copy: &Path, check: &mut FileCheck) -> Result<Option<Damage>> {
    let own_place = own.display().to_string();
    let (own_bytes, other_bytes) = (own_bytes(own)?, own_bytes(copy)?);
    let (own, other) = (Input::open(own)?, Input::open(copy)?);
    let place = copy.display().to_string();
    if own.size == 0 && other.size > 0 {
        let what = format!("it is empty, and its copy has {} bytes", other.size);
        return Ok(Some(Damage::new("empty", own_place, what)));
    }
    if own_bytes != other_bytes {
        let what = format!("it has {other_bytes} bytes, the file it copies has {own_bytes}");
        return Ok(Some(Damage::new("copy-differs", place, what)));
    }
    let different = first_difference(&own, own_bytes, |at, buffer| other.read_at(at, buffer))?;
    check.checked_bytes = check.checked_bytes.saturating_add(other_bytes);
    Ok(different.map(|offset| Damage::new("copy-differs", place, "differs from the file it copies").at(offset)))
}

/// How a parity file differs from the parity of these files.
fn compare_parity(data: &[&Path], index: usize, path: &Path, check: &mut FileCheck) -> Result<Option<Damage>> {
    let place = path.display().to_string();
    let FtiFile::Parity(file) = inspect(Input::open(path)?)? else {
        return Ok(Some(Damage::new("parity-differs", place, "it is not a parity file")));
    };
    let length = file.data_bytes();
    let mut sum = Combination::of_group(data, index, &file)?;
    // Older versions of FTI computed the parity of an odd last byte with an uninitialised byte of memory.
    let compared = if file.meta.layout.is_data_first() { length } else { length & !1 };
    let different = first_difference(&file.input, compared, |at, buffer| sum.read(at, buffer))?;
    check.checked_bytes = check.checked_bytes.saturating_add(compared);
    let what = "it is not the parity of the group's files";
    Ok(different.map(|offset| Damage::new("parity-differs", place, what).at(offset)))
}

/// The first offset below `bytes` at which the file differs from the content that `read` returns.
fn first_difference(file: &Input, bytes: u64, read: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<Option<u64>> {
    let mut first = None;
    file.each_difference(bytes, read, |offset| first = first.or(Some(offset)))?;
    Ok(first)
}
