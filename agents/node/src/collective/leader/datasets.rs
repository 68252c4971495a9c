//! Datasets with a name, and output: what SCR 3 added to SCR 1.
//!
//! What the application said of a dataset is known to the leader, to every node (spares too, so that no lost node takes
//! it along) and, once the dataset is there, in its directory on the prefix.

use std::fs;
use std::time::Instant;

use holdfast_core::prefix::dataset;
use holdfast_core::prefix::{DirectoryName, PrefixError, publish};
use holdfast_core::redundancy::inventory::candidates;
use holdfast_core::redundancy::plan::plan;
use holdfast_model::dataset::{check_name, default_name};
use holdfast_model::{CheckpointId, Dataset, Failure, FlushMode, Inventory};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::Reply;

use super::Work;
use crate::collective::CallError;

impl Work {
    /// What the application said of a dataset.
    pub(super) fn dataset(&self, checkpoint: CheckpointId) -> Dataset {
        self.memory(|memory| memory.dataset(checkpoint))
    }

    /// Begins a dataset that the application described.
    pub(super) async fn start_output(&self, dataset: Dataset, bypass: bool) -> Result<Reply, CallError> {
        if let Some(name) = &dataset.name {
            check_name(name).map_err(|problem| CallError::DatasetName { name: name.clone(), problem })?;
        }
        if !dataset.checkpoint && !dataset.output {
            return Err(CallError::NoPurpose);
        }
        if bypass { self.start_direct(dataset).await } else { self.start(dataset).await }
    }

    /// Tells every node what a dataset is, before there are files of it.
    pub(super) async fn describe(&self, checkpoint: CheckpointId, dataset: Dataset) -> Result<(), CallError> {
        let known = self.memory(|memory| memory.dataset(checkpoint));
        if dataset.is_plain() && known.is_plain() {
            return Ok(());
        }
        let order = Order::Describe { checkpoint, dataset: dataset.clone() };
        self.order(self.leader.everywhere(&order)).await?;
        self.memory(|memory| memory.datasets.insert(checkpoint, dataset));
        Ok(())
    }

    /// Output that a run before this one could not bring to the prefix directory any more: rebuilt and brought there
    /// now. What cannot be saved is reported and never keeps the run from starting. Says whether the nodes hold something
    /// else now.
    pub(super) async fn rescue_output(&self, inventories: &[(u32, Inventory)]) -> Result<bool, CallError> {
        let mut changed = false;
        for checkpoint in candidates(inventories.iter().map(|(_, held)| held)).into_iter().rev() {
            let dataset = self.dataset(checkpoint);
            if !dataset.output {
                continue;
            }
            changed = true;
            let flushed = self.note_in_cache(checkpoint).await?;
            let saved = match plan(checkpoint, &self.leader.layout.sites, inventories) {
                _ if flushed => Ok(()),
                Err(unusable) => Err(unusable.to_string()),
                Ok(plan) => match self.carry_out_plan(&plan).await {
                    Ok(_) => {
                        self.flush(checkpoint, 0).await;
                        Ok(())
                    }
                    Err(error) => Err(Failure::from(error).to_string()),
                },
            };
            if let Err(reason) = saved {
                let name = dataset.name.clone().unwrap_or_else(|| default_name(checkpoint));
                self.event(AgentEvent::Notice { message: format!("the output {name} is lost: {reason}") });
            }
            if !dataset.checkpoint {
                self.delete(checkpoint).await?;
            }
        }
        Ok(changed)
    }

    /// Brings a dataset to the prefix directory because the application wants it there, whatever the settings say.
    pub(super) async fn flush_output(&self, checkpoint: CheckpointId) -> Result<(), CallError> {
        if self.dataset(checkpoint).direct.is_some() {
            // It was written there.
            return Ok(());
        }
        if self.leader.plan.settings.flush.mode == FlushMode::Async {
            return self.flush_in_background(checkpoint).await;
        }
        self.leader.flushing.wait().await;
        self.flush(checkpoint, 0).await;
        Ok(())
    }

    /// The name of what there is to restart from.
    pub(super) fn restart_name(&self) -> Reply {
        let restart = self.memory(|memory| memory.restart.as_ref().map(|restart| restart.checkpoint));
        Reply::Name(restart.and_then(|checkpoint| self.dataset(checkpoint).name))
    }

    /// The application restarted from this dataset by itself: what follows is newer than it, what was newer is no more.
    pub(super) async fn current(&self, name: String) -> Result<Reply, CallError> {
        self.expect_closed()?;
        let (checkpoint, directory) = self.find(name).await?;
        let current = directory.clone();
        let is_checkpoint = self
            .on_prefix(move |prefix| {
                let is_checkpoint = dataset::read(prefix, &current)?.is_none_or(|dataset| dataset.checkpoint);
                if is_checkpoint {
                    publish::make_current(prefix, &current)?;
                }
                Ok(is_checkpoint)
            })
            .await?;
        if !is_checkpoint {
            return Err(CallError::NotACheckpoint(directory));
        }
        let newer = self.blocking(move |agent| {
            Ok(agent.store.checkpoints().into_iter().filter(|id| *id > checkpoint).collect::<Vec<_>>())
        });
        for id in newer.await? {
            self.leader.flushing.wait_for(id).await;
            self.delete(id).await?;
        }
        self.memory(|memory| {
            memory.restart = None;
            memory.last = checkpoint;
            memory.complete = memory.complete.filter(|complete| *complete <= checkpoint);
        });
        Ok(Reply::Done)
    }

    /// Loads what the prefix directory has as current.
    pub(super) async fn load(&self) -> Result<Reply, CallError> {
        self.expect_closed()?;
        let begun = Instant::now();
        self.leader.flushing.wait().await;
        self.clear_cache(None).await?;
        let found = self.restart_from_prefix(None).await?;
        Ok(self.restarted(found, begun).await)
    }

    /// The index forgets the dataset; its files stay.
    pub(super) async fn drop_from_index(&self, name: String) -> Result<Reply, CallError> {
        let (_, directory) = self.find(name).await?;
        self.on_prefix(move |prefix| publish::withdraw(prefix, &directory)).await?;
        Ok(Reply::Done)
    }

    /// The dataset is deleted everywhere. The index forgets it first: a kill in between leaves files that nobody takes
    /// for a checkpoint.
    pub(super) async fn delete_named(&self, name: String) -> Result<Reply, CallError> {
        self.expect_closed()?;
        let held = self.blocking(|agent| Ok(agent.store.checkpoints())).await?;
        let cached = held.into_iter().rev().find(|id| match self.dataset(*id).name {
            Some(given) => given == name,
            None => default_name(*id) == name,
        });
        let (indexed, directory) = match self.find(name).await {
            Ok((checkpoint, directory)) => (Some(checkpoint), Some(directory)),
            // Never flushed: there is nothing on the prefix directory.
            Err(_) if cached.is_some() => (None, None),
            Err(error) => return Err(error),
        };
        if let Some(checkpoint) = cached.or(indexed) {
            self.leader.flushing.wait_for(checkpoint).await;
            self.delete(checkpoint).await?;
            self.memory(|memory| {
                memory.complete = memory.complete.filter(|complete| *complete != checkpoint);
                memory.restart = memory.restart.take().filter(|restart| restart.checkpoint != checkpoint);
            });
        }
        if let Some(directory) = directory {
            self.on_prefix(move |prefix| {
                publish::withdraw(prefix, &directory)?;
                let path = prefix.checkpoint_path(&directory);
                let removed = match fs::symlink_metadata(&path) {
                    Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
                    Ok(_) => Err(std::io::Error::other("it is not a directory")),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(error),
                };
                removed.map_err(|source| PrefixError::Io {
                    action: "delete the dataset",
                    path,
                    source,
                    remedy: "it is out of the index; delete what is left by hand",
                })
            })
            .await?;
        }
        Ok(Reply::Done)
    }

    async fn find(&self, name: String) -> Result<(CheckpointId, DirectoryName), CallError> {
        // What is on its way there counts.
        self.leader.flushing.wait().await;
        let wanted = name.clone();
        let found = self.on_prefix(move |prefix| dataset::find(prefix, &wanted)).await?;
        let prefix = self.leader.plan.settings.prefix.clone();
        found.ok_or(CallError::UnknownDataset { prefix, name })
    }

    fn expect_closed(&self) -> Result<(), CallError> {
        match self.memory(|memory| memory.open) {
            None => Ok(()),
            Some(open) => Err(CallError::DatasetOpen(open)),
        }
    }
}
