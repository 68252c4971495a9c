//! Compares files in cache with the checksums in their meta files, before a run restarts from them.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_core::control::content::RecordedContent;
use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::peer::OrderResult;

use super::context::{OrderContext, Result, rank_directory};
use crate::copy::CopyFault;
use crate::copy::pipeline::Lane;

impl OrderContext<'_> {
    /// Reads the application's files of these ranks. Redundancy files and copies for other nodes are compared when they
    /// are used.
    pub(super) fn verify(&self, checkpoint: CheckpointId, ranks: &[Rank]) -> Result<OrderResult> {
        let mut files = Vec::new();
        for rank in ranks {
            let directory = rank_directory(self.agent, checkpoint, *rank)?;
            let names = self.agent.store.files(checkpoint, *rank).into_iter();
            files.extend(names.map(|name| (*rank, directory.join(name))));
        }
        let checked = self.pipeline().each(&files, |lane, (rank, path)| match check(lane, path) {
            Ok(()) => Ok(None),
            Err(CopyFault::Cancelled) => Err(CopyFault::Cancelled),
            Err(fault) => Ok(Some((*rank, fault.to_string()))),
        });
        let mut damaged = BTreeMap::new();
        for found in checked {
            if let Some((rank, fault)) = found? {
                damaged.entry(rank).or_insert(fault);
            }
        }
        Ok(OrderResult::Verified(damaged))
    }
}

fn check(lane: &mut Lane<'_>, path: &Path) -> Result<(), CopyFault> {
    let meta = Meta::read(path)?;
    match meta.kind {
        FileKind::Full => lane.verify(path, RecordedContent::from(&meta)),
        FileKind::Redundancy(_) => Ok(()),
    }
}
