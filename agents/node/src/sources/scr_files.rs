//! LLNL's library writes and reads checkpoints: the agents follow what it leaves ([`crate::library`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_model::CheckpointId;
use holdfast_wire::rank::Interface;
use holdfast_wire::run::Settings;

use super::files::{FileError, PutBack, RankFiles};
use super::source::{CheckpointSource, SourceEntry, SourcePolicy};

pub static ENTRY: SourceEntry = SourceEntry {
    name: "scr-files",
    is_library: true,
    has_rank_processes: false,
    interface: Interface::Files,
    reports_progress: true,
    open,
};

#[derive(Debug)]
struct ScrFiles;

/// The library decides when a checkpoint is due.
#[derive(Debug)]
struct OfLibrary;

fn open(_: &Settings) -> Arc<dyn CheckpointSource> {
    Arc::new(ScrFiles)
}

impl SourcePolicy for OfLibrary {
    fn is_due(&mut self, _: Duration, _: bool) -> bool {
        false
    }

    fn refuses_requests(&self) -> Option<&'static str> {
        Some("the job has `checkpoint: {source: scr-files}`: LLNL's library decides when a checkpoint is due")
    }
}

impl CheckpointSource for ScrFiles {
    fn entry(&self) -> &'static SourceEntry {
        &ENTRY
    }

    fn policy(&self) -> Box<dyn SourcePolicy> {
        Box::new(OfLibrary)
    }

    fn make(&self, _: &RankFiles<'_>, _: CheckpointId, _: &str) -> Result<PathBuf, FileError> {
        Err(FileError::OtherLibrary)
    }

    fn put_back(&self, _: &RankFiles<'_>, _: CheckpointId) -> Result<PutBack, FileError> {
        Err(FileError::OtherLibrary)
    }
}
