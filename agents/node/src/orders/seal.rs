//! The end of writing: checks that every routed file exists, and writes its meta file.

use std::collections::BTreeMap;
use std::fs;

use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_core::redundancy::registry::is_redundancy_file;
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::peer::{OrderResult, SealedFiles};

use super::{OrderContext, OrderError, Result, rank_directory};
use crate::copy::pipeline::Lane;

impl OrderContext<'_> {
    pub(super) fn seal(&self, checkpoint: CheckpointId, ranks: u32, crc: bool) -> Result<OrderResult> {
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
        crc: bool,
    ) -> Result<SealedFiles> {
        let directory = rank_directory(self.agent, checkpoint, rank)?;
        let mut sealed = SealedFiles::default();
        for name in self.agent.store.files(checkpoint, rank) {
            if is_redundancy_file(&name) {
                // Left by an earlier attempt of this step; it is written again.
                continue;
            }
            let path = directory.join(&name);
            let metadata =
                fs::symlink_metadata(&path).map_err(|source| OrderError::NotWritten { path: path.clone(), source })?;
            if !metadata.is_file() {
                return Err(OrderError::NotRegular(path));
            }
            let crc = if crc { Some(lane.content(&path)?.crc) } else { None };
            sealed.names.push(name.clone());
            let meta = Meta {
                file: name,
                kind: FileKind::Full,
                size: metadata.len(),
                checkpoint,
                rank,
                ranks,
                complete: true,
                crc,
            };
            meta.write_unsynced(&path)?;
            sealed.bytes += metadata.len();
        }
        Ok(sealed)
    }
}
