//! From cache to the prefix directory, while the job runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_core::control::meta::Meta;
use holdfast_core::control::transfer::FileTransfer;
use holdfast_core::redundancy::registry::is_redundancy_file;
use holdfast_core::store::{DatasetAccess, OpenDataset};
use holdfast_formats::sion::dataset::PlacedFiles;
use holdfast_model::{CheckpointId, ContainerPlaces, Rank, Task};
use holdfast_wire::peer::{CopyLimits, DatasetFile, OrderResult};

use super::context::{OrderContext, Result, rank_directory};
use super::error::OrderError;
use crate::copy::CopyFault;
use crate::copy::cached::CachedFile;
use crate::copy::cut_off::CutOffCopies;
use crate::copy::pipeline::Pipeline;
use crate::copy::transfer_record::TransferRecord;
use crate::report::events::{ProgressGuard, total_bytes};

impl OrderContext<'_> {
    /// Copies the application's files of the local ranks, of which all must be listed: as plain files, or into a
    /// container. Plain files that an interrupted flush of this dataset has copied are not copied again, and those that
    /// it has copied in part are completed.
    pub(super) fn flush(
        &self,
        checkpoint: CheckpointId,
        directory: &Path,
        (limits, background): (CopyLimits, bool),
        crc: bool,
        container: Option<&ContainerPlaces>,
    ) -> Result<OrderResult> {
        let _turn = self.agent.store.flush.begin_to_copy();
        let dataset = self.dataset(directory, DatasetAccess::Write)?;
        let mut files = Vec::new();
        for rank in self.local() {
            if !self.agent.store.is_listed(checkpoint, *rank) {
                return Err(OrderError::NotHeld { checkpoint, rank: *rank });
            }
            let cache = rank_directory(self.agent, checkpoint, *rank)?;
            for name in self.agent.store.files(checkpoint, *rank) {
                // It may be made meanwhile.
                if is_redundancy_file(&name) {
                    continue;
                }
                let path = cache.join(name);
                let meta = Meta::read(&path)?;
                files.push((*rank, path, meta));
            }
        }
        let total = total_bytes(files.iter().map(|(_, _, meta)| meta.size));
        let working = self.agent.progress.begin(Task::Flush, checkpoint, total);
        // The limits are those of the node: its files share them, and no coordination between nodes is needed.
        let pipeline = self.pipeline().limited(limits);
        if let Some(places) = container {
            match PlacedFiles::open(&*dataset, places) {
                Ok(placed) => return self.pack(&pipeline, &files, &placed, places, crc, &working),
                // Only what was packed is entered in the container.
                Err(error) => tracing::warn!(%error, %checkpoint, "plain_files_kept"),
            }
        }
        let cut_off = CutOffCopies::in_dataset(&*dataset);
        let record = background.then(|| {
            let listed: Vec<_> = files.iter().flat_map(|(_, path, _)| self.transfers(path, &*dataset)).collect();
            TransferRecord::begin(&self.agent.paths, &listed, limits)
        });
        let copied = pipeline.each(&files, |lane, (_, path, meta)| -> Result<_, CopyFault> {
            let crc = CachedFile { path, meta }.copy_to((&*dataset, &cut_off), crc, lane, &working)?;
            if let Some(record) = &record {
                self.transfers(path, &*dataset).into_iter().for_each(|file| record.copied(file.source, file.size));
            }
            Ok(crc)
        });
        let mut flushed: BTreeMap<Rank, Vec<_>> = self.local().iter().map(|rank| (*rank, Vec::new())).collect();
        for ((rank, _, meta), crc) in files.into_iter().zip(copied) {
            flushed.entry(rank).or_default().push(dataset_file(&meta, crc?));
        }
        cut_off.remove_rest(&*dataset, &self.agent.paths);
        record.into_iter().for_each(TransferRecord::done);
        Ok(OrderResult::Flushed(flushed))
    }

    /// A file in cache and its meta file, as the transfer file lists them.
    fn transfers(&self, path: &Path, dataset: &dyn OpenDataset) -> Vec<FileTransfer> {
        let transfer = |path: PathBuf| {
            let name = path.file_name()?.to_str()?;
            Some(FileTransfer {
                source: self.agent.paths.node_path(&path)?,
                destination: dataset.path_of(name).to_string_lossy().into_owned(),
                size: fs::metadata(&path).ok()?.len(),
                written: 0,
            })
        };
        [path.to_owned(), Meta::path_for(path)].into_iter().filter_map(transfer).collect()
    }

    /// Writes the files of each rank to its place in a container.
    fn pack(
        &self,
        pipeline: &Pipeline,
        files: &[(Rank, PathBuf, Meta)],
        placed: &PlacedFiles,
        places: &ContainerPlaces,
        crc: bool,
        working: &ProgressGuard,
    ) -> Result<OrderResult> {
        let ranks: Vec<Rank> = self.local().to_vec();
        let results = pipeline.each(&ranks, |lane, rank| -> Result<_> {
            let mut of_rank = files.iter().filter(|(owner, _, _)| owner == rank).peekable();
            let place = places.ranks.get(rank).copied();
            let Some(mut stream) = place.and_then(|place| placed.writer(place)) else {
                // A rank without files needs no place.
                return if of_rank.peek().is_none() { Ok((Vec::new(), None)) } else { Err(OrderError::NoPlace(*rank)) };
            };
            let mut listed = Vec::new();
            for (_, path, meta) in of_rank {
                let crc = CachedFile { path, meta }.pack_into(&mut stream, crc, lane, working)?;
                listed.push(dataset_file(meta, crc));
            }
            Ok((listed, Some(stream.end())))
        });
        placed.synchronise().map_err(CopyFault::from)?;
        let (mut listed, mut packed) = (BTreeMap::new(), BTreeMap::new());
        for (rank, result) in ranks.into_iter().zip(results) {
            let (files, written) = result?;
            listed.insert(rank, files);
            packed.extend(written.map(|written| (rank, written)));
        }
        Ok(OrderResult::Packed { files: listed, packed })
    }
}

fn dataset_file(meta: &Meta, crc: Option<u32>) -> DatasetFile {
    DatasetFile { name: meta.file.clone(), size: meta.size, crc, output_path: meta.output_path.clone() }
}
