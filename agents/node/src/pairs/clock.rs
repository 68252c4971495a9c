//! The clock of pairs and leases: since the machine was booted, also while it was suspended. A new agent of the same
//! boot has the same clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Names the boot of this machine: process ids and times of another one mean nothing.
pub(super) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
