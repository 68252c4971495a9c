//! Need, start, complete (`SCR manual §11.5`, `§11.6`, `§11.8`).

use std::collections::BTreeMap;
use std::time::Instant;

use holdfast_core::control::halt::reason;
use holdfast_model::{CheckpointId, Dataset, Failure, FlushMode, HaltChange, Locations, Rank};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{Order, OrderResult, SealedFiles};
use holdfast_wire::rank::Reply;

use super::Work;
use super::layout::Protection;
use crate::collective::CallError;
use crate::collective::writers;

impl Work {
    /// Is a checkpoint due?
    pub(super) async fn need(&self) -> Result<Reply, CallError> {
        let halting = self.halt_condition().await?.is_some();
        Ok(Reply::Flag(self.leader.source.is_due(Instant::now(), halting)))
    }

    /// Begins a checkpoint: makes room for it, records who protects it, makes its directories.
    pub(super) async fn start(&self, dataset: Dataset) -> Result<Reply, CallError> {
        let checkpoint = self.next_id();
        let Some(protection) = self.leader.layout.protection(checkpoint) else {
            return Err(CallError::NoDescriptor(checkpoint));
        };
        let base = protection.base();
        let keep =
            self.leader.plan.settings.caches.iter().find(|cache| cache.base == base).map_or(1, |cache| cache.keep);
        let in_base = self.in_base(base).await?;
        // Output passes through the cache: it neither pushes a checkpoint out nor counts as one.
        let kept: Vec<CheckpointId> =
            in_base.into_iter().filter(|id| *id != checkpoint && self.dataset(*id).checkpoint).collect();
        let surplus = if dataset.checkpoint { (kept.len() + 1).saturating_sub(keep as usize) } else { 0 };
        let delete: Vec<CheckpointId> = kept.into_iter().take(surplus).collect();
        for id in &delete {
            // What is on its way to the prefix directory is not deleted under its feet.
            self.leader.flushing.wait_for(*id).await;
        }
        self.leader.source.checkpoint_begins(Instant::now());
        self.describe(checkpoint, dataset).await?;
        let orders = self.leader.layout.by_node(&protection.descriptors()).into_iter();
        let orders =
            orders.map(|(node, members)| (node, Order::Prepare { checkpoint, delete: delete.clone(), members }));
        self.order(orders.collect()).await?;
        if !delete.is_empty() {
            // Spares may still hold files of it, from a run in which they were not spare.
            let order = Order::Delete { checkpoints: delete, all_but: None };
            self.order(self.leader.everywhere(&order)).await?;
        }
        self.event(AgentEvent::CheckpointStarted { generation: self.leader.generation(), checkpoint });
        Ok(Reply::Started { checkpoint, directory: std::path::PathBuf::new() })
    }

    /// The id of the dataset that begins now.
    pub(super) fn next_id(&self) -> CheckpointId {
        self.memory(|memory| {
            memory.restart = None;
            // A leader that was restarted in the middle of this call goes on with the same id.
            *memory.open.get_or_insert(memory.last.next())
        })
    }

    /// Checkpoints in a cache base, oldest first, as the leader's own node knows them: all nodes hold the same ids.
    async fn in_base(&self, base: &str) -> Result<Vec<CheckpointId>, CallError> {
        let base = base.to_owned();
        self.blocking(move |agent| Ok(agent.store.in_base(&base))).await
    }

    /// Ends a checkpoint.
    pub(super) async fn complete(&self, invalid: &[Rank]) -> Result<Reply, CallError> {
        let Some(checkpoint) = self.memory(|memory| memory.open) else {
            return Err(CallError::OutOfOrder { call: "complete_checkpoint", before: "start_checkpoint" });
        };
        let begun = Instant::now();
        let dataset = self.dataset(checkpoint);
        let protected = if invalid.is_empty() {
            match &dataset.direct {
                Some(directory) => self.complete_direct(checkpoint, directory, dataset.checkpoint, begun).await,
                None => self.seal_and_protect(checkpoint, begun).await,
            }
        } else {
            Err(CallError::NotWritten(invalid.to_vec()))
        };
        self.memory(|memory| {
            memory.open = None;
            memory.last = checkpoint;
        });
        if let Err(error) = protected {
            let reason = Failure::from(error).to_string();
            self.event(AgentEvent::CheckpointFailed { generation: self.leader.generation(), checkpoint, reason });
            if let Some(directory) = dataset.direct {
                self.give_up_direct(directory).await;
            }
            self.delete(checkpoint).await?;
            return Ok(Reply::Completed { checkpoint, kept: false, halt: None });
        }
        if !self.leader.source.is_progress(&dataset) {
            self.flush_output(checkpoint).await?;
            return Ok(Reply::Completed { checkpoint, kept: true, halt: None });
        }
        self.memory(|memory| memory.complete = Some(checkpoint));
        self.leader.source.checkpoint_complete(Instant::now());
        let halt = self.after_checkpoint().await?;
        if let Some(reason) = &halt {
            self.event(AgentEvent::Halting { generation: self.leader.generation(), reason: reason.clone() });
            self.flush_if_needed(checkpoint).await;
        } else if dataset.output {
            self.flush_output(checkpoint).await?;
        } else if self.flush_is_due(checkpoint) && dataset.direct.is_none() {
            if self.leader.plan.settings.flush.mode == FlushMode::Async {
                self.flush_in_background(checkpoint).await?;
            } else {
                self.flush_if_needed(checkpoint).await;
            }
        }
        Ok(Reply::Completed { checkpoint, kept: true, halt })
    }

    async fn seal_and_protect(&self, checkpoint: CheckpointId, begun: Instant) -> Result<(), CallError> {
        let Some(protection) = self.leader.layout.protection(checkpoint) else {
            return Err(CallError::NoDescriptor(checkpoint));
        };
        let bytes = self.protect(checkpoint, protection).await?;
        self.order(self.leader.where_ranks_are(&Order::Commit { checkpoint })).await?;
        self.note(checkpoint, Locations { cache: true, pfs: false, flushing: false }).await?;
        self.event(AgentEvent::CheckpointComplete {
            generation: self.leader.generation(),
            checkpoint,
            scheme: protection.scheme(),
            bytes,
            millis: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        Ok(())
    }

    /// Meta files, then redundancy. Returns the bytes of all ranks' files.
    pub(super) async fn protect(&self, checkpoint: CheckpointId, protection: &Protection) -> Result<u64, CallError> {
        let crc = self.leader.plan.settings.crc.on_copy;
        let seal = Order::Seal { checkpoint, ranks: self.leader.plan.ranks(), crc };
        let sealed = self.order(self.leader.where_ranks_are(&seal)).await?;
        let sealed = sealed.into_values().filter_map(|result| match result {
            OrderResult::Sealed(ranks) => Some(ranks),
            _ => None,
        });
        let sealed: BTreeMap<Rank, SealedFiles> = sealed.flatten().collect();
        writers::one_of_each_name(&sealed)?;
        let bytes: BTreeMap<Rank, u64> = sealed.into_iter().map(|(rank, files)| (rank, files.bytes)).collect();
        let work = self.leader.layout.work(&protection.groups, &bytes);
        if !work.is_empty() {
            self.event(AgentEvent::EncodeStarted { generation: self.leader.generation(), checkpoint });
            let orders =
                work.into_iter().map(|(node, groups)| (node, Order::Encode { checkpoint, groups, crc, only: None }));
            self.order(orders.collect()).await?;
        }
        Ok(bytes.values().sum())
    }

    /// Counts the checkpoint, and looks at the halt conditions.
    async fn after_checkpoint(&self) -> Result<Option<String>, CallError> {
        let state = self.halt(|halt, moment| halt.decrement(moment)).await?;
        let met = state.met.clone();
        self.spread_halt(state).await?;
        Ok(met)
    }

    /// Sets up the halt file for the run; says if the run is to end at once.
    pub(super) async fn prepare_halt(&self) -> Result<Option<String>, CallError> {
        let seconds = i64::try_from(self.leader.plan.settings.halt_seconds).unwrap_or(i64::MAX);
        let state = self.halt(move |halt, moment| {
            let known = halt.state(moment);
            if seconds > 0 && known.seconds.is_none() {
                return halt.change(&HaltChange { seconds: Some(seconds), ..HaltChange::default() }, moment);
            }
            Ok(known)
        });
        let state = state.await?;
        let met = state.met.clone();
        self.spread_halt(state).await?;
        Ok(met)
    }

    /// The application is done: the reason is recorded first, so that no other run is started, then the newest
    /// checkpoint is brought to the prefix directory.
    pub(super) async fn finalize(&self) -> Result<Reply, CallError> {
        let state = self.halt(|halt, moment| halt.set_reason(reason::FINALIZE_CALLED, moment)).await?;
        self.spread_halt(state).await?;
        self.leader.flushing.wait().await;
        let newest = self.memory(|memory| memory.complete);
        if let Some(checkpoint) = newest {
            self.flush_if_needed(checkpoint).await;
        }
        self.event(AgentEvent::Finalized { generation: self.leader.generation() });
        Ok(Reply::Done)
    }
}
