//! A program that does not use the API: its rank process (`holdfast rank`) makes the calls, and has the program write
//! its files by a command or a signal, or takes those that it writes without a request.

use holdfast_wire::rank::Interface;
use holdfast_wire::run::{CheckpointSchedule, Settings};

use super::schedule::WaitingPolicy;
use super::source::{SourceEntry, SourcePolicy};

pub static ENTRY: SourceEntry = SourceEntry {
    name: "command",
    is_library: false,
    has_rank_processes: true,
    interface: Interface::Files,
    reports_progress: true,
    refuses_calls: None,
    policy,
};

/// Without a schedule in the settings, which the orchestrator always sends.
const DEFAULT_SCHEDULE: CheckpointSchedule = CheckpointSchedule::Share(5);

/// The policy of a source whose rank processes make the calls.
pub(super) fn policy(settings: &Settings) -> Box<dyn SourcePolicy> {
    Box::new(WaitingPolicy::new(settings.schedule.unwrap_or(DEFAULT_SCHEDULE), settings.mtbf))
}
