//! A program that does not use the API: its rank process (`holdfast rank`) makes the calls, and has the program write
//! its files by a command or a signal, or takes those that it writes without a request.

use std::sync::Arc;
use std::time::Duration;

use holdfast_wire::rank::Interface;
use holdfast_wire::run::{CheckpointSchedule, Settings};

use super::schedule::WaitingPolicy;
use super::source::{CheckpointSource, SourceEntry, SourcePolicy};

pub static ENTRY: SourceEntry = SourceEntry {
    name: "command",
    is_library: false,
    has_rank_processes: true,
    interface: Interface::Files,
    reports_progress: true,
    open: |settings| open(&ENTRY, settings),
};

/// Without a schedule in the settings, which the orchestrator always sends.
const DEFAULT_SCHEDULE: CheckpointSchedule = CheckpointSchedule::Every(Duration::from_secs(600));

#[derive(Debug)]
struct Command {
    entry: &'static SourceEntry,
    schedule: CheckpointSchedule,
}

/// The source of this entry, whose rank processes make the calls.
pub(super) fn open(entry: &'static SourceEntry, settings: &Settings) -> Arc<dyn CheckpointSource> {
    Arc::new(Command { entry, schedule: settings.schedule.unwrap_or(DEFAULT_SCHEDULE) })
}

impl CheckpointSource for Command {
    fn entry(&self) -> &'static SourceEntry {
        self.entry
    }

    fn policy(&self) -> Box<dyn SourcePolicy> {
        Box::new(WaitingPolicy::new(self.schedule))
    }
}
