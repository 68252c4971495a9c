//! Cache to prefix directory, by the running job: at once, or while the ranks go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use holdfast_core::prefix::publish::{self, Publication};
use holdfast_core::prefix::summary::{RankFiles, SummaryFile};
use holdfast_core::prefix::{DirectoryName, Prefix, Summary};
use holdfast_model::{CheckpointId, Failure, Locations, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{Order, OrderResult};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::Work;
use super::fetch::now;
use crate::collective::CallError;
use crate::memory::UnfinishedFlushes;

/// The flush that goes on beside the ranks.
#[derive(Debug)]
pub(super) struct Background {
    /// Where an interrupted flush is to be resumed.
    pub(super) unfinished: UnfinishedFlushes,
    /// The run is over.
    cancelled: CancellationToken,
    /// Held by the flush while it works.
    working: Mutex<()>,
    current: parking_lot::Mutex<Option<CheckpointId>>,
}

impl Background {
    pub(super) fn new(unfinished: UnfinishedFlushes, cancelled: CancellationToken) -> Self {
        Background { unfinished, cancelled, working: Mutex::default(), current: parking_lot::Mutex::default() }
    }

    /// Returns when nothing is under way.
    pub(super) async fn wait(&self) {
        drop(self.working.lock().await);
    }

    /// Returns when this dataset is not under way.
    pub(super) async fn wait_for(&self, checkpoint: CheckpointId) {
        if *self.current.lock() == Some(checkpoint) {
            self.wait().await;
        }
    }
}

impl Work {
    /// True if the settings ask for a flush of this id.
    pub(super) fn flush_is_due(&self, checkpoint: CheckpointId) -> bool {
        let every = self.leader.plan.settings.flush.every;
        every > 0 && checkpoint.0.is_multiple_of(every)
    }

    /// Flushes, unless that is switched off or the dataset is there already. A failure is reported; the checkpoint is
    /// still in cache, and the drain will try again.
    pub(super) async fn flush_if_needed(&self, checkpoint: CheckpointId) {
        if self.leader.plan.settings.flush.every == 0 {
            return;
        }
        self.leader.flushing.wait().await;
        if !self.is_on_prefix(checkpoint).await {
            self.flush(checkpoint, 0).await;
        }
    }

    /// True if the flush file says that the dataset reached the prefix directory.
    pub(super) async fn is_on_prefix(&self, checkpoint: CheckpointId) -> bool {
        let there = self.blocking(move |agent| {
            let locations = agent.store.flush.locations()?;
            Ok(locations.get(&checkpoint).is_some_and(|at| at.pfs))
        });
        there.await.unwrap_or(false)
    }

    /// Begins to flush, and lets the ranks go on.
    pub(super) async fn flush_in_background(&self, checkpoint: CheckpointId) -> Result<(), CallError> {
        self.leader.flushing.wait().await;
        self.note(checkpoint, Locations { cache: true, pfs: false, flushing: true }).await?;
        let bandwidth = self.leader.plan.settings.flush.bandwidth;
        let work = Work { agent: self.agent.clone(), leader: self.leader.clone() };
        let leader: Arc<_> = self.leader.clone();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let _working = leader.flushing.working.lock().await;
            *leader.flushing.current.lock() = Some(checkpoint);
            let _ = begun.send(());
            // A flush that is interrupted leaves an entry of the index without COMPLETE, and is resumed by the next.
            let _ = leader.flushing.cancelled.run_until_cancelled(work.flush(checkpoint, bandwidth)).await;
            *leader.flushing.current.lock() = None;
        });
        // From here on `wait` waits for it.
        let _ = has_begun.await;
        Ok(())
    }

    pub(super) async fn flush(&self, checkpoint: CheckpointId, bandwidth: u64) {
        let begun = Instant::now();
        let generation = self.leader.generation();
        let event = match self.try_flush(checkpoint, bandwidth).await {
            Ok(directory) => {
                let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                AgentEvent::Flushed { generation, checkpoint, directory, millis }
            }
            Err(error) => {
                let _ = self.note(checkpoint, Locations { cache: true, pfs: false, flushing: false }).await;
                AgentEvent::FlushFailed { generation, checkpoint, reason: Failure::from(error).to_string() }
            }
        };
        let flushed = matches!(event, AgentEvent::Flushed { .. });
        self.event(event);
        if flushed && !self.dataset(checkpoint).checkpoint {
            // Output is wanted on the prefix directory only.
            if let Err(error) = self.delete(checkpoint).await {
                tracing::warn!(%checkpoint, %error, "output stays in cache after its flush");
            }
        }
    }

    async fn try_flush(&self, checkpoint: CheckpointId, bandwidth: u64) -> Result<String, CallError> {
        let (dataset, job) = (self.dataset(checkpoint), self.agent.start.job_id.clone());
        let make_current = dataset.checkpoint;
        let leader = self.leader.clone();
        let begin = move |prefix: &Prefix| {
            let (now, unfinished) = (now(), &leader.flushing.unfinished);
            let interrupted = unfinished.directory_of(checkpoint).and_then(|name| DirectoryName::new(name).ok());
            let directory = match interrupted.filter(|known| prefix.checkpoint_path(known).is_dir()) {
                Some(known) => known,
                None => prefix.create_checkpoint_directory(now, &job, checkpoint)?,
            };
            if let Err(error) = unfinished.begin(checkpoint, directory.as_str()) {
                // Only an agent that is restarted in the middle of the flush would begin it anew.
                tracing::warn!(%checkpoint, %error, "flush_not_recorded");
            }
            publish::begin(prefix, checkpoint, &directory, &dataset, now)?;
            Ok((prefix.checkpoint_path(&directory), directory))
        };
        let (path, directory) = self.on_prefix(begin).await?;
        let crc = self.leader.plan.settings.crc.on_flush;
        let order = Order::Flush { checkpoint, directory: path, bandwidth, crc };
        let copied = self.order(self.leader.where_ranks_are(&order)).await;
        let ranks = self.leader.plan.ranks();
        let (summary, failure) = match copied {
            Ok(copied) => (Some(summary_of(checkpoint, ranks, copied.into_values())), None),
            Err(error) => (None, Some(error)),
        };
        let publication = Publication::of_copy(directory.clone(), summary, make_current, now());
        self.on_prefix(move |prefix| publication.publish(prefix)).await?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        self.flush_ended(checkpoint).await?;
        self.note(checkpoint, Locations { cache: true, pfs: true, flushing: false }).await?;
        Ok(directory.to_string())
    }

    /// The dataset is published or deleted: its next flush begins anew.
    pub(super) async fn flush_ended(&self, checkpoint: CheckpointId) -> Result<(), CallError> {
        let leader = self.leader.clone();
        let ended = self.blocking(move |_| {
            if let Err(error) = leader.flushing.unfinished.end(checkpoint) {
                // An agent that is restarted would find everything copied, and publish the same again.
                tracing::warn!(%checkpoint, %error, "end_of_flush_not_recorded");
            }
            Ok(())
        });
        ended.await
    }
}

pub(super) fn summary_of(id: CheckpointId, ranks: u32, results: impl Iterator<Item = OrderResult>) -> Summary {
    let mut by_rank: BTreeMap<Rank, RankFiles> = (0..ranks).map(|rank| (Rank(rank), RankFiles::default())).collect();
    for result in results {
        let OrderResult::Flushed(files) = result else { continue };
        for (rank, files) in files {
            by_rank.entry(rank).or_default().files = files
                .into_iter()
                .map(|(name, size, crc)| SummaryFile { name, size: Some(size), crc, fetch: true, failed: false })
                .collect();
        }
    }
    Summary { id, ranks, complete: true, by_rank }
}
