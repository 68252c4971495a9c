//! Datasets with a name, and output: what SCR 3 added to SCR 1.
//!
//! What the application declared of a dataset is recorded by the leader, by every node (spares too, so that the record
//! survives the loss of any node) and, when the dataset is there, in its directory on the prefix.

use std::collections::BTreeSet;

use holdfast_core::prefix::DirectoryName;
use holdfast_core::redundancy::inventory::candidates;
use holdfast_core::redundancy::plan::plan;
use holdfast_model::dataset::{check_name, default_name};
use holdfast_model::{CheckpointId, Dataset, FlushMode};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;
use holdfast_wire::rank::Reply;

use super::collective::{clear_cache, delete};
use super::context::Context;
use super::restart::{Inventories, note_in_cache, restarted};
use super::{blame, checkpoint, fetch, files, flush, rebuild};
use crate::collective::CallError;

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

/// Records on every node what a dataset is, before there are files of it.
pub(super) async fn describe(cx: &Context, checkpoint: CheckpointId, dataset: Dataset) -> Result<(), CallError> {
    if dataset.is_plain() && cx.dataset(checkpoint).is_plain() {
        return Ok(());
    }
    cx.order(cx.all_nodes(&Order::Describe { checkpoint, dataset: dataset.clone() })).await?;
    cx.memory(|memory| memory.datasets.insert(checkpoint, dataset));
    Ok(())
}

/// Output that an earlier run did not flush: it is rebuilt and flushed now. Output that cannot be saved is reported and
/// never keeps the run from starting. Returns whether the inventories have changed.
pub(super) async fn rescue_output(cx: &Context, held: &Inventories) -> Result<bool, CallError> {
    let mut changed = false;
    for checkpoint in candidates(held.iter().map(|(_, held)| held)).into_iter().rev() {
        let dataset = cx.dataset(checkpoint);
        if !dataset.output {
            continue;
        }
        changed = true;
        let flushed = note_in_cache(cx, checkpoint, held).await?;
        let saved = if flushed { Ok(()) } else { rescue(cx, checkpoint, held).await? };
        if let Err(reason) = saved {
            let name = dataset.name.clone().unwrap_or_else(|| default_name(checkpoint));
            cx.emit(AgentEvent::Notice { message: format!("the output {name} is lost: {reason}") });
        }
        if !dataset.checkpoint {
            delete(cx, checkpoint).await?;
        }
    }
    Ok(changed)
}

/// Returns why the output is lost, if it is. What prevents the restart for another reason is an error.
async fn rescue(cx: &Context, checkpoint: CheckpointId, held: &Inventories) -> Result<Result<(), String>, CallError> {
    let plan = match plan(checkpoint, &cx.layout().sites, held) {
        Ok(plan) => plan,
        Err(unusable) => return Ok(Err(unusable.to_string())),
    };
    if let Err(error) = rebuild::carry_out(cx, plan).await {
        return Ok(Err(blame::reason_of(cx, error)?));
    }
    flush::flush(cx, checkpoint, FlushMode::Sync).await;
    Ok(Ok(()))
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
    // The link must lead to a dataset that the next run can restart from.
    if !files::is_usable(cx, &directory).await? {
        return Err(CallError::Incomplete(directory));
    }
    files::make_current(cx, &directory).await?;
    // Those that bypass the cache, too: the next run would restart from the newest of them.
    let mut known: BTreeSet<CheckpointId> = files::datasets_here(cx, None).await?.into_iter().collect();
    known.extend(cx.memory(|memory| memory.datasets.keys().copied().collect::<Vec<_>>()));
    for id in known.into_iter().filter(|id| *id > checkpoint) {
        cx.flush_ended_of(id).await;
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
    cx.flush_ended().await;
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
    let (indexed, directory) = match find(cx, name).await {
        Ok((checkpoint, directory)) => (Some(checkpoint), Some(directory)),
        // Never flushed: there is nothing on the prefix directory.
        Err(_) if cached.is_some() => (None, None),
        Err(error) => return Err(error),
    };
    if let Some(checkpoint) = cached.or(indexed) {
        cx.flush_ended_of(checkpoint).await;
        delete(cx, checkpoint).await?;
    }
    if let Some(directory) = directory {
        files::withdraw(cx, &directory).await?;
        files::delete_directory(cx, &directory).await?;
    }
    Ok(Reply::Done)
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
