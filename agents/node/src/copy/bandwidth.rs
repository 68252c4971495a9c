//! Limits the bandwidth of a node's copies.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The bytes that a set of copies has moved, and its limit.
#[derive(Debug)]
pub(super) struct Bandwidth {
    /// 0 is no limit.
    bytes_per_second: u64,
    begun: Instant,
    moved: Mutex<u64>,
}

impl Bandwidth {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Bandwidth { bytes_per_second, begun: Instant::now(), moved: Mutex::new(0) }
    }

    /// Counts bytes that were moved. Returns how long to wait before more may be moved.
    pub(super) fn moved(&self, bytes: u64) -> Duration {
        if self.bytes_per_second == 0 {
            return Duration::ZERO;
        }
        let total = {
            let mut moved = self.moved.lock();
            *moved += bytes;
            *moved
        };
        time_for(total, self.bytes_per_second).saturating_sub(self.begun.elapsed())
    }
}

fn time_for(bytes: u64, bytes_per_second: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_share_a_limit_wait_for_their_sum() {
        let limit = Bandwidth::new(1 << 20);
        assert!(limit.moved(1 << 20) <= Duration::from_secs(1));
        let wait = limit.moved(9 << 20);
        assert!(wait > Duration::from_secs(9) && wait <= Duration::from_secs(10), "{wait:?}");
        assert_eq!(Bandwidth::new(0).moved(u64::MAX), Duration::ZERO);
    }
}
