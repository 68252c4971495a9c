//! Need, start, complete (`SCR manual §11.5`, `§11.6`, `§11.8`).

use std::path::PathBuf;
use std::time::Duration;

use holdfast_model::{CheckpointId, CrcOnCopy, Dataset, Failure, FlushMode, Level, Locations, SnapshotIntervals};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{Order, SealCrc};
use holdfast_wire::rank::Reply;

use super::action::HaltWork;
use super::background::Background;
use super::context::Context;
use super::deletion::delete;
use super::eviction::evicted;
use super::halt::{halt_condition, spread_halt};
use super::memory::CompletedDataset;
use super::open_dataset::{Blocked, count_blocked, mark_begun, mark_ended, mark_not_begun, next_id, report_dropped};
use super::protection::{encode, report_protected, seal};
use super::records::{describe, note};
use super::{direct, files, flush, restart, unfinished};
use crate::collective::error::{CallError, Result};
use crate::report::events::total_bytes;

/// Whether a checkpoint is due.
pub(super) async fn need(cx: &Context) -> Result<Reply> {
    let halting = halt_condition(cx).await?.is_some();
    let due = cx.policy(|policy, now| policy.is_due(now, halting));
    Ok(Reply::Flag(due || cx.checkpoint_requested()))
}

/// The level of the checkpoint of variables that is due, by these intervals or those of the job.
pub(super) async fn snapshot(cx: &Context, intervals: Option<SnapshotIntervals>) -> Result<Reply> {
    let halting = halt_condition(cx).await?.is_some();
    let due = cx.policy(|policy, now| policy.due_level(now, halting, intervals));
    // `None` is less than each level.
    Ok(Reply::Level(due.max(cx.checkpoint_requested().then_some(Level::Parity))))
}

/// Makes room for a dataset, records what protects it, makes its directories.
async fn start(cx: &Context, dataset: Dataset) -> Result<Reply> {
    // The program did not complete its restart.
    if let Some(restart) = cx.memory(|memory| memory.restart.clone()) {
        restart::accept(cx, restart.checkpoint).await?;
    }
    let checkpoint = next_id(cx);
    // Before anything is evicted: until then an older one may be the only one that survives the loss of a node.
    let begun = cx.now();
    cx.ended(|name| matches!(name, Background::Protect(_))).await;
    count_blocked(cx, begun, |blocked| &mut blocked.earlier_redundancy);
    let protection = cx.layout().protection_of(checkpoint, &dataset)?;
    let delete = evicted(cx, checkpoint, &dataset, protection).await?;
    let begun = cx.now();
    for id in &delete {
        // What is being flushed must not be deleted meanwhile.
        cx.ended_of(*id).await;
    }
    count_blocked(cx, begun, |blocked| &mut blocked.flush);
    mark_begun(cx, &dataset);
    describe(cx, checkpoint, dataset).await?;
    let orders = cx.layout().members(&protection.descriptors()).into_iter();
    let orders = orders.map(|(node, members)| (node, Order::Prepare { checkpoint, delete: delete.clone(), members }));
    cx.order(orders.collect()).await?;
    if !delete.is_empty() {
        // Spares may still hold files of it, from a run in which they were not spare.
        cx.order(cx.all_nodes(&Order::Delete { checkpoints: delete.clone(), all_but: None })).await?;
        cx.memory(|memory| memory.forget(|id| delete.contains(&id)));
        for id in &delete {
            unfinished::abandon(cx, *id).await;
        }
    }
    cx.emit(AgentEvent::CheckpointStarted { generation: cx.generation(), checkpoint });
    Ok(Reply::Started { checkpoint, directory: PathBuf::new(), mirrored: None })
}

/// Begins a dataset, in cache or in the prefix directory itself.
pub(super) async fn begin(cx: &Context, dataset: Dataset, bypass: bool) -> Result<Reply> {
    let is_checkpoint = dataset.checkpoint;
    cx.with(|state| state.blocked = Some(Blocked::since(state.now)));
    let begun = if bypass { direct::start(cx, dataset).await } else { start(cx, dataset).await };
    begun.map_err(|error| {
        let failure = Failure::from(error);
        cx.with(|state| state.blocked = None);
        mark_not_begun(cx, is_checkpoint, failure.to_string());
        CallError::Order(failure)
    })
}

pub(super) async fn complete(cx: &Context, not_written: Option<CallError>) -> Result<Reply> {
    let Some(checkpoint) = cx.memory(|memory| memory.open) else {
        return Err(CallError::OutOfOrder { call: "complete_checkpoint", before: "start_checkpoint" });
    };
    if matches!(not_written, Some(CallError::ProgramsEnded)) {
        // They were not blocked.
        cx.with(|state| state.blocked = None);
    }
    let reply = complete_open(cx, checkpoint, not_written).await;
    mark_ended(cx, checkpoint);
    reply
}

async fn complete_open(cx: &Context, checkpoint: CheckpointId, not_written: Option<CallError>) -> Result<Reply> {
    let begun = cx.now();
    let dataset = cx.dataset(checkpoint);
    let known = cx.memory(|memory| memory.completed.filter(|known| known.checkpoint == checkpoint));
    let completed = match (known, not_written) {
        (Some(known), _) => {
            report_complete(cx, &dataset, known);
            Ok(known)
        }
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
                direct::give_up(cx, checkpoint, directory).await;
            }
            delete(cx, checkpoint).await?;
            return Ok(Reply::Completed { checkpoint, kept: false, halt: None });
        }
    };
    let is_protected = completed.is_protected() && !completed.behind;
    let survives = match dataset.direct {
        None if is_protected => Some(cx.layout().protection_of(checkpoint, &dataset)?.survives),
        _ => None,
    };
    if is_protected {
        report_protected(cx, checkpoint, completed.scheme, survives, completed.protected_millis);
    }
    if dataset.direct.is_none() {
        cx.memory(|memory| {
            memory.cached.insert(checkpoint);
            memory.protected.extend(survives.map(|survives| (checkpoint, survives)));
        });
        if completed.behind {
            cx.request(Background::Protect(checkpoint));
        }
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
    let begun = cx.now();
    let kept = flush_if_due(cx, checkpoint, dataset, halt.is_some()).await?;
    count_blocked(cx, begun, |blocked| &mut blocked.flush);
    Ok(Reply::Completed { checkpoint, kept, halt })
}

/// Flushes a complete checkpoint, or has it flushed in the background, if that is due. Returns whether it is kept.
async fn flush_if_due(cx: &Context, checkpoint: CheckpointId, dataset: Dataset, halting: bool) -> Result<bool> {
    if dataset.level == Some(Level::Prefix) {
        return at_prefix(cx, checkpoint, dataset).await;
    }
    if halting {
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
    Ok(true)
}

/// Flushes a checkpoint of level 4, and ends the interval of its level. If it cannot be flushed, it stays in cache as
/// one of level 1, whose protection it has: it must not supersede those that survive the loss of a node. Returns
/// whether it was flushed.
async fn at_prefix(cx: &Context, checkpoint: CheckpointId, dataset: Dataset) -> Result<bool> {
    if flush::of_level(cx, checkpoint).await {
        cx.policy(|policy, now| policy.level_complete(now, Level::Prefix));
        return Ok(true);
    }
    cx.policy(|policy, now| policy.flush_failed(now));
    describe(cx, checkpoint, Dataset { level: Some(Level::Local), ..dataset }).await?;
    cx.emit(AgentEvent::Notice {
        message: format!(
            "checkpoint {checkpoint} is of level 1 instead of 4: its flush failed, and it is in cache only"
        ),
    });
    Ok(false)
}

/// Makes the open dataset complete, then protects it, and records that on disk.
async fn finish(
    cx: &Context,
    checkpoint: CheckpointId,
    dataset: &Dataset,
    begun: Duration,
) -> Result<CompletedDataset> {
    let mut completed = CompletedDataset {
        checkpoint,
        scheme: direct::SCHEME,
        bytes: 0,
        millis: 0,
        protected_millis: 0,
        behind: false,
    };
    let mut is_reported = false;
    if let Some(directory) = &dataset.direct {
        completed.bytes = direct::complete(cx, checkpoint, directory, dataset).await?;
        completed.millis = cx.millis_since(begun);
    } else {
        let protection = cx.layout().protection_of(checkpoint, dataset)?;
        let crc = match cx.settings().crc.on_copy {
            CrcOnCopy::Always => SealCrc::Compute,
            CrcOnCopy::Never | CrcOnCopy::WithRedundancy => SealCrc::None,
        };
        let bytes = seal(cx, checkpoint, crc).await?;
        completed.scheme = protection.scheme();
        completed.bytes = total_bytes(bytes.values().copied());
        completed.millis = cx.millis_since(begun);
        completed.behind = completed.is_protected() && dataset.checkpoint && protection.limits(cx).is_some();
        // If nothing follows that could fail, it is reported when it is on disk, and then holds.
        is_reported = completed.is_protected() && !completed.behind;
        if is_reported {
            report_complete(cx, dataset, completed);
        }
        if !completed.behind {
            let begun = cx.now();
            encode(cx, checkpoint, protection, &bytes).await?;
            count_blocked(cx, begun, |blocked| &mut blocked.redundancy);
        }
        cx.order(cx.nodes_with_ranks(&Order::Commit { checkpoint })).await?;
        note(cx, checkpoint, Locations { cache: true, pfs: false, flushing: false }).await?;
    }
    completed.protected_millis = cx.millis_since(begun);
    let memory = cx.memory(|memory| {
        memory.completed = Some(completed);
        memory.clone()
    });
    // The driver reports a failure. The checkpoint is complete nevertheless; only a restart of this agent before the
    // results are on disk would judge it again.
    let _ = files::save_memory(cx, memory).await;
    if !is_reported {
        report_complete(cx, dataset, completed);
    }
    Ok(completed)
}

/// A run that writes only output makes no progress: what becomes of the output is reported when it is on the prefix
/// directory.
fn report_complete(cx: &Context, dataset: &Dataset, completed: CompletedDataset) {
    let generation = cx.generation();
    let CompletedDataset { checkpoint, scheme, bytes, millis, .. } = completed;
    if cx.policy(|policy, _| policy.is_progress(dataset)) {
        cx.emit(AgentEvent::CheckpointComplete {
            generation,
            checkpoint,
            scheme,
            descriptor: cx.layout().level_of(checkpoint, dataset),
            protected: completed.is_protected(),
            level: dataset.level.map(Level::number),
            bytes,
            millis,
        });
    } else if let Some(directory) = &dataset.direct {
        cx.emit(AgentEvent::Flushed { generation, checkpoint, directory: directory.clone(), millis });
    }
}
