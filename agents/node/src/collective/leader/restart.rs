//! Init: find the newest checkpoint that can be used, move its files to where their ranks now live, rebuild what is
//! missing; else fetch from the prefix directory; else start afresh (`SCR manual §11.4`).

use std::collections::BTreeMap;
use std::time::Instant;

use holdfast_core::redundancy::inventory::candidates;
use holdfast_core::redundancy::plan::{RestartPlan, plan};
use holdfast_model::{CheckpointId, Inventory, Location, Locations, NodeName, Rank, RestartSource};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{GroupRebuild, Order, OrderResult, Outgoing};
use holdfast_wire::rank::{Reply, Restart};

use super::Work;
use crate::collective::error::{CallError, named};
use crate::memory::Restarted;

/// What the ranks are told, and what the log says.
pub(super) struct Found {
    pub(super) checkpoint: CheckpointId,
    pub(super) source: RestartSource,
    pub(super) rebuilt: Vec<Rank>,
    pub(super) moved: Vec<Rank>,
    /// Directory below the prefix, if it was fetched.
    pub(super) fetched: Option<String>,
}

impl Work {
    /// All ranks join the run.
    pub(super) async fn init(&self) -> Result<Reply, CallError> {
        let begun = Instant::now();
        for warning in self.leader.layout.warnings() {
            self.event(AgentEvent::Notice { message: warning });
        }
        let state = self.prepare_halt().await?;
        if let Some(reason) = state {
            self.event(AgentEvent::Halting { generation: self.leader.generation(), reason: reason.clone() });
            return Ok(Reply::Restart(nothing(Some(reason))));
        }
        self.restart_below(None, begun).await
    }

    /// All ranks have read their restart files, or some could not.
    pub(super) async fn complete_restart(&self, invalid: &[Rank]) -> Result<Reply, CallError> {
        let Some(restart) = self.memory(|memory| memory.restart.take()) else {
            return Err(CallError::OutOfOrder { call: "complete_restart", before: "a checkpoint to restart from" });
        };
        if invalid.is_empty() {
            return Ok(Reply::Done);
        }
        let begun = Instant::now();
        let reason = format!("the application could not read it on {}", named(invalid));
        let from = if restart.fetched.is_some() { Location::ParallelFileSystem } else { Location::Cache };
        self.attempt_failed(restart.checkpoint, from, reason);
        if let Some(directory) = restart.fetched.clone() {
            self.fetch_failed(directory).await?;
        }
        self.delete(restart.checkpoint).await?;
        self.memory(|memory| memory.complete = None);
        self.restart_below(Some(restart.checkpoint), begun).await
    }

    /// Restarts from the newest usable checkpoint older than `limit`.
    pub(super) async fn restart_below(&self, limit: Option<CheckpointId>, begun: Instant) -> Result<Reply, CallError> {
        let settings = &self.leader.plan.settings;
        let mut inventories = self.inventories().await?;
        if self.rescue_output(&inventories).await? {
            inventories = self.inventories().await?;
        }
        let mut found = None;
        if settings.restart.distribute || settings.restart.fetch {
            found = self.restart_from_direct(limit, &inventories).await?;
        }
        if found.is_none() && settings.restart.distribute {
            found = self.restart_from_cache(limit, &inventories).await?;
        }
        if found.is_none() {
            self.clear_cache(None).await?;
            if settings.restart.fetch {
                found = self.restart_from_prefix(limit).await?;
            }
        }
        Ok(self.restarted(found, begun).await)
    }

    /// Settles what the run restarts from, if from anything.
    pub(super) async fn restarted(&self, found: Option<Found>, begun: Instant) -> Reply {
        let settings = &self.leader.plan.settings;
        self.memory(|memory| {
            memory.restart =
                found.as_ref().map(|found| Restarted { checkpoint: found.checkpoint, fetched: found.fetched.clone() });
            memory.complete = found.as_ref().map(|found| found.checkpoint);
            memory.last = found.as_ref().map_or(CheckpointId::NONE, |found| found.checkpoint);
        });
        let source = found.as_ref().map_or(RestartSource::Fresh, |found| found.source);
        let checkpoint = found.as_ref().map(|found| found.checkpoint);
        self.event(AgentEvent::Restarted {
            generation: self.leader.generation(),
            checkpoint,
            source,
            rebuilt: found.as_ref().map(|found| found.rebuilt.clone()).unwrap_or_default(),
            moved: found.as_ref().map(|found| found.moved.clone()).unwrap_or_default(),
            millis: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        self.leader.source.computing_begins(Instant::now());
        if let Some(found) = found
            && found.source != RestartSource::Fetched
            && (settings.flush.on_restart || self.flush_is_due(found.checkpoint))
        {
            self.flush_if_needed(found.checkpoint).await;
        }
        Reply::Restart(Restart { checkpoint, source, directory: None, files: Vec::new(), halt: None })
    }

    /// Deletes everything in cache but one checkpoint.
    pub(super) async fn clear_cache(&self, all_but: Option<CheckpointId>) -> Result<(), CallError> {
        let keep = Some(all_but.unwrap_or(CheckpointId::NONE));
        let order = Order::Delete { checkpoints: Vec::new(), all_but: keep };
        self.order(self.leader.everywhere(&order)).await.map(drop)
    }

    pub(super) fn attempt_failed(&self, checkpoint: CheckpointId, from: Location, reason: String) {
        self.event(AgentEvent::RestartAttempt { generation: self.leader.generation(), checkpoint, from, reason });
    }

    pub(super) fn fetch_attempt_failed(&self, checkpoint: CheckpointId, reason: String) {
        self.attempt_failed(checkpoint, Location::ParallelFileSystem, reason);
    }

    /// The rebuild loop of §11.4.2: highest id first, the first that works wins and the others are deleted.
    async fn restart_from_cache(
        &self,
        limit: Option<CheckpointId>,
        inventories: &[(u32, Inventory)],
    ) -> Result<Option<Found>, CallError> {
        for checkpoint in candidates(inventories.iter().map(|(_, held)| held)) {
            if limit.is_some_and(|limit| checkpoint >= limit) || !self.dataset(checkpoint).checkpoint {
                continue;
            }
            let reason = match plan(checkpoint, &self.leader.layout.sites, inventories) {
                Err(unusable) => unusable.to_string(),
                Ok(plan) => match self.carry_out_plan(&plan).await {
                    Ok(found) => {
                        self.clear_cache(Some(checkpoint)).await?;
                        let pfs = self.note_in_cache(checkpoint).await?;
                        tracing::info!(%checkpoint, pfs, "restarting from cache");
                        return Ok(Some(found));
                    }
                    Err(error) => error.to_string(),
                },
            };
            self.attempt_failed(checkpoint, Location::Cache, reason);
            self.delete(checkpoint).await?;
        }
        Ok(None)
    }

    /// What every node holds; the leader learns the names of the datasets from it.
    pub(super) async fn inventories(&self) -> Result<Vec<(u32, Inventory)>, CallError> {
        let results = self.order(self.leader.everywhere(&Order::Inventory)).await?;
        let mut inventories = Vec::new();
        for (at, node) in (0u32..).zip(&self.leader.plan.nodes) {
            let Some(OrderResult::Inventory(held)) = results.get(&node.name) else { continue };
            self.memory(|memory| memory.datasets.extend(held.datasets.clone()));
            for fault in &held.faults {
                self.event(AgentEvent::Notice { message: format!("node {}: {fault}", node.name) });
            }
            inventories.push((at, held.clone()));
        }
        Ok(inventories)
    }

    /// Deletions, moves, rebuilds, copies, in this order.
    pub(super) async fn carry_out_plan(&self, plan: &RestartPlan) -> Result<Found, CallError> {
        let checkpoint = plan.checkpoint;
        let node = |at: u32| self.leader.plan.nodes.get(at as usize).map(|node| node.name.clone());
        let mut discards: BTreeMap<NodeName, Vec<Rank>> = BTreeMap::new();
        for deletion in &plan.deletions {
            if let Some(node) = node(deletion.node) {
                discards.entry(node).or_default().push(deletion.rank);
            }
        }
        if !discards.is_empty() {
            let orders = discards.into_iter().map(|(node, ranks)| (node, Order::Discard { checkpoint, ranks }));
            self.order(orders.collect()).await?;
        }
        let members = self.leader.layout.by_node(&plan.descriptors);
        if !plan.moves.is_empty() {
            self.order(transfers(plan, node)).await?;
        }
        let adopt =
            members.iter().map(|(node, members)| (node.clone(), Order::Adopt { checkpoint, members: members.clone() }));
        self.order(adopt.collect()).await?;
        let rebuilt: Vec<Rank> = plan.rebuilds.iter().flat_map(|group| group.ranks.iter().copied()).collect();
        if !plan.rebuilds.is_empty() {
            self.event(AgentEvent::RebuildStarted {
                generation: self.leader.generation(),
                checkpoint,
                ranks: rebuilt.clone(),
            });
            self.order(self.rebuilds(plan)).await?;
        }
        if !plan.recopy.is_empty() {
            let copied: Vec<Rank> = plan.recopy.iter().map(|copy| copy.rank).collect();
            let mut work = self.leader.layout.work(&plan.groups, &BTreeMap::new());
            for groups in work.values_mut() {
                groups.retain(|group| group.members.iter().any(|(rank, _)| copied.contains(rank)));
            }
            let orders = work.into_iter().map(|(node, groups)| {
                (node, Order::Encode { checkpoint, groups, crc: false, only: Some(copied.clone()) })
            });
            self.order(orders.collect()).await?;
        }
        let moved: Vec<Rank> = plan.moves.iter().map(|step| step.rank).collect();
        let untouched = rebuilt.is_empty() && moved.is_empty();
        Ok(Found {
            checkpoint,
            source: if untouched { RestartSource::Cache } else { RestartSource::Rebuilt },
            rebuilt,
            moved,
            fetched: None,
        })
    }

    fn rebuilds(&self, plan: &RestartPlan) -> BTreeMap<NodeName, Order> {
        let mut nodes: BTreeMap<NodeName, Vec<GroupRebuild>> = BTreeMap::new();
        for (node, groups) in self.leader.layout.work(&plan.groups, &BTreeMap::new()) {
            for group in groups {
                let Some(rebuild) = plan.rebuilds.iter().find(|rebuild| rebuild.group_id == group.group_id) else {
                    continue;
                };
                let own = group.members.get(group.member as usize).map(|(rank, _)| *rank);
                let Some(descriptor) = own.and_then(|rank| plan.descriptors.get(rank.index())).cloned() else {
                    continue;
                };
                let missing = rebuild.missing.clone();
                nodes.entry(node.clone()).or_default().push(GroupRebuild { group, missing, descriptor });
            }
        }
        let checkpoint = plan.checkpoint;
        nodes.into_iter().map(|(node, groups)| (node, Order::Rebuild { checkpoint, groups })).collect()
    }

    /// The flush file on every node: in cache, and on the prefix if any node says so.
    pub(super) async fn note_in_cache(&self, checkpoint: CheckpointId) -> Result<bool, CallError> {
        let results = self.order(self.leader.everywhere(&Order::Inventory)).await?;
        let pfs = results.values().any(|result| match result {
            OrderResult::Inventory(held) => held.flush.get(&checkpoint).is_some_and(|at| at.pfs),
            _ => false,
        });
        self.note(checkpoint, Locations { cache: true, pfs, flushing: false }).await?;
        Ok(pfs)
    }

    /// Where a dataset is, into the flush files of the nodes that have ranks.
    pub(super) async fn note(&self, checkpoint: CheckpointId, locations: Locations) -> Result<(), CallError> {
        self.order(self.leader.where_ranks_are(&Order::Note { checkpoint, locations })).await.map(drop)
    }
}

fn transfers(plan: &RestartPlan, node: impl Fn(u32) -> Option<NodeName>) -> BTreeMap<NodeName, Order> {
    let mut nodes: BTreeMap<NodeName, (Vec<Outgoing>, Vec<holdfast_wire::peer::Member>)> = BTreeMap::new();
    for step in &plan.moves {
        let (Some(from), Some(to)) = (node(step.from_node), node(step.to_node)) else { continue };
        let Some(descriptor) = plan.descriptors.get(step.rank.index()) else { continue };
        nodes.entry(from).or_default().0.push(Outgoing { rank: step.rank, to: to.clone(), keep: step.keep_source });
        let member = holdfast_wire::peer::Member { rank: step.rank, descriptor: descriptor.clone() };
        nodes.entry(to).or_default().1.push(member);
    }
    let checkpoint = plan.checkpoint;
    nodes
        .into_iter()
        .map(|(node, (outgoing, incoming))| (node, Order::Transfer { checkpoint, outgoing, incoming }))
        .collect()
}

/// An answer without a checkpoint.
fn nothing(halt: Option<String>) -> Restart {
    Restart { checkpoint: None, source: RestartSource::Fresh, directory: None, files: Vec::new(), halt }
}
