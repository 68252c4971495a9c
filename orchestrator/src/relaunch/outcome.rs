//! The end of the loop, and its exit code.

use std::fmt;

use holdfast_model::{CheckpointId, Generation, Unplaced};
use serde::{Deserialize, Serialize};

use crate::events::{DrainResult, EndCause, StopReason, TimedReason};
use crate::exit;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why the loop stopped, and when.
    pub stop: TimedReason<StopReason>,
    /// The result of the drain; `None` if a second signal cancelled it, or if no node was left to drain.
    pub drain: Option<DrainResult>,
    pub generation: Generation,
    /// Generations that were launched.
    pub launches: u32,
    /// The newest checkpoint that was complete in cache.
    pub newest: Option<CheckpointId>,
    /// No rank called the checkpoint API, although the source of the checkpoints is its calls.
    #[serde(default)]
    pub unprotected: bool,
    /// Set if the application wrote datasets and every one of them was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DroppedDatasets>,
    /// The complete outputs of the job with files that are not at their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<Unplaced>,
}

/// The datasets of a run of which none was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("no dataset was kept: all that the application wrote ({count}) were dropped, {last} because {reason}")]
pub struct DroppedDatasets {
    pub count: u64,
    pub last: CheckpointId,
    /// Why the last one was dropped.
    pub reason: String,
}

/// What became of the datasets of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DatasetTally {
    /// One was complete in cache, or was flushed.
    kept: bool,
    /// Those that were dropped, if none was kept.
    pub dropped: Option<DroppedDatasets>,
}

impl DatasetTally {
    pub(super) fn kept(&mut self) {
        *self = DatasetTally { kept: true, dropped: None };
    }

    pub(super) fn dropped(&mut self, last: CheckpointId, reason: String) {
        if !self.kept {
            let count = self.dropped.as_ref().map_or(0, |dropped| dropped.count).saturating_add(1);
            self.dropped = Some(DroppedDatasets { count, last, reason });
        }
    }
}

impl Outcome {
    /// The exit code of `holdfast run`: see [`crate::exit`].
    ///
    /// A dataset that could not be drained turns [`exit::FINISHED`] and [`exit::NOT_FINISHED`] into
    /// [`exit::DAMAGED_DATA`], or into [`exit::CANNOT_WRITE`] if another drain can save it, so that a chain of batch
    /// jobs stops and the user can act. A job that is not finished goes on if an older checkpoint can be used. A
    /// finished application of which no dataset was kept also ends with [`exit::DAMAGED_DATA`]: output is lost, or it
    /// ran without protection. One of which files of an output could not be put at their paths ends with
    /// [`exit::CANNOT_WRITE`]: nothing is lost, and the user decides what becomes of what is there.
    pub fn exit_code(&self) -> u8 {
        let code = match &self.stop.reason {
            StopReason::Finished => exit::FINISHED,
            StopReason::Halted { .. }
            | StopReason::Signal { .. }
            | StopReason::TimeLimit
            | StopReason::TooFewNodes { .. }
            | StopReason::AllocationLost { .. }
            | StopReason::OwnNodeDown { .. } => exit::NOT_FINISHED,
            StopReason::AttemptsUsed { last, .. } => match last {
                // Both would most likely happen again in the next allocation.
                EndCause::Application { .. } | EndCause::Hang { .. } => exit::APPLICATION_ERROR,
                EndCause::LaunchFailed { .. } => exit::UNAVAILABLE,
                _ => exit::NOT_FINISHED,
            },
            StopReason::NoProgress { last: EndCause::LaunchFailed { .. }, .. } => exit::UNAVAILABLE,
            StopReason::NoProgress { .. } => exit::NO_PROGRESS,
            StopReason::ApplicationError { .. } | StopReason::FailedAfterFinalize { .. } => exit::APPLICATION_ERROR,
            StopReason::NoAgents { .. }
            | StopReason::CannotBegin { .. }
            | StopReason::Incurable { .. }
            | StopReason::CannotRestart { .. }
            | StopReason::BeforeFailed { .. } => exit::UNAVAILABLE,
        };
        let lost = matches!(self.drain, Some(DrainResult::Incomplete { .. } | DrainResult::Failed { .. }));
        let continues = matches!(self.drain, Some(DrainResult::Incomplete { older: Some(_), .. }));
        let unwritable = self.drain.as_ref().is_some_and(DrainResult::is_unwritable);
        match code {
            exit::FINISHED | exit::NOT_FINISHED if unwritable => exit::CANNOT_WRITE,
            exit::NOT_FINISHED if continues => exit::NOT_FINISHED,
            exit::FINISHED | exit::NOT_FINISHED if lost => exit::DAMAGED_DATA,
            exit::FINISHED if self.dropped.is_some() => exit::DAMAGED_DATA,
            exit::FINISHED if !self.unplaced.is_empty() => exit::CANNOT_WRITE,
            code => code,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stop.reason.fmt(f)?;
        if self.unprotected {
            f.write_str("; nothing was protected: no rank called the checkpoint API")?;
        }
        if let Some(dropped) = &self.dropped {
            write!(f, "; {dropped}")?;
        }
        match &self.drain {
            None => Ok(()),
            Some(DrainResult::Nothing) => f.write_str("; nothing to drain"),
            Some(DrainResult::Complete { checkpoint }) => {
                write!(f, "; checkpoint {checkpoint} is complete in the prefix directory")
            }
            Some(DrainResult::Incomplete { checkpoint, reason, older, .. }) => {
                write!(f, "; checkpoint {checkpoint} could not be completed in the prefix directory: {reason}")?;
                older.map_or(Ok(()), |older| write!(f, "; checkpoint {older} is complete there"))
            }
            Some(DrainResult::Failed { reason, .. }) => write!(f, "; the drain failed: {reason}"),
        }?;
        if self.drain.as_ref().is_some_and(DrainResult::is_unwritable) {
            write!(f, "; {}", DrainResult::MEND)?;
        }
        match self.unplaced.as_slice() {
            [] => Ok(()),
            [one] => write!(f, "; {one}"),
            [first, more @ ..] => write!(f, "; {first} (and so for {} more outputs: `holdfast status`)", more.len()),
        }
    }
}
