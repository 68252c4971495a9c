//! Checks that all files of a rank are present, and complete by their meta files. The content is not read.

use std::fs;
use std::path::PathBuf;

use holdfast_core::control::filemap::Filemap;
use holdfast_core::control::meta::{Meta, UnusableFile};
use holdfast_core::redundancy::registry::is_redundancy_file;
use holdfast_model::{CheckpointId, Rank};

use crate::directories::paths::{Paths, base_name};

/// The state of a rank's files in a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Examined {
    /// Every file that was committed is present and usable: those of the application, and once it was made their
    /// redundancy.
    pub complete: bool,
    /// The first fault. `None` with `complete` unset: there is only a descriptor.
    pub fault: Option<String>,
    /// Ranks of the run that wrote the files; `None` if no meta file can be read.
    pub ranks: Option<u32>,
    /// The files that are listed, in filemap order.
    pub files: Vec<ExaminedFile>,
}

#[derive(Clone, Debug)]
pub struct ExaminedFile {
    pub name: String,
    /// Where this process opens it: below the root of a virtual node.
    pub path: PathBuf,
    /// The size on disk, 0 if it is missing.
    pub size: u64,
    /// The meta file, if the file is usable.
    pub meta: Option<Meta>,
}

/// Examines the files of a rank.
///
/// # Errors
/// When descriptors or memory are exhausted: it is not known then what is there.
pub fn examine(
    map: &Filemap,
    checkpoint: CheckpointId,
    rank: Rank,
    paths: &Paths,
    bases: &[String],
) -> Result<Examined, UnusableFile> {
    let mut found = Examined::default();
    let mut in_redundancy = None;
    for node_path in map.files(checkpoint, rank) {
        let located = paths.real_of_job(node_path, bases).and_then(|path| Ok((base_name(node_path)?, path)));
        let (name, path) = match located {
            Ok(located) => located,
            Err(error) => {
                found.blame(error.to_string());
                continue;
            }
        };
        let meta = match Meta::of_usable(&path, checkpoint, rank, found.ranks) {
            Ok(meta) => {
                found.ranks = Some(meta.ranks).filter(|ranks| *ranks > 0);
                Some(meta)
            }
            Err(error) if error.is_exhaustion() => return Err(error),
            Err(error) if is_redundancy_file(name) => {
                in_redundancy.get_or_insert(error.to_string());
                None
            }
            Err(error) => {
                found.blame(error.to_string());
                None
            }
        };
        let size = match &meta {
            Some(meta) => meta.size,
            None => fs::metadata(&path).map_or(0, |metadata| metadata.len()),
        };
        found.files.push(ExaminedFile { name: name.to_owned(), path, size, meta });
    }
    let being_made = is_redundancy_being_made(map, checkpoint, rank);
    if let Some(fault) = in_redundancy.filter(|_| !being_made) {
        found.blame(fault);
    }
    match map.expected(checkpoint, rank) {
        Some(_) if being_made => {}
        Some(expected) if expected as usize != found.files.len() => {
            found.blame(format!(
                "checkpoint {checkpoint} of rank {rank}: {} files are listed, {expected} are expected",
                found.files.len()
            ));
        }
        Some(_) => {}
        None if found.files.is_empty() => return Ok(found),
        None => found.blame(format!("checkpoint {checkpoint} of rank {rank} was not finished")),
    }
    if being_made {
        // What is there of it is not usable yet.
        found.files.retain(|file| file.meta.is_some() || !is_redundancy_file(&file.name));
    }
    found.complete = found.fault.is_none();
    Ok(found)
}

/// True if as many files are listed as are expected, apart from redundancy files that are being made.
pub fn is_listed(map: &Filemap, checkpoint: CheckpointId, rank: Rank) -> bool {
    map.is_complete(checkpoint, rank) || is_redundancy_being_made(map, checkpoint, rank)
}

/// True if the redundancy files that are listed are not expected yet: they are while the redundancy is made.
fn is_redundancy_being_made(map: &Filemap, checkpoint: CheckpointId, rank: Rank) -> bool {
    let is_redundancy = |path: &str| base_name(path).is_ok_and(is_redundancy_file);
    let redundancy = map.files(checkpoint, rank).filter(|path| is_redundancy(path)).count();
    let listed = map.files(checkpoint, rank).count();
    redundancy > 0 && map.expected(checkpoint, rank).is_some_and(|expected| expected as usize + redundancy == listed)
}

impl Examined {
    fn blame(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }
}
