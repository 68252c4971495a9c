//! The channel from background tasks to the loop of a step.

use std::path::PathBuf;

use holdfast_model::{Generation, NodeName};
use tokio::sync::mpsc;

use super::running_step::RunningStep;
use crate::drain::DrainReport;
use crate::events::LogEvent;
use crate::relaunch::Event;

/// The result of a background task.
#[derive(Debug)]
pub(super) enum TaskResult {
    /// An event of the machine.
    Event(Event),
    /// An agent accepted a generation.
    Prepared {
        node: NodeName,
        generation: Generation,
        socket: PathBuf,
    },
    /// The halt conditions of the spec are in the halt files.
    HaltSet,
    /// The end of the allocation, as the resource manager reports it now; seconds since the epoch.
    AllocationEnd(Option<i64>),
    /// The ranks of a generation were launched, or are followed.
    Launched(Box<RunningStep>),
    Drained(Box<DrainReport>),
    /// An agent could not inject the fault of this number.
    FaultFailed {
        number: usize,
        reason: String,
    },
    /// A rank printed a line for which the fault of this number waits.
    LinePrinted {
        fault: usize,
    },
}

/// The sender, of which each task has a clone.
#[derive(Clone)]
pub(super) struct Background {
    results: mpsc::UnboundedSender<TaskResult>,
    /// Events that are only logged and shown.
    pub(super) events: mpsc::UnboundedSender<LogEvent>,
}

/// The receiver, which the loop has.
pub(super) struct Inbox {
    pub(super) results: mpsc::UnboundedReceiver<TaskResult>,
    pub(super) events: mpsc::UnboundedReceiver<LogEvent>,
}

impl Background {
    pub(super) fn channel() -> (Self, Inbox) {
        let (results, results_inbox) = mpsc::unbounded_channel();
        let (events, events_inbox) = mpsc::unbounded_channel();
        (Background { results, events }, Inbox { results: results_inbox, events: events_inbox })
    }

    /// Dropped if the step is over.
    pub(super) fn send(&self, result: TaskResult) {
        let _ = self.results.send(result);
    }

    pub(super) fn event(&self, event: Event) {
        self.send(TaskResult::Event(event));
    }

    pub(super) fn log(&self, event: LogEvent) {
        let _ = self.events.send(event);
    }
}
