//! The directories that a restart supersedes. They are recorded before a drain begins: it must not complete a directory
//! that has files of an earlier dataset with the same number.
//!
//! One action is under way at a time, because each reads and replaces the same record. What could not be recorded is
//! tried again with the next restart and before the drain. A drain that begins without the record writes to a new
//! directory.

use holdfast_model::CheckpointId;

use crate::events::LogEvent;
use crate::relaunch::action::Action;
use crate::relaunch::machine::Machine;
use crate::relaunch::superseding::RestartedFrom;

impl Machine {
    /// The ranks restarted: directories of newer datasets are superseded.
    pub(super) fn supersede(&mut self, checkpoint: Option<CheckpointId>, out: &mut Vec<Action>) {
        out.extend(self.state.head.superseding.restarted(RestartedFrom { checkpoint }).map(action));
    }

    /// Tries once more to record what could not be recorded, before the drain.
    pub(super) fn retry_supersede(&mut self, out: &mut Vec<Action>) {
        out.extend(self.state.head.superseding.begin().map(action));
    }

    /// The action was under way when an earlier orchestrator died.
    pub(super) fn repeat_supersede(&self, out: &mut Vec<Action>) {
        out.extend(self.state.head.superseding.under_way.map(action));
    }

    pub(super) fn superseded(
        &mut self,
        checkpoint: Option<CheckpointId>,
        failure: Option<String>,
        out: &mut Vec<Action>,
    ) {
        // A repeated one that an earlier orchestrator began as well.
        if self.state.head.superseding.under_way != Some(RestartedFrom { checkpoint }) {
            return;
        }
        let next = self.state.head.superseding.ended(failure.is_none());
        if let Some(reason) = failure {
            self.record(LogEvent::SupersededNotRecorded { checkpoint, reason }, out);
        }
        out.extend(next.map(action));
    }
}

fn action(restarted: RestartedFrom) -> Action {
    Action::Supersede { from: restarted.checkpoint }
}
