//! From cache to the prefix directory, while the job runs.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_core::control::meta::Meta;
use holdfast_core::redundancy::xor::name::XorName;
use holdfast_wire::peer::OrderResult;
use holdfast_wire::{CheckpointId, Rank};

use super::copying::{Pace, buffer, copy};
use super::{Result, Trouble, Work, rank_directory};

type Flushed = Vec<(String, u64, Option<u32>)>;

impl Work<'_> {
    pub(super) fn flush(
        &self,
        checkpoint: CheckpointId,
        directory: &Path,
        bandwidth: u64,
        crc: bool,
    ) -> Result<OrderResult> {
        // The bandwidth is the node's: its ranks take turns, so that it is kept without talking to each other.
        let mut pace = Pace::new(bandwidth);
        let mut flushed: BTreeMap<Rank, Flushed> = BTreeMap::new();
        for rank in self.local() {
            flushed.insert(*rank, self.flush_rank(checkpoint, *rank, directory, &mut pace, crc)?);
        }
        holdfast_core::durable::sync_directory(directory).map_err(|error| Trouble::Other(error.to_string()))?;
        Ok(OrderResult::Flushed(flushed))
    }

    fn flush_rank(
        &self,
        checkpoint: CheckpointId,
        rank: Rank,
        directory: &Path,
        pace: &mut Pace,
        crc: bool,
    ) -> Result<Flushed> {
        let cache = rank_directory(self.agent, checkpoint, rank)?;
        let names: Vec<String> = self
            .agent
            .store
            .files(checkpoint, rank)
            .into_iter()
            .filter(|name| XorName::parse(name).is_none())
            .collect();
        let metas = names
            .iter()
            .map(|name| Meta::read(&cache.join(name)).map_err(|error| Trouble::Other(error.to_string())))
            .collect::<Result<Vec<Meta>>>()?;
        let working = self.agent.progress.begin(
            holdfast_model::Task::Flush,
            checkpoint,
            metas.iter().map(|meta| meta.size).sum(),
        );
        let mut buffer = buffer(self.run.plan.settings.copy_bytes);
        let mut flushed = Vec::with_capacity(metas.len());
        for mut meta in metas {
            let (from, to) = (cache.join(&meta.file), directory.join(&meta.file));
            let (size, found) = copy(&from, &to, &mut buffer, crc, pace, |bytes| working.advance(bytes))?;
            if size != meta.size {
                return Err(Trouble::Other(format!("{} has {size} bytes instead of {}", from.display(), meta.size)));
            }
            if let (Some(known), Some(found)) = (meta.crc, found)
                && known != found
            {
                return Err(Trouble::Other(format!(
                    "{} has CRC32 {found:#010x} instead of {known:#010x}: it was damaged in cache",
                    from.display()
                )));
            }
            if meta.crc.is_none() && found.is_some() {
                meta.crc = found;
                meta.write(&from).map_err(|error| Trouble::Other(error.to_string()))?;
            }
            meta.write(&to).map_err(|error| Trouble::Other(error.to_string()))?;
            flushed.push((meta.file, size, meta.crc));
        }
        Ok(flushed)
    }
}
