//! Compares the files in a container with the lengths and checksums that their meta files record.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use holdfast_core::dataset_files::DatasetFiles;
use holdfast_core::prefix::scan::{DamagedFile, FileDamage, Scan, scan_files};
use holdfast_core::prefix::verify::VerifyUnit;
use holdfast_core::workers;
use holdfast_model::Rank;

use super::super::SionError;
use super::super::copying::each;
use super::super::verify::place;
use super::names::{containers, parse};
use super::packed_files::{DamagedPart, Listing, OpenContainer, PackedFiles, is_complete};
use crate::{Damage, FileCheck, Progress};

/// Ranks of a lost physical file that are listed.
const LISTED_RANKS: usize = 16;

/// Adds what is wrong with the files in the container at `path`. A container that does not hold a dataset has none.
///
/// # Errors
/// When the directory cannot be read.
pub(in super::super) fn verify_files(
    path: &Path,
    check: &mut FileCheck,
    progress: Progress<'_>,
) -> Result<(), SionError> {
    let number = path.file_name().and_then(|name| name.to_str()).and_then(parse);
    if number.is_some() && !path.symlink_metadata().is_ok_and(|found| found.is_file()) {
        let what = "it is a link, which a restart does not follow";
        check.damage(Damage::new("unreadable", place(path), what));
        return Ok(());
    }
    if let Some((_, 1..)) = number {
        of_further_file(path, check);
        return Ok(());
    }
    let open = if number.is_some() { OpenContainer::open_no_link } else { OpenContainer::open };
    let container = match open(path) {
        Ok(container) => Arc::new(container),
        // A container of another program; or its damage was reported.
        Err(_) if number.is_none() || !check.is_intact() => return Ok(()),
        Err(error) => {
            let what = format!("the files in it cannot be found: {error}");
            check.damage(Damage::new("contents", place(path), what));
            return Ok(());
        }
    };
    for DamagedPart { name, ranks, .. } in container.damaged_parts() {
        check.damage(Damage::new("set", name, format!("the files of {} are lost with it", ranks_text(&ranks))));
    }
    let directory = directory_of(path);
    let files: Arc<dyn DatasetFiles> = Arc::new(PackedFiles::of_container(directory, Arc::clone(&container)));
    // Only the container is listed, and it is open.
    let Ok(mut scan) = scan_files(files, workers::default_threads()) else { return Ok(()) };
    let verified = verify_contents(&mut scan, progress)?;
    check.checked_bytes = check.checked_bytes.saturating_add(verified.bytes);
    if verified.without_checksum {
        check.unchecked.push("files without a checksum");
    }
    let replaced = replaced_files(path, number.map(|(number, _)| number))?;
    let lost: HashSet<String> = container.damaged_parts().into_iter().map(|part| part.name).collect();
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

/// A further file of a set is verified with the first one. Without the first one it is a damage, unless the directory
/// has all files of the dataset without it.
fn of_further_file(path: &Path, check: &mut FileCheck) {
    let first = path.with_extension("");
    let what = match first.symlink_metadata() {
        Ok(found) if found.is_file() => return,
        Ok(_) => "is not a regular file",
        Err(_) => "is missing",
    };
    let what = format!("the first file of its set, {}, {what}", place(&first));
    if is_complete(directory_of(path)) {
        let what = format!("{what}; the other files of the directory are the complete dataset");
        check.note(Damage::new("set", place(path), what));
    } else {
        check.damage(Damage::new("set", place(path), format!("the files in it cannot be found: {what}")));
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

struct VerifiedContents {
    bytes: u64,
    /// Of some files only the length could be compared.
    without_checksum: bool,
}

fn verify_contents(scan: &mut Scan, progress: Progress<'_>) -> Result<VerifiedContents, SionError> {
    let units = scan.verify_units();
    let present: usize = scan.ranks.values().map(|known| known.present.len()).sum();
    let bytes = units.iter().map(|unit| unit.size).fold(0, u64::saturating_add);
    let files = Arc::clone(&scan.files);
    let compare = |unit: &VerifyUnit| Ok((unit.check(&*files, &|_| {}).err(), unit.size));
    let damages = each(&units, None, bytes, progress, compare)?;
    for (unit, damage) in units.iter().zip(damages) {
        if let Some(damage) = damage {
            scan.apply_failure(unit, damage);
        }
    }
    Ok(VerifiedContents { bytes, without_checksum: units.len() < present })
}

/// The files of which the directory has a plain file or one in a later container: that one is read.
fn replaced_files(path: &Path, number: Option<u32>) -> Result<HashSet<String>, SionError> {
    let Some(number) = number else { return Ok(HashSet::new()) };
    let directory = directory_of(path);
    let listing = Listing::of(directory).map_err(SionError::io("read the directory", directory))?;
    let mut replaced: HashSet<String> = listing.names().map(str::to_owned).collect();
    for (_, parts) in containers(listing.names()).range(number.saturating_add(1)..) {
        let first = parts.get(&0).map(|name| directory.join(name));
        replaced.extend(first.into_iter().flat_map(|first| listing.usable_in(&first)));
    }
    Ok(replaced)
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
