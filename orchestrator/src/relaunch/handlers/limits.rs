//! The time that is kept for the drain before the end of the allocation, and the limits that follow from it:
//!
//! ```text
//!        launches      halt_at: the ranks     they get      they are      the allocation
//!        end here      are to checkpoint      SIGTERM       killed        ends
//!  ────────┴────────────────┴────────────────────┴─────────────┴──────────────┴──▶
//!                           ├ at most a tenth of the allocation ┤ drain_reserve ┤
//! ```
//!
//! Without a setting, the reserve is the [estimate](crate::relaunch::drain_estimate).

use std::time::Duration;

use crate::relaunch::drain_estimate::SHARE;
use crate::relaunch::machine::Machine;

impl Machine {
    /// The time that is kept for the drain; zero while the end of the allocation is not known.
    pub(super) fn drain_reserve(&self) -> Duration {
        let estimate = || {
            let end = self.config.end().unwrap_or_default();
            self.state.head.drain_estimate.reserve(end, self.config.nodes_needed)
        };
        self.config.drain_reserve.unwrap_or_else(estimate)
    }

    /// The moment when the ranks are killed to leave time for the drain, on the scale of `now`.
    pub(super) fn run_until(&self) -> Option<Duration> {
        Some(self.config.end()?.saturating_sub(self.drain_reserve()))
    }

    /// The moment when the ranks are halted because the allocation ends.
    pub(super) fn halt_at(&self) -> Option<Duration> {
        let window = self.config.halt_grace.saturating_mul(2).min(self.config.end()? / SHARE);
        Some(self.run_until()?.saturating_sub(window))
    }

    /// The moment after which nothing is launched.
    pub(super) fn launch_until(&self) -> Option<Duration> {
        Some(self.config.end()?.saturating_sub(self.config.before_end).min(self.halt_at()?))
    }
}
