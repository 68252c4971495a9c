//! Datasets that bypass the cache: the ranks write and read their files below the prefix directory themselves, because
//! several of them share a file. This module only records which files they routed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::control::content::RecordedContent;
use holdfast_core::store::{self, DatasetAccess, OpenDataset};
use holdfast_formats::sion::dataset as container;
use holdfast_model::{CheckpointId, Dataset, OutputPath, Rank, Task};
use holdfast_wire::peer::{DatasetFile, OrderResult};

use super::context::{OrderContext, Result};
use super::error::OrderError;
use super::seal::written_bytes;
use crate::copy::pipeline::{Checksum, CopyTarget, Moved};
use crate::directories::paths::base_name;
use crate::report::events::total_bytes;
use crate::state::memory::Direct;

impl OrderContext<'_> {
    pub(super) fn describe(&self, checkpoint: CheckpointId, dataset: Dataset) -> Result<OrderResult> {
        self.agent.store.descriptions.note(checkpoint, dataset)?;
        Ok(OrderResult::Done)
    }

    /// A repeated order keeps the files that were routed since. A leader that was restarted before its first order was
    /// recorded has made another directory: then nothing was routed yet, and the new directory replaces the old one.
    pub(super) fn open_direct(&self, checkpoint: CheckpointId, directory: PathBuf) -> Result<OrderResult> {
        // The ranks write there by its path, which is checked here once.
        self.dataset(&directory, DatasetAccess::Write)?;
        self.remember(|memory| {
            let known = memory.direct.as_ref().is_some_and(|direct| direct.directory == directory);
            if memory.open != Some(checkpoint) || !known {
                memory.direct = Some(Direct::in_directory(directory));
            }
            memory.open = Some(checkpoint);
            memory.restart = None;
        })?;
        Ok(OrderResult::Done)
    }

    pub(super) fn seal_direct(&self, checkpoint: CheckpointId) -> Result<OrderResult> {
        let memory = self.run.memory.read();
        let direct = memory.direct.as_ref().filter(|_| memory.open == Some(checkpoint));
        let direct = direct.ok_or(OrderError::NotOpen(checkpoint))?;
        let is_output = self.agent.store.descriptions.is_output(checkpoint)?;
        let mut sealed = BTreeMap::new();
        for (rank, names) in self.run.memory.direct_files(checkpoint) {
            // A file of an output was recorded with its path.
            let sized = |name: String| {
                let output_path = is_output.then(|| OutputPath::parse(&name).ok()).flatten();
                let (path, name) = match &output_path {
                    Some(output_path) => (direct.prefix().join(&name), output_path.base_name().to_owned()),
                    None => (direct.directory.join(&name), name),
                };
                Ok(DatasetFile { size: written_bytes(rank, &path)?, name, crc: None, output_path })
            };
            let files = names.into_iter().map(sized);
            sealed.insert(rank, files.collect::<Result<Vec<_>>>()?);
        }
        Ok(OrderResult::Flushed(sealed))
    }

    pub(super) fn close_direct(&self, checkpoint: CheckpointId) -> Result<OrderResult> {
        self.remember(|memory| memory.forget(checkpoint))?;
        Ok(OrderResult::Done)
    }

    pub(super) fn read_direct(
        &self,
        checkpoint: CheckpointId,
        directory: PathBuf,
        mut files: BTreeMap<Rank, Vec<DatasetFile>>,
        written_by: Option<u32>,
    ) -> Result<OrderResult> {
        let dataset = self.dataset(&directory, DatasetAccess::Read)?;
        match written_by {
            None => files.retain(|rank, _| self.local().contains(rank)),
            Some(_) => self.unpack(checkpoint, dataset, &directory, files.values().flatten())?,
        }
        let mut direct = Direct::in_directory(directory);
        for (rank, files) in files {
            for DatasetFile { name, output_path, .. } in files {
                let name = base_name(&name)?.to_owned();
                if let Some(output_path) = output_path {
                    let unreadable =
                        |source| OrderError::Missing { rank, path: direct.prefix().join(output_path.as_str()), source };
                    let store = store::open(direct.prefix()).map_err(io::Error::other);
                    store.and_then(|store| store.output_directory(&output_path).map(drop)).map_err(unreadable)?;
                    direct.output_paths.entry(rank).or_default().insert(name.clone(), output_path);
                }
                written_bytes(rank, &direct.path(rank, &name)).map_err(OrderError::of_earlier_run)?;
                direct.files.entry(rank).or_default().push(name);
            }
        }
        if written_by.is_some() {
            // Verified, and the ranks look for them in the summary.
            direct = Direct { written_by, ..Direct::in_directory(direct.directory) };
        }
        self.remember(|memory| {
            memory.open = None;
            memory.restart = Some(checkpoint);
            memory.direct = Some(direct);
        })?;
        Ok(OrderResult::Done)
    }

    /// Writes those of these files that are in a container as plain ones beside it, where ranks can read them.
    fn unpack<'a>(
        &self,
        checkpoint: CheckpointId,
        dataset: Arc<dyn OpenDataset>,
        directory: &Path,
        files: impl Iterator<Item = &'a DatasetFile>,
    ) -> Result<()> {
        let stored = container::open(dataset).map_err(OrderError::file("list", directory))?;
        let packed: Vec<&DatasetFile> = files.filter(|file| stored.is_packed(&file.name)).collect();
        if packed.is_empty() {
            return Ok(());
        }
        let plain = self.dataset(directory, DatasetAccess::Write)?;
        let working =
            self.agent.progress.begin(Task::Fetch, checkpoint, total_bytes(packed.iter().map(|file| file.size)));
        let unpacked = self.pipeline().each(&packed, |lane, file| -> Result<()> {
            let from = stored.path_of(&file.name);
            let content = stored.open(&file.name, None).map_err(OrderError::file("read", &from))?;
            let recorded = RecordedContent { bytes: file.size, crc: file.crc };
            let target = CopyTarget { dataset: &*plain, name: &file.name };
            let moved = Moved { recorded, checksum: Checksum::IfRecorded, working: &working };
            lane.copy_stored(&*content, &from, target, moved)?;
            Ok(())
        });
        unpacked.into_iter().collect()
    }
}
