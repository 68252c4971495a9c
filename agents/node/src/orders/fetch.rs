//! From the prefix directory into cache (`SCR manual §11.4.7`).

use std::path::Path;

use holdfast_core::control::meta::{FileKind, Meta};
use holdfast_wire::CheckpointId;
use holdfast_wire::peer::{FetchRank, OrderResult};

use super::copying::{Pace, buffer, copy};
use super::{Result, Trouble, Work};
use crate::paths::base_name;

impl Work<'_> {
    pub(super) fn fetch(
        &self,
        checkpoint: CheckpointId,
        directory: &Path,
        ranks: &[FetchRank],
        total_ranks: u32,
    ) -> Result<OrderResult> {
        // Whatever an earlier attempt left is not to be trusted.
        self.agent.store.delete(checkpoint)?;
        self.in_parallel(ranks, |rank| self.fetch_rank(checkpoint, directory, rank, total_ranks))?;
        self.remember_restart(checkpoint)?;
        Ok(OrderResult::Files(self.routed(checkpoint)))
    }

    fn fetch_rank(&self, checkpoint: CheckpointId, directory: &Path, fetch: &FetchRank, ranks: u32) -> Result<()> {
        let rank = fetch.member.rank;
        let descriptor = self.descriptor(&fetch.member)?;
        self.agent.store.set_descriptor(checkpoint, rank, rank, &descriptor)?;
        self.agent.store.make_directory(checkpoint, &descriptor)?;
        let total = fetch.files.iter().map(|(_, size, _)| size).sum();
        let working = self.agent.progress.begin(holdfast_model::Task::Fetch, checkpoint, total);
        let mut buffer = buffer(self.run.plan.settings.copy_bytes);
        // The summary lists files as the filemap did, newest first.
        for (name, size, crc) in fetch.files.iter().rev() {
            let name = base_name(name).map_err(|error| Trouble::Other(error.to_string()))?;
            let from = directory.join(name);
            let to = self.agent.store.add_file(checkpoint, rank, rank, name)?;
            let mut pace = Pace::new(0);
            let (found, found_crc) = copy(&from, &to, &mut buffer, true, &mut pace, |bytes| working.advance(bytes))?;
            if found != *size {
                return Err(Trouble::Other(format!("{} has {found} bytes instead of {size}", from.display())));
            }
            if let (Some(expected), Some(found)) = (crc, found_crc)
                && *expected != found
            {
                return Err(Trouble::Other(format!(
                    "{} has CRC32 {found:#010x} instead of {expected:#010x}: it is damaged",
                    from.display()
                )));
            }
            let crc = crc.filter(|_| self.run.plan.settings.crc_on_copy);
            let meta = Meta {
                file: name.to_owned(),
                kind: FileKind::Full,
                size: *size,
                checkpoint,
                rank,
                ranks,
                complete: true,
                crc,
            };
            meta.write(&to).map_err(|error| Trouble::Other(error.to_string()))?;
        }
        Ok(())
    }
}
