//! How far the ranks of a generation are halted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::events::EndCause;

/// Why and how far the ranks of a generation are halted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunningHalt {
    pub cause: HaltCause,
    pub reason: String,
    pub stage: HaltStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HaltCause {
    Condition,
    Signal,
    TimeLimit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HaltStage {
    /// The ranks are to end at their next checkpoint.
    Requested { until: Duration },
    /// They got SIGTERM.
    Terminating { until: Duration },
    /// They got SIGKILL.
    Killed,
}

impl RunningHalt {
    /// True if the ranks were sent SIGTERM or SIGKILL.
    pub(super) fn is_terminated(&self) -> bool {
        !matches!(self.stage, HaltStage::Requested { .. })
    }

    pub(super) fn end_cause(&self) -> EndCause {
        match self.cause {
            HaltCause::TimeLimit => EndCause::TimeLimit,
            HaltCause::Condition | HaltCause::Signal => EndCause::Halted { reason: self.reason.clone() },
        }
    }
}
