//! Checks everything that the format allows to check.
//!
//! Containers have no checksums: changed data is not detected (`docs/formats.md`, SION 8), except in the files of a
//! dataset, whose meta files are in the container, too. What is checked: that all numbers are consistent, that all
//! files of a set are present and belong to it, and that key-value records fill their streams. Reading all data also
//! finds unreadable storage.

use std::path::Path;

use super::container::Container;
use super::damages::{SetDamage, add_error};
use super::dataset::verify_files;
use super::error::SionError;
use super::fault::Fault;
use super::header::KeyValue;
use super::physical_file::PhysicalFile;
use super::slot::{part_path, place};
use crate::file_check::{Damage, FileCheck};
use crate::format::Progress;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Read every byte of every stream, to find unreadable storage.
    pub read_data: bool,
}

/// Verifies a container; damage is part of the result.
pub fn verify(path: &Path, options: &VerifyOptions, progress: Progress<'_>) -> Result<FileCheck, SionError> {
    let mut check = FileCheck::default();
    let container = match Container::open(path) {
        Ok(container) => container,
        Err(error) => {
            let damages = set_damages(path, error, &mut check)?;
            verify_files(path, damages, &mut check, progress)?;
            return Ok(check);
        }
    };
    for warning in &container.warnings {
        check.note(Damage::new(warning.anomaly.kind(), place(&warning.path), warning.anomaly.to_string()));
    }
    check.checked_bytes = container.parts.iter().map(metadata_bytes).fold(0, u64::saturating_add);
    if container.key_value() == KeyValue::Inline {
        check_records(&container, &mut check)?;
    }
    if options.read_data {
        let read = read_all(&container, progress)?;
        check.checked_bytes = check.checked_bytes.saturating_add(read);
    }
    if container.key_value() == KeyValue::Inline {
        verify_files(path, Vec::new(), &mut check, progress)?;
    }
    Ok(check)
}

/// The damages of a set that cannot be opened. In a dataset, other files can replace those that are lost with them.
fn set_damages(path: &Path, error: SionError, check: &mut FileCheck) -> Result<Vec<SetDamage>, SionError> {
    let mut missing = match &error {
        SionError::Damaged { fault: Fault::PartMissing { path, .. }, .. } => Some(place(path)),
        _ => None,
    };
    let mut found = FileCheck::default();
    add_error(&mut found, error)?;
    other_parts(path, &mut found)?;
    check.unlisted = check.unlisted.saturating_add(found.unlisted);
    // The first one is that of the error.
    let damages = found.damages.into_iter();
    Ok(damages
        .map(|damage| SetDamage { part: missing.take().unwrap_or_else(|| damage.place.clone()), damage })
        .collect())
}

fn check_records(container: &Container, check: &mut FileCheck) -> Result<(), SionError> {
    for task in 0..container.tasks() {
        for record in container.records(task)? {
            let Err(error) = record else { continue };
            let enough = matches!(&error, SionError::Damaged { fault, .. } if fault.is_limit());
            add_error(check, error)?;
            if enough {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Adds the damages of the other files of a set; opening it stopped at the first damage.
fn other_parts(path: &Path, check: &mut FileCheck) -> Result<(), SionError> {
    let Ok(first) = PhysicalFile::open(path) else { return Ok(()) };
    let listed: Vec<Damage> = check.damages.clone();
    for number in 1..first.header.files {
        let name = part_path(path, number);
        // A missing file was reported before; a number from a damaged file must not cause a long loop.
        if !name.exists() {
            break;
        }
        if let Err(error) = PhysicalFile::open(&name) {
            let mut found = FileCheck::default();
            add_error(&mut found, error)?;
            for damage in found.damages {
                if !listed.contains(&damage) {
                    check.damage(damage);
                }
            }
        }
    }
    Ok(())
}

/// Bytes of head and tail, which the rules cover.
fn metadata_bytes(part: &PhysicalFile) -> u64 {
    let behind = part.layout.tail(part.table.blocks).and_then(|tail| part.length.checked_sub(tail));
    part.layout.start_of_data.saturating_add(behind.unwrap_or(0))
}

fn read_all(container: &Container, progress: Progress<'_>) -> Result<u64, SionError> {
    let all = container.all_stream_bytes()?;
    let mut buffer = vec![0; crate::input::PIECE_BYTES];
    let mut done = 0_u64;
    for task in 0..container.tasks() {
        let mut offset = 0_u64;
        loop {
            let read = container.read_at(task, offset, &mut buffer)? as u64;
            if read == 0 {
                break;
            }
            offset = offset.saturating_add(read);
            done = done.saturating_add(read);
            progress(done, all);
        }
    }
    Ok(done)
}
