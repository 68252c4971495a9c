//! Halt conditions: recorded reasons not to start or continue a run (SCR manual §9.3).

use serde::{Deserialize, Serialize};

/// The conditions of a halt file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HaltCondition {
    /// `ExitReason`: halt now.
    Reason,
    /// `CheckpointsLeft`: halt after so many more checkpoints.
    CheckpointsLeft,
    /// `ExitAfter`: halt after this time.
    After,
    /// `ExitBefore`: halt before this time.
    Before,
    /// `HaltSeconds`: halt when less than this is left of the allocation.
    Seconds,
}

impl HaltCondition {
    pub const ALL: [HaltCondition; 5] = [
        HaltCondition::Reason,
        HaltCondition::CheckpointsLeft,
        HaltCondition::After,
        HaltCondition::Before,
        HaltCondition::Seconds,
    ];

    /// Its name in SCR's halt file.
    pub fn as_str(self) -> &'static str {
        match self {
            HaltCondition::Reason => "ExitReason",
            HaltCondition::CheckpointsLeft => "CheckpointsLeft",
            HaltCondition::After => "ExitAfter",
            HaltCondition::Before => "ExitBefore",
            HaltCondition::Seconds => "HaltSeconds",
        }
    }
}

/// Changes halt conditions; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltChange {
    /// `ExitReason`: halt now.
    pub reason: Option<String>,
    /// `CheckpointsLeft`.
    pub checkpoints_left: Option<i64>,
    /// `ExitAfter`, seconds since the epoch.
    pub after: Option<i64>,
    /// `ExitBefore`, seconds since the epoch.
    pub before: Option<i64>,
    /// `HaltSeconds`.
    pub seconds: Option<i64>,
    /// With a reason: the ranks are killed at once, instead of ending at their next checkpoint.
    #[serde(default)]
    pub immediate: bool,
    /// Conditions to remove first.
    pub unset: Vec<HaltCondition>,
}

/// The halt file, and what follows from it now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltState {
    /// `ExitReason`.
    pub reason: Option<String>,
    /// `CheckpointsLeft`.
    pub checkpoints_left: Option<i64>,
    /// `ExitAfter`, seconds since the epoch.
    pub after: Option<i64>,
    /// `ExitBefore`, seconds since the epoch.
    pub before: Option<i64>,
    /// `HaltSeconds`.
    pub seconds: Option<i64>,
    /// The first condition that holds now, worded as `scr_retries_halt` does.
    pub met: Option<String>,
}
