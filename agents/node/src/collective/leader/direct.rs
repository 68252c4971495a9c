//! Datasets past the cache: files that several ranks share, written and read in the prefix directory itself
//! (`SCR_CACHE_BYPASS` of SCR 3). What is left to do is the order of things in the index, so that a run that dies while
//! they are written leaves an entry that says so.

use std::collections::BTreeMap;
use std::time::Instant;

use holdfast_core::prefix::publish::{self, Publication};
use holdfast_core::prefix::{DirectoryName, Prefix, Summary, index, summary};
use holdfast_core::redundancy::inventory::candidates;
use holdfast_model::{CheckpointId, Dataset, Failure, Inventory, Location, Locations, Rank, RestartSource, Scheme};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::Reply;

use super::Work;
use super::fetch::now;
use super::flush::summary_of;
use super::restart::Found;
use crate::collective::CallError;

/// What the log calls the redundancy of such a dataset: the parallel file system's own.
const SCHEME: Scheme = Scheme::new("PREFIX");

impl Work {
    /// Begins one: a directory, an entry in the index, and the ranks' agents know where.
    pub(super) async fn start_direct(&self, mut dataset: Dataset) -> Result<Reply, CallError> {
        let checkpoint = self.next_id();
        self.leader.source.checkpoint_begins(Instant::now());
        // A leader that was restarted in the middle of this call goes on in the directory that it made.
        let known = self.dataset(checkpoint).direct;
        let (record, job) = (dataset.clone(), self.agent.start.job_id.clone());
        let begin = move |prefix: &Prefix| {
            let now = now();
            let directory = match known {
                Some(known) => DirectoryName::given(&known)?,
                None => prefix.create_checkpoint_directory(now, &job, checkpoint)?,
            };
            let dataset = Dataset { direct: Some(directory.to_string()), ..record };
            publish::begin(prefix, checkpoint, &directory, &dataset, now)?;
            Ok((prefix.checkpoint_path(&directory), directory))
        };
        let (path, directory) = self.on_prefix(begin).await?;
        dataset.direct = Some(directory.to_string());
        self.describe(checkpoint, dataset).await?;
        self.order(self.leader.where_ranks_are(&Order::OpenDirect { checkpoint, directory: path })).await?;
        self.event(AgentEvent::CheckpointStarted { generation: self.leader.generation(), checkpoint });
        Ok(Reply::Started { checkpoint, directory: std::path::PathBuf::new() })
    }

    /// All ranks have written their files.
    pub(super) async fn complete_direct(
        &self,
        checkpoint: CheckpointId,
        directory: &str,
        current: bool,
        begun: Instant,
    ) -> Result<(), CallError> {
        let sealed = self.order(self.leader.where_ranks_are(&Order::SealDirect { checkpoint })).await?;
        let summary = summary_of(checkpoint, self.leader.plan.ranks(), sealed.into_values());
        let bytes = bytes_of(&summary);
        let directory = DirectoryName::given(directory)?;
        let publication = Publication::of_copy(directory, Some(summary), current, now());
        self.on_prefix(move |prefix| publication.publish(prefix)).await?;
        self.order(self.leader.where_ranks_are(&Order::CloseDirect { checkpoint })).await?;
        self.note(checkpoint, Locations { cache: false, pfs: true, flushing: false }).await?;
        self.event(AgentEvent::CheckpointComplete {
            generation: self.leader.generation(),
            checkpoint,
            scheme: SCHEME,
            bytes,
            millis: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        self.forget_older_direct(checkpoint).await
    }

    /// The prefix directory itself tells of all but the newest ones: they need not be carried along for ever.
    async fn forget_older_direct(&self, checkpoint: CheckpointId) -> Result<(), CallError> {
        let older: Vec<CheckpointId> = self.memory(|memory| {
            let direct = memory.datasets.iter().rev().filter(|(_, dataset)| dataset.direct.is_some());
            direct.map(|(id, _)| *id).filter(|id| *id < checkpoint).skip(1).collect()
        });
        for id in older {
            self.delete(id).await?;
        }
        Ok(())
    }

    /// The index remembers that what lies in this directory is not whole.
    pub(super) async fn give_up_direct(&self, directory: String) {
        let marked = self.on_prefix(move |prefix| {
            Publication::of_copy(DirectoryName::given(&directory)?, None, false, now()).publish(prefix)
        });
        if let Err(error) = marked.await {
            // Without the mark it is not complete either.
            tracing::warn!(%error, "the index was not updated");
        }
    }

    /// The newest dataset past the cache that is newer than any in cache, if it can be read.
    pub(super) async fn restart_from_direct(
        &self,
        limit: Option<CheckpointId>,
        inventories: &[(u32, Inventory)],
    ) -> Result<Option<Found>, CallError> {
        let known: Vec<(CheckpointId, String)> = self.memory(|memory| {
            let direct = memory.datasets.iter().filter(|(_, dataset)| dataset.checkpoint);
            direct.rev().filter_map(|(id, dataset)| Some((*id, dataset.direct.clone()?))).collect()
        });
        let in_cache = candidates(inventories.iter().map(|(_, held)| held))
            .into_iter()
            .find(|id| self.dataset(*id).checkpoint && limit.is_none_or(|limit| *id < limit));
        for (checkpoint, directory) in known {
            if limit.is_some_and(|limit| checkpoint >= limit) || in_cache.is_some_and(|newer| newer > checkpoint) {
                continue;
            }
            match self.try_direct(&directory).await {
                Ok(found) => {
                    self.clear_cache(Some(checkpoint)).await?;
                    return Ok(Some(found));
                }
                Err(error) => {
                    self.attempt_failed(checkpoint, Location::ParallelFileSystem, Failure::from(error).to_string())
                }
            }
        }
        Ok(None)
    }

    async fn try_direct(&self, directory: &str) -> Result<Found, CallError> {
        let (directory, ranks) = (directory.to_owned(), self.leader.plan.ranks());
        let (summary, directory) = self
            .on_prefix(move |prefix| {
                let directory = DirectoryName::given(&directory)?;
                let usable = index::read(prefix)?
                    .and_then(|index| index.entry(&directory))
                    .is_some_and(|entry| entry.is_usable());
                let summary = if usable { Some(summary::read(&prefix.checkpoint_path(&directory))?) } else { None };
                Ok((summary, directory))
            })
            .await?;
        let summary = summary.ok_or_else(|| CallError::Incomplete(directory.clone()))?;
        summary.accept(ranks)?;
        self.read_direct(directory, &summary).await
    }

    /// The ranks are to read these files where they are.
    pub(super) async fn read_direct(&self, directory: DirectoryName, summary: &Summary) -> Result<Found, CallError> {
        let checkpoint = summary.id;
        let ranks = (0..self.leader.plan.ranks()).map(Rank);
        // The summary lists files as a filemap does, newest first.
        let files_of = |rank: Rank| {
            let mut files: Vec<String> = summary.to_fetch(rank).map(|file| file.name.clone()).collect();
            files.reverse();
            files
        };
        let files: BTreeMap<Rank, Vec<String>> = ranks.map(|rank| (rank, files_of(rank))).collect();
        let path = self.leader.plan.settings.prefix.join(directory.as_str());
        self.order(self.leader.where_ranks_are(&Order::ReadDirect { checkpoint, directory: path, files })).await?;
        self.note(checkpoint, Locations { cache: false, pfs: true, flushing: false }).await?;
        Ok(Found {
            checkpoint,
            source: RestartSource::Fetched,
            rebuilt: Vec::new(),
            moved: Vec::new(),
            fetched: Some(directory.to_string()),
        })
    }
}

/// Bytes of all files; one that several ranks wrote counts once.
fn bytes_of(summary: &Summary) -> u64 {
    let files = summary.by_rank.values().flat_map(|rank| &rank.files);
    files.map(|file| (file.name.as_str(), file.size.unwrap_or(0))).collect::<BTreeMap<_, _>>().into_values().sum()
}
