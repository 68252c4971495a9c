//! Deleting datasets in cache, on every node.

use std::collections::BTreeSet;

use holdfast_model::{CheckpointId, Failure};
use holdfast_wire::agent::AgentEvent;
use holdfast_wire::peer::Order;

use super::background::Background;
use super::context::Context;
use super::unfinished;
use crate::collective::error::CallError;

pub(super) async fn delete(cx: &Context, checkpoint: CheckpointId) -> Result<(), CallError> {
    end_protection(cx, |id| id == checkpoint).await;
    let order = Order::Delete { checkpoints: vec![checkpoint], all_but: None };
    cx.order(cx.all_nodes(&order)).await?;
    cx.memory(|memory| {
        memory.datasets.remove(&checkpoint);
        memory.forget(|id| id == checkpoint);
    });
    unfinished::abandon(cx, checkpoint).await;
    Ok(())
}

/// Cancels what makes the redundancy of checkpoints that are to be deleted, and waits for its end.
async fn end_protection(cx: &Context, deleted: impl Fn(CheckpointId) -> bool) {
    let is_deleted = |name| matches!(name, Background::Protect(checkpoint) if deleted(checkpoint));
    cx.cancel_all(is_deleted);
    cx.ended(is_deleted).await;
}

/// Deletes everything in cache but these checkpoints.
pub(super) async fn clear_cache(cx: &Context, all_but: BTreeSet<CheckpointId>) -> Result<(), CallError> {
    end_protection(cx, |id| !all_but.contains(&id)).await;
    let order = Order::Delete { checkpoints: Vec::new(), all_but: Some(all_but.clone()) };
    cx.order(cx.all_nodes(&order)).await?;
    cx.memory(|memory| memory.forget(|id| !all_but.contains(&id)));
    for checkpoint in cx.unfinished_flushes().into_keys().filter(|id| !all_but.contains(id)) {
        unfinished::abandon(cx, checkpoint).await;
    }
    Ok(())
}

/// Deletes output that is on the prefix directory from the caches: it is needed there only. Not before the results of
/// the collective that requested it are on disk: a restarted leader repeats the collective, and needs the dataset
/// unchanged.
pub(super) async fn discard_output(cx: Context, checkpoint: CheckpointId, collective: u64) {
    cx.results_saved(collective).await;
    if let Err(error) = delete(&cx, checkpoint).await {
        let reason = Failure::from(error);
        cx.emit(AgentEvent::Notice {
            message: format!("dataset {checkpoint} stays in cache after its flush: {reason}"),
        });
    }
}
