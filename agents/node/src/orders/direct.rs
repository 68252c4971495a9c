//! Datasets that bypass the cache: the ranks write and read their files below the prefix directory themselves, because
//! several of them share a file. This module only records which files they routed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_model::{CheckpointId, Dataset, Rank};
use holdfast_wire::peer::OrderResult;

use super::seal::written_bytes;
use super::{OrderContext, OrderError, Result};
use crate::memory::Direct;
use crate::paths::base_name;

impl OrderContext<'_> {
    pub(super) fn describe(&self, checkpoint: CheckpointId, dataset: Dataset) -> Result<OrderResult> {
        self.agent.store.descriptions.note(checkpoint, dataset)?;
        Ok(OrderResult::Done)
    }

    /// A repeated order keeps the files that were routed since. A leader that was restarted before its first order was
    /// recorded has made another directory: then nothing was routed yet, and the new directory replaces the old one.
    pub(super) fn open_direct(&self, checkpoint: CheckpointId, directory: PathBuf) -> Result<OrderResult> {
        // The ranks write there by its path, which is checked here once.
        self.directory_to_write(&directory)?;
        self.remember(|memory| {
            let known = memory.direct.as_ref().is_some_and(|direct| direct.directory == directory);
            if memory.open != Some(checkpoint) || !known {
                memory.direct = Some(Direct { directory, files: BTreeMap::new() });
            }
            memory.open = Some(checkpoint);
            memory.restart = None;
        })?;
        Ok(OrderResult::Done)
    }

    pub(super) fn seal_direct(&self, checkpoint: CheckpointId) -> Result<OrderResult> {
        let memory = self.run.memory.read();
        let direct = memory.direct.as_ref().filter(|_| memory.open == Some(checkpoint));
        let directory = &direct.ok_or(OrderError::NotOpen(checkpoint))?.directory;
        let mut sealed = BTreeMap::new();
        for (rank, names) in self.run.memory.direct_files(checkpoint) {
            let sized = |name: String| {
                let bytes = written_bytes(rank, &directory.join(&name))?;
                Ok((name, bytes, None))
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
        mut files: BTreeMap<Rank, Vec<String>>,
    ) -> Result<OrderResult> {
        self.directory_to_read(&directory)?;
        files.retain(|rank, _| self.local().contains(rank));
        for (rank, name) in files.iter().flat_map(|(rank, names)| names.iter().map(move |name| (*rank, name))) {
            written_bytes(rank, &directory.join(base_name(name)?))?;
        }
        self.remember(|memory| {
            memory.open = None;
            memory.restart = Some(checkpoint);
            memory.direct = Some(Direct { directory, files });
        })?;
        Ok(OrderResult::Done)
    }
}
