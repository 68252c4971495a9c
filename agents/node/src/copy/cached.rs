//! A file in cache, copied into a dataset of a store, with its meta file: as plain files or into a container.

use std::path::Path;

use holdfast_core::control::content::{ContentMismatch, RecordedContent};
use holdfast_core::control::meta::{Meta, format_crc};
use holdfast_core::kvtree::{Tree, file as hash_file};
use holdfast_core::store::OpenDataset;
use holdfast_core::store::dataset_files::{read_tree, write_tree};
use holdfast_formats::sion::dataset::RankWriter;

use super::cut_off::CutOffCopies;
use super::error::CopyFault;
use super::pipeline::{Checksum, CopyTarget, Lane, Moved};
use crate::report::events::ProgressGuard;

/// A file that is to be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedFile<'a> {
    pub(crate) path: &'a Path,
    pub(crate) meta: &'a Meta,
}

impl CachedFile<'_> {
    /// Copies the file and its meta file into a dataset, unless they are already there; goes on from a copy that was
    /// cut off. With `record_crc` both meta files get the checksum. Returns the recorded checksum.
    ///
    /// A file that does not agree with its meta data is marked in cache as incomplete, so that no restart uses it, and
    /// an earlier copy of it is removed.
    ///
    /// # Errors
    /// The first failure, with its file.
    pub(crate) fn copy_to(
        &self,
        (dataset, cut_off): (&dyn OpenDataset, &CutOffCopies),
        record_crc: bool,
        lane: &mut Lane<'_>,
        working: &ProgressGuard,
    ) -> Result<Option<u32>, CopyFault> {
        let target = CopyTarget { dataset, name: &self.meta.file };
        let moved = self.moved(record_crc, working);
        let content = lane.copy(self.path, target, moved, cut_off).inspect_err(|fault| {
            if is_damage(fault) {
                self.mark_damaged();
                remove_copy(target);
            }
        })?;
        let crc = content.crc.filter(|_| record_crc).or(self.meta.crc);
        let CachedMeta { known, recorded } = self.read_meta(crc)?;
        let copied = Meta::name_for(&self.meta.file);
        if !read_tree(dataset, &copied).is_ok_and(|there| there == recorded) {
            write_tree(dataset, &copied, &recorded)?;
        }
        self.note_checksum(&known, &recorded);
        Ok(crc)
    }

    fn moved<'w>(&self, record_crc: bool, working: &'w ProgressGuard) -> Moved<'w> {
        Moved { recorded: RecordedContent::from(self.meta), checksum: Checksum::of(record_crc), working }
    }

    /// As [`CachedFile::copy_to`], into the stream of the file's rank in a container. What a process that was killed
    /// has written at the same place is not written again.
    ///
    /// # Errors
    /// As [`CachedFile::copy_to`]; the stream then continues without the file.
    pub(crate) fn pack_into(
        &self,
        stream: &mut RankWriter<'_>,
        record_crc: bool,
        lane: &mut Lane<'_>,
        working: &ProgressGuard,
    ) -> Result<Option<u32>, CopyFault> {
        let (to, mut sink) = (stream.path, stream.content());
        let content =
            lane.write_into(self.path, &mut sink, to, self.moved(record_crc, working)).inspect_err(|fault| {
                if is_damage(fault) {
                    self.mark_damaged();
                }
            })?;
        let kept = sink.kept();
        if kept > 0 {
            tracing::info!(file = self.meta.file, container = %to.display(), bytes = kept, "copy_continued");
        }
        let crc = content.crc.filter(|_| record_crc).or(self.meta.crc);
        let CachedMeta { known, recorded } = self.read_meta(crc)?;
        let meta_file = hash_file::packed(&Meta::path_for(self.path), &recorded)?;
        stream.finish(&self.meta.file, content.bytes)?;
        stream.add(&Meta::name_for(&self.meta.file), &meta_file)?;
        self.note_checksum(&known, &recorded);
        Ok(crc)
    }

    /// Reads the meta file in cache, and adds this checksum.
    fn read_meta(&self, crc: Option<u32>) -> Result<CachedMeta, CopyFault> {
        let known = hash_file::read(&Meta::path_for(self.path))?;
        let mut recorded = known.clone();
        set_crc(&mut recorded, crc);
        Ok(CachedMeta { known, recorded })
    }

    /// Records the checksum in cache. If the cache cannot be written any more, nothing is lost.
    fn note_checksum(&self, known: &Tree, recorded: &Tree) {
        if recorded != known
            && let Err(error) = hash_file::write_unsynced(&Meta::path_for(self.path), recorded)
        {
            tracing::warn!(%error, "checksum_not_noted_in_cache");
        }
    }

    fn mark_damaged(&self) {
        let cached = Meta::path_for(self.path);
        let marked = hash_file::read(&cached).and_then(|mut tree| {
            tree.put("COMPLETE", 0);
            hash_file::write_unsynced(&cached, &tree)
        });
        if let Err(error) = marked {
            tracing::warn!(%error, "damaged_file_not_marked");
        }
    }
}

/// The meta file in cache, and with the checksum that the copy computed.
struct CachedMeta {
    known: Tree,
    recorded: Tree,
}

fn is_damage(fault: &CopyFault) -> bool {
    matches!(fault, CopyFault::Mismatch { mismatch: ContentMismatch::Crc { .. }, .. })
}

fn remove_copy(target: CopyTarget<'_>) {
    if let Err(error) = target.dataset.remove(&[&Meta::name_for(target.name), target.name]) {
        tracing::warn!(%error, "damaged_copy_not_removed");
    }
}

/// A checksum that is already recorded keeps its position.
fn set_crc(tree: &mut Tree, crc: Option<u32>) {
    if let Some(crc) = crc.filter(|_| tree.get("CRC").is_none()) {
        tree.put("CRC", format_crc(crc));
    }
}
