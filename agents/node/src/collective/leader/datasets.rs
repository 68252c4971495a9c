//! Datasets with a name, and output: what SCR 3 added to SCR 1.
//!
//! What the application declared of a dataset is recorded by the leader, by every node (spares too, so that the record
//! survives the loss of any node) and, when the dataset is there, in its directory on the prefix.

use std::collections::BTreeSet;

use holdfast_core::store::DirectoryName;
use holdfast_model::dataset::{check_name, default_name};
use holdfast_model::{CheckpointId, Dataset};
use holdfast_wire::rank::Reply;

use super::background::Background;
use super::context::Context;
use super::deletion::{clear_cache, delete};
use super::restart::restarted;
use super::{blame, checkpoint, fetch, files};
use crate::collective::error::CallError;

/// Begins a dataset that the application described.
pub(super) async fn start_output(cx: &Context, dataset: Dataset, bypass: bool) -> Result<Reply, CallError> {
    if let Some(name) = &dataset.name {
        check_name(name).map_err(|problem| CallError::DatasetName { name: name.clone(), problem })?;
    }
    if !dataset.checkpoint && !dataset.output {
        return Err(CallError::NoPurpose);
    }
    checkpoint::begin(cx, dataset, bypass).await
}

/// The name of the dataset that the ranks restart from.
pub(super) fn restart_name(cx: &Context) -> Reply {
    let restart = cx.memory(|memory| memory.restart.as_ref().map(|restart| restart.checkpoint));
    Reply::Name(restart.and_then(|checkpoint| cx.dataset(checkpoint).name))
}

/// The application restarted from this dataset by itself: newer datasets are deleted, and ids continue from it.
pub(super) async fn current(cx: &Context, name: String) -> Result<Reply, CallError> {
    expect_closed(cx)?;
    let (checkpoint, directory) = find(cx, name).await?;
    if files::read_dataset(cx, &directory).await?.is_some_and(|dataset| !dataset.checkpoint) {
        return Err(CallError::NotACheckpoint(directory));
    }
    files::make_current(cx, &directory).await?;
    // Those that bypass the cache, too: the next run would restart from the newest of them.
    let mut known: BTreeSet<CheckpointId> = files::datasets_here(cx, None).await?.into_iter().collect();
    known.extend(cx.memory(|memory| memory.datasets.keys().copied().collect::<Vec<_>>()));
    for id in known.into_iter().filter(|id| *id > checkpoint) {
        end_background(cx, id).await;
        delete(cx, id).await?;
    }
    cx.memory(|memory| {
        memory.restart = None;
        memory.last = checkpoint;
        memory.complete = memory.complete.filter(|complete| *complete <= checkpoint);
    });
    Ok(Reply::Done)
}

/// Fetches the current checkpoint of the prefix directory.
pub(super) async fn load(cx: &Context) -> Result<Reply, CallError> {
    expect_closed(cx)?;
    let begun = cx.now();
    cx.ended(|_| true).await;
    clear_cache(cx, BTreeSet::new()).await?;
    let found = fetch::restart(cx, None).await.inspect_err(|error| blame::report(cx, error))?;
    Ok(restarted(cx, found, begun).await)
}

/// Removes the dataset from the index; its files stay.
pub(super) async fn drop_from_index(cx: &Context, name: String) -> Result<Reply, CallError> {
    let (_, directory) = find(cx, name).await?;
    files::withdraw(cx, &directory).await?;
    Ok(Reply::Done)
}

/// Deletes the dataset from the caches and the prefix directory. It is removed from the index first: if the leader is
/// killed in between, no restart uses the files that are left.
pub(super) async fn delete_named(cx: &Context, name: String) -> Result<Reply, CallError> {
    expect_closed(cx)?;
    let held = files::datasets_here(cx, None).await?;
    let cached = held.into_iter().rev().find(|id| match cx.dataset(*id).name {
        Some(given) => given == name,
        None => default_name(*id) == name,
    });
    if let Some(checkpoint) = cached {
        end_background(cx, checkpoint).await;
    }
    let (indexed, directory) = match find(cx, name).await {
        Ok((checkpoint, directory)) => (Some(checkpoint), Some(directory)),
        // Never flushed: there is nothing on the prefix directory.
        Err(_) if cached.is_some() => (None, None),
        Err(error) => return Err(error),
    };
    if let Some(checkpoint) = cached.or(indexed) {
        cx.ended_of(checkpoint).await;
        delete(cx, checkpoint).await?;
    }
    if let Some(directory) = directory {
        files::withdraw(cx, &directory).await?;
        files::delete_directory(cx, &directory).await?;
    }
    Ok(Reply::Done)
}

/// Ends what is made of a dataset that is to be deleted, and waits for what else concerns it.
async fn end_background(cx: &Context, checkpoint: CheckpointId) {
    cx.cancel_all(|name| [Background::Flush(checkpoint), Background::Protect(checkpoint)].contains(&name));
    cx.ended_of(checkpoint).await;
}

async fn find(cx: &Context, name: String) -> Result<(CheckpointId, DirectoryName), CallError> {
    // A dataset that is being flushed counts.
    cx.flush_ended().await;
    let found = files::find_dataset(cx, &name).await?;
    found.ok_or_else(|| CallError::UnknownDataset { prefix: cx.settings().prefix.clone(), name })
}

fn expect_closed(cx: &Context) -> Result<(), CallError> {
    match cx.memory(|memory| memory.open) {
        None => Ok(()),
        Some(open) => Err(CallError::DatasetOpen(open)),
    }
}
