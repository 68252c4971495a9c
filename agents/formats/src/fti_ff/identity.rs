//! Whether a file is that of a rank and a checkpoint.
//!
//! Layouts A and B store neither, the others only the checkpoint. At level 2 each file stores the size of its left
//! neighbour's file (`ptFs`), and the hash in the metadata, which covers the time of creation, differs between files.
//! So a file that was put into the place of another one is found by its size, or by its hash.

use std::path::Path;

use super::checkpoint::{FtiFile, inspect};
use super::layout::FileMeta;
use super::name::{FileName, FileRole};
use super::refusal::Refusal;
use super::survivors::Survivors;
use crate::input::Input;

/// What is known about the file of a rank from the other files of its group.
pub(super) struct Identity {
    /// The right neighbour, and the size of the file according to its metadata.
    size: Option<(FileName, i64)>,
    /// The left neighbour, and the size of its file.
    left_size: Option<(FileName, i64)>,
    /// Files of other ranks and checkpoints with their metadata.
    others: Vec<(FileName, FileMeta)>,
}

impl Identity {
    pub(super) fn of(survivors: &Survivors, group: &[u32], checkpoint: u32, rank: u32) -> Identity {
        let place = group.iter().position(|member| *member == rank);
        let neighbour = |steps: usize| {
            let member = place.and_then(|place| group.get((place + steps) % group.len()));
            member.copied().filter(|member| *member != rank)
        };
        let (right, left) = (neighbour(1), neighbour(group.len().saturating_sub(1)));
        let mut identity = Identity { size: None, left_size: None, others: Vec::new() };
        let own = FileName { checkpoint: Some(checkpoint), role: FileRole::Rank, rank };
        let of_group = |name: FileName| name.role == FileRole::Rank && group.contains(&name.rank) && name != own;
        for file in survivors.files.iter().filter(|file| of_group(file.name)) {
            let Some(meta) = metadata(&file.path) else { continue };
            if file.name.checkpoint == Some(checkpoint) {
                if Some(file.name.rank) == right && meta.partner_size >= 0 {
                    identity.size.get_or_insert((file.name, meta.partner_size));
                }
                if Some(file.name.rank) == left {
                    identity.left_size.get_or_insert((file.name, meta.file_size));
                }
            }
            identity.others.push((file.name, meta));
        }
        identity
    }

    /// Fails if the file at this path is not that of the rank. An unreadable or damaged file passes: its own
    /// verification follows.
    pub(super) fn check(&self, path: &Path) -> Result<(), Refusal> {
        let Some(meta) = metadata(path) else { return Ok(()) };
        let same = |other: &FileMeta| other.own_hash == meta.own_hash && other.checksum == meta.checksum;
        if let Some((other, _)) = self.others.iter().find(|(_, other)| same(other)) {
            return Err(Refusal::OtherFile { other: *other });
        }
        match self.size {
            Some((neighbour, expected)) if expected != meta.file_size => {
                return Err(Refusal::OtherSize { size: meta.file_size, neighbour, expected });
            }
            _ => {}
        }
        match self.left_size {
            Some((neighbour, size)) if meta.partner_size >= 0 && meta.partner_size != size => {
                Err(Refusal::OtherNeighbour { expected: meta.partner_size, neighbour, size })
            }
            _ => Ok(()),
        }
    }
}

/// The metadata of a checkpoint, if its hash is valid.
fn metadata(path: &Path) -> Option<FileMeta> {
    match inspect(Input::open(path).ok()?).ok()? {
        FtiFile::Checkpoint(checkpoint) if checkpoint.hash_valid => Some(checkpoint.meta),
        _ => None,
    }
}
