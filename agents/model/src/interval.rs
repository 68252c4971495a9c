//! How far apart checkpoints are best: from what one costs, and how often something fails.
//!
//! A checkpoint that blocks the ranks for `cost` protects the work before it; a failure loses the work since the last
//! one. With many checkpoints they cost more than failures would, with few it is the other way round. The times here
//! are those from the end of a checkpoint to the start of the next.
//!
//! * Young: "A first order approximation to the optimum checkpoint interval", CACM 17 (1974);
//! * Daly: "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), equations
//!   20 and 37.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Young's interval: `√(2 · cost · mtbf)`.
pub fn young(cost: Duration, mtbf: Duration) -> Duration {
    duration((2.0 * cost.as_secs_f64() * mtbf.as_secs_f64()).sqrt())
}

/// Daly's interval of higher order. If a checkpoint takes more than twice the mean time between failures, it is that
/// time.
pub fn daly(cost: Duration, mtbf: Duration) -> Duration {
    let (seconds, mean) = (cost.as_secs_f64(), mtbf.as_secs_f64());
    if seconds >= 2.0 * mean {
        return mtbf;
    }
    let ratio = seconds / (2.0 * mean);
    duration((2.0 * seconds * mean).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - seconds)
}

/// The interval of `auto`: Daly's, but never so short that checkpoints block the ranks for more than `percent` of the
/// time. Without a mean time between failures it is the shortest that this allows.
pub fn auto(cost: Duration, mtbf: Option<Duration>, percent: f64) -> Duration {
    let shortest = duration(cost.as_secs_f64() * (100.0 / percent - 1.0));
    mtbf.map_or(shortest, |mtbf| daly(cost, mtbf).max(shortest))
}

/// The mean time between failures that were observed; `None` before the first.
pub fn observed(failures: u32, elapsed: Duration) -> Option<Duration> {
    elapsed.checked_div(failures)
}

/// The part of the time that checkpoints, work that is lost and restarts are expected to take (Daly, equation 20).
pub fn expected_overhead(interval: Duration, cost: Duration, restart: Duration, mtbf: Duration) -> f64 {
    let [interval, cost, restart, mean] = [interval, cost, restart, mtbf].map(|time| time.as_secs_f64());
    if interval <= 0.0 || mean <= 0.0 {
        return 1.0;
    }
    let per_work = mean * (restart / mean).exp() * ((interval + cost) / mean).exp_m1() / interval;
    1.0 - 1.0 / per_work
}

/// How often something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRate {
    pub mtbf: Duration,
    /// The user gave it; otherwise it was observed.
    pub given: bool,
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_intervals_are_those_of_the_papers() {
        // Daly's example: a checkpoint of 5 minutes, a failure each 24 hours.
        assert_eq!(young(AT(300), AT(86_400)).as_secs(), 7200);
        assert_eq!(daly(AT(300), AT(86_400)).as_secs(), 7001);
        assert_eq!(daly(AT(300), AT(100)), AT(100));
        assert_eq!(daly(Duration::ZERO, AT(100)), Duration::ZERO);
    }

    #[test]
    fn the_interval_of_daly_has_the_least_expected_overhead() {
        for (cost, mtbf) in [(1, 3600), (60, 3600), (300, 7200), (600, 86_400)] {
            let (cost, mtbf) = (AT(cost), AT(mtbf));
            let overhead = |interval: Duration| expected_overhead(interval, cost, AT(60), mtbf);
            let best = overhead(daly(cost, mtbf));
            for percent in 10..400_u32 {
                let other = overhead(daly(cost, mtbf) * percent / 100);
                assert!(best <= other * 1.001, "{cost:?} {mtbf:?} {percent} %: {best} {other}");
            }
        }
    }

    #[test]
    fn checkpoints_never_block_the_ranks_for_more_than_the_limit() {
        assert_eq!(auto(AT(4), None, 5.0), AT(76));
        assert_eq!(auto(AT(4), Some(AT(60)), 5.0), AT(76), "a failure each minute");
        assert_eq!(auto(AT(4), Some(AT(86_400)), 5.0), daly(AT(4), AT(86_400)));
        assert_eq!(auto(Duration::ZERO, Some(AT(60)), 5.0), Duration::ZERO);
    }

    #[test]
    fn nothing_is_observed_before_the_first_failure() {
        assert_eq!(observed(0, AT(100)), None);
        assert_eq!(observed(4, AT(100)), Some(AT(25)));
    }
}
