//! How far apart checkpoints are best: from what one costs, and how often something fails.
//!
//! A checkpoint that blocks the ranks for `cost` protects the work before it; a failure loses the work since the last
//! one. With many checkpoints they cost more than failures would, with few it is the other way round. The times here
//! are those from the end of a checkpoint to the start of the next.
//!
//! * Young: "A first order approximation to the optimum checkpoint interval", CACM 17 (1974);
//! * Daly: "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), equations
//!   20 and 37;
//! * several levels: Benoit, Cavelan, Le Fèvre, Robert and Sun, "Towards optimal multi-level checkpointing", IEEE
//!   Transactions on Computers 66 (2017): to first order, each level has Young's interval of its own.

use std::collections::BTreeMap;
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
    #[serde(rename = "mtbf_ms", with = "crate::time::millis")]
    pub mtbf: Duration,
    /// The user gave it; otherwise it was observed.
    #[serde(rename = "mtbf_given")]
    pub given: bool,
}

/// A level of protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionLevel {
    /// It survives the loss of so many nodes at once; `u32::MAX` of all.
    pub survives: u32,
    /// How long one of its checkpoints blocks the ranks.
    pub blocked: Duration,
    /// That is beyond what the checkpoint of a level below takes, as of a flush.
    pub on_top: bool,
    /// It cannot be repeated sooner.
    pub shortest: Duration,
}

/// The best interval between two checkpoints of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelInterval {
    /// How much longer a checkpoint of the level blocks the ranks than one of the next level below that is needed; of
    /// the lowest, how long it blocks them.
    pub cost: Duration,
    /// The failures that it survives, and the level below does not: those for which it is needed.
    pub failures: u32,
    /// The mean time between these; `None` if there was none.
    pub mtbf: Option<Duration>,
    /// `None` without a mean time between failures.
    pub interval: Option<Duration>,
}

/// The best intervals of levels, which are in the order of what they survive: Young's, each for what its level adds.
/// Where that were shorter than that of a level below, both have the one that is best for them together.
///
/// `failures` counts those that were seen, by the number of nodes that were lost at once; `mtbf` is the mean time
/// between all failures. Before the first one it is that of the lowest level, and those above have none.
pub fn of_levels(levels: &[ProtectionLevel], failures: &BTreeMap<u32, u32>, mtbf: Duration) -> Vec<LevelInterval> {
    let all: u32 = failures.values().sum();
    let (mut below, mut needed): (Option<&ProtectionLevel>, Option<&ProtectionLevel>) = (None, None);
    let mut found: Vec<LevelInterval> = Vec::new();
    for level in levels {
        let is_due = |lost: u32| lost <= level.survives && below.is_none_or(|below| lost > below.survives);
        let failures: u32 = failures.iter().filter(|(lost, _)| is_due(**lost)).map(|(_, seen)| seen).sum();
        let share = f64::from(all) / f64::from(failures);
        let mtbf = match (all, failures) {
            (0, _) => below.is_none().then_some(mtbf),
            (_, 0) => None,
            _ => Some(duration(mtbf.as_secs_f64() * share)),
        };
        // What is on top of a checkpoint needs one.
        let cost = match (needed, below) {
            (Some(_), _) if level.on_top => level.blocked,
            (None, Some(below)) if level.on_top => below.blocked + level.blocked,
            (Some(needed), _) => level.blocked.saturating_sub(needed.blocked),
            (None, _) => level.blocked,
        };
        found.push(LevelInterval { cost, failures, mtbf, interval: None });
        (below, needed) = (Some(level), mtbf.map(|_| level).or(needed));
    }
    let mut groups: Vec<LevelGroup> = Vec::new();
    for (at, level) in found.iter().enumerate() {
        let Some(mtbf) = level.mtbf.filter(|mtbf| !mtbf.is_zero()) else { continue };
        let rate = mtbf.as_secs_f64().recip();
        let mut group = LevelGroup { cost: level.cost.as_secs_f64(), rate, members: vec![at] };
        while let Some(mut before) = groups.pop_if(|before| before.interval() > group.interval()) {
            before.members.append(&mut group.members);
            group = LevelGroup { cost: before.cost + group.cost, rate: before.rate + group.rate, ..before };
        }
        groups.push(group);
    }
    for group in groups {
        for at in &group.members {
            if let (Some(level), Some(known)) = (found.get_mut(*at), levels.get(*at)) {
                level.interval = Some(group.interval().max(known.shortest));
            }
        }
    }
    found
}

/// Levels with one interval.
struct LevelGroup {
    /// Seconds.
    cost: f64,
    /// Failures a second.
    rate: f64,
    members: Vec<usize>,
}

impl LevelGroup {
    fn interval(&self) -> Duration {
        duration((2.0 * self.cost / self.rate).sqrt())
    }
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

    /// Survives the loss of so many nodes, blocks the ranks for so many seconds.
    fn level(survives: u32, blocked: u64) -> ProtectionLevel {
        ProtectionLevel { survives, blocked: AT(blocked), on_top: false, shortest: Duration::ZERO }
    }

    /// Blocks the ranks for so many seconds more than a checkpoint.
    fn flush(blocked: u64) -> ProtectionLevel {
        ProtectionLevel { on_top: true, ..level(u32::MAX, blocked) }
    }

    #[test]
    fn each_level_has_the_interval_for_what_it_adds_and_the_failures_that_those_below_do_not_survive() {
        // Ten failures in 10,000 s: six of ranks, three of one node, one of three nodes.
        let failures = BTreeMap::from([(0, 6), (1, 3), (3, 1)]);
        let found = of_levels(&[level(1, 2), level(2, 5), flush(20)], &failures, AT(1000));
        let [xor, rs, of_flush] = found[..] else { panic!("{found:?}") };
        assert_eq!((xor.cost, xor.failures, rs.cost, of_flush.cost), (AT(2), 9, AT(3), AT(20)));
        assert!((xor.mtbf.unwrap().as_secs_f64() - 1111.1).abs() < 0.1, "{xor:?}");
        assert_eq!(xor.interval, Some(young(AT(2), xor.mtbf.unwrap())));
        // No two nodes were lost at once.
        assert_eq!((rs.failures, rs.mtbf, rs.interval), (0, None, None));
        let of_flush = (of_flush.failures, of_flush.mtbf, of_flush.interval.map(|interval| interval.as_secs()));
        assert_eq!(of_flush, (1, Some(AT(10_000)), Some(632)));
    }

    #[test]
    fn before_the_first_failure_the_lowest_level_alone_has_an_interval() {
        let found = of_levels(&[level(1, 2), flush(23)], &BTreeMap::new(), AT(100));
        let seen: Vec<_> = found.iter().map(|level| (level.failures, level.interval)).collect();
        assert_eq!(seen, [(0, Some(AT(20))), (0, None)]);
    }

    #[test]
    fn a_level_is_not_more_frequent_than_those_below() {
        // Alone, the first would have 200 s, the second 20 s.
        let failures = BTreeMap::from([(1, 1), (2, 1)]);
        let found = of_levels(&[level(1, 200), level(2, 202), flush(50)], &failures, AT(50));
        let intervals: Vec<_> = found.iter().map(|level| level.interval).collect();
        // Both cost 202 s, for a failure each 50 s.
        assert_eq!(intervals, [Some(young(AT(202), AT(50))), Some(young(AT(202), AT(50))), None]);
        // What costs nothing belongs to each checkpoint.
        let found = of_levels(&[level(1, 2), level(2, 2)], &failures, AT(50));
        assert_eq!((found[1].cost, found[0].interval), (Duration::ZERO, found[1].interval));
    }

    #[test]
    fn a_level_that_no_failure_needs_does_not_make_those_above_it_cheap() {
        let of = |failures: &[(u32, u32)]| {
            let found = of_levels(&[level(1, 3), level(2, 4), flush(5)], &failures.iter().copied().collect(), AT(50));
            found.iter().map(|level| level.cost.as_secs()).collect::<Vec<_>>()
        };
        assert_eq!(of(&[(0, 1), (2, 1), (4, 1)]), [3, 1, 5]);
        assert_eq!(of(&[(2, 1), (4, 1)]), [3, 4, 5]);
        assert_eq!(of(&[(4, 1)]), [3, 4, 4 + 5], "with the checkpoint that is flushed");
    }

    #[test]
    fn a_flush_is_not_more_frequent_than_the_time_that_it_takes() {
        let slow = ProtectionLevel { shortest: AT(300), ..flush(0) };
        let found = of_levels(&[level(1, 2), slow], &BTreeMap::from([(0, 1), (4, 1)]), AT(50));
        assert_eq!(found[1].interval, Some(AT(300)));
        assert!(found[0].interval < found[1].interval);
    }

    #[test]
    fn the_intervals_have_the_least_overhead_of_all_that_nest() {
        let levels = [level(1, 3), level(2, 4), flush(5)];
        let failures = BTreeMap::from([(1, 5), (2, 9), (3, 1)]);
        let found = of_levels(&levels, &failures, AT(60));
        // To first order: what the checkpoints cost, and half an interval that each failure loses.
        let overhead = |intervals: [f64; 3]| -> f64 {
            let of_level = |(level, interval): (&LevelInterval, f64)| {
                level.cost.as_secs_f64() / interval + interval / 2.0 / level.mtbf.unwrap().as_secs_f64()
            };
            found.iter().zip(intervals).map(of_level).sum()
        };
        let best = [0, 1, 2].map(|at: usize| found[at].interval.unwrap().as_secs_f64());
        let steps = || (1..30).map(|step| f64::from(step) / 10.0);
        for (first, second, third) in steps().flat_map(|a| steps().flat_map(move |b| steps().map(move |c| (a, b, c)))) {
            let other = [best[0] * first, best[1] * second, best[2] * third];
            if other.is_sorted() {
                assert!(overhead(best) <= overhead(other) + 1e-9, "{best:?} {other:?}");
            }
        }
    }

    #[test]
    fn nothing_is_observed_before_the_first_failure() {
        assert_eq!(observed(0, AT(100)), None);
        assert_eq!(observed(4, AT(100)), Some(AT(25)));
    }
}
