//! An injected stall of the prefix directory: the calls of this process on it wait until the stall is over. Calls of
//! other programs, and of this one on other directories, are not delayed.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The end of the stall, milliseconds since [`BEGAN`]; 0: there was none.
static UNTIL: AtomicU64 = AtomicU64::new(0);
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Stalls the calls that begin from now on until this time has passed. A longer stall stays in force.
pub fn stall_for(duration: Duration) {
    let end = BEGAN.elapsed().saturating_add(duration).as_millis();
    UNTIL.fetch_max(u64::try_from(end).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
}

/// Waits until the stall is over, if there is one.
pub(super) fn wait() {
    let until = UNTIL.load(Ordering::Relaxed);
    if until > 0 {
        thread::sleep(Duration::from_millis(until).saturating_sub(BEGAN.elapsed()));
    }
}
