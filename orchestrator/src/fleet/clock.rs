//! The time of the relaunch loop: how long ago the job's first orchestrator began.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Counts from the job's beginning. The wall clock is read once: a correction of it does not make nodes silent.
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

    /// Now.
    pub fn now(&self) -> Duration {
        self.offset + self.begun.elapsed()
    }

    /// How long it is until then; zero if it is past.
    pub fn until(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.now())
    }
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
