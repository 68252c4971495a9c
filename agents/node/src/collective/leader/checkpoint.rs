//! Need, start, complete (`SCR manual §11.5`, `§11.6`, `§11.8`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{
    CheckpointId, CrcOnCopy, Dataset, Failure, FlushMode, Level, Locations, Rank, Scheme, SnapshotIntervals,
};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{Order, OrderResult, SealCrc, SealedFiles};
use holdfast_wire::rank::Reply;

use super::action::HaltWork;
use super::collective::{delete, halt_condition, spread_halt};
use super::context::Context;
use super::layout::Protection;
use super::memory::CompletedDataset;
use super::request::DroppedCheckpoint;
use super::{datasets, direct, files, flush, restart};
use crate::collective::CallError;
use crate::collective::writers;
use crate::events::total_bytes;

/// Whether a checkpoint is due.
pub(super) async fn need(cx: &Context) -> Result<Reply, CallError> {
    let halting = halt_condition(cx).await?.is_some();
    let due = cx.policy(|policy, now| policy.is_due(now, halting));
    Ok(Reply::Flag(due || cx.checkpoint_requested()))
}

/// The level of the checkpoint of variables that is due, by these intervals or those of the job.
pub(super) async fn snapshot(cx: &Context, intervals: Option<SnapshotIntervals>) -> Result<Reply, CallError> {
    let halting = halt_condition(cx).await?.is_some();
    let due = cx.policy(|policy, now| policy.due_level(now, halting, intervals));
    // `None` is less than each level.
    Ok(Reply::Level(due.max(cx.checkpoint_requested().then_some(Level::Parity))))
}

/// Makes room for a dataset, records what protects it, makes its directories.
async fn start(cx: &Context, dataset: Dataset) -> Result<Reply, CallError> {
    // The program did not complete its restart.
    if let Some(restart) = cx.memory(|memory| memory.restart.clone()) {
        restart::accept(cx, restart.checkpoint).await?;
    }
    let checkpoint = next_id(cx);
    let protection = cx.layout().protection_of(checkpoint, &dataset)?;
    let base = protection.base();
    let keep = cx.settings().caches.iter().find(|cache| cache.base == base).map_or(1, |cache| cache.keep);
    // Before the list is made: output that is deleted meanwhile would be listed without its record, which is that of a
    // checkpoint, and evict one.
    let outputs: BTreeSet<CheckpointId> = cx.memory(|memory| {
        let outputs = memory.datasets.iter().filter(|(_, dataset)| !dataset.checkpoint);
        outputs.map(|(id, _)| *id).collect()
    });
    // As the leader's own node has them: all nodes hold the same ids.
    let in_base = files::datasets_here(cx, Some(base)).await?;
    let half_evicted = half_evicted(cx, checkpoint).await?;
    // Output passes through the cache: it neither evicts a checkpoint nor counts as one.
    let mut kept: Vec<CheckpointId> =
        in_base.into_iter().filter(|id| *id != checkpoint && !outputs.contains(id)).collect();
    let surplus = if dataset.checkpoint { (kept.len() + 1).saturating_sub(keep as usize) } else { 0 };
    let surplus = match dataset.level {
        Some(_) => surplus.min(superseded(&mut kept, |id| cx.dataset(id).level)),
        None => surplus,
    };
    let delete: Vec<CheckpointId> = half_evicted.into_iter().chain(evicted(kept, surplus, cx.flushing())).collect();
    for id in &delete {
        // What is being flushed must not be deleted meanwhile.
        cx.flush_ended_of(*id).await;
    }
    mark_begun(cx, &dataset);
    datasets::describe(cx, checkpoint, dataset).await?;
    let orders = cx.layout().members(&protection.descriptors()).into_iter();
    let orders = orders.map(|(node, members)| (node, Order::Prepare { checkpoint, delete: delete.clone(), members }));
    cx.order(orders.collect()).await?;
    if !delete.is_empty() {
        // Spares may still hold files of it, from a run in which they were not spare.
        cx.order(cx.all_nodes(&Order::Delete { checkpoints: delete.clone(), all_but: None })).await?;
        cx.memory(|memory| memory.forget(|id| delete.contains(&id)));
        for id in &delete {
            flush::abandon(cx, *id).await;
        }
    }
    cx.emit(AgentEvent::CheckpointStarted { generation: cx.generation(), checkpoint });
    Ok(Reply::Started { checkpoint, directory: PathBuf::new() })
}

/// The checkpoints to evict: the oldest first, but the one that is being flushed only if the others are not enough, and
/// the newest, which a restart needs until the next one is complete, only if the cache keeps no other
/// (`SCR manual §11.6`). `kept` is ascending.
fn evicted(
    mut kept: Vec<CheckpointId>,
    surplus: usize,
    flushing: Option<CheckpointId>,
) -> impl Iterator<Item = CheckpointId> {
    let newest = kept.last().copied();
    kept.sort_by_key(|id| (Some(*id) == newest, Some(*id) == flushing));
    kept.into_iter().take(surplus)
}

/// The checkpoints that must stay whatever the cache's size is: those for which there is no newer one of at least the
/// same level. Without them, the loss of a node could cost all checkpoints although one was protected against it.
/// `kept` is ascending.
pub(super) fn needed(kept: &[CheckpointId], level: impl Fn(CheckpointId) -> Option<Level>) -> BTreeSet<CheckpointId> {
    let mut highest = None;
    let mut needed = BTreeSet::new();
    for id in kept.iter().rev() {
        let of_this = level(*id);
        if highest.is_none_or(|highest| of_this > highest) {
            needed.insert(*id);
            highest = Some(of_this);
        }
    }
    needed
}

/// Removes from `kept`, which is ascending, the checkpoints that must stay. Returns how many of the others, which stay
/// in `kept`, can be evicted.
fn superseded(kept: &mut Vec<CheckpointId>, level: impl Fn(CheckpointId) -> Option<Level>) -> usize {
    let needed = needed(kept, level);
    kept.retain(|id| !needed.contains(id));
    kept.len()
}

/// Datasets that the leader's own node has deleted already, but perhaps not all other nodes.
async fn half_evicted(cx: &Context, begun: CheckpointId) -> Result<Vec<CheckpointId>, CallError> {
    let here = files::datasets_here(cx, None).await?;
    let cached = cx.memory(|memory| memory.cached.clone());
    Ok(cached.into_iter().filter(|id| *id != begun && !here.contains(id)).collect())
}

/// Begins a dataset, in cache or in the prefix directory itself.
pub(super) async fn begin(cx: &Context, dataset: Dataset, bypass: bool) -> Result<Reply, CallError> {
    let is_checkpoint = dataset.checkpoint;
    let begun = if bypass { direct::start(cx, dataset).await } else { start(cx, dataset).await };
    begun.map_err(|error| {
        let failure = Failure::from(error);
        mark_not_begun(cx, is_checkpoint, failure.to_string());
        CallError::Order(failure)
    })
}

/// Records that the ranks are about to write a dataset: a requested checkpoint is this one.
pub(super) fn mark_begun(cx: &Context, dataset: &Dataset) {
    cx.policy(|policy, now| policy.checkpoint_begins(now));
    cx.with(|state| {
        state.requests.not_begun = None;
        if dataset.checkpoint {
            (state.requests.waiting, state.requests.dropped) = (false, None);
        }
    });
}

/// Reports a dataset that could not be begun, and ends the request for it.
fn mark_not_begun(cx: &Context, is_checkpoint: bool, reason: String) {
    let checkpoint = cx.memory(|memory| memory.open.unwrap_or_else(|| memory.last.next()));
    cx.with(|state| {
        state.requests.not_begun = Some(checkpoint);
        state.requests.waiting &= !is_checkpoint;
    });
    report_dropped(cx, checkpoint, is_checkpoint, reason, false);
}

/// Reports a dataset that is not kept; `ended` if nothing was lost with it.
fn report_dropped(cx: &Context, checkpoint: CheckpointId, is_checkpoint: bool, reason: String, ended: bool) {
    cx.policy(|policy, now| policy.checkpoint_dropped(now));
    if is_checkpoint {
        let dropped = DroppedCheckpoint { checkpoint, reason: reason.clone() };
        cx.with(|state| state.requests.dropped = Some(dropped));
    }
    cx.emit(AgentEvent::CheckpointFailed { generation: cx.generation(), checkpoint, reason, ended });
}

/// The id of the dataset that begins now.
pub(super) fn next_id(cx: &Context) -> CheckpointId {
    cx.memory(|memory| {
        memory.restart = None;
        // A leader that was restarted during this call uses the same id.
        *memory.open.get_or_insert(memory.last.next())
    })
}

/// Ends a checkpoint.
pub(super) async fn complete(cx: &Context, not_written: Option<CallError>) -> Result<Reply, CallError> {
    let Some(checkpoint) = cx.memory(|memory| memory.open) else {
        return Err(CallError::OutOfOrder { call: "complete_checkpoint", before: "start_checkpoint" });
    };
    let begun = cx.now();
    let dataset = cx.dataset(checkpoint);
    let known = cx.memory(|memory| memory.completed.filter(|known| known.checkpoint == checkpoint));
    let completed = match (known, not_written) {
        (Some(known), _) => Ok(known),
        (None, Some(error)) => Err(error),
        (None, None) => finish(cx, checkpoint, &dataset, begun).await,
    };
    cx.memory(|memory| {
        (memory.open, memory.completed) = (None, None);
        memory.last = checkpoint;
    });
    let completed = match completed {
        Ok(completed) => completed,
        Err(error) => {
            let ended = matches!(error, CallError::ProgramsEnded);
            report_dropped(cx, checkpoint, dataset.checkpoint, Failure::from(error).to_string(), ended);
            if let Some(directory) = &dataset.direct {
                direct::give_up(cx, directory).await;
            }
            delete(cx, checkpoint).await?;
            return Ok(Reply::Completed { checkpoint, kept: false, halt: None });
        }
    };
    report(cx, &dataset, completed);
    if dataset.direct.is_none() {
        cx.memory(|memory| memory.cached.insert(checkpoint));
    } else {
        direct::forget_older(cx, checkpoint).await;
    }
    if !cx.policy(|policy, _| policy.is_progress(&dataset)) {
        flush::output(cx, checkpoint).await?;
        return Ok(Reply::Completed { checkpoint, kept: true, halt: None });
    }
    cx.memory(|memory| memory.complete = Some(checkpoint));
    cx.policy(|policy, now| policy.checkpoint_complete(now));
    if let Some(level) = dataset.level.filter(|level| *level != Level::Prefix) {
        cx.policy(|policy, now| policy.level_complete(now, level));
    }
    let halt = spread_halt(cx, files::halt(cx, HaltWork::CountCheckpoint).await?).await?;
    if let Some(reason) = &halt {
        cx.emit(AgentEvent::Halting { generation: cx.generation(), reason: reason.clone() });
    }
    if dataset.level == Some(Level::Prefix) {
        let kept = at_prefix(cx, checkpoint, dataset).await?;
        return Ok(Reply::Completed { checkpoint, kept, halt });
    }
    if halt.is_some() {
        flush::if_needed(cx, checkpoint).await;
    } else if dataset.output {
        flush::output(cx, checkpoint).await?;
    } else if flush::is_due(cx, checkpoint) && dataset.direct.is_none() {
        if cx.settings().flush.mode == FlushMode::Async {
            flush::in_background(cx, checkpoint).await?;
        } else {
            flush::if_needed(cx, checkpoint).await;
        }
    }
    Ok(Reply::Completed { checkpoint, kept: true, halt })
}

/// Flushes a checkpoint of level 4, and ends the interval of its level. If it cannot be flushed, it stays in cache as
/// one of level 1, whose protection it has: it must not supersede those that survive the loss of a node. Returns
/// whether it was flushed.
async fn at_prefix(cx: &Context, checkpoint: CheckpointId, dataset: Dataset) -> Result<bool, CallError> {
    if flush::of_level(cx, checkpoint).await {
        cx.policy(|policy, now| policy.level_complete(now, Level::Prefix));
        return Ok(true);
    }
    cx.policy(|policy, now| policy.flush_failed(now));
    datasets::describe(cx, checkpoint, Dataset { level: Some(Level::Local), ..dataset }).await?;
    cx.emit(AgentEvent::Notice {
        message: format!(
            "checkpoint {checkpoint} is of level 1 instead of 4: its flush failed, and it is in cache only"
        ),
    });
    Ok(false)
}

/// Makes the open dataset complete and durable against one failure a group, and records that on disk.
async fn finish(
    cx: &Context,
    checkpoint: CheckpointId,
    dataset: &Dataset,
    begun: Duration,
) -> Result<CompletedDataset, CallError> {
    let (scheme, bytes) = match &dataset.direct {
        Some(directory) => (direct::SCHEME, direct::complete(cx, checkpoint, directory, dataset).await?),
        None => seal_and_protect(cx, checkpoint, dataset).await?,
    };
    let completed = CompletedDataset { checkpoint, scheme, bytes, millis: cx.millis_since(begun) };
    let memory = cx.memory(|memory| {
        memory.completed = Some(completed);
        memory.clone()
    });
    // The driver reports a failure. The checkpoint is complete nevertheless; only a restart of this agent before the
    // results are on disk would judge it again.
    let _ = files::save_memory(cx, memory).await;
    Ok(completed)
}

/// A run that writes only output makes no progress: what becomes of the output is reported when it is on the prefix
/// directory.
fn report(cx: &Context, dataset: &Dataset, completed: CompletedDataset) {
    let (generation, CompletedDataset { checkpoint, scheme, bytes, millis }) = (cx.generation(), completed);
    if cx.policy(|policy, _| policy.is_progress(dataset)) {
        let level = dataset.level;
        cx.emit(AgentEvent::CheckpointComplete { generation, checkpoint, scheme, level, bytes, millis });
    } else if let Some(directory) = &dataset.direct {
        cx.emit(AgentEvent::Flushed { generation, checkpoint, directory: directory.clone(), millis });
    }
}

/// Returns what protects the checkpoint, and the bytes of all ranks' files.
async fn seal_and_protect(
    cx: &Context,
    checkpoint: CheckpointId,
    dataset: &Dataset,
) -> Result<(Scheme, u64), CallError> {
    let protection = cx.layout().protection_of(checkpoint, dataset)?;
    let crc = match cx.settings().crc.on_copy {
        CrcOnCopy::Always => SealCrc::Compute,
        CrcOnCopy::Never | CrcOnCopy::WithRedundancy => SealCrc::None,
    };
    let bytes = protect(cx, checkpoint, protection, crc).await?;
    cx.order(cx.nodes_with_ranks(&Order::Commit { checkpoint })).await?;
    restart::note(cx, checkpoint, Locations { cache: true, pfs: false, flushing: false }).await?;
    Ok((protection.scheme(), bytes))
}

/// Meta files, then redundancy. Returns the bytes of all ranks' files.
pub(super) async fn protect(
    cx: &Context,
    checkpoint: CheckpointId,
    protection: &Protection,
    crc: SealCrc,
) -> Result<u64, CallError> {
    let seal = Order::Seal { checkpoint, ranks: cx.layout().ranks(), crc };
    let sealed = cx.order(cx.nodes_with_ranks(&seal)).await?;
    let sealed = sealed.into_values().filter_map(|result| match result {
        OrderResult::Sealed(ranks) => Some(ranks),
        _ => None,
    });
    let sealed: BTreeMap<Rank, SealedFiles> = sealed.flatten().collect();
    writers::one_of_each_name(&sealed)?;
    let bytes: BTreeMap<Rank, u64> = sealed.into_iter().map(|(rank, files)| (rank, files.bytes)).collect();
    let work = cx.layout().work(&protection.groups, &bytes);
    if !work.is_empty() {
        cx.emit(AgentEvent::EncodeStarted { generation: cx.generation(), checkpoint });
        let crc = cx.settings().crc.on_copy != CrcOnCopy::Never;
        let orders =
            work.into_iter().map(|(node, groups)| (node, Order::Encode { checkpoint, groups, crc, only: None }));
        cx.order(orders.collect()).await?;
    }
    Ok(total_bytes(bytes.values().copied()))
}
