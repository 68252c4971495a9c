//! A program that does not use the API: its rank process (`holdfast rank`) makes the calls, and has the program write
//! its files by a command or a signal, or takes those that it writes without a request.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::CheckpointId;
use holdfast_wire::run::{CheckpointSchedule, Settings};

use super::files::{FileError, RankFiles};
use super::schedule::WaitingPolicy;
use super::{CheckpointSource, PutBack, SourceEntry, SourcePolicy};

pub const ENTRY: SourceEntry = SourceEntry { name: "command", reports_progress: true, open };

/// Without a schedule in the settings, which the orchestrator always sends.
const USUAL: CheckpointSchedule = CheckpointSchedule::Every(Duration::from_secs(600));

#[derive(Debug)]
struct Command {
    schedule: CheckpointSchedule,
}

pub(super) fn open(settings: &Settings) -> Arc<dyn CheckpointSource> {
    Arc::new(Command { schedule: settings.schedule.unwrap_or(USUAL) })
}

impl CheckpointSource for Command {
    fn has_rank_processes(&self) -> bool {
        true
    }

    fn policy(&self) -> Box<dyn SourcePolicy> {
        Box::new(WaitingPolicy::new(self.schedule))
    }

    fn make(&self, files: &RankFiles<'_>, checkpoint: CheckpointId, name: &str) -> Result<PathBuf, FileError> {
        files.add(checkpoint, name)
    }

    fn put_back(&self, files: &RankFiles<'_>, checkpoint: CheckpointId) -> Result<PutBack, FileError> {
        files.written(checkpoint)
    }
}
