//! The signs of a failure among the events of a job, and their ends.

use holdfast_model::Timestamp;
use holdfast_wire::agent::AgentEvent;

use super::vocabulary::LogEvent;

/// What an event says about a failure of the present generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureSign {
    /// It may have failed since then.
    Since(Timestamp),
    /// What seemed to be a failure was none.
    Dismissed,
}

impl FailureSign {
    /// `time`: that of the event. `None` for events that say nothing about it.
    pub fn of(time: Timestamp, event: &LogEvent) -> Option<FailureSign> {
        match event {
            LogEvent::AgentSilent { millis, .. } => {
                Some(FailureSign::Since(Timestamp::from_millis(time.millis().saturating_sub_unsigned(*millis))))
            }
            LogEvent::AgentLost { .. }
            | LogEvent::NodeDown { .. }
            | LogEvent::RankFailed { .. }
            | LogEvent::HangSuspected { .. } => Some(FailureSign::Since(time)),
            LogEvent::AgentAnswers { .. } | LogEvent::HangDismissed { .. } => Some(FailureSign::Dismissed),
            LogEvent::Agent(report) => match &report.event {
                AgentEvent::CheckpointComplete { .. } => Some(FailureSign::Dismissed),
                _ => None,
            },
            _ => None,
        }
    }
}
