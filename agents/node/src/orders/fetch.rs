//! From the prefix directory into cache (`SCR manual §11.4.7`).

use std::path::{Path, PathBuf};

use holdfast_core::control::content::RecordedContent;
use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_core::prefix::application_name::check_application_name;
use holdfast_core::redundancy::descriptor;
use holdfast_core::store::{DatasetAccess, PosixDataset};
use holdfast_formats::sion::dataset;
use holdfast_model::{CheckpointId, CrcOnCopy, Task};
use holdfast_wire::peer::{CopyLimits, DatasetFile, FetchRank, OrderResult};

use super::context::{OrderContext, Result};
use super::error::OrderError;
use crate::copy::pipeline::{Checksum, CopyTarget, Moved};
use crate::report::events::total_bytes;

impl OrderContext<'_> {
    pub(super) fn fetch(
        &self,
        checkpoint: CheckpointId,
        directory: &Path,
        ranks: &[FetchRank],
        total_ranks: u32,
        width: u32,
    ) -> Result<OrderResult> {
        let stored = self.dataset(directory, DatasetAccess::Read)?;
        let stored = dataset::open(stored).map_err(OrderError::file("list", directory))?;
        if !self.was_interrupted(checkpoint, ranks)? {
            self.agent.store.delete(checkpoint)?;
        }
        let mut files = Vec::new();
        for rank in ranks {
            self.enter_rank(checkpoint, rank, total_ranks, &mut files)?;
        }
        let record = self.run.plan.settings.crc.on_copy != CrcOnCopy::Never;
        let total = total_bytes(files.iter().map(|(_, meta)| meta.size));
        let working = self.agent.progress.begin(Task::Fetch, checkpoint, total);
        let pipeline = self.pipeline().limited(CopyLimits { width, ..CopyLimits::NONE });
        let copied = pipeline.each(&files, |lane, (to, meta)| -> Result<()> {
            let from = stored.path_of(&meta.file);
            let directory = to.parent().unwrap_or(to);
            let cache = PosixDataset::in_cache(directory).map_err(OrderError::file("open", directory))?;
            let target = CopyTarget { dataset: &cache, name: &meta.file };
            let stored = stored.open(&meta.file, meta.output_path.as_ref());
            let stored = stored.map_err(OrderError::file("read", &from))?;
            let recorded = RecordedContent::from(meta);
            let moved = Moved { recorded, checksum: Checksum::of(record), working: &working };
            let copied = lane.copy_stored(&*stored, &from, target, moved)?;
            Ok(Meta { crc: copied.crc.filter(|_| record), ..meta.clone() }.write_unsynced(to)?)
        });
        copied.into_iter().collect::<Result<Vec<()>>>()?;
        self.agent.store.fold_logs()?;
        self.remember_restart(checkpoint)?;
        Ok(OrderResult::Files(self.routed(checkpoint)))
    }

    /// True if the checkpoint's entries on this node are those of an earlier attempt of this fetch. They count as
    /// incomplete from now on; files that are complete are not copied again.
    fn was_interrupted(&self, checkpoint: CheckpointId, ranks: &[FetchRank]) -> Result<bool> {
        let store = &self.agent.store;
        let known = store.ranks(checkpoint);
        for rank in &known {
            let Some(fetch) = ranks.iter().find(|fetch| fetch.member.rank == *rank) else { return Ok(false) };
            let descriptor = descriptor::to_tree(&fetch.member.descriptor);
            let same = store.descriptor(checkpoint, *rank).is_some_and(|known| known.same_content(&descriptor));
            let entered = store.files(checkpoint, *rank);
            let is_entered = |at: usize| fetch.files.get(at).map(|file| &file.name);
            // Both lists begin with the newest file; the oldest was entered first.
            let missing = fetch.files.len().checked_sub(entered.len());
            let a_part =
                missing.is_some_and(|missing| (missing..).zip(&entered).all(|(at, name)| is_entered(at) == Some(name)));
            if !same || !a_part || store.partner(checkpoint, *rank).is_some() {
                return Ok(false);
            }
        }
        for rank in &known {
            store.unset_expected(checkpoint, *rank, *rank)?;
        }
        Ok(!known.is_empty())
    }

    /// Enters a rank and its files into the filemap, before they exist, and adds the path and the meta data of each.
    fn enter_rank(
        &self,
        checkpoint: CheckpointId,
        fetch: &FetchRank,
        ranks: u32,
        files: &mut Vec<(PathBuf, Meta)>,
    ) -> Result<()> {
        let rank = fetch.member.rank;
        let descriptor = descriptor::to_tree(&fetch.member.descriptor);
        self.agent.store.set_descriptor(checkpoint, rank, rank, &descriptor)?;
        self.agent.store.make_directory(checkpoint, &descriptor)?;
        // The summary lists files as the filemap did, newest first.
        for file in fetch.files.iter().rev() {
            let DatasetFile { name, size, crc, output_path } = file;
            let refused = |problem| OrderError::Name { name: name.clone(), problem };
            check_application_name(name).map_err(refused)?;
            let to = self.agent.store.add_file(checkpoint, rank, rank, name)?;
            let (file, kind, size, crc) = (name.clone(), FileKind::Full, *size, *crc);
            let output_path = output_path.clone();
            files.push((to, Meta { file, kind, size, checkpoint, rank, ranks, complete: true, crc, output_path }));
        }
        Ok(())
    }
}
