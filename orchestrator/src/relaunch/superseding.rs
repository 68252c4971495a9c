//! The restarts whose superseded directories are not recorded yet: see `handlers::supersede`.

use holdfast_model::CheckpointId;
use serde::{Deserialize, Serialize};

/// What the application restarted from. The smaller one supersedes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct RestartedFrom {
    /// `None`: it started from the beginning.
    pub checkpoint: Option<CheckpointId>,
}

/// The restarts whose superseded directories are not recorded yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Superseding {
    /// That of the action under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<RestartedFrom>,
    /// Restarts that followed, or whose action failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<RestartedFrom>,
}

impl Superseding {
    /// Adds a restart. Returns the one to begin with, if no action is under way.
    pub(super) fn restarted(&mut self, from: RestartedFrom) -> Option<RestartedFrom> {
        self.pending = Some(self.pending.map_or(from, |pending| pending.min(from)));
        self.begin()
    }

    /// Begins with what is pending, if no action is under way.
    pub(super) fn begin(&mut self) -> Option<RestartedFrom> {
        if self.under_way.is_some() {
            return None;
        }
        self.under_way = self.pending.take();
        self.under_way
    }

    /// The action has ended. Returns the next one.
    pub(super) fn ended(&mut self, recorded: bool) -> Option<RestartedFrom> {
        let from = self.under_way.take()?;
        if recorded {
            return self.begin();
        }
        self.pending = Some(self.pending.map_or(from, |pending| pending.min(from)));
        None
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// True if all directories are recorded.
    pub(super) fn is_complete(&self) -> bool {
        *self == Superseding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGINNING: RestartedFrom = RestartedFrom { checkpoint: None };

    fn from(checkpoint: u64) -> RestartedFrom {
        RestartedFrom { checkpoint: Some(CheckpointId(checkpoint)) }
    }

    #[test]
    fn restarts_during_an_action_are_one_action_that_supersedes_all_of_them() {
        let mut superseding = Superseding::default();
        assert_eq!(superseding.restarted(from(3)), Some(from(3)));
        assert_eq!(superseding.restarted(from(5)), None);
        assert_eq!(superseding.restarted(from(4)), None);
        assert_eq!(superseding.ended(true), Some(from(4)));
        assert_eq!(superseding.ended(true), None);
        assert!(superseding.is_complete());
    }

    #[test]
    fn what_could_not_be_recorded_is_part_of_the_next_action() {
        let mut superseding = Superseding::default();
        superseding.restarted(BEGINNING);
        assert_eq!(superseding.ended(false), None);
        assert!(!superseding.is_under_way() && !superseding.is_complete());
        let text = serde_json::to_string(&superseding).unwrap();
        assert_eq!(serde_json::from_str::<Superseding>(&text).unwrap(), superseding);
        assert_eq!(superseding.restarted(from(7)), Some(BEGINNING));
    }
}
