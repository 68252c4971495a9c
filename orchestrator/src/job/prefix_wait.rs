//! Waiting for the prefix directory where nothing else is left to do: bounded, and shown.

use std::time::{Duration, Instant};

/// Nothing is shown before: a busy file system takes its time.
const SHOWN_AFTER: Duration = Duration::from_secs(3);
/// The last state of a job is given up after this.
const AT_MOST: Duration = Duration::from_secs(120);

/// How long the end of a step has been waiting for its last state to be written.
#[derive(Debug, Default)]
pub(super) struct PrefixWait {
    since: Option<Instant>,
    is_shown: bool,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefixWaitStep {
    Wait,
    /// Say so, and wait on.
    Show,
    GiveUp,
}

impl PrefixWait {
    pub(super) fn look(&mut self) -> PrefixWaitStep {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.after(since.elapsed())
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
