//! The wait for the prefix directory when nothing else is left to do: limited, and shown to the user.

use std::time::{Duration, Instant};

/// The wait is not shown before, because a busy file system may need this long.
const SHOWN_AFTER: Duration = Duration::from_secs(3);
/// The last state of a job is given up after this.
const AT_MOST: Duration = Duration::from_secs(120);

/// How long the end of a step has been waiting for its last state to be written.
#[derive(Debug, Default)]
pub(super) struct PrefixWait {
    since: Option<Instant>,
    is_shown: bool,
}

/// What the caller is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefixWaitStep {
    Wait,
    /// Show the wait to the user, and go on waiting.
    Show,
    GiveUp,
}

impl PrefixWait {
    pub(super) fn check(&mut self) -> PrefixWaitStep {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.after(since.elapsed())
    }

    /// True if the user was asked to end the wait with a signal, if it is too long.
    pub(super) fn is_shown(&self) -> bool {
        self.is_shown
    }

    fn after(&mut self, waited: Duration) -> PrefixWaitStep {
        if waited >= AT_MOST {
            return PrefixWaitStep::GiveUp;
        }
        if waited >= SHOWN_AFTER && !std::mem::replace(&mut self.is_shown, true) {
            return PrefixWaitStep::Show;
        }
        PrefixWaitStep::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_shown_once_and_ends() {
        let mut wait = PrefixWait::default();
        let waits = [0, 2, 3, 10, 119, 120].map(|seconds| wait.after(Duration::from_secs(seconds)));
        use PrefixWaitStep::{GiveUp, Show, Wait};
        assert_eq!(waits, [Wait, Wait, Show, Wait, Wait, GiveUp]);
    }
}
