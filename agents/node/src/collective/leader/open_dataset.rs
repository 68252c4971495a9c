//! The dataset that the ranks write: its id, the request that it answers, and the report if it is dropped.

use std::time::Duration;

use holdfast_model::{CheckpointId, Dataset};
use holdfast_wire::agent::AgentEvent;

use super::context::Context;
use super::request::DroppedCheckpoint;

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

/// The ranks are blocked by the open dataset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    since: Duration,
    /// For its redundancy.
    pub(super) redundancy: Duration,
    /// For the redundancy of the checkpoint before, which was made behind the ranks.
    pub(super) earlier_redundancy: Duration,
    /// For its flush, and for that of one that is evicted for it.
    pub(super) flush: Duration,
}

impl Blocked {
    pub(super) fn since(now: Duration) -> Blocked {
        let none = Duration::ZERO;
        Blocked { since: now, redundancy: none, earlier_redundancy: none, flush: none }
    }
}

/// Counts the time since `begun` as time in which the ranks were blocked for this.
pub(super) fn count_blocked(cx: &Context, begun: Duration, what: impl FnOnce(&mut Blocked) -> &mut Duration) {
    cx.with(|state| {
        if let Some(blocked) = &mut state.blocked {
            *what(blocked) += state.now.saturating_sub(begun);
        }
    });
}

/// Records that the ranks go on after a dataset, and reports how long it blocked them.
pub(super) fn mark_ended(cx: &Context, checkpoint: CheckpointId) {
    cx.policy(|policy, now| policy.ranks_go_on(now));
    if let Some(blocked) = cx.with(|state| state.blocked.take()) {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        cx.emit(AgentEvent::RanksBlocked {
            generation: cx.generation(),
            checkpoint,
            millis: cx.millis_since(blocked.since),
            redundancy_millis: millis(blocked.redundancy),
            earlier_redundancy_millis: millis(blocked.earlier_redundancy),
            flush_millis: millis(blocked.flush),
        });
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
