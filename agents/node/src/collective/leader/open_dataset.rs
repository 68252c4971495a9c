//! The dataset that the ranks write: its id, the request that it answers, and the report if it is dropped.

use holdfast_model::{CheckpointId, Dataset};
use holdfast_wire::agent::AgentEvent;

use super::context::Context;
use super::request::DroppedCheckpoint;

/// Records that the ranks are about to write a dataset: a requested checkpoint is this one.
pub(super) fn mark_begun(cx: &Context, dataset: &Dataset) {
    cx.policy(|policy, now| policy.checkpoint_begins(now));
    cx.with(|state| {
        state.blocked_since = Some(state.now);
        state.requests.not_begun = None;
        if dataset.checkpoint {
            (state.requests.waiting, state.requests.dropped) = (false, None);
        }
    });
}

/// Records that the ranks go on after a dataset, and reports how long it blocked them.
pub(super) fn mark_ended(cx: &Context, checkpoint: CheckpointId) {
    cx.policy(|policy, now| policy.ranks_go_on(now));
    if let Some(since) = cx.with(|state| state.blocked_since.take()) {
        cx.emit(AgentEvent::RanksBlocked { generation: cx.generation(), checkpoint, millis: cx.millis_since(since) });
    }
}

/// Reports a dataset that could not be begun, and ends the request for it.
pub(super) fn mark_not_begun(cx: &Context, is_checkpoint: bool, reason: String) {
    let checkpoint = cx.memory(|memory| memory.open.unwrap_or_else(|| memory.last.next()));
    cx.with(|state| {
        state.requests.not_begun = Some(checkpoint);
        state.requests.waiting &= !is_checkpoint;
    });
    report_dropped(cx, checkpoint, is_checkpoint, reason, false);
}

/// Reports a dataset that is not kept; `ended` if nothing was lost with it.
pub(super) fn report_dropped(cx: &Context, checkpoint: CheckpointId, is_checkpoint: bool, reason: String, ended: bool) {
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
