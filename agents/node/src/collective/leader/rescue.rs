//! Output that an earlier run left in the caches.

use holdfast_core::redundancy::inventory::candidates;
use holdfast_core::redundancy::plan::plan;
use holdfast_model::dataset::default_name;
use holdfast_model::{CheckpointId, FlushMode};
use holdfast_wire::agent::AgentEvent;

use super::context::Context;
use super::deletion::delete;
use super::inventories::Inventories;
use super::records::note_in_cache;
use super::{blame, flush, rebuild};
use crate::collective::error::CallError;

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
    if let Err(error) = rebuild::carry_out(cx, plan, false).await {
        return Ok(Err(blame::reason_of(cx, error)?));
    }
    flush::flush(cx, checkpoint, FlushMode::Sync).await;
    Ok(Ok(()))
}
