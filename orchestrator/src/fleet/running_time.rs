//! The time in which the polling thread verifiably ran.
//!
//! The thread wakes up at a fixed interval. A longer gap means that it did not run: the process was stopped, or others
//! had the processor. Of such a gap only one interval counts.

use std::time::Duration;

/// Adds up running time.
#[derive(Clone, Copy, Debug)]
pub struct RunningTime {
    interval: Duration,
    total: Duration,
    last: Duration,
}

impl RunningTime {
    /// Begins now; the thread wakes up every `interval`.
    pub fn begin(now: Duration, interval: Duration) -> Self {
        RunningTime { interval, total: now, last: now }
    }

    /// The thread has woken up. Returns the running time, which begins with the time at which this began.
    pub fn wake(&mut self, now: Duration) -> Duration {
        let gap = now.saturating_sub(self.last);
        self.last = now;
        self.total += if gap < 2 * self.interval { gap } else { self.interval };
        self.total
    }

    /// The time in which the thread did not run.
    pub fn missing(&self) -> Duration {
        self.last.saturating_sub(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_as_one_interval() {
        let ms = Duration::from_millis;
        let mut time = RunningTime::begin(ms(1000), ms(50));
        assert_eq!(time.wake(ms(1050)), ms(1050));
        assert_eq!(time.wake(ms(1130)), ms(1130));
        assert_eq!(time.wake(ms(31_130)), ms(1180));
        assert_eq!(time.missing(), ms(29_950));
        assert_eq!(time.wake(ms(31_180)), ms(1230));
    }
}
