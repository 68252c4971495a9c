//! When a process that failed is started again.

use std::time::Duration;

use holdfast_model::pair::RestartBackOff;
use serde::{Deserialize, Serialize};

/// The failures of a process, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOff {
    pub failures: u32,
}

impl BackOff {
    /// Counts a failure of a process that was up for so long. Returns the time until the next start; `None`: the
    /// process is given up.
    pub fn failed(&mut self, policy: &RestartBackOff, up: Duration) -> Option<Duration> {
        // Without a pause, every time would be long enough, and no attempt would be the last one.
        if !policy.most.is_zero() && up >= policy.most {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        if policy.attempts.is_some_and(|attempts| self.failures >= attempts) {
            return None;
        }
        let doublings = self.failures.saturating_sub(1).min(31);
        Some(policy.first.saturating_mul(1 << doublings).min(policy.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RestartBackOff =
        RestartBackOff { first: Duration::from_secs(1), most: Duration::from_secs(30), attempts: Some(40) };

    #[test]
    fn doubles_up_to_the_longest_pause_and_ends() {
        let mut back_off = BackOff::default();
        let mut next = || back_off.failed(&POLICY, Duration::from_secs(2)).map(|pause| pause.as_secs());
        assert_eq!([next(), next(), next(), next(), next(), next()], [1, 2, 4, 8, 16, 30].map(Some));
        for _ in 6..39 {
            assert_eq!(next(), Some(30));
        }
        assert_eq!(next(), None);
    }

    #[test]
    fn attempts_count_also_without_pauses() {
        let policy = RestartBackOff { first: Duration::ZERO, most: Duration::ZERO, attempts: Some(3) };
        let mut back_off = BackOff::default();
        let mut next = || back_off.failed(&policy, Duration::from_secs(2));
        assert_eq!([next(), next(), next()], [Some(Duration::ZERO), Some(Duration::ZERO), None]);
    }

    #[test]
    fn a_process_that_was_up_for_long_starts_from_the_first_pause() {
        let mut back_off = BackOff { failures: 7 };
        assert_eq!(back_off.failed(&POLICY, Duration::from_secs(30)), Some(Duration::from_secs(1)));
        assert_eq!(back_off.failures, 1);
    }
}
