//! Making the files of a dataset complete, and protecting them: two steps, which a restart, a fetch and a checkpoint
//! share. The ranks wait for both, or go on after the first (`async: true`): the redundancy is then made behind them,
//! from what the nodes hold, and at most one checkpoint is without it.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::redundancy::groups::Group;
use holdfast_core::redundancy::plan::{RestartPlan, UnusableCheckpoint, plan};
use holdfast_core::redundancy::registry::is_redundancy_file;
use holdfast_model::{CheckpointId, CrcOnCopy, Dataset, Failure, FailureKind, Level, NodeName, Rank, Scheme};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{CopyLimits, GroupWork, Order, OrderResult, SealCrc, SealedFiles};

use super::context::Context;
use super::inventories::{Inventories, unrecorded};
use super::layout::Protection;
use super::records::describe;
use super::rounds;
use crate::collective::error::{CallError, Result, named};
use crate::collective::writers;
use crate::report::events::total_bytes;

/// Meta files: from now on the files of all ranks are complete. Returns the bytes of each rank's files.
pub(super) async fn seal(cx: &Context, checkpoint: CheckpointId, crc: SealCrc) -> Result<BTreeMap<Rank, u64>> {
    let seal = Order::Seal { checkpoint, ranks: cx.layout().ranks(), crc };
    let sealed = cx.order(cx.nodes_with_ranks(&seal)).await?;
    let sealed = sealed.into_values().filter_map(|result| match result {
        OrderResult::Sealed(ranks) => Some(ranks),
        _ => None,
    });
    let sealed: BTreeMap<Rank, SealedFiles> = sealed.flatten().collect();
    writers::one_of_each_name(&sealed)?;
    Ok(sealed.into_iter().map(|(rank, files)| (rank, files.bytes)).collect())
}

/// The redundancy of sealed files, if the scheme makes any.
pub(super) async fn encode(
    cx: &Context,
    checkpoint: CheckpointId,
    protection: &Protection,
    bytes: &BTreeMap<Rank, u64>,
) -> Result<()> {
    make(cx, checkpoint, &cx.layout().work(&protection.groups, bytes), None, CopyLimits::NONE).await
}

/// Has the nodes do this work; `copied` as in [`rounds::encode`]. The limits hold until something waits for it.
async fn make(
    cx: &Context,
    checkpoint: CheckpointId,
    work: &BTreeMap<NodeName, Vec<GroupWork>>,
    copied: Option<&BTreeSet<Rank>>,
    limits: CopyLimits,
) -> Result<()> {
    if work.is_empty() {
        return Ok(());
    }
    cx.emit(AgentEvent::EncodeStarted { generation: cx.generation(), checkpoint });
    let crc = cx.settings().crc.on_copy != CrcOnCopy::Never;
    for mut round in rounds::encode(checkpoint, work, copied, crc, cx.settings().redundancy_width) {
        let limits = cx.limits(limits);
        round.values_mut().filter_map(Order::limits_mut).for_each(|of_order| *of_order = limits);
        cx.order(round).await?;
    }
    Ok(())
}

pub(super) fn report_protected(
    cx: &Context,
    checkpoint: CheckpointId,
    scheme: Scheme,
    survives: Option<u32>,
    millis: u64,
) {
    let dataset = cx.dataset(checkpoint);
    if cx.policy(|policy, _| policy.is_progress(&dataset)) {
        let (generation, descriptor) = (cx.generation(), cx.layout().level_of(checkpoint, &dataset));
        let protected =
            AgentEvent::CheckpointProtected { generation, checkpoint, scheme, descriptor, survives, millis };
        cx.emit(protected);
    }
}

/// The checkpoints in cache whose redundancy is to be made behind the application, and is not complete.
pub(super) fn unprotected(cx: &Context) -> BTreeSet<CheckpointId> {
    let is_behind = |id: &CheckpointId| {
        let dataset = cx.dataset(*id);
        let protection = cx.layout().protection_of(*id, &dataset);
        dataset.checkpoint && protection.is_ok_and(|protection| protection.limits(cx).is_some())
    };
    let cached = cx.memory(|memory| {
        let unprotected = memory.cached.iter().filter(|id| !memory.protected.contains_key(id));
        unprotected.copied().collect::<BTreeSet<_>>()
    });
    cached.into_iter().filter(is_behind).collect()
}

/// Makes the redundancy of a checkpoint behind the application. Not before the results of the collective that requested
/// it are on disk: a restarted leader repeats the collective, and seals the files again.
pub(super) async fn behind(cx: Context, checkpoint: CheckpointId, collective: u64) {
    cx.results_saved(collective).await;
    let begun = cx.now();
    match protect(&cx, checkpoint).await {
        Ok(Some((scheme, survives))) => {
            cx.memory(|memory| memory.protected.insert(checkpoint, survives));
            report_protected(&cx, checkpoint, scheme, Some(survives), cx.millis_since(begun));
        }
        // Without the nodes for it, there are no groups.
        Ok(None) => {}
        Err(_) if cx.is_cancelled() => {}
        Err(error) => failed(&cx, checkpoint, error).await,
    }
}

/// Returns what protects the checkpoint now, and how many nodes can be lost. From what the nodes hold: an earlier
/// leader may have done a part.
async fn protect(cx: &Context, checkpoint: CheckpointId) -> Result<Option<(Scheme, u32)>> {
    let held = unrecorded(cx).await?;
    let unusable = |why: UnusableCheckpoint| CallError::Order(Failure::new(FailureKind::Damaged, why.to_string()));
    let plan = plan(checkpoint, &cx.layout().sites, &held).map_err(unusable)?;
    all_there(&plan)?;
    let copied: BTreeSet<Rank> = plan.recopy.iter().map(|copy| copy.rank).collect();
    let is_unprotected =
        |group: &Group| plan.unencoded.contains(&group.id) || group.members.iter().any(|rank| copied.contains(rank));
    let work = cx.layout().work_of(&plan.groups, is_unprotected, &bytes_of_ranks(checkpoint, &held));
    let copied = Some(&copied).filter(|copied| !copied.is_empty());
    let limits = cx.layout().protection_of(checkpoint, &cx.dataset(checkpoint))?.limits(cx);
    make(cx, checkpoint, &work, copied, limits.unwrap_or(CopyLimits::NONE)).await?;
    cx.order(cx.nodes_with_ranks(&Order::Commit { checkpoint })).await?;
    // A set may have more members on a node than it can lose, in another placement than that in which it was formed.
    let made = self::plan(checkpoint, &cx.layout().sites, &unrecorded(cx).await?).map_err(unusable)?;
    all_there(&made)?;
    Ok(made.protected.then(|| (made.groups.scheme, made.survives(&cx.layout().sites))))
}

/// Only a restart brings files back: until then what protects a checkpoint of which some are lost is used up. The node
/// lost them, or was deleting the checkpoint for the next one when the leader was restarted.
fn all_there(plan: &RestartPlan) -> Result<()> {
    let moved = plan.moves.iter().map(|of| of.rank);
    let ranks: Vec<Rank> = plan.rebuilds.iter().flat_map(|of| of.ranks.iter().copied()).chain(moved).collect();
    if ranks.is_empty() {
        return Ok(());
    }
    let reason = format!("the files of {} are not complete on their nodes any more", named(&ranks));
    Err(CallError::Order(Failure::new(FailureKind::Damaged, reason)))
}

/// The size of each rank's own files, without their redundancy.
fn bytes_of_ranks(checkpoint: CheckpointId, held: &Inventories) -> BTreeMap<Rank, u64> {
    let holdings = held.iter().flat_map(|(_, inventory)| &inventory.holdings);
    let own = holdings.filter(|holding| holding.checkpoint == checkpoint && holding.complete);
    own.map(|holding| {
        let files = holding.files.iter().filter(|file| !is_redundancy_file(&file.name));
        (holding.rank, total_bytes(files.map(|file| file.size)))
    })
    .collect()
}

/// It stays in cache as it is. A checkpoint of variables is one of level 1 then: it must not supersede those that
/// survive the loss of a node.
async fn failed(cx: &Context, checkpoint: CheckpointId, error: CallError) {
    let dataset = cx.dataset(checkpoint);
    if matches!(dataset.level, Some(Level::Partner | Level::Parity)) {
        // Only a record: the event below is what is known of it otherwise.
        let _ = describe(cx, checkpoint, Dataset { level: Some(Level::Local), ..dataset }).await;
    }
    let reason = Failure::from(error).to_string();
    cx.emit(AgentEvent::ProtectionFailed { generation: cx.generation(), checkpoint, reason });
}
