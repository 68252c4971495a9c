//! The halt file of the control directory: recorded reasons to end the job (`docs/scr-files.md` §8).
//!
//! Only the one on the node of rank 0 counts. A file that cannot be read may have held a reason: it is reported as a
//! condition that holds until the file is repaired or removed.

use std::path::PathBuf;
use std::sync::Arc;

use chrono::Local;
use holdfast_core::control::ControlError;
use holdfast_core::control::halt::{HaltFile, HaltReason};
use holdfast_model::{HaltChange, HaltCondition, HaltState};
use holdfast_wire::run::Settings;
use parking_lot::Mutex;

use crate::paths::Paths;

/// The time and the limits with which the halt conditions are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since the epoch.
    pub now: i64,
    /// Seconds that are left of the allocation, where that is known.
    pub remaining: Option<i64>,
    /// SCR_HALT_SECONDS, for a file without it.
    pub halt_seconds: Option<i64>,
}

impl Moment {
    /// This instant of a run with these settings.
    pub fn at(now: i64, settings: &Settings) -> Self {
        Moment {
            now,
            remaining: settings.allocation_end.map(|end| end.saturating_sub(now)),
            halt_seconds: i64::try_from(settings.halt_seconds).ok().filter(|seconds| *seconds > 0),
        }
    }
}

/// Why the halt conditions could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HaltError {
    #[error(transparent)]
    Control(#[from] ControlError),
}

#[derive(Clone, Debug)]
pub struct HaltKeeper {
    path: PathBuf,
    /// The end of the allocation, if the orchestrator has changed it since the run began; seconds since the epoch.
    end: Arc<Mutex<Option<i64>>>,
}

impl HaltKeeper {
    /// The halt file of the control directory.
    pub fn new(paths: &Paths) -> Self {
        HaltKeeper { path: paths.control().join("halt.scrinfo"), end: Arc::default() }
    }

    /// Replaces the end of the allocation in the run's settings.
    pub fn allocation_ends(&self, end: i64) {
        *self.end.lock() = Some(end);
    }

    /// This instant of a run with these settings.
    pub fn moment(&self, now: i64, settings: &Settings) -> Moment {
        let end = *self.end.lock();
        let moment = Moment::at(now, settings);
        Moment { remaining: end.map(|end| end.saturating_sub(now)).or(moment.remaining), ..moment }
    }

    /// The conditions, and the first that holds. A file that cannot be read is a condition that holds.
    pub fn state(&self, moment: &Moment) -> HaltState {
        match HaltFile::read(&self.path) {
            Ok(file) => state_of(&file.unwrap_or_default(), moment),
            Err(error) => {
                tracing::warn!(%error, "halt_file_unreadable");
                HaltState {
                    met: Some(format!("The halt file may hold a reason, but {error}.")),
                    ..HaltState::default()
                }
            }
        }
    }

    /// The conditions that hold, in the order in which SCR checks them.
    ///
    /// # Errors
    /// When the file is there and cannot be read: treat it as a reason to halt.
    pub fn reasons(&self, moment: &Moment) -> Result<Vec<HaltReason>, HaltError> {
        let file = HaltFile::read(&self.path)?.unwrap_or_default();
        Ok(file.check(moment.now, moment.remaining, moment.halt_seconds))
    }

    /// The error of a halt file that cannot be read.
    pub fn fault(&self) -> Option<String> {
        HaltFile::read(&self.path).err().map(|error| error.to_string())
    }

    /// Changes the conditions: first removes, then sets.
    ///
    /// # Errors
    /// When the file cannot be changed; it is then as it was.
    pub fn change(&self, change: &HaltChange, moment: &Moment) -> Result<HaltState, HaltError> {
        self.update(moment, |file| {
            for condition in &change.unset {
                match condition {
                    HaltCondition::Reason => file.unset_reason(),
                    HaltCondition::CheckpointsLeft => file.unset_checkpoints_left(),
                    HaltCondition::After => file.unset_exit_after(),
                    HaltCondition::Before => file.unset_exit_before(),
                    HaltCondition::Seconds => file.unset_halt_seconds(),
                };
            }
            if let Some(reason) = &change.reason {
                file.set_reason(reason);
            }
            set_numbers(file, change.checkpoints_left, change.after, change.before, change.seconds);
        })
    }

    /// Counts a good checkpoint.
    ///
    /// # Errors
    /// When the file cannot be changed.
    pub fn decrement(&self, moment: &Moment) -> Result<HaltState, HaltError> {
        self.update(moment, HaltFile::decrement)
    }

    /// Records why the job ends.
    ///
    /// # Errors
    /// When the file cannot be changed.
    pub fn set_reason(&self, reason: &str, moment: &Moment) -> Result<HaltState, HaltError> {
        self.update(moment, |file| file.set_reason(reason))
    }

    /// Replaces the conditions by those of another node.
    ///
    /// # Errors
    /// When the file cannot be changed.
    pub fn take_over(&self, state: &HaltState, moment: &Moment) -> Result<HaltState, HaltError> {
        // They come with every checkpoint, usually unchanged.
        let conditions = |state: &HaltState| HaltState { met: None, ..state.clone() };
        if let Ok(Some(file)) = HaltFile::read(&self.path) {
            let known = state_of(&file, moment);
            if conditions(&known) == conditions(state) {
                return Ok(known);
            }
        }
        self.update(moment, |file| {
            *file = HaltFile::new();
            set_numbers(file, state.checkpoints_left, state.after, state.before, state.seconds);
            if let Some(reason) = &state.reason {
                file.set_reason(reason);
            }
        })
    }

    /// Removes all conditions.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn clear(&self) -> Result<(), HaltError> {
        HaltFile::remove(&self.path)?;
        Ok(())
    }

    fn update(&self, moment: &Moment, change: impl FnOnce(&mut HaltFile)) -> Result<HaltState, HaltError> {
        Ok(HaltFile::update(&self.path, |file| {
            change(file);
            state_of(file, moment)
        })?)
    }
}

fn set_numbers(file: &mut HaltFile, left: Option<i64>, after: Option<i64>, before: Option<i64>, seconds: Option<i64>) {
    if let Some(left) = left {
        file.set_checkpoints_left(left);
    }
    if let Some(after) = after {
        file.set_exit_after(after);
    }
    if let Some(before) = before {
        file.set_exit_before(before);
    }
    if let Some(seconds) = seconds {
        file.set_halt_seconds(seconds);
    }
}

fn state_of(file: &HaltFile, moment: &Moment) -> HaltState {
    let reasons = file.check(moment.now, moment.remaining, moment.halt_seconds);
    HaltState {
        reason: file.reason().map(str::to_owned),
        checkpoints_left: file.checkpoints_left(),
        after: file.exit_after(),
        before: file.exit_before(),
        seconds: file.halt_seconds(),
        met: reasons.first().map(|reason| reason.message(&Local)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper() -> (tempfile::TempDir, HaltKeeper) {
        let directory = tempfile::tempdir().unwrap();
        let keeper = HaltKeeper { path: directory.path().join("halt.scrinfo"), end: Arc::default() };
        (directory, keeper)
    }

    fn at(now: i64) -> Moment {
        Moment { now, ..Moment::default() }
    }

    #[test]
    fn a_changed_condition_holds_from_its_time_on_and_can_be_removed() {
        let (_directory, keeper) = keeper();
        assert_eq!(keeper.state(&at(5)).met, None);
        let change = HaltChange { before: Some(1000), seconds: Some(100), ..HaltChange::default() };
        assert_eq!(keeper.change(&change, &at(899)).unwrap().met, None);
        assert!(keeper.state(&at(900)).met.unwrap().contains("(`before` minus `seconds`)"));
        let unset = HaltChange { unset: vec![HaltCondition::Before], ..HaltChange::default() };
        let state = keeper.change(&unset, &at(900)).unwrap();
        assert_eq!((state.before, state.seconds, state.met), (None, Some(100), None));
    }

    #[test]
    fn the_last_requested_checkpoint_halts() {
        let (_directory, keeper) = keeper();
        keeper.change(&HaltChange { checkpoints_left: Some(2), ..HaltChange::default() }, &at(0)).unwrap();
        assert_eq!(keeper.decrement(&at(0)).unwrap().met, None);
        assert_eq!(
            keeper.decrement(&at(0)).unwrap().met.as_deref(),
            Some("the requested number of checkpoints is reached")
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_halts_and_is_named() {
        let (_directory, keeper) = keeper();
        std::fs::write(&keeper.path, "").unwrap();
        assert!(keeper.state(&at(0)).met.unwrap().contains("halt.scrinfo"));
        assert!(keeper.reasons(&at(0)).is_err());
        assert!(keeper.decrement(&at(0)).is_err());
        assert!(keeper.fault().is_some());
    }

    #[test]
    fn another_node_s_conditions_replace_ours() {
        let (_directory, keeper) = keeper();
        keeper.change(&HaltChange { after: Some(3), ..HaltChange::default() }, &at(0)).unwrap();
        let theirs = HaltState { reason: Some("JOB_HALTED".to_owned()), seconds: Some(7), ..HaltState::default() };
        let state = keeper.take_over(&theirs, &at(10)).unwrap();
        assert_eq!(state.met.as_deref(), Some("JOB_HALTED"));
        assert_eq!((state.after, state.seconds), (None, Some(7)));
    }
}
