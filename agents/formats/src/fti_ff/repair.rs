//! Corrects checkpoints that FTI refuses although their data are intact.
//!
//! From v1.3 on, FTI's writer includes the hashes of empty containers in `checksum`, and its reader does not. So FTI
//! refuses its own file once a variable has shrunk by a container. The corrected file has the checksum that the reader
//! computes, and the hash of the metadata; nothing else is changed. Partner copies are corrected in the same way and
//! stay equal to what they copy. Parity is computed again, because it covers the metadata too.
//!
//! A file is written under a temporary name, verified, and renamed. A second run continues an interrupted one.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_core::durable::Filling;
use md5::{Digest, Md5};

use super::checkpoint::{Checkpoint, FtiFile, Parity, inspect};
use super::layout::{CHECKSUM_BYTES, FileMeta, checksum_field};
use super::name::FileRole;
use super::parity::Combination;
use super::survivors::Survivors;
use super::verify::{self, REFUSED_BY_FTI};
use crate::destination::{self, FillError};
use crate::error::{FormatsError, Result};
use crate::format::Progress;
use crate::input::Input;

/// Bytes of the checksum and the hash.
const HASHES_BYTES: u64 = CHECKSUM_BYTES as u64 + 16;

/// What a repair does with a checkpoint or a partner copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// FTI accepts the file.
    NotNeeded,
    /// The file was corrected, or would be in a dry run.
    Corrected,
    /// The file is damaged: there is nothing to correct.
    Damaged(crate::Damage),
}

/// Corrects a checkpoint or a partner copy.
///
/// # Errors
/// When the file cannot be read or written; it is then unchanged.
pub fn checkpoint(path: &Path, dry_run: bool, progress: Progress<'_>) -> Result<Repair> {
    let check = verify::verify(path, progress)?;
    if let Some(damage) = check.damages.first() {
        return Ok(Repair::Damaged(damage.clone()));
    }
    if !check.notes.iter().any(|note| note.kind == REFUSED_BY_FTI) {
        return Ok(Repair::NotNeeded);
    }
    let FtiFile::Checkpoint(checkpoint) = inspect(Input::open(path)?)? else { return Ok(Repair::NotNeeded) };
    if !dry_run {
        let meta = with_checksum(&checkpoint.meta, reader_checksum(&checkpoint));
        let trailer = checkpoint.input.size.saturating_sub(meta.layout.meta_bytes() as u64);
        rewrite(path, |out, copy| {
            let mut original = File::open(path)?;
            io::copy(&mut original, out)?;
            out.flush()?;
            Ok(copy.write_all_at(&hashes(&meta), trailer)?)
        })?;
    }
    Ok(Repair::Corrected)
}

/// The checksum that FTI's reader computes: of the hashes of the containers with content.
fn reader_checksum(checkpoint: &Checkpoint) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = Md5::new();
    let entries = checkpoint.blocks().iter().flat_map(|block| &block.entries);
    entries.filter(|entry| entry.is_filled()).for_each(|entry| hasher.update(entry.hash));
    checksum_field(&hasher.finalize().into())
}

fn with_checksum(meta: &FileMeta, checksum: [u8; CHECKSUM_BYTES]) -> FileMeta {
    let mut meta = FileMeta { checksum, ..meta.clone() };
    meta.own_hash = meta.computed_hash();
    meta
}

/// The first two fields of the metadata: the checksum and the hash.
fn hashes(meta: &FileMeta) -> Vec<u8> {
    meta.checksum.iter().chain(&meta.own_hash).copied().collect()
}

/// How a parity file fits the files of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParityMatch {
    /// It is their parity.
    Equal,
    /// It is the parity of these files with other hashes in their metadata: they were corrected after it was written.
    BeforeCorrection,
    /// It is not their parity: it is damaged, or the group consists of other ranks.
    Different,
}

/// Compares the parity files of a group with the group's files; `None` if one of these is missing or damaged. Layouts
/// that need no correction are omitted.
pub fn match_parity(
    survivors: &Survivors,
    group: &[u32],
    id: u32,
    progress: Progress<'_>,
) -> Result<Option<Vec<(PathBuf, ParityMatch)>>> {
    let Some(data) = intact_data(survivors, group, id, progress)? else { return Ok(None) };
    let mut matches = Vec::new();
    for (index, path) in parity_files(survivors, group, id) {
        let found = match inspect(Input::open(path)?)? {
            FtiFile::Parity(parity) if !parity.meta.layout.is_data_first() => continue,
            FtiFile::Parity(parity) if parity.hash_valid => compare(&data, index, &parity)?,
            _ => ParityMatch::Different,
        };
        matches.push((path.to_owned(), found));
    }
    Ok(Some(matches))
}

fn compare(data: &[&Path], index: usize, parity: &Parity) -> Result<ParityMatch> {
    let mut sum = Combination::of_group(data, index, parity)?;
    let mut corrected = Vec::with_capacity(data.len());
    for path in data {
        let start = Input::open(path)?.size.saturating_sub(parity.meta.layout.meta_bytes() as u64);
        // An element of the parity has two bytes.
        corrected.push((start & !1)..start.saturating_add(HASHES_BYTES + 1));
    }
    let mut found = ParityMatch::Equal;
    let read = |at, computed: &mut [u8]| sum.read(at, computed);
    parity.input.each_difference(parity.data_bytes(), read, |offset| {
        if found != ParityMatch::Different {
            let is_corrected = corrected.iter().any(|range| range.contains(&offset));
            found = if is_corrected { ParityMatch::BeforeCorrection } else { ParityMatch::Different };
        }
    })?;
    Ok(found)
}

/// Computes the parity of a group again if its files were corrected after the parity was written. Returns the replaced
/// parity files.
///
/// # Errors
/// When a file cannot be read or written; a file that was not written is unchanged.
pub fn parity(survivors: &Survivors, group: &[u32], id: u32, progress: Progress<'_>) -> Result<Vec<PathBuf>> {
    let matches = match_parity(survivors, group, id, progress)?.unwrap_or_default();
    let outdated =
        |path: &Path| matches.iter().any(|(it, found)| it == path && *found == ParityMatch::BeforeCorrection);
    let data: Option<Vec<&Path>> = group.iter().map(|rank| own_file(survivors, id, *rank)).collect();
    let mut replaced = Vec::new();
    let Some(data) = data else { return Ok(replaced) };
    for (index, path) in parity_files(survivors, group, id).filter(|(_, path)| outdated(path)) {
        let Some(old) = data_first_parity(path)? else { continue };
        let mut sum = Combination::of_group(&data, index, &old)?;
        let length = old.data_bytes();
        rewrite(path, |out, copy| {
            let mut hasher = Md5::new();
            sum.each_piece(length, length, |piece| {
                hasher.update(piece);
                Ok::<_, FillError>(out.write_all(piece)?)
            })?;
            // The other fields of the metadata follow from the sizes, which are unchanged.
            let mut original = File::open(path)?;
            original.seek(SeekFrom::Start(length))?;
            io::copy(&mut original, out)?;
            out.flush()?;
            let meta = with_checksum(&old.meta, checksum_field(&hasher.finalize().into()));
            Ok(copy.write_all_at(&hashes(&meta), length)?)
        })?;
        replaced.push(path.to_owned());
    }
    Ok(replaced)
}

/// Writes a new version of a file, verifies it, and renames it.
fn rewrite(path: &Path, fill: impl FnOnce(&mut BufWriter<Filling>, &File) -> Result<(), FillError>) -> Result<()> {
    destination::replace(path, |out| {
        let file = out.get_ref().0.try_clone()?;
        fill(out, &file)?;
        let size = file.metadata()?.len();
        let check = verify::verify_input(Input::over(path, file, size), path, &mut |_, _| {})?;
        match check.damages.iter().chain(check.notes.iter().filter(|it| it.kind == REFUSED_BY_FTI)).next() {
            None => Ok(()),
            Some(damage) => Err(FormatsError::damaged("correct", path, damage).into()),
        }
    })
}

fn parity_files<'a>(
    survivors: &'a Survivors,
    group: &'a [u32],
    id: u32,
) -> impl Iterator<Item = (usize, &'a Path)> + 'a {
    let of = move |(index, rank): (usize, &u32)| {
        survivors.of(id, FileRole::Parity, *rank).map(move |file| (index, file.path.as_path()))
    };
    group.iter().enumerate().flat_map(of)
}

fn data_first_parity(path: &Path) -> Result<Option<Parity>> {
    Ok(match inspect(Input::open(path)?)? {
        FtiFile::Parity(parity) if parity.hash_valid && parity.meta.layout.is_data_first() => Some(parity),
        _ => None,
    })
}

fn own_file(survivors: &Survivors, id: u32, rank: u32) -> Option<&Path> {
    survivors.of(id, FileRole::Rank, rank).next().map(|file| file.path.as_path())
}

/// The files of all ranks of the group; `None` if one is missing or damaged.
fn intact_data<'a>(
    survivors: &'a Survivors,
    group: &[u32],
    id: u32,
    progress: Progress<'_>,
) -> Result<Option<Vec<&'a Path>>> {
    let mut data = Vec::with_capacity(group.len());
    for rank in group {
        let Some(path) = own_file(survivors, id, *rank) else { return Ok(None) };
        if !verify::verify(path, progress)?.is_intact() {
            return Ok(None);
        }
        data.push(path);
    }
    Ok(Some(data))
}
