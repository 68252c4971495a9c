//! Cache to prefix directory, by the running job: while the ranks wait, or in the background.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use holdfast_core::store::DirectoryName;
use holdfast_formats::sion::dataset::stream_bytes;
use holdfast_model::{
    CheckpointId, ContainerPlaces, ContainerRequest, Failure, FailureKind, FlushMode, FlushPolicy, Locations, NodeName,
    Rank,
};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{CopyLimits, Order, OrderResult};

use super::background::Background;
use super::context::Context;
use super::files;
use super::records::note;
use super::summary::summary_of;
use super::waves::Waves;
use super::window;
use crate::collective::error::CallError;

/// True if the settings ask for a flush of this id.
pub(super) fn is_due(cx: &Context, checkpoint: CheckpointId) -> bool {
    let every = cx.settings().flush.every;
    every > 0 && checkpoint.0.is_multiple_of(every)
}

/// Flushes, unless that is switched off or the dataset is on the prefix directory already. A failure is reported; the
/// checkpoint stays in cache, and the drain tries again.
pub(super) async fn if_needed(cx: &Context, checkpoint: CheckpointId) {
    if cx.settings().flush.every == 0 {
        return;
    }
    cx.flush_ended().await;
    if !is_flushed(cx, checkpoint).await {
        flush(cx, checkpoint, FlushMode::Sync).await;
    }
}

/// Flushes a checkpoint of level 4, whatever the flush settings are, while the ranks wait. A failure is reported; the
/// checkpoint stays in cache, and the drain tries again. Returns whether it is on the prefix directory.
pub(super) async fn of_level(cx: &Context, checkpoint: CheckpointId) -> bool {
    cx.flush_ended().await;
    is_flushed(cx, checkpoint).await || flush(cx, checkpoint, FlushMode::Sync).await
}

/// The directory of a checkpoint in cache on the prefix directory, whatever the flush settings are: the ranks are to
/// read it there. If the user has deleted it, it is flushed again.
///
/// # Errors
/// Those of the flush, which are reported. The checkpoint is in cache still.
pub(super) async fn directory_of(cx: &Context, checkpoint: CheckpointId) -> Result<DirectoryName, CallError> {
    cx.flush_ended().await;
    if is_flushed(cx, checkpoint).await {
        let unusable = |error: CallError| CallError::PrefixUnusable(error.into());
        for candidate in files::candidates(cx).await.map_err(unusable)? {
            if candidate.id == Some(checkpoint)
                && files::is_usable(cx, &candidate.directory).await.map_err(unusable)?
                && !files::is_packed(cx, &candidate.directory).await.map_err(unusable)?
            {
                return Ok(candidate.directory);
            }
        }
    }
    flush_reported(cx, checkpoint, FlushMode::Sync).await.map_err(|failure| match failure.kind {
        FailureKind::Io | FailureKind::Unwritable => CallError::PrefixUnusable(failure),
        _ => CallError::Order(failure),
    })
}

/// True if the flush file lists the dataset as on the prefix directory: then a repeated call does not flush it again.
/// If the flush file cannot be read, the dataset is flushed again.
async fn is_flushed(cx: &Context, checkpoint: CheckpointId) -> bool {
    files::locations_here(cx, checkpoint).await.is_ok_and(|locations| locations.pfs)
}

/// Flushes a dataset that the application declared as output, whatever the flush settings are.
pub(super) async fn output(cx: &Context, checkpoint: CheckpointId) -> Result<(), CallError> {
    let dataset = cx.dataset(checkpoint);
    if dataset.direct.is_some() {
        // It was written there.
        return Ok(());
    }
    let flushed = is_flushed(cx, checkpoint).await;
    if !flushed && cx.settings().flush.mode == FlushMode::Async {
        return in_background(cx, checkpoint).await;
    }
    cx.flush_ended().await;
    if (flushed || flush(cx, checkpoint, FlushMode::Sync).await) && !dataset.checkpoint {
        cx.request(Background::Discard(checkpoint));
    }
    Ok(())
}

/// Requests a flush in the background. Several wait for their turn there.
pub(super) async fn in_background(cx: &Context, checkpoint: CheckpointId) -> Result<(), CallError> {
    if cx.flushing().contains(&checkpoint) {
        // The leader was restarted, and has continued it by itself.
        return Ok(());
    }
    if is_flushed(cx, checkpoint).await {
        return Ok(());
    }
    note(cx, checkpoint, Locations { cache: true, pfs: false, flushing: true }).await?;
    cx.memory(|memory| memory.flushing.insert(checkpoint));
    cx.emit(AgentEvent::FlushRequested { generation: cx.generation(), checkpoint });
    cx.request(Background::Flush(checkpoint));
    Ok(())
}

/// The flush in the background that this collective requested, or an earlier leader.
pub(super) async fn run_in_background(cx: Context, checkpoint: CheckpointId, collective: u64) {
    // An earlier leader may have ended it without a trace in its memory.
    let flushed = is_flushed(&cx, checkpoint).await || flush(&cx, checkpoint, FlushMode::Async).await;
    cx.memory(|memory| memory.flushing.remove(&checkpoint));
    if flushed && !cx.dataset(checkpoint).checkpoint {
        cx.with(|state| state.background.request(Background::Discard(checkpoint), collective));
    }
}

/// Flushes a dataset, and reports the result. `mode` is whether ranks wait for it. Returns whether it succeeded.
pub(super) async fn flush(cx: &Context, checkpoint: CheckpointId, mode: FlushMode) -> bool {
    flush_reported(cx, checkpoint, mode).await.is_ok()
}

async fn flush_reported(cx: &Context, checkpoint: CheckpointId, mode: FlushMode) -> Result<DirectoryName, Failure> {
    let begun = cx.now();
    let generation = cx.generation();
    match try_flush(cx, checkpoint, mode).await {
        Ok(flushed) => {
            let (directory, millis) = (flushed.to_string(), cx.millis_since(begun));
            cx.emit(AgentEvent::Flushed { generation, checkpoint, directory, millis });
            window::request(cx, checkpoint);
            Ok(flushed)
        }
        Err(error) => {
            // The flush file is only a hint to the drain, which reads the cache and the index itself.
            let _ = note(cx, checkpoint, Locations { cache: true, pfs: false, flushing: false }).await;
            let failure = Failure::from(error);
            cx.emit(AgentEvent::FlushFailed { generation, checkpoint, reason: failure.to_string() });
            Err(failure)
        }
    }
}

async fn try_flush(cx: &Context, checkpoint: CheckpointId, mode: FlushMode) -> Result<DirectoryName, CallError> {
    let dataset = cx.dataset(checkpoint);
    let make_current = dataset.checkpoint;
    let interrupted = cx.unfinished_flush(checkpoint).and_then(|name| DirectoryName::new(name).ok());
    let directory = files::make_directory(cx, checkpoint, dataset.name.clone(), interrupted).await?;
    cx.record_flush(checkpoint, Some(directory.as_str())).await;
    // A flush that is interrupted from here on leaves an entry without COMPLETE in the index, and is resumed by the
    // next.
    files::enter_index(cx, checkpoint, &directory, dataset).await?;
    let copied = copy(cx, checkpoint, &directory, mode).await;
    let summary = copied.and_then(|copied| {
        let unlisted = unlisted(cx, copied.values());
        // A node that no longer has the dataset must not make its ranks look as if they had written nothing.
        if unlisted.is_empty() { Ok(copied) } else { Err(CallError::NotInCache { checkpoint, ranks: unlisted }) }
    });
    let (summary, failure) = match summary {
        Ok(copied) => (Some(summary_of(cx, checkpoint, copied.into_values())), None),
        Err(error) => (None, Some(error)),
    };
    files::publish(cx, checkpoint, &directory, summary, make_current).await?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    // A later flush of this id uses another directory.
    cx.record_flush(checkpoint, None).await;
    if let Err(error) = note(cx, checkpoint, Locations { cache: true, pfs: true, flushing: false }).await {
        // It is flushed all the same. Where that is not recorded, it may be copied once more.
        let message =
            format!("checkpoint {checkpoint} is flushed, but not all nodes recorded that: {}", Failure::from(error));
        cx.emit(AgentEvent::Notice { message });
    }
    Ok(directory)
}

/// Has the nodes copy their files to this directory.
async fn copy(
    cx: &Context,
    checkpoint: CheckpointId,
    directory: &DirectoryName,
    mode: FlushMode,
) -> Result<BTreeMap<NodeName, OrderResult>, CallError> {
    let mut results = copy_files(cx, checkpoint, directory, mode, container(cx, checkpoint, directory).await?).await?;
    let mut all_packed = BTreeMap::new();
    for result in results.values_mut() {
        if let OrderResult::Packed { files, packed } = result {
            all_packed.append(packed);
            *result = OrderResult::Flushed(mem::take(files));
        }
    }
    if !all_packed.is_empty() {
        files::commit_container(cx, directory, all_packed).await?;
    }
    Ok(results)
}

/// Creates a container for a checkpoint, if the settings ask for one. The files of outputs are not packed.
async fn container(
    cx: &Context,
    checkpoint: CheckpointId,
    directory: &DirectoryName,
) -> Result<Option<ContainerPlaces>, CallError> {
    let Some(policy) = cx.settings().flush.container.filter(|_| !cx.dataset(checkpoint).output) else {
        return Ok(None);
    };
    let inventories = cx.order(cx.nodes_with_ranks(&Order::Inventory)).await?;
    let mut streams = BTreeMap::new();
    for result in inventories.into_values() {
        let OrderResult::Inventory(inventory) = result else { continue };
        for holding in inventory.holdings {
            if holding.checkpoint == checkpoint && holding.partner_of.is_none() && !holding.files.is_empty() {
                streams.insert(holding.rank, stream_bytes(holding.files.iter().map(|file| file.size)));
            }
        }
    }
    let request = ContainerRequest { ranks: cx.layout().ranks(), streams, files: policy.files };
    match files::create_container(cx, directory, request).await? {
        Ok(places) => Ok(Some(places)),
        Err(reason) => {
            let directory = directory.to_string();
            cx.emit(AgentEvent::PlainFilesKept { checkpoint, directory, reason });
            Ok(None)
        }
    }
}

async fn copy_files(
    cx: &Context,
    checkpoint: CheckpointId,
    directory: &DirectoryName,
    mode: FlushMode,
    container: Option<ContainerPlaces>,
) -> Result<BTreeMap<NodeName, OrderResult>, CallError> {
    let settings = cx.settings();
    let directory = settings.prefix.join(directory.as_str());
    let of_node = cx.layout().by_node(cx.ranks().map(|rank| (rank, rank)));
    let orders = |limits| {
        let (crc, background) = (settings.crc.on_flush, mode == FlushMode::Async);
        let order = Order::Flush { checkpoint, directory: directory.clone(), limits, background, crc, container: None };
        let mut orders = cx.nodes_with_ranks(&order);
        for (node, order) in &mut orders {
            if let (Order::Flush { container: places, .. }, Some(container)) = (order, &container) {
                *places = Some(container.of(of_node.get(node).into_iter().flatten().copied(), 0));
            }
        }
        orders
    };
    let nodes = orders(CopyLimits::NONE).len();
    match mode {
        FlushMode::Sync => {
            let waves = Waves::of(settings.flush.width, nodes);
            let limits = CopyLimits { width: waves.files_on_a_node, ..CopyLimits::NONE };
            cx.order_in_waves(orders(limits), waves).await
        }
        FlushMode::Async => cx.order(orders(limits(cx, nodes))).await,
    }
}

/// The limits of each of so many nodes, for work on the prefix directory that nothing waits for. They share the
/// bandwidth; each limits itself, so that no coordination is needed.
pub(super) fn limits(cx: &Context, nodes: usize) -> CopyLimits {
    let FlushPolicy { bandwidth, percent, .. } = cx.settings().flush;
    let bandwidth = bandwidth.div_ceil(u64::try_from(nodes.max(1)).unwrap_or(u64::MAX));
    cx.limits(CopyLimits { bandwidth, percent, ..CopyLimits::NONE })
}

/// The ranks that no node listed: a rank without files is listed with none.
fn unlisted<'a>(cx: &Context, results: impl Iterator<Item = &'a OrderResult>) -> Vec<Rank> {
    let listed: BTreeSet<Rank> = results
        .filter_map(|result| match result {
            OrderResult::Flushed(files) => Some(files.keys().copied()),
            _ => None,
        })
        .flatten()
        .collect();
    cx.ranks().filter(|rank| !listed.contains(rank)).collect()
}
