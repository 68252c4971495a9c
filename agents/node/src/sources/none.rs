//! No checkpoints: the job is relaunched from its beginning.

use std::time::Duration;

use holdfast_model::Dataset;
use holdfast_wire::rank::Interface;

use super::files::FileError;
use super::source::{SourceEntry, SourcePolicy};

pub static ENTRY: SourceEntry = SourceEntry {
    name: "none",
    is_library: false,
    has_rank_processes: false,
    interface: Interface::Files,
    reports_progress: false,
    refuses_calls: Some(|| FileError::NoSource),
    policy: |_| Box::new(Never),
};

#[derive(Debug)]
struct Never;

impl SourcePolicy for Never {
    fn restarts_ranks(&self) -> bool {
        false
    }

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
