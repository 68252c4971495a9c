//! The time scale of the relaunch loop: the time since the job's first orchestrator began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time since the job began. The wall clock is read once, so that a correction of it does not look like silence of
/// all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begun: Instant,
    offset: Duration,
}

impl Clock {
    /// The clock of a job that began at `started`, seconds since the epoch.
    pub fn since(started: i64) -> Self {
        let started = UNIX_EPOCH + Duration::from_secs(u64::try_from(started).unwrap_or(0));
        let offset = SystemTime::now().duration_since(started).unwrap_or_default();
        Clock { begun: Instant::now(), offset }
    }

    pub fn now(&self) -> Duration {
        self.offset + self.begun.elapsed()
    }

    /// Waits for a deadline. Never completes without one.
    pub async fn reach(self, deadline: Option<Duration>) {
        match deadline {
            Some(deadline) => tokio::time::sleep(deadline.saturating_sub(self.now())).await,
            None => std::future::pending().await,
        }
    }
}

/// A number for a message that replaces earlier ones at the agents: larger than all earlier numbers of this process
/// and, as far as the clocks of their machines agree, of earlier orchestrators.
pub fn issue_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    let next = |last: u64| now.max(last + 1);
    let before = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    before.map_or(now, next)
}

/// Seconds since the epoch.
pub fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// Milliseconds since the epoch.
pub fn unix_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_numbers_increase() {
        let numbers: Vec<u64> = (0..1000).map(|_| issue_number()).collect();
        assert!(numbers.is_sorted_by(|before, after| before < after));
    }
}
