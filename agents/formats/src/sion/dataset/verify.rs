//! Compares the files in a container with the lengths and checksums that their meta files record.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use holdfast_core::prefix::scan::{DamagedFile, FileDamage, Scan, scan_files};
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::store::DatasetFiles;
use holdfast_core::workers;
use holdfast_model::Rank;

use super::super::copying::each;
use super::super::damages::SetDamage;
use super::super::error::{Result, SionError};
use super::super::slot::{dataset_of, place};
use super::names::{containers, is_rank_file, parse};
use super::packed_files::{DamagedPart, Listing, OpenContainer, PackedFiles, is_complete, usable_in};
use crate::error::FormatsError;
use crate::file_check::{Damage, FileCheck};
use crate::format::Progress;

/// Ranks of a lost physical file that are listed.
const LISTED_RANKS: usize = 16;

/// Adds what is wrong with the files in the container at `path`, and the damages of its set. A container that does not
/// hold a dataset has no other ones.
pub fn verify_files(path: &Path, set: Vec<SetDamage>, check: &mut FileCheck, progress: Progress<'_>) -> Result<()> {
    let (dataset, name) = (dataset_of(path)?, place(path));
    let number = parse(&name).filter(|_| !is_rank_file(&*dataset, &name));
    if number.is_some() && !path.symlink_metadata().is_ok_and(|found| found.is_file()) {
        let what = "it is a link, which a restart does not follow";
        check.damage(Damage::new("unreadable", place(path), what));
        return Ok(());
    }
    if let Some((_, 1..)) = number {
        return of_further_file(path, set, check);
    }
    let opened = match number {
        Some(_) => OpenContainer::open_in(&dataset, &name),
        None => OpenContainer::open(path),
    };
    let container = match opened {
        Ok(container) => Arc::new(container),
        Err(error) => {
            // It can be a container of another program, and its damage may be known.
            let unknown = number.is_some() && check.is_intact() && set.is_empty();
            let what = format!("the files in it cannot be found: {error}");
            let contents = unknown.then(|| Damage::new("contents", place(path), what));
            let damages: Vec<Damage> = set.into_iter().map(|it| it.damage).chain(contents).collect();
            let is_replaced = number.is_some() && !damages.is_empty() && is_complete(&dataset);
            add_all(damages, is_replaced, check);
            return Ok(());
        }
    };
    let lost_parts = lost_parts(&container, path, number.is_some())?;
    for SetDamage { part, damage } in set {
        let is_replaced = lost_parts.iter().any(|lost| lost.name == part && lost.is_replaced());
        add_all([damage], is_replaced, check);
    }
    for LostPart { name, ranks, of_ranks } in &lost_parts {
        match (ranks.is_empty(), of_ranks.is_empty()) {
            (false, _) => {
                let what = format!("the files of {} are lost with it", ranks_text(ranks));
                check.damage(Damage::new("set", name, what));
            }
            (true, false) => {
                let what = format!("other files in the directory replace those of {} in it", ranks_text(of_ranks));
                check.note(Damage::new("set", name, what));
            }
            (true, true) => check.note(Damage::new("set", name, "no file is lost with it")),
        }
    }
    let files: Arc<dyn DatasetFiles> = Arc::new(PackedFiles::of_container(dataset, Arc::clone(&container)));
    // Only the container is listed, and it is open.
    let Ok(mut scan) = scan_files(files, workers::default_threads()) else { return Ok(()) };
    let verified = verify_contents(&mut scan, progress)?;
    check.checked_bytes = check.checked_bytes.saturating_add(verified.bytes);
    if verified.without_checksum {
        check.unchecked.push("files without a checksum");
    }
    let replaced = replaced_files(path, number.map(|(number, _)| number))?;
    let lost: HashSet<String> = lost_parts.into_iter().map(|part| part.name).collect();
    for DamagedFile { name, rank, damage } in scan.damaged {
        if lost.contains(&name) {
            continue;
        }
        let rank = rank.or_else(|| Some(container.contents.files.get(&name)?.rank));
        let of = rank.map_or_else(|| name.clone(), |rank| format!("rank {rank}, {name}"));
        if replaced.contains(&name) {
            let what = format!("{damage}; another file of this name in the directory replaces it");
            check.note(Damage::new(kind(&damage), of, what));
        } else {
            check.damage(Damage::new(kind(&damage), of, damage.to_string()));
        }
    }
    Ok(())
}

/// Adds damages, as notes if other files replace what they concern.
fn add_all(damages: impl IntoIterator<Item = Damage>, is_replaced: bool, check: &mut FileCheck) {
    for damage in damages {
        if is_replaced { check.note(damage) } else { check.damage(damage) }
    }
}

/// A physical file that cannot be used.
struct LostPart {
    name: String,
    /// The ranks of which a file is lost with it.
    ranks: Vec<Rank>,
    /// All ranks with files in it.
    of_ranks: Vec<Rank>,
}

impl LostPart {
    /// True if the directory has every file that was in it a second time.
    fn is_replaced(&self) -> bool {
        self.ranks.is_empty()
    }
}

/// The parts of a container that cannot be used. In the directory of a dataset, plain files and other containers can
/// replace what was in them.
fn lost_parts(container: &OpenContainer, path: &Path, in_dataset: bool) -> Result<Vec<LostPart>> {
    let damaged = container.damaged_parts();
    if damaged.is_empty() {
        return Ok(Vec::new());
    }
    let others = if in_dataset { other_files(path)? } else { HashSet::new() };
    let files = container.contents.files.iter();
    let lost: HashSet<Rank> = files.filter(|(name, _)| !others.contains(*name)).map(|(_, entry)| entry.rank).collect();
    let part = |DamagedPart { name, ranks: of_ranks, .. }| LostPart {
        name,
        ranks: of_ranks.iter().copied().filter(|rank| lost.contains(rank)).collect(),
        of_ranks,
    };
    Ok(damaged.into_iter().map(part).collect())
}

/// A further file of a set is verified with the first one. Without the first one it is a damage, unless the directory
/// has all files of the dataset without it. A damage of the file itself is a note if other files replace those in it.
fn of_further_file(path: &Path, set: Vec<SetDamage>, check: &mut FileCheck) -> Result<()> {
    let first = path.with_extension("");
    let (dataset, first_name) = (dataset_of(&first)?, place(&first));
    let damages = set.into_iter().map(|it| it.damage);
    let what = match first.symlink_metadata() {
        Ok(found) if found.is_file() => {
            if damages.len() > 0 {
                let is_replaced = match OpenContainer::open_in(&dataset, &first_name) {
                    Ok(container) => {
                        let lost = lost_parts(&container, &first, true)?;
                        lost.iter().any(|lost| lost.name == place(path) && lost.is_replaced())
                    }
                    Err(_) => is_complete(&dataset),
                };
                add_all(damages, is_replaced, check);
            }
            return Ok(());
        }
        Ok(_) => "is not a regular file",
        Err(_) => "is missing",
    };
    let what = format!("the first file of its set, {}, {what}", place(&first));
    let is_replaced = is_complete(&dataset);
    add_all(damages, is_replaced, check);
    if is_replaced {
        let what = format!("{what}; the other files of the directory are the complete dataset");
        check.note(Damage::new("set", place(path), what));
    } else {
        check.damage(Damage::new("set", place(path), format!("the files in it cannot be found: {what}")));
    }
    Ok(())
}

/// The files in a container that are not as their meta files record them, with what differs.
pub(super) fn damaged_files(
    path: &Path,
    container: &Arc<OpenContainer>,
    progress: Progress<'_>,
) -> Result<HashMap<String, String>, FormatsError> {
    let files: Arc<dyn DatasetFiles> = Arc::new(PackedFiles::of_container(dataset_of(path)?, Arc::clone(container)));
    let mut scan = scan_files(files, workers::default_threads())
        .map_err(|error| FormatsError::damaged("list the files in", path, error))?;
    verify_contents(&mut scan, progress)?;
    // What a file is that is not complete, or not in this container, is not known from its bytes.
    let is_of_bytes = |damage: &FileDamage| !matches!(damage, FileDamage::NotComplete | FileDamage::Missing);
    let damaged = scan.damaged.into_iter().filter(|file| is_of_bytes(&file.damage));
    Ok(damaged.map(|file| (file.name, file.damage.to_string())).collect())
}

struct VerifiedContents {
    bytes: u64,
    /// Of some files only the length could be compared.
    without_checksum: bool,
}

fn verify_contents(scan: &mut Scan, progress: Progress<'_>) -> Result<VerifiedContents> {
    let units = scan.verify_units();
    let present: usize = scan.ranks.values().map(|known| known.present.len()).sum();
    let bytes = units.iter().map(|unit| unit.size).fold(0, u64::saturating_add);
    let files = Arc::clone(&scan.files);
    let compare = |unit: &VerifyUnit| Ok((unit.check(&*files, &|_| {}).err(), unit.size));
    let damages = each(&units, bytes, progress, compare)?;
    for (unit, damage) in units.iter().zip(damages) {
        if let Some(damage) = damage {
            scan.apply_failure(unit, damage);
        }
    }
    Ok(VerifiedContents { bytes, without_checksum: units.len() < present })
}

/// The files of which the directory has a plain file or one in a later container: that one is read.
fn replaced_files(path: &Path, number: Option<u32>) -> Result<HashSet<String>> {
    match number {
        Some(number) => files_beside(path, |other| other > number),
        None => Ok(HashSet::new()),
    }
}

/// The files of which the directory has a plain file, or one in another container than that at `path`: of a file in a
/// lost part, also an older one is read.
fn other_files(path: &Path) -> Result<HashSet<String>> {
    let number = parse(&place(path)).map(|(number, _)| number);
    files_beside(path, |other| Some(other) != number)
}

fn files_beside(path: &Path, uses: impl Fn(u32) -> bool) -> Result<HashSet<String>> {
    let dataset = dataset_of(path)?;
    let listing = Listing::of(&*dataset).map_err(SionError::io("read the directory", dataset.location()))?;
    let mut files: HashSet<String> = listing.names().map(str::to_owned).collect();
    for (_, parts) in containers(listing.names()).into_iter().filter(|(number, _)| uses(*number)) {
        files.extend(parts.get(&0).into_iter().flat_map(|first| usable_in(&dataset, first)));
    }
    Ok(files)
}

fn kind(damage: &FileDamage) -> &'static str {
    match damage {
        FileDamage::Crc { .. } => "checksum",
        FileDamage::Size { .. } => "size",
        FileDamage::Missing | FileDamage::NotRegular | FileDamage::Unreadable(_) => "unreadable",
        FileDamage::NotComplete => "incomplete",
        _ => "meta-data",
    }
}

fn ranks_text(ranks: &[Rank]) -> String {
    let listed: Vec<String> = ranks.iter().take(LISTED_RANKS).map(ToString::to_string).collect();
    let more = match ranks.len().saturating_sub(LISTED_RANKS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} {}{more}", if ranks.len() == 1 { "rank" } else { "ranks" }, listed.join(", "))
}
