//! The end of writing: checks that every routed file exists, and writes its meta file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use holdfast_core::control::content::{FileContent, RecordedContent};
use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_core::redundancy::registry::is_redundancy_file;
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::peer::{OrderResult, SealCrc, SealedFiles};

use super::context::{OrderContext, Result, rank_directory};
use super::error::OrderError;
use crate::copy::pipeline::Lane;

impl OrderContext<'_> {
    pub(super) fn seal(&self, checkpoint: CheckpointId, ranks: u32, crc: SealCrc) -> Result<OrderResult> {
        let pipeline = self.pipeline();
        let sealed =
            pipeline.each(self.local(), |lane, rank| Ok((*rank, self.seal_rank(checkpoint, *rank, ranks, lane, crc)?)));
        Ok(OrderResult::Sealed(sealed.into_iter().collect::<Result<BTreeMap<Rank, SealedFiles>>>()?))
    }

    fn seal_rank(
        &self,
        checkpoint: CheckpointId,
        rank: Rank,
        ranks: u32,
        lane: &mut Lane<'_>,
        crc: SealCrc,
    ) -> Result<SealedFiles> {
        let directory = rank_directory(self.agent, checkpoint, rank)?;
        let is_output = self.agent.store.descriptions.is_output(checkpoint)?;
        let mut sealed = SealedFiles::default();
        for name in self.agent.store.files(checkpoint, rank) {
            if is_redundancy_file(&name) {
                // Left by an earlier attempt of this step; it is written again.
                continue;
            }
            let path = directory.join(&name);
            let size = written_bytes(rank, &path)?;
            let crc = match crc {
                SealCrc::None => None,
                SealCrc::Keep => Meta::read(&path)?.crc,
                SealCrc::Compute => Some(sealed_before(rank, &path, lane.content(&path)?)?.crc),
            };
            sealed.names.push(name.clone());
            // Recorded when the file was routed.
            let output_path = if is_output { Meta::read(&path)?.output_path } else { None };
            let (file, kind) = (name, FileKind::Full);
            let meta = Meta { file, kind, size, checkpoint, rank, ranks, complete: true, crc, output_path };
            meta.write_unsynced(&path)?;
            sealed.bytes += size;
        }
        Ok(sealed)
    }
}

/// What was read of a file. If an earlier attempt of this step recorded it, it must have the same content still: the
/// ranks were blocked since.
fn sealed_before(rank: Rank, path: &Path, found: FileContent) -> Result<FileContent> {
    match Meta::read(path) {
        Ok(sealed) if sealed.complete => RecordedContent::from(&sealed)
            .check(found)
            .map_err(|mismatch| OrderError::Damaged { rank, path: path.to_owned(), mismatch }),
        // Not sealed yet.
        _ => Ok(found),
    }
}

/// The size of a file that a rank has routed.
///
/// # Errors
/// When it does not exist, or is not a regular file; links are not followed.
pub(super) fn written_bytes(rank: Rank, path: &Path) -> Result<u64> {
    let missing = |source| OrderError::NotWritten { rank, path: path.to_owned(), source };
    let metadata = fs::symlink_metadata(path).map_err(missing)?;
    match kind_name(metadata.file_type()) {
        None => Ok(metadata.len()),
        Some(found) => Err(OrderError::NotRegular { rank, path: path.to_owned(), found }),
    }
}

/// What a file is, for messages; `None` for a regular file.
fn kind_name(kind: fs::FileType) -> Option<&'static str> {
    Some(match kind {
        kind if kind.is_file() => return None,
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    })
}
