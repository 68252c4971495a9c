//! No checkpoints: the job is relaunched from its beginning.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::{CheckpointId, Dataset};
use holdfast_wire::rank::Interface;
use holdfast_wire::run::Settings;

use super::files::{FileError, PutBack, RankFiles};
use super::source::{CheckpointSource, SourceEntry, SourcePolicy};

pub static ENTRY: SourceEntry = SourceEntry {
    name: "none",
    is_library: false,
    has_rank_processes: false,
    interface: Interface::Files,
    reports_progress: false,
    open,
};

#[derive(Debug)]
struct NoSource;

#[derive(Debug)]
struct Never;

fn open(_: &Settings) -> Arc<dyn CheckpointSource> {
    Arc::new(NoSource)
}

impl SourcePolicy for Never {
    fn is_due(&mut self, _: Duration, _: bool) -> bool {
        false
    }

    fn refuses_requests(&self) -> Option<&'static str> {
        Some("the job has `checkpoint: {source: none}`: there are no checkpoints")
    }

    fn is_progress(&self, _: &Dataset) -> bool {
        false
    }
}

impl CheckpointSource for NoSource {
    fn entry(&self) -> &'static SourceEntry {
        &ENTRY
    }

    fn policy(&self) -> Box<dyn SourcePolicy> {
        Box::new(Never)
    }

    fn make(&self, _: &RankFiles<'_>, _: CheckpointId, _: &str) -> Result<PathBuf, FileError> {
        Err(FileError::NoSource)
    }

    fn put_back(&self, _: &RankFiles<'_>, _: CheckpointId) -> Result<PutBack, FileError> {
        Err(FileError::NoSource)
    }
}
