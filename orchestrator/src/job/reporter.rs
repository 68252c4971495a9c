//! The event log and the screen of a step.

use std::time::SystemTime;

use holdfast_model::{NodeName, Timestamp};
use holdfast_wire::agent::{Health, KeptDirectory};

use crate::events::{Costs, EventLog, Failures, LogEvent, Screen};
use crate::relaunch::Machine;

/// What gets the events of a job besides its log and its screen. Must not wait for anything.
pub(super) type EventSink = Box<dyn FnMut(Timestamp, &LogEvent) + Send>;

/// The event log of a prefix directory, and the screen.
pub(super) struct Reporter {
    /// `None` where no file may be changed.
    pub(super) event_log: Option<EventLog>,
    pub(super) screen: Screen,
    pub(super) costs: Costs,
    failures: Failures,
    /// The percentage of the time above which blocked ranks are a warning; `None`: never.
    pub(super) share: Option<u8>,
    pub(super) sinks: Vec<EventSink>,
}

impl Reporter {
    pub(super) fn new(event_log: Option<EventLog>, screen: Screen) -> Reporter {
        Reporter {
            event_log,
            screen,
            costs: Costs::default(),
            failures: Failures::default(),
            share: None,
            sinks: Vec::new(),
        }
    }

    /// Logs and shows an event. The last one has the interval that would have been best.
    pub(super) fn emit(&mut self, mut event: LogEvent) {
        if let LogEvent::Finished { interval, .. } = &mut event {
            *interval = self.costs.cost(None).and_then(|cost| cost.interval);
        }
        let following = self.record(&event);
        self.screen.event(&event);
        following.into_iter().for_each(|event| self.emit(event));
    }

    /// Logs an event without showing it.
    pub(super) fn log(&mut self, event: &LogEvent) {
        self.record(event).into_iter().for_each(|event| self.emit(event));
    }

    /// Logs and counts an event; returns what follows from it.
    fn record(&mut self, event: &LogEvent) -> Vec<LogEvent> {
        if let Some(event_log) = &mut self.event_log {
            event_log.write(event);
        }
        let now = SystemTime::now().into();
        let advice = self.costs.add(now, event, self.share);
        self.sinks.iter_mut().for_each(|add| add(now, event));
        let explained = self.failures.add(now, event, &self.costs);
        advice.into_iter().chain(explained).collect()
    }

    /// Logs and shows what is to be known of an agent that came up: its clock, and what it found that earlier jobs left
    /// on its node.
    pub(super) fn agent_up(&mut self, node: &NodeName, clock_skew_ms: Option<i64>, health: Option<&Health>) {
        if let Some(ahead_ms) = clock_skew_ms {
            self.emit(LogEvent::ClockSkew { node: node.clone(), ahead_ms });
        }
        for KeptDirectory { path, prefix } in health.into_iter().flat_map(|health| health.kept.clone()) {
            self.emit(LogEvent::DirectoryKept { node: node.clone(), path, prefix });
        }
    }

    /// Removes the progress of a node from the live view.
    pub(super) fn clear_progress(&mut self, node: &NodeName) {
        self.screen.progress(node, &[]);
    }

    /// Updates the live view.
    pub(super) fn refresh(&mut self, machine: &Machine) {
        if self.screen.is_live {
            self.screen.show(machine.summary());
        }
    }
}
