//! The drain at the end of a step, in the background.

use tokio::task::JoinHandle;

use super::background::{Background, TaskResult};
use super::site::SiteCommands;
use crate::drain::{self, DrainOrder, DrainReport};
use crate::events::DrainResult;

/// The drain, while it runs and after.
#[derive(Default)]
pub(super) struct DrainTask {
    task: Option<JoinHandle<()>>,
    report: Option<DrainReport>,
}

impl DrainTask {
    /// Runs the commands of `after:`, then drains. Ends as [`TaskResult::Drained`].
    pub(super) fn start(&mut self, order: DrainOrder, after: Option<SiteCommands>, background: Background) {
        self.task = Some(tokio::spawn(async move {
            if let Some(after) = after {
                // A command that fails must not cost the checkpoint; its failure is an event.
                let _ = after.run(|event| background.log(event)).await;
            }
            let report = drain::drain(&order).await.unwrap_or_else(|error| DrainReport::failed(&error));
            background.send(TaskResult::Drained(Box::new(report)));
        }));
    }

    pub(super) fn finish(&mut self, report: DrainReport) {
        (self.task, self.report) = (None, Some(report));
    }

    /// Cancels a drain that is under way.
    pub(super) fn abort(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    /// Why a dataset could not be drained, if so.
    pub(super) fn failure(&self) -> Option<&str> {
        match &self.report.as_ref()?.result {
            DrainResult::Incomplete { reason, .. } | DrainResult::Failed { reason, .. } => Some(reason),
            DrainResult::Nothing | DrainResult::Complete { .. } => None,
        }
    }
}
