//! From cache to the prefix directory, while the job runs.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_model::{CheckpointId, Rank, Task};
use holdfast_wire::peer::{CopyLimits, DatasetFile, OrderResult};

use super::{OrderContext, OrderError, Result, rank_directory};
use crate::copy::cached::CachedFile;
use crate::events::total_bytes;

impl OrderContext<'_> {
    /// Copies the application's files of the local ranks, of which all must be listed. Files that
    /// an interrupted flush of this dataset has copied are not copied again.
    pub(super) fn flush(
        &self,
        checkpoint: CheckpointId,
        directory: &Path,
        limits: CopyLimits,
        crc: bool,
    ) -> Result<OrderResult> {
        let directory = self.directory_to_write(directory)?;
        let mut files = Vec::new();
        for rank in self.local() {
            if !self.agent.store.is_listed(checkpoint, *rank) {
                return Err(OrderError::NotHeld { checkpoint, rank: *rank });
            }
            let cache = rank_directory(self.agent, checkpoint, *rank)?;
            for name in self.agent.store.files(checkpoint, *rank) {
                let path = cache.join(name);
                let meta = Meta::read(&path)?;
                if meta.kind == FileKind::Full {
                    files.push((*rank, path, meta));
                }
            }
        }
        let total = total_bytes(files.iter().map(|(_, _, meta)| meta.size));
        let working = self.agent.progress.begin(Task::Flush, checkpoint, total);
        // The limits are those of the node: its files share them, and no coordination between nodes is needed.
        let pipeline = self.pipeline().limited(limits);
        let copied = pipeline
            .each(&files, |lane, (_, path, meta)| CachedFile { path, meta }.copy_to(directory, crc, lane, &working));
        let mut flushed: BTreeMap<Rank, Vec<_>> = self.local().iter().map(|rank| (*rank, Vec::new())).collect();
        for ((rank, _, meta), crc) in files.into_iter().zip(copied) {
            let Meta { file: name, size, output_path, .. } = meta;
            flushed.entry(rank).or_default().push(DatasetFile { name, size, crc: crc?, output_path });
        }
        Ok(OrderResult::Flushed(flushed))
    }
}
