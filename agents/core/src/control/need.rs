//! Whether a checkpoint is due: the decision of `SCR_Need_checkpoint` (`docs/scr-files.md` §17), made for all ranks by
//! rank 0.

use std::time::Duration;

use holdfast_model::NeedPolicy;

/// Why a checkpoint is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NeedReason {
    /// A halt condition holds: take a last one.
    Halt,
    /// The number of calls.
    Interval,
    /// The time since the last one.
    Time,
    /// The share of the time that checkpoints take.
    Overhead,
    /// No condition is set: the application decides alone.
    Always,
}

/// What the decision depends on during one run. Times are measured by the caller from any fixed instant.
#[derive(Clone, Debug)]
pub struct Need {
    policy: NeedPolicy,
    calls: u64,
    checkpoints: u32,
    spent: Duration,
    last_end: Duration,
}

impl Need {
    /// Starts at the end of init.
    pub fn new(policy: NeedPolicy, init_end: Duration) -> Self {
        Need { policy, calls: 0, checkpoints: 0, spent: Duration::ZERO, last_end: init_end }
    }

    /// One call of the application: why a checkpoint is due now, or `None`. Time and overhead remain due until a
    /// checkpoint is taken; the interval counts calls, whether or not a checkpoint follows.
    pub fn ask(&mut self, now: Duration, halt: bool) -> Option<NeedReason> {
        self.calls += 1;
        let NeedPolicy { interval, time, overhead } = self.policy;
        let since = now.saturating_sub(self.last_end);
        if halt {
            Some(NeedReason::Halt)
        } else if interval > 0 && self.calls.is_multiple_of(u64::from(interval)) {
            Some(NeedReason::Interval)
        } else if !time.is_zero() && since >= time {
            Some(NeedReason::Time)
        } else if overhead > 0.0 && self.share(since).is_none_or(|share| share < overhead) {
            Some(NeedReason::Overhead)
        } else if interval == 0 && time.is_zero() && overhead <= 0.0 {
            Some(NeedReason::Always)
        } else {
            None
        }
    }

    /// Counts a checkpoint of this run.
    pub fn checkpoint_taken(&mut self, start: Duration, end: Duration) {
        self.checkpoints += 1;
        self.spent += end.saturating_sub(start);
        self.last_end = end;
    }

    /// Counts the time in which the ranks waited for the flush of the last checkpoint: it blocks them as the checkpoint
    /// did. SCR leaves it out of the overhead.
    pub fn flush_waited_for(&mut self, time: Duration) {
        self.spent += time;
    }

    /// The percentage that a checkpoint would take if it were taken now; `None` while this run has taken none.
    fn share(&self, since: Duration) -> Option<f64> {
        let mean = self.spent.checked_div(self.checkpoints)?;
        let cycle = since + mean;
        // Both zero: a checkpoint costs nothing.
        Some(if cycle.is_zero() { 0.0 } else { mean.as_secs_f64() / cycle.as_secs_f64() * 100.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn without_a_condition_a_checkpoint_is_always_due() {
        let mut need = Need::new(NeedPolicy::default(), at(0));
        assert_eq!(need.ask(at(1), false), Some(NeedReason::Always));
        assert_eq!(need.ask(at(1), true), Some(NeedReason::Halt));
    }

    #[test]
    fn the_interval_counts_calls_and_not_checkpoints() {
        let mut need = Need::new(NeedPolicy { interval: 3, ..NeedPolicy::default() }, at(0));
        let answers: Vec<bool> = (0..7).map(|_| need.ask(at(0), false).is_some()).collect();
        assert_eq!(answers, [false, false, true, false, false, true, false]);
    }

    #[test]
    fn time_is_counted_from_init_and_then_from_the_last_checkpoint() {
        let mut need = Need::new(NeedPolicy { time: at(10_000), ..NeedPolicy::default() }, at(500));
        assert_eq!(need.ask(at(10_499), false), None);
        assert_eq!(need.ask(at(10_500), false), Some(NeedReason::Time));
        assert_eq!(need.ask(at(10_600), false), Some(NeedReason::Time), "until one is taken");
        need.checkpoint_taken(at(10_600), at(12_000));
        assert_eq!(need.ask(at(21_999), false), None);
        assert_eq!(need.ask(at(22_000), false), Some(NeedReason::Time));
    }

    #[test]
    fn overhead_requires_a_first_checkpoint_and_then_limits_the_mean_cost() {
        let mut need = Need::new(NeedPolicy { overhead: 10.0, ..NeedPolicy::default() }, at(0));
        assert_eq!(need.ask(at(0), false), Some(NeedReason::Overhead));
        need.checkpoint_taken(at(0), at(1000));
        // Mean 1 s: below 10 % once more than 9 s have passed.
        assert_eq!(need.ask(at(10_000), false), None);
        assert_eq!(need.ask(at(10_001), false), Some(NeedReason::Overhead));
        need.checkpoint_taken(at(10_001), at(13_001));
        // Mean 2 s: more than 18 s.
        assert_eq!(need.ask(at(31_001), false), None);
        assert_eq!(need.ask(at(31_002), false), Some(NeedReason::Overhead));
    }

    #[test]
    fn a_checkpoint_that_cost_nothing_is_always_within_the_overhead() {
        let mut need = Need::new(NeedPolicy { overhead: 1.0, ..NeedPolicy::default() }, at(0));
        need.checkpoint_taken(at(5), at(5));
        assert_eq!(need.ask(at(5), false), Some(NeedReason::Overhead));
    }
}
