//! All files of a container of a dataset as plain files.

use std::path::Path;
use std::sync::Arc;

use holdfast_core::store::StoredFile;

use super::super::copying::{copy_exactly, each};
use super::super::fault::Fault;
use super::super::split_result::{Split, SplitFile};
use super::contents::ContentsError;
use super::names::parse;
use super::packed_files::{ContainerError, OpenContainer, PackedContent};
use super::verify::damaged_files;
use crate::destination::Destination;
use crate::error::FormatsError;
use crate::format::Progress;

/// True if a container holds the files of a dataset: it has a table of contents, or the name of one that must have it.
/// [`unpack`] says what is wrong if the table cannot be used.
pub fn is_dataset(path: &Path) -> bool {
    match OpenContainer::open(path) {
        Ok(_) => true,
        // It is of another kind, or its damage concerns every use of it.
        Err(ContainerError::Sion(_) | ContainerError::NotOurs) => false,
        Err(ContainerError::Contents(_)) => path.file_name().and_then(|name| name.to_str()).and_then(parse).is_some(),
    }
}

/// Writes all files of the container at `path` under their own names. Returns them in the order of ranks and keys, and
/// what is left out: the files of ranks whose physical file is lost, and those that are not as their meta files record
/// them.
///
/// # Errors
/// When the container is not one of a dataset or no file in it can be found, or a file cannot be written.
pub fn unpack(path: &Path, to: &Destination, dry_run: bool, progress: Progress<'_>) -> Result<Split, FormatsError> {
    let container = match OpenContainer::open(path) {
        Ok(container) => Arc::new(container),
        Err(ContainerError::Sion(error)) => return Err(error.into()),
        Err(error @ ContainerError::Contents(ContentsError::Lost(_))) => {
            let what = format!("{error}; without it, no file of the container can be found");
            return Err(FormatsError::damaged("read", path, what));
        }
        Err(error) => {
            let what = format!("{error}; `--by-rank` writes its records by rank and key, without their names");
            return Err(FormatsError::damaged("read the table of contents of", path, what));
        }
    };
    let mut entries: Vec<_> = container.contents.files.iter().map(|(name, entry)| (name.clone(), *entry)).collect();
    entries.sort_unstable_by_key(|(_, entry)| (entry.rank, entry.key));
    let total = entries.iter().map(|(_, entry)| entry.bytes).fold(0, u64::saturating_add);
    // The files are read twice: first to compare them, then to copy them.
    let twice = total.saturating_mul(2);
    let damaged = damaged_files(path, &container, &mut |done, _| progress(done.min(total), twice))?;
    let mut copied = |done: u64, _| progress(total.saturating_add(done), twice);
    // Errors of writing have another type than those of reading, and are returned in the result of the job.
    let done = each(&entries, total, &mut copied, |(name, entry)| {
        if let Some(problem) = damaged.get(name) {
            let (name, problem) = (name.clone(), problem.clone());
            return Ok((Ok(Some(Fault::FileDamaged { rank: entry.rank.0, name, problem })), entry.bytes));
        }
        let stored = match PackedContent::open(&container, name, *entry) {
            Ok(stored) => stored,
            Err(error) => {
                let lost = Fault::FilesLost { rank: entry.rank.0, problem: error.to_string() };
                return Ok((Ok(Some(lost)), entry.bytes));
            }
        };
        let stored: &dyn StoredFile = &stored;
        let written = match dry_run {
            true => to.check_name(name),
            false => to.write(name, |out| copy_exactly(&mut stored.reader(), out, entry.bytes)),
        };
        Ok((written.map(|()| None), entry.bytes))
    })?;
    let mut split = Split { files: Vec::with_capacity(entries.len()), ..Split::default() };
    for (written, (name, entry)) in done.into_iter().zip(entries) {
        let task = usize::try_from(entry.rank.0).unwrap_or(usize::MAX);
        match written? {
            None => split.files.push(SplitFile { name, task, key: Some(entry.key), bytes: entry.bytes }),
            Some(fault) => {
                let found = (task, fault);
                // All files of a rank are lost with its physical file.
                if split.damaged.last() != Some(&found) {
                    split.damaged.push(found);
                }
            }
        }
    }
    Ok(split)
}
