//! The drain at the end of a step, in the background.

use holdfast_model::NodeName;
use tokio::task::JoinHandle;

use super::background::{Background, TaskResult};
use super::site;
use crate::drain::{self, DrainOrder, DrainReport};
use crate::events::{CommandKey, DrainResult};
use crate::spec::SiteCommand;

/// The drain, while it runs and after.
#[derive(Default)]
pub(super) struct DrainTask {
    task: Option<JoinHandle<()>>,
    report: Option<DrainReport>,
}

impl DrainTask {
    /// Runs the commands of `after:` on these nodes, then drains. Ends as [`TaskResult::Drained`].
    pub(super) fn start(
        &mut self,
        order: DrainOrder,
        after: Vec<SiteCommand>,
        nodes: Vec<NodeName>,
        context: site::CommandContext,
        background: Background,
    ) {
        self.task = Some(tokio::spawn(async move {
            let emit = |event| background.log(event);
            // A command that fails must not cost the checkpoint; its failure is an event.
            let _ = site::run_all(CommandKey::After, &after, &nodes, &context, emit).await;
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
