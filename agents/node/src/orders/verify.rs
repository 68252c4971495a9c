//! Compares files in cache with the checksums in their meta files: before a run restarts from them, and before they are
//! deleted.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_core::control::content::RecordedContent;
use holdfast_core::control::meta::Meta;
use holdfast_core::control::node_path::base_name;
use holdfast_core::redundancy::registry::is_redundancy_file;
use holdfast_core::store::{DatasetAccess, DatasetFiles};
use holdfast_formats::sion::dataset;
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{CopyLimits, DatasetFile, OrderResult};

use super::context::{OrderContext, Result, rank_directory};
use super::error::OrderError;
use crate::copy::CopyFault;
use crate::copy::pipeline::Lane;

impl OrderContext<'_> {
    /// Reads the application's files of these ranks. Redundancy files and copies for other nodes are compared when they
    /// are used.
    pub(super) fn verify(&self, checkpoint: CheckpointId, ranks: &[Rank]) -> Result<OrderResult> {
        let damaged = self.faults(checkpoint, ranks)?;
        Ok(OrderResult::Verified(damaged.into_iter().map(|(rank, fault)| (rank, fault.to_string())).collect()))
    }

    /// Reads files of a dataset in the prefix directory. What cannot be read is damaged.
    pub(super) fn verify_stored(
        &self,
        directory: &Path,
        files: &BTreeMap<Rank, Vec<DatasetFile>>,
        limits: CopyLimits,
    ) -> Result<OrderResult> {
        let opened = self.dataset(directory, DatasetAccess::Read)?;
        let stored = dataset::open(opened).map_err(OrderError::file("list the files in", directory.to_owned()))?;
        let files: Vec<(Rank, &DatasetFile)> =
            files.iter().flat_map(|(rank, files)| files.iter().map(|file| (*rank, file))).collect();
        let pipeline = self.pipeline().limited(limits).limiting_reads();
        let checked = pipeline.each(&files, |lane, (rank, file)| match check_stored(lane, &*stored, file) {
            Err(CopyFault::Cancelled) => Err(CopyFault::Cancelled),
            checked => Ok(checked.err().map(|fault| (*rank, fault.to_string()))),
        });
        let mut damaged = BTreeMap::new();
        for found in checked {
            if let Some((rank, fault)) = found? {
                damaged.entry(rank).or_insert(fault);
            }
        }
        Ok(OrderResult::Verified(damaged))
    }

    /// Reports the files of a dataset whose content changed since it was written (`SCR_CRC_ON_DELETE`): memory or disk
    /// of this node may be defective. What is incomplete, because its writer died, is no reason for that.
    pub(super) fn report_differing(&self, checkpoint: CheckpointId) {
        let faults = self.faults(checkpoint, &self.agent.store.ranks(checkpoint)).unwrap_or_else(|error| {
            // It is deleted all the same: the next checkpoint needs its room.
            tracing::warn!(%checkpoint, %error, "not_compared_before_deletion");
            BTreeMap::new()
        });
        for (rank, fault) in faults {
            if matches!(fault, CopyFault::Mismatch { .. } | CopyFault::Read { .. }) {
                let node = &self.agent.start.node;
                let message = format!(
                    "node {node}: a file of rank {rank} changed in cache, found before dataset {checkpoint} was \
                     deleted: {fault}; check the memory or the disk of the cache on this node"
                );
                self.agent.events.add(AgentEvent::Notice { message });
            }
        }
    }

    /// What is wrong with the files of these ranks, the first of each.
    fn faults(&self, checkpoint: CheckpointId, ranks: &[Rank]) -> Result<BTreeMap<Rank, CopyFault>> {
        let mut files = Vec::new();
        for rank in ranks {
            let names = self.agent.store.files(checkpoint, *rank);
            if names.is_empty() {
                continue;
            }
            let directory = rank_directory(self.agent, checkpoint, *rank)?;
            let names = names.into_iter().filter(|name| !is_redundancy_file(name));
            files.extend(names.map(|name| (*rank, directory.join(name))));
        }
        let checked = self.pipeline().each(&files, |lane, (rank, path)| match check(lane, path) {
            Ok(()) => Ok(None),
            Err(CopyFault::Cancelled) => Err(CopyFault::Cancelled),
            Err(fault) => Ok(Some((*rank, fault))),
        });
        let mut faults = BTreeMap::new();
        for found in checked {
            if let Some((rank, fault)) = found? {
                faults.entry(rank).or_insert(fault);
            }
        }
        Ok(faults)
    }
}

fn check_stored(lane: &mut Lane<'_>, stored: &dyn DatasetFiles, file: &DatasetFile) -> Result<(), CopyFault> {
    let name = base_name(&file.name)?;
    let path = stored.path_of(name);
    let opened = stored.open(name, file.output_path.as_ref());
    let opened = opened.map_err(|source| CopyFault::Read { path: path.clone(), source })?;
    lane.verify_stored(&*opened, &path, RecordedContent { bytes: file.size, crc: file.crc })
}

fn check(lane: &mut Lane<'_>, path: &Path) -> Result<(), CopyFault> {
    let meta = Meta::read(path)?;
    lane.verify(path, RecordedContent::from(&meta))
}
