//! The life of one copy.

use std::time::Duration;

use holdfast_model::pair::{CopyState, CopyStatus};
use serde::{Deserialize, Serialize};

use crate::back_off::BackOff;

/// What follows when a copy that was told to end is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is started again at this time.
    Start(Duration),
    /// It stays absent.
    Nothing,
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is none, and none is to be started.
    Absent,
    /// It is started at this time.
    Due(Duration),
    /// It must register by this time.
    Starting {
        since: Duration,
        by: Duration,
    },
    Asleep,
    Awake {
        /// It said that its work is done: it must end by this time.
        finishing: Option<Duration>,
    },
    /// It was told to end, or killed.
    Ending {
        /// When it is killed; `None`: it was killed.
        kill_at: Option<Duration>,
        /// It may still work: no other copy is woken before it is gone.
        was_awake: bool,
        next: Next,
    },
    Finished,
    GivenUp,
}

/// One copy of the pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) phase: Phase,
    /// Counts the starts.
    pub(super) incarnation: u64,
    pub(super) pid: Option<u32>,
    pub(super) back_off: BackOff,
    pub(super) registered: Option<Duration>,
}

impl Copy {
    pub(super) fn due(now: Duration) -> Copy {
        Copy { phase: Phase::Due(now), incarnation: 0, pid: None, back_off: BackOff::default(), registered: None }
    }

    /// A process of this copy exists, as far as is known.
    pub(super) fn exists(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. } | Phase::Asleep | Phase::Awake { .. } | Phase::Ending { .. })
    }

    pub(super) fn is_awake(&self) -> bool {
        matches!(self.phase, Phase::Awake { .. })
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.phase == Phase::Asleep
    }

    /// It may still work, although it was told to end.
    pub(super) fn may_work(&self) -> bool {
        matches!(self.phase, Phase::Ending { was_awake: true, .. })
    }

    /// When something is to be done.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Due(at) => Some(at),
            Phase::Starting { by, .. } => Some(by),
            Phase::Awake { finishing } => finishing,
            Phase::Ending { kill_at, .. } => kill_at,
            Phase::Absent | Phase::Asleep | Phase::Finished | Phase::GivenUp => None,
        }
    }

    pub(super) fn state(&self) -> CopyState {
        match self.phase {
            Phase::Absent | Phase::Due(_) => CopyState::Absent,
            Phase::Starting { .. } => CopyState::Starting,
            Phase::Asleep => CopyState::Asleep,
            Phase::Awake { .. } => CopyState::Awake,
            Phase::Ending { .. } => CopyState::Ending,
            Phase::Finished => CopyState::Finished,
            Phase::GivenUp => CopyState::GivenUp,
        }
    }

    pub(super) fn status(&self) -> CopyStatus {
        CopyStatus {
            state: self.state(),
            pid: self.pid.filter(|_| self.exists()),
            incarnation: self.incarnation,
            failures: self.back_off.failures,
            beats: 0,
            missed: 0,
        }
    }
}

/// What is kept of a copy when the agent ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySnapshot {
    pub state: CopyState,
    pub incarnation: u64,
    pub back_off: BackOff,
}
