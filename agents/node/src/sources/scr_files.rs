//! LLNL's library writes and reads checkpoints: the agents follow what it leaves ([`crate::library`]).

use std::time::Duration;

use holdfast_wire::rank::Interface;

use super::files::FileError;
use super::source::{SourceEntry, SourcePolicy};

pub static ENTRY: SourceEntry = SourceEntry {
    name: "scr-files",
    is_library: true,
    has_rank_processes: false,
    interface: Interface::Files,
    reports_progress: true,
    refuses_calls: Some(|| FileError::OtherLibrary),
    policy: |_| Box::new(OfLibrary),
};

/// The library decides when a checkpoint is due.
#[derive(Debug)]
struct OfLibrary;

impl SourcePolicy for OfLibrary {
    fn restarts_ranks(&self) -> bool {
        false
    }

    fn is_due(&mut self, _: Duration, _: bool) -> bool {
        false
    }

    fn refuses_requests(&self) -> Option<&'static str> {
        Some("the job has `checkpoint: {source: scr-files}`: LLNL's library decides when a checkpoint is due")
    }
}
