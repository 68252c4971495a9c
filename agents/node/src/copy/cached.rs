//! A file in cache, copied into a checkpoint directory of the parallel file system, with its meta file.

use std::path::Path;

use holdfast_core::control::content::{ContentMismatch, RecordedContent};
use holdfast_core::control::meta::{Meta, format_crc};
use holdfast_core::durable;
use holdfast_core::kvtree::{Tree, file as hash_file};

use super::error::CopyFault;
use super::pipeline::{Checksum, Lane};
use crate::events::ProgressGuard;

/// A file that is to be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedFile<'a> {
    pub(crate) path: &'a Path,
    pub(crate) meta: &'a Meta,
}

impl CachedFile<'_> {
    /// Copies the file and its meta file into `directory`, unless they are already there. With `record_crc` both meta
    /// files get the checksum. Returns the recorded checksum.
    ///
    /// A file that does not agree with its meta data is marked in cache as incomplete, so that no restart uses it, and
    /// an earlier copy of it is removed.
    ///
    /// # Errors
    /// The first failure, with its file.
    pub(crate) fn copy_to(
        &self,
        directory: &Path,
        record_crc: bool,
        lane: &mut Lane<'_>,
        working: &ProgressGuard,
    ) -> Result<Option<u32>, CopyFault> {
        let target = directory.join(&self.meta.file);
        let recorded = RecordedContent::from(self.meta);
        let content =
            lane.copy(self.path, &target, recorded, Checksum::of(record_crc), working).inspect_err(|fault| {
                if matches!(fault, CopyFault::Mismatch { mismatch: ContentMismatch::Crc { .. }, .. }) {
                    self.mark_damaged(&target);
                }
            })?;
        let crc = content.crc.filter(|_| record_crc).or(self.meta.crc);
        let path = Meta::path_for(self.path);
        let known = hash_file::read(&path)?;
        let mut tree = known.clone();
        set_crc(&mut tree, crc);
        let copied = Meta::path_for(&target);
        if !hash_file::read(&copied).is_ok_and(|there| there == tree) {
            hash_file::write(&copied, &tree)?;
        }
        // If the cache cannot be written any more, nothing is lost.
        if tree != known
            && let Err(error) = hash_file::write_unsynced(&path, &tree)
        {
            tracing::warn!(%error, "checksum_not_noted_in_cache");
        }
        Ok(crc)
    }

    fn mark_damaged(&self, target: &Path) {
        let cached = Meta::path_for(self.path);
        let marked = hash_file::read(&cached).and_then(|mut tree| {
            tree.put("COMPLETE", 0);
            hash_file::write_unsynced(&cached, &tree)
        });
        if let Err(error) = marked {
            tracing::warn!(%error, "damaged_file_not_marked");
        }
        for leftover in [Meta::path_for(target), target.to_owned()] {
            if let Err(error) = durable::remove(&leftover) {
                tracing::warn!(%error, "damaged_copy_not_removed");
            }
        }
    }
}

/// A checksum that is already recorded keeps its position.
fn set_crc(tree: &mut Tree, crc: Option<u32>) {
    if let Some(crc) = crc.filter(|_| tree.get("CRC").is_none()) {
        tree.put("CRC", format_crc(crc));
    }
}
