//! Reading a checkpoint back from the prefix directory (`SCR manual §11.4.7`).

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use holdfast_core::prefix::dataset;
use holdfast_core::prefix::fetch::{self, Candidate};
use holdfast_core::prefix::{DirectoryName, Prefix, Summary, summary};
use holdfast_model::{CheckpointId, Dataset, Failure, Locations, NodeName, RestartSource};
use holdfast_wire::peer::{FetchRank, Order};

use super::Work;
use super::restart::Found;
use crate::collective::CallError;

impl Work {
    /// The fetch loop: the current link first, then the index, until one works.
    pub(super) async fn restart_from_prefix(&self, limit: Option<CheckpointId>) -> Result<Option<Found>, CallError> {
        let mut tried: HashSet<DirectoryName> = HashSet::new();
        loop {
            let path = self.leader.plan.settings.prefix.clone();
            let already = tried.clone();
            let next = self
                .blocking(move |_| {
                    if !path.exists() {
                        return Ok(None);
                    }
                    let prefix = Prefix::open(path)?;
                    let candidates = fetch::candidates(&prefix)?;
                    let newer = |candidate: &Candidate| limit.zip(candidate.id).is_some_and(|(limit, id)| id >= limit);
                    Ok(candidates.into_iter().find(|candidate| {
                        // A record that cannot be read says nothing against the files.
                        let dataset = dataset::read(&prefix, &candidate.directory).ok().flatten();
                        let output_only = dataset.is_some_and(|dataset| !dataset.checkpoint);
                        !output_only && !already.contains(&candidate.directory) && !newer(candidate)
                    }))
                })
                .await?;
            let Some(candidate) = next else { return Ok(None) };
            tried.insert(candidate.directory.clone());
            let id = candidate.id.unwrap_or(CheckpointId::NONE);
            match self.fetch(&candidate).await {
                Ok(found) => return Ok(Some(found)),
                Err(error) => {
                    self.fetch_attempt_failed(id, format!("{}: {}", candidate.directory, Failure::from(error)));
                    self.fetch_failed(candidate.directory.to_string()).await?;
                    self.delete(id).await?;
                }
            }
        }
    }

    async fn fetch(&self, candidate: &Candidate) -> Result<Found, CallError> {
        let path = self.leader.plan.settings.prefix.clone();
        let (ranks, directory) = (self.leader.plan.ranks(), candidate.directory.clone());
        let (summary, real, dataset): (Summary, PathBuf, Option<Dataset>) = self
            .blocking(move |_| {
                let prefix = Prefix::open(path)?;
                fetch::begin(&prefix, &directory, now())?;
                let real = prefix.checkpoint_path(&directory);
                let summary = summary::read(&real)?;
                summary.accept(ranks)?;
                let dataset = dataset::read(&prefix, &directory)?;
                Ok((summary, real, dataset))
            })
            .await?;
        let checkpoint = summary.id;
        if let Some(dataset) = dataset {
            let direct = dataset.direct.is_some();
            self.describe(checkpoint, dataset).await?;
            if direct {
                return self.read_direct(candidate.directory.clone(), &summary).await;
            }
        }
        let protection = self.leader.layout.protection(checkpoint).ok_or(CallError::NoDescriptor(checkpoint))?;
        let mut orders: BTreeMap<NodeName, Order> = BTreeMap::new();
        for (node, members) in self.leader.layout.by_node(&protection.descriptors()) {
            let ranks = members.into_iter().map(|member| {
                let files = summary.to_fetch(member.rank);
                let files = files.map(|file| (file.name.clone(), file.size.unwrap_or(0), file.crc)).collect();
                FetchRank { member, files }
            });
            let ranks = ranks.collect();
            orders
                .insert(node, Order::Fetch { checkpoint, directory: real.clone(), ranks, total_ranks: summary.ranks });
        }
        self.order(orders).await?;
        self.protect(checkpoint, protection).await?;
        self.order(self.leader.where_ranks_are(&Order::Commit { checkpoint })).await?;
        self.note(checkpoint, Locations { cache: true, pfs: true, flushing: false }).await?;
        let (path, directory) = (self.leader.plan.settings.prefix.clone(), candidate.directory.clone());
        self.blocking(move |_| {
            let prefix = Prefix::open(path)?;
            Ok(fetch::succeeded(&prefix, &directory)?)
        })
        .await?;
        Ok(Found {
            checkpoint,
            source: RestartSource::Fetched,
            rebuilt: Vec::new(),
            moved: Vec::new(),
            fetched: Some(candidate.directory.to_string()),
        })
    }

    /// The index remembers that this directory could not be used.
    pub(super) async fn fetch_failed(&self, directory: String) -> Result<(), CallError> {
        let path = self.leader.plan.settings.prefix.clone();
        self.blocking(move |_| {
            let prefix = Prefix::open(path)?;
            let directory = DirectoryName::given(&directory)?;
            Ok(fetch::failed(&prefix, &directory, now())?)
        })
        .await
    }
}

/// Local time, as SCR writes it into names and the index.
pub(super) fn now() -> chrono::NaiveDateTime {
    chrono::Local::now().naive_local()
}
