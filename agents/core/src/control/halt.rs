//! The halt file: recorded reasons not to start or continue a run (`docs/scr-files.md` §8).
//!
//! Only the file on the node of world rank 0 is read. It is changed under its lock by the commands that request a halt,
//! and by the run itself after every checkpoint.

use std::path::Path;

use chrono::{DateTime, TimeZone};
use holdfast_model::HaltCondition;

use super::{ContentError, ControlError, in_file, parse};
use crate::durable;
use crate::kvtree::Tree;
use crate::kvtree::file::HashFileError;
use crate::kvtree::lock::{LockedFile, read_shared};

/// The reasons that the original records.
pub mod reason {
    /// The application called finalize: the simulation is finished.
    pub const FINALIZE_CALLED: &str = "SCR_FINALIZE_CALLED";
    /// Too little of the allocation's time is left.
    pub const TIME_LIMIT: &str = "TIME_LIMIT";
    /// The requested number of checkpoints was taken.
    pub const NO_CHECKPOINTS_LEFT: &str = "NO_CHECKPOINTS_LEFT";
    /// The time before which to end has come.
    pub const EXIT_BEFORE_TIME: &str = "EXIT_BEFORE_TIME";
    /// The time after which to end has come.
    pub const EXIT_AFTER_TIME: &str = "EXIT_AFTER_TIME";
    /// A user halted the job.
    pub const JOB_HALTED: &str = "JOB_HALTED";
}

/// The conditions under which to halt; times in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HaltFile {
    tree: Tree,
}

/// A condition that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HaltReason {
    /// The allocation has no more than HaltSeconds left.
    TimeLimit {
        /// What is left, in seconds.
        remaining: i64,
        halt_seconds: i64,
    },
    /// A reason is recorded in the file.
    Recorded(String),
    /// CheckpointsLeft is 0.
    NoCheckpointsLeft,
    /// Now is not before ExitBefore less HaltSeconds.
    ExitBefore {
        /// ExitBefore less HaltSeconds.
        time: i64,
    },
    /// Now is ExitAfter or later.
    ExitAfter { time: i64 },
}

impl HaltReason {
    /// What is recorded in the file when this condition ends a run.
    pub fn as_str(&self) -> &str {
        match self {
            HaltReason::TimeLimit { .. } => reason::TIME_LIMIT,
            HaltReason::Recorded(reason) => reason,
            HaltReason::NoCheckpointsLeft => reason::NO_CHECKPOINTS_LEFT,
            HaltReason::ExitBefore { .. } => reason::EXIT_BEFORE_TIME,
            HaltReason::ExitAfter { .. } => reason::EXIT_AFTER_TIME,
        }
    }

    /// True if the simulation is finished, so that another allocation has nothing to do.
    pub fn is_finished(&self) -> bool {
        matches!(self, HaltReason::Recorded(recorded) if recorded == reason::FINALIZE_CALLED)
    }

    /// The condition in the terms of `holdfast halt`, for messages; a recorded reason as it is.
    pub fn message<Z: TimeZone>(&self, zone: &Z) -> String
    where
        Z::Offset: std::fmt::Display,
    {
        match self {
            HaltReason::TimeLimit { remaining, halt_seconds } => {
                format!("the allocation ends in {remaining} s, and halts {halt_seconds} s before its end")
            }
            HaltReason::Recorded(reason) => reason.clone(),
            HaltReason::NoCheckpointsLeft => "the requested number of checkpoints is reached".to_owned(),
            HaltReason::ExitBefore { time } => {
                format!("the time {} is reached (`before` minus `seconds`)", local_time(*time, zone))
            }
            HaltReason::ExitAfter { time } => format!("the time {} is reached (`after`)", local_time(*time, zone)),
        }
    }
}

/// A time as C's `asctime` and `scr_halt` write it; a time out of the calendar's range is written as a number.
pub fn local_time<Z: TimeZone>(seconds: i64, zone: &Z) -> String
where
    Z::Offset: std::fmt::Display,
{
    match DateTime::from_timestamp(seconds, 0) {
        Some(time) => time.with_timezone(zone).format("%a %b %e %H:%M:%S %Y").to_string(),
        None => seconds.to_string(),
    }
}

impl HaltFile {
    pub fn new() -> Self {
        HaltFile::default()
    }

    /// Makes a halt file of a tree after checking its numbers. Unknown keys are kept.
    ///
    /// # Errors
    /// A condition that is not a number: whether to halt is then undecidable.
    pub fn from_tree(tree: Tree) -> Result<HaltFile, ContentError> {
        for key in HaltCondition::ALL.into_iter().filter(|it| *it != HaltCondition::Reason).map(HaltCondition::as_str) {
            if let Some(value) = tree.value(key) {
                parse::<i64>(key, value, "a number")?;
            }
        }
        Ok(HaltFile { tree })
    }

    /// The tree, as it would be written.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Reads a halt file under a shared lock; `None` when there is none, which means: go on.
    ///
    /// # Errors
    /// When there is one that cannot be read. SCR takes that as "continue", against the user's request; a damaged
    /// file may have contained a reason to halt.
    pub fn read(path: &Path) -> Result<Option<HaltFile>, ControlError> {
        read_shared(path)?.map(|tree| in_file(path, HaltFile::from_tree(tree))).transpose()
    }

    /// Changes a halt file under its lock, making it if it is not there, and returns what `change` returned.
    ///
    /// # Errors
    /// When it cannot be locked, read or written; it is then as it was.
    pub fn update<R>(path: &Path, change: impl FnOnce(&mut HaltFile) -> R) -> Result<R, ControlError> {
        let (locked, tree) = LockedFile::open(path)?;
        let mut halt = in_file(path, HaltFile::from_tree(tree))?;
        let result = change(&mut halt);
        locked.write(&halt.tree)?;
        Ok(result)
    }

    /// Removes a halt file (`scr_halt --remove`) and returns whether there was one.
    pub fn remove(path: &Path) -> Result<bool, ControlError> {
        Ok(durable::remove_unsynced(path).map_err(HashFileError::from)?)
    }

    /// The conditions that hold, in the order in which the library checks them; the first is the one to record.
    ///
    /// `now` is in seconds since 1970; `seconds_remaining` is what is left of the allocation, where that is known;
    /// `default_halt_seconds` (`SCR_HALT_SECONDS`) applies to a file without HaltSeconds.
    pub fn check(
        &self,
        now: i64,
        seconds_remaining: Option<i64>,
        default_halt_seconds: Option<i64>,
    ) -> Vec<HaltReason> {
        let mut reasons = Vec::new();
        let halt_seconds = self.number(HaltCondition::Seconds).or(default_halt_seconds);
        if let (Some(remaining), Some(halt_seconds)) = (seconds_remaining, halt_seconds)
            && remaining <= halt_seconds
        {
            reasons.push(HaltReason::TimeLimit { remaining, halt_seconds });
        }
        if let Some(reason) = self.reason() {
            reasons.push(HaltReason::Recorded(reason.to_owned()));
        }
        // Exactly 0: a negative number is no limit.
        if self.number(HaltCondition::CheckpointsLeft) == Some(0) {
            reasons.push(HaltReason::NoCheckpointsLeft);
        }
        if let Some(before) = self.number(HaltCondition::Before) {
            let time = before.saturating_sub(halt_seconds.unwrap_or(0));
            if now >= time {
                reasons.push(HaltReason::ExitBefore { time });
            }
        }
        if let Some(time) = self.number(HaltCondition::After).filter(|time| now >= *time) {
            reasons.push(HaltReason::ExitAfter { time });
        }
        reasons
    }

    /// What a run does at its start and after each successful checkpoint, under the file's lock: counts the checkpoint,
    /// checks the conditions as [`HaltFile::check`] does, and records the first one that holds. A new file gets the
    /// default HaltSeconds. Returns the conditions that hold; the run continues if there are none.
    pub fn settle(
        path: &Path,
        now: i64,
        seconds_remaining: Option<i64>,
        default_halt_seconds: Option<i64>,
        after_checkpoint: bool,
    ) -> Result<Vec<HaltReason>, ControlError> {
        let is_new = HaltFile::read(path)?.is_none();
        HaltFile::update(path, |halt| {
            if let Some(seconds) = default_halt_seconds.filter(|_| is_new) {
                halt.set_number(HaltCondition::Seconds, seconds);
            }
            let mut counted = halt.clone();
            if after_checkpoint {
                counted.decrement();
            }
            let reasons = counted.check(now, seconds_remaining, default_halt_seconds);
            // The reason first, then the counter: the library's order.
            if let Some(reason) = reasons.first().filter(|reason| halt.reason() != Some(reason.as_str())) {
                halt.set_reason(reason.as_str());
            }
            if let Some(left) = counted
                .number(HaltCondition::CheckpointsLeft)
                .filter(|left| halt.number(HaltCondition::CheckpointsLeft) != Some(*left))
            {
                halt.set_number(HaltCondition::CheckpointsLeft, left);
            }
            reasons
        })
    }

    /// Counts a successful checkpoint. The counter stops at 0: a negative number would mean "no limit" instead of
    /// "halt".
    pub fn decrement(&mut self) {
        if let Some(left) = self.number(HaltCondition::CheckpointsLeft).filter(|left| *left > 0) {
            self.set_number(HaltCondition::CheckpointsLeft, left - 1);
        }
    }

    /// The recorded reason; an empty one is none.
    pub fn reason(&self) -> Option<&str> {
        self.tree.value(HaltCondition::Reason.as_str()).filter(|reason| !reason.is_empty())
    }

    /// Records a reason, in place of an earlier one.
    pub fn set_reason(&mut self, reason: &str) {
        self.tree.put(HaltCondition::Reason.as_str(), reason);
    }

    /// The number of a condition. Of `CheckpointsLeft`, a negative one is no limit.
    pub fn number(&self, condition: HaltCondition) -> Option<i64> {
        self.tree.parsed(condition.as_str())
    }

    pub fn set_number(&mut self, condition: HaltCondition, number: i64) {
        self.tree.put(condition.as_str(), number);
    }

    /// Removes a condition and returns whether there was one.
    pub fn unset(&mut self, condition: HaltCondition) -> bool {
        self.tree.unset(condition.as_str())
    }
}
