//! Datasets that bypass the cache: files that several ranks share, written and read in the prefix directory itself
//! (`SCR_CACHE_BYPASS` of SCR 3). The leader maintains the index in an order such that a run that dies while they are
//! written leaves an entry without COMPLETE.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use holdfast_core::prefix::Summary;
use holdfast_core::store::{DirectoryName, PrefixError};
use holdfast_model::{CheckpointId, Dataset, Failure, Location, Locations, Rank, RestartRanks, Scheme};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::{DatasetFile, Order};
use holdfast_wire::rank::Reply;

use super::blame::reason_of;
use super::context::Context;
use super::deletion::{clear_cache, delete};
use super::files;
use super::found::{FoundCheckpoint, fetched};
use super::open_dataset::{mark_begun, next_id};
use super::records::{describe, note};
use super::summary::{dataset_file, summary_of};
use super::window;
use crate::collective::error::{CallError, Result};
use crate::report::events::total_bytes;

/// The scheme of such a dataset in the log: the redundancy is the parallel file system's own.
pub(super) const SCHEME: Scheme = Scheme::new("PREFIX");

/// Begins a dataset: makes its directory, adds it to the index, and sends it to the ranks' agents.
pub(super) async fn start(cx: &Context, mut dataset: Dataset) -> Result<Reply> {
    let begun_before = cx.memory(|memory| memory.open);
    let checkpoint = next_id(cx);
    mark_begun(cx, &dataset);
    // A start that failed is resumed in the directory that it made. Otherwise a record of this id belongs to an older
    // dataset, which the run did not restart from and whose files are kept.
    let made = begun_before.and_then(|_| cx.dataset(checkpoint).direct);
    let made = made.map(|made| DirectoryName::given(&made)).transpose().map_err(PrefixError::from)?;
    let directory = files::make_directory(cx, checkpoint, dataset.name.clone(), made).await?;
    dataset.direct = Some(directory.to_string());
    files::enter_index(cx, checkpoint, &directory, dataset.clone()).await?;
    describe(cx, checkpoint, dataset).await?;
    let path = cx.settings().prefix.join(directory.as_str());
    cx.order(cx.nodes_with_ranks(&Order::OpenDirect { checkpoint, directory: path })).await?;
    cx.emit(AgentEvent::CheckpointStarted { generation: cx.generation(), checkpoint });
    Ok(Reply::Started { checkpoint, directory: PathBuf::new(), mirrored: None })
}

/// All ranks have written their files. Returns the bytes of all files.
pub(super) async fn complete(
    cx: &Context,
    checkpoint: CheckpointId,
    directory: &str,
    dataset: &Dataset,
) -> Result<u64> {
    let directory = DirectoryName::given(directory).map_err(PrefixError::from)?;
    let summary = if files::is_usable(cx, &directory).await? {
        // Published by a leader that was restarted before its results were on disk: the nodes may have closed the
        // dataset and cannot seal it again.
        if dataset.checkpoint {
            files::make_current(cx, &directory).await?;
        }
        files::read_summary(cx, &directory).await?
    } else {
        let sealed = cx.order(cx.nodes_with_ranks(&Order::SealDirect { checkpoint })).await?;
        let summary = summary_of(cx, checkpoint, sealed.into_values());
        files::publish(cx, checkpoint, &directory, Some(summary.clone()), dataset.checkpoint).await?;
        summary
    };
    cx.order(cx.nodes_with_ranks(&Order::CloseDirect { checkpoint })).await?;
    note(cx, checkpoint, Locations { cache: false, pfs: true, flushing: false }).await?;
    window::request(cx, checkpoint);
    Ok(bytes_of(&summary))
}

/// Deletes the nodes' records of all but the newest two: the prefix directory has them. If that fails, they are kept
/// until the next dataset is complete.
pub(super) async fn forget_older(cx: &Context, checkpoint: CheckpointId) {
    let older: Vec<CheckpointId> = cx.memory(|memory| {
        let direct = memory.datasets.iter().rev().filter(|(_, dataset)| dataset.direct.is_some());
        direct.map(|(id, _)| *id).filter(|id| *id < checkpoint).skip(1).collect()
    });
    for id in older {
        if let Err(error) = delete(cx, id).await {
            let reason = Failure::from(error);
            cx.emit(AgentEvent::Notice { message: format!("the record of dataset {id} stays on the nodes: {reason}") });
        }
    }
}

/// Marks the directory as incomplete in the index.
pub(super) async fn give_up(cx: &Context, checkpoint: CheckpointId, directory: &str) {
    if let Ok(directory) = DirectoryName::given(directory) {
        // The driver reports a failure. Without the mark it is not complete either.
        let _ = files::publish(cx, checkpoint, &directory, None, false).await;
    }
}

/// Restarts from a dataset that bypassed the cache, if it can be read.
pub(super) async fn restart(
    cx: &Context,
    checkpoint: CheckpointId,
    directory: &str,
) -> Result<Option<FoundCheckpoint>> {
    match try_directory(cx, directory).await {
        Ok(found) => Ok(Some(found)),
        Err(error) => {
            let reason = reason_of(cx, error)?;
            cx.attempt_failed(checkpoint, Location::ParallelFileSystem, reason);
            Ok(None)
        }
    }
}

async fn try_directory(cx: &Context, directory: &str) -> Result<FoundCheckpoint> {
    let directory = DirectoryName::given(directory).map_err(PrefixError::from)?;
    if !files::is_usable(cx, &directory).await? {
        return Err(CallError::Incomplete(directory));
    }
    let summary = files::read_summary(cx, &directory).await?;
    written_by(cx, &directory, &summary)?;
    summary.accept(summary.ranks)?;
    read(cx, &directory, &summary).await
}

/// The number of ranks that wrote the dataset, if the run has another one.
///
/// # Errors
/// Such a dataset cannot be used.
pub(super) fn written_by(cx: &Context, directory: &DirectoryName, summary: &Summary) -> Result<Option<u32>> {
    let (written, running) = (summary.ranks, cx.layout().ranks());
    match cx.settings().restart.ranks {
        _ if written == running => Ok(None),
        RestartRanks::Any => Ok(Some(written)),
        RestartRanks::Same => Err(CallError::other_size(directory, written, running)),
    }
}

/// Has the ranks read the files in the prefix directory. Of a dataset of another number of ranks, each node verifies an
/// equal share.
pub(super) async fn read(cx: &Context, directory: &DirectoryName, summary: &Summary) -> Result<FoundCheckpoint> {
    let checkpoint = summary.id;
    // The summary lists files as a filemap does, newest first.
    let written_by = written_by(cx, directory, summary)?;
    let running = cx.layout().ranks().max(1);
    let files_of = (0..summary.ranks).map(|rank| {
        let mut files: Vec<DatasetFile> = summary.to_fetch(Rank(rank)).map(dataset_file).collect();
        files.reverse();
        (Rank(rank % running), (Rank(rank), files))
    });
    let mut files_of_nodes = cx.layout().by_node(files_of);
    for node in cx.layout().by_node(cx.ranks().map(|rank| (rank, ()))).into_keys() {
        files_of_nodes.entry(node).or_default();
    }
    let path = cx.settings().prefix.join(directory.as_str());
    let orders = files_of_nodes.into_iter().map(|(node, files)| {
        let files: BTreeMap<_, _> = files.into_iter().collect();
        (node, Order::ReadDirect { checkpoint, directory: path.clone(), files, written_by })
    });
    cx.order(orders.collect()).await?;
    note(cx, checkpoint, Locations { cache: false, pfs: true, flushing: false }).await?;
    // The parallel file system protects it.
    Ok(FoundCheckpoint { written_by, ..fetched(checkpoint, directory, Some(u32::MAX)) })
}

/// Has the ranks read a checkpoint that was in cache from this directory, to which it was flushed. It is deleted from
/// the caches: what the ranks write next needs the room, and the next restart finds it in this directory.
pub(super) async fn instead_of_cache(
    cx: &Context,
    cached: FoundCheckpoint,
    directory: &DirectoryName,
) -> Result<FoundCheckpoint> {
    let dataset = cx.dataset(cached.checkpoint);
    let summary = files::read_summary(cx, directory).await?;
    clear_cache(cx, BTreeSet::new()).await?;
    let found = read_described(cx, directory, &summary, dataset).await?;
    Ok(FoundCheckpoint { rebuilt: cached.rebuilt, moved: cached.moved, ..found })
}

/// As [`read`], for a dataset that was not written there by its ranks: the nodes record where it is read.
pub(super) async fn read_described(
    cx: &Context,
    directory: &DirectoryName,
    summary: &Summary,
    dataset: Dataset,
) -> Result<FoundCheckpoint> {
    describe(cx, summary.id, Dataset { direct: Some(directory.to_string()), ..dataset }).await?;
    read(cx, directory, summary).await
}

/// Bytes of all files; one that several ranks wrote counts once.
fn bytes_of(summary: &Summary) -> u64 {
    let files = summary.by_rank.values().flat_map(|rank| &rank.files);
    let sizes: BTreeMap<_, _> = files.map(|file| (file.name.as_str(), file.size.unwrap_or(0))).collect();
    total_bytes(sizes.into_values())
}
