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

impl HaltState {
    /// The conditions of a node that receives those of the leader's node, `leader`. `before` are those that it received
    /// last. A condition that was changed here since then, and not at the leader's node, is kept: a user has set or
    /// removed it, and the leader's node was not reached, or the message was under way already. Without `met`.
    #[must_use]
    pub fn updated(&self, before: &HaltState, leader: &HaltState) -> HaltState {
        fn one<T: Clone + PartialEq>(own: &T, before: &T, leader: &T) -> T {
            if leader == before { own.clone() } else { leader.clone() }
        }
        HaltState {
            reason: one(&self.reason, &before.reason, &leader.reason),
            checkpoints_left: one(&self.checkpoints_left, &before.checkpoints_left, &leader.checkpoints_left),
            after: one(&self.after, &before.after, &leader.after),
            before: one(&self.before, &before.before, &leader.before),
            seconds: one(&self.seconds, &before.seconds, &leader.seconds),
            met: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(reason: Option<&str>) -> HaltState {
        HaltState { reason: reason.map(str::to_owned), ..HaltState::default() }
    }

    #[test]
    fn a_condition_that_the_leader_has_not_received_is_neither_lost_nor_restored() {
        let (none, set) = (reason(None), reason(Some("MAINTENANCE")));
        assert_eq!(set.updated(&none, &none), set, "set here, and the leader's message was under way");
        assert_eq!(none.updated(&set, &set), none, "removed here, and the leader's message was under way");
    }

    #[test]
    fn changes_at_the_leader_are_taken_over() {
        let (none, set) = (reason(None), reason(Some("MAINTENANCE")));
        assert_eq!(none.updated(&none, &set), set);
        assert_eq!(set.updated(&set, &none), none);
        assert_eq!(set.updated(&none, &reason(Some("OTHER"))), reason(Some("OTHER")), "changed at both");
    }

    #[test]
    fn each_condition_is_compared_on_its_own() {
        let before = HaltState { checkpoints_left: Some(3), ..HaltState::default() };
        let own = HaltState { after: Some(5), ..before.clone() };
        let leader = HaltState { checkpoints_left: Some(2), ..HaltState::default() };
        assert_eq!(own.updated(&before, &leader), HaltState { after: Some(5), ..leader });
    }
}
