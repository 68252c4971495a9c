//! The drain at the end of a step, in the background.

use tokio::task::JoinHandle;

use super::background::{Background, TaskResult};
use super::site::SiteCommands;
use crate::drain::{self, DrainOrder, DrainReport};
use crate::events::DrainResult;

/// When the commands of `after:` are run.
pub(super) enum AfterCommands {
    None,
    /// Before the drain: no step follows.
    Now(SiteCommands),
    /// After the drain, if its result is that no other step follows.
    IfDrainEndsJob {
        after: SiteCommands,
        /// Another step follows if this one fails.
        goes_on_after_failure: bool,
    },
}

/// The drain, while it runs and after.
#[derive(Default)]
pub(super) struct DrainTask {
    task: Option<JoinHandle<()>>,
    report: Option<DrainReport>,
}

impl DrainTask {
    /// Runs the commands of `after:`, then drains. Ends as [`TaskResult::Drained`].
    pub(super) fn start(&mut self, order: DrainOrder, after: AfterCommands, background: Background) {
        self.task = Some(tokio::spawn(async move {
            // A command that fails must not cost the checkpoint; its failure is an event.
            if let AfterCommands::Now(after) = &after {
                let _ = after.run(|event| background.log(event)).await;
            }
            let report = drain::drain(&order).await.unwrap_or_else(|error| DrainReport::failed(&error));
            if let AfterCommands::IfDrainEndsJob { after, goes_on_after_failure } = &after {
                let failed = matches!(report.result, DrainResult::Incomplete { .. } | DrainResult::Failed { .. });
                if report.retry_may_help || failed && !goes_on_after_failure {
                    let _ = after.run(|event| background.log(event)).await;
                }
            }
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
