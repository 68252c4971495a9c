//! What the nodes record of a dataset: what it is, and where.

use holdfast_model::{CheckpointId, Dataset, Locations};
use holdfast_wire::peer::Order;

use super::context::Context;
use super::inventories::Inventories;
use crate::collective::error::Result;

/// Records on every node what a dataset is, before there are files of it.
pub(super) async fn describe(cx: &Context, checkpoint: CheckpointId, dataset: Dataset) -> Result<()> {
    if dataset.is_plain() && cx.dataset(checkpoint).is_plain() {
        return Ok(());
    }
    cx.order(cx.all_nodes(&Order::Describe { checkpoint, dataset: dataset.clone() })).await?;
    cx.memory(|memory| memory.datasets.insert(checkpoint, dataset));
    Ok(())
}

/// Records in the flush files that a dataset is in cache, and on the prefix directory if any node's flush file lists it
/// there; returns whether one does.
pub(super) async fn note_in_cache(cx: &Context, checkpoint: CheckpointId, held: &Inventories) -> Result<bool> {
    let pfs = held.iter().any(|(_, held)| held.flush.get(&checkpoint).is_some_and(|at| at.pfs));
    note(cx, checkpoint, Locations { cache: true, pfs, flushing: false }).await?;
    Ok(pfs)
}

/// Records in the flush files of the nodes with ranks where a dataset is.
pub(super) async fn note(cx: &Context, checkpoint: CheckpointId, locations: Locations) -> Result<()> {
    cx.order(cx.nodes_with_ranks(&Order::Note { checkpoint, locations })).await.map(drop)
}
