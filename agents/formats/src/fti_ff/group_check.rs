//! Verifies the files of a group against each other: each partner copy equals the file it copies, and the parity equals
//! the combination of the data. [`super::verify`] checks each file by itself.

use std::path::Path;

use super::checkpoint::{FtiFile, inspect};
use super::name::FileRole;
use super::parity::{self, Combination, Row, RowFile};
use super::survivors::Survivors;
use crate::input::PIECE_BYTES;
use crate::{Damage, FileCheck, FormatsError, Input};

/// Checks the partner copies and parities of a group's checkpoint that are present.
///
/// # Errors
/// When a file cannot be read.
pub fn check(survivors: &Survivors, group: &[u32], checkpoint: u32) -> Result<FileCheck, FormatsError> {
    let mut check = FileCheck::default();
    let path = |role, rank| survivors.of(checkpoint, role, rank).map(|file| file.path.as_path()).next();
    for (index, rank) in group.iter().enumerate() {
        let right = group.get(index + 1).or_else(|| group.first()).copied().unwrap_or(*rank);
        if let (Some(own), Some(copy)) = (path(FileRole::Rank, *rank), path(FileRole::Partner, right)) {
            compare_copy(own, copy, &mut check)?;
        }
    }
    let data: Option<Vec<&Path>> = group.iter().map(|rank| path(FileRole::Rank, *rank)).collect();
    let Some(data) = data else {
        check.note(Damage::new("incomplete", "group", "parity was not compared: the files of some ranks are missing"));
        return Ok(check);
    };
    for (index, rank) in group.iter().enumerate() {
        if let Some(parity) = path(FileRole::Parity, *rank) {
            compare_parity(&data, index, parity, &mut check)?;
        }
    }
    Ok(check)
}

fn compare_copy(own: &Path, copy: &Path, check: &mut FileCheck) -> Result<(), FormatsError> {
    let (own, other) = (Input::open(own)?, Input::open(copy)?);
    let place = copy.display().to_string();
    if own.size() != other.size() {
        let what = format!("it has {} bytes, the file it copies has {}", other.size(), own.size());
        check.damage(Damage::new("copy-differs", place, what));
        return Ok(());
    }
    let different = first_difference(&own, own.size(), |at, buffer| other.read_at(at, buffer))?;
    check.checked_bytes = check.checked_bytes.saturating_add(other.size());
    if let Some(offset) = different {
        check.damage(Damage::new("copy-differs", place, "differs from the file it copies").at(offset));
    }
    Ok(())
}

fn compare_parity(data: &[&Path], index: usize, path: &Path, check: &mut FileCheck) -> Result<(), FormatsError> {
    let place = path.display().to_string();
    let FtiFile::Parity(file) = inspect(Input::open(path)?)? else {
        check.damage(Damage::new("parity-differs", place, "it is not a parity file"));
        return Ok(());
    };
    let length = file.data_bytes();
    let layout = file.meta.layout;
    let factors = parity::factors(Row::Parity(index), data.len());
    let mut terms = Vec::with_capacity(data.len());
    for (path, factor) in data.iter().zip(factors) {
        let input = Input::open(path)?;
        let bytes = match inspect(Input::open(path)?)? {
            FtiFile::Checkpoint(checkpoint) => u64::try_from(checkpoint.meta.file_size).unwrap_or(0),
            _ => input.size(),
        };
        terms.push((RowFile::data(input, layout, bytes, length), factor));
    }
    let mut sum = Combination::new(terms);
    // Older versions of FTI computed the parity of an odd last byte with an uninitialised byte of memory.
    let compared = if layout.is_data_first() { length } else { length & !1 };
    let different = first_difference(&file.input, compared, |at, buffer| sum.read(at, buffer))?;
    check.checked_bytes = check.checked_bytes.saturating_add(compared);
    if let Some(offset) = different {
        check.damage(Damage::new("parity-differs", place, "it is not the parity of the group's files").at(offset));
    }
    Ok(())
}

/// The first offset below `bytes` at which the file differs from the content that `read` returns.
fn first_difference(
    file: &Input,
    bytes: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), FormatsError>,
) -> Result<Option<u64>, FormatsError> {
    let (mut at, mut buffer, mut different) = (0_u64, vec![0; PIECE_BYTES], None);
    file.each_piece(0, bytes, |piece| {
        let other = buffer.get_mut(..piece.len()).unwrap_or_default();
        read(at, other)?;
        let found = piece.iter().zip(other.iter()).position(|(a, b)| a != b);
        different = different.or(found.map(|found| at.saturating_add(found as u64)));
        at = at.saturating_add(piece.len() as u64);
        Ok::<_, FormatsError>(())
    })?;
    Ok(different)
}
