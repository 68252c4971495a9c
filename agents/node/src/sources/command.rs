//! A program that does not use the API: its rank process (`holdfast rank`) makes the calls, and has the program write
//! its files by a command or a signal, or takes those that it writes without a request.

use std::sync::Arc;
use std::time::Duration;

use holdfast_wire::run::{CheckpointSchedule, Settings};

use super::schedule::WaitingPolicy;
use super::{CheckpointSource, SourceEntry, SourcePolicy};

pub const ENTRY: SourceEntry = SourceEntry { name: "command", reports_progress: true, open };

/// Without a schedule in the settings, which the orchestrator always sends.
const DEFAULT_SCHEDULE: CheckpointSchedule = CheckpointSchedule::Every(Duration::from_secs(600));

#[derive(Debug)]
struct Command {
    schedule: CheckpointSchedule,
}

pub(super) fn open(settings: &Settings) -> Arc<dyn CheckpointSource> {
    Arc::new(Command { schedule: settings.schedule.unwrap_or(DEFAULT_SCHEDULE) })
}

impl CheckpointSource for Command {
    fn has_rank_processes(&self) -> bool {
        true
    }

    fn policy(&self) -> Box<dyn SourcePolicy> {
        Box::new(WaitingPolicy::new(self.schedule))
    }
}
